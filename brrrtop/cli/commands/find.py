"""What there is to watch. Bare `brrrtop` finds the trainers of this host and opens one of them.
`brrrtop doctor [PID]`: can this be watched, how far, and the command that fixes what cannot.
"""

import json
import os
import shutil
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from brrrtop.cli import live, output, show
from brrrtop.cli.commands import attach
from brrrtop.cli.commands.attach import RestartedProcesses
from brrrtop.cli.options import Options
from brrrtop.errors import NoTrainer, UsageError
from collectors.attach.agent_library import agent_files
from collectors.attach.files import AgentFiles
from collectors.doctor import Check, Report, Status
from collectors.doctor import doctor as diagnose
from collectors.errors import CollectorError
from collectors.gpu.nvml import NvmlUnavailable, close_nvml, open_nvml
from collectors.process.candidates import Candidate, candidates, ranks_of, short_name

LIST_WIDTH = 75
"""With the number before it, a line of the list fits into 80 columns."""
NVML_S = 3.0
"""A driver that hangs is not waited for any longer: trainers are found without it too."""


def run(options: Options) -> int:
    options.gates  # noqa: B018 - a wrong one is refused before anything is done
    everyone = candidates(compute_pids())
    trainers = [candidate for candidate in everyone if not candidate.not_because]
    if not trainers:
        return _nobody(everyone, options)
    if _is_one_job(trainers):
        return _open(trainers[0], options)
    return _open(_picked(trainers), options)


def _is_one_job(trainers: Sequence[Candidate]) -> bool:
    """One trainer, or all of them ranks of one job, which are shown together."""
    if len(trainers) == 1:
        return True
    ranks = {rank.pid for rank in ranks_of(trainers[0].pid)}
    return all(trainer.pid in ranks for trainer in trainers)


def _say_refused(fault: CollectorError) -> None:
    output.say(f"{fault.message}: the GPU's counters only")
    if fault.action:
        output.say(f"  {fault.action}")


def _counters(candidate: Candidate, options: Options) -> int:
    """Watches the GPU of a trainer from outside."""
    live.refuse_taken_file(options)
    successors = RestartedProcesses(candidate.process, options, agent=False)
    return live.watch(
        live.open_live(None, candidate.pid, options, candidate.command), options, successors
    )


def compute_pids() -> set[int]:
    """Processes with a context on a GPU, as NVML lists them; empty where there is no NVML."""
    pids: set[int] = set()
    asking = threading.Thread(target=_list_compute, args=(pids,), daemon=True)
    asking.start()
    asking.join(NVML_S)
    return set(pids)


def _list_compute(pids: set[int]) -> None:
    try:
        nvml = open_nvml()
    except NvmlUnavailable:
        return
    try:
        with suppress(nvml.NVMLError):
            for index in range(nvml.nvmlDeviceGetCount()):
                with suppress(nvml.NVMLError):  # one lost GPU does not hide the others
                    handle = nvml.nvmlDeviceGetHandleByIndex(index)
                    listed = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
                    pids.update(one.pid for one in listed)
    finally:
        close_nvml(nvml)


def _nobody(everyone: Sequence[Candidate], options: Options) -> int:
    """Says that there is no trainer, and offers the demo to a person, or the GPU that was named.

    Raises:
        NoTrainer: There is nobody to offer it to, or they do not want it.
    """
    for candidate in everyone[:5]:
        output.say(
            f"not offered: {candidate.pid} {candidate.command[:40]}: {candidate.not_because}"
        )
    message = "no training process was found on this host"
    if os.geteuid():
        message += " that you may look into"
    if options.gpu is not None:
        output.say(f"{message}: the counters of GPU {options.gpu} only")
        live.refuse_taken_file(options)
        return live.watch(live.open_live(None, None, options, ""), options)
    if show.on_a_terminal() and not (options.once or options.json):
        output.say(message)
        if output.confirm("watch a recorded run instead?"):
            from brrrtop.cli.commands import replay

            return replay.demo(options)
    raise NoTrainer(message, _INSTEAD)


_INSTEAD = (
    "see it work with `brrrtop demo`, check with `brrrtop doctor`, or watch the counters of a GPU, "
    "whoever uses it, with `brrrtop --gpu 0`"
)


def line_of(candidate: Candidate) -> str:
    rank = "" if candidate.rank is None else f"rank {candidate.rank} "
    where = "GPU" if candidate.on_gpu else "no GPU yet"
    width = max(LIST_WIDTH, shutil.get_terminal_size().columns - 6)
    return f"{candidate.pid:>8}  {where:<10}  {rank}{short_name(candidate.command)}"[:width]


def _picked(trainers: Sequence[Candidate]) -> Candidate:
    """The trainer a person chooses.

    Raises:
        UsageError: There is nobody to choose.
    """
    output.say(f"{len(trainers)} training processes run on this host:")
    for number, trainer in enumerate(trainers, 1):
        output.say(f"{number:>3} {line_of(trainer)}")
    while sys.stdin is not None and sys.stdin.isatty():
        answer = output.ask(f"which one? [1-{len(trainers)} or its pid; Enter: 1, q: none] ")
        if answer is None or answer.lower() in ("q", "quit"):
            break
        for number, trainer in enumerate(trainers, 1):
            if answer in (str(number), str(trainer.pid)) or (answer == "" and number == 1):
                return trainer
        output.say(f"{answer!r} is none of them")
    raise UsageError(
        f"{len(trainers)} training processes run here and none was chosen",
        f"name one: `brrrtop attach {trainers[0].pid}`",
    )


def _open(candidate: Candidate, options: Options) -> int:
    output.say(f"found {' '.join(line_of(candidate).split())}")
    asking = show.on_a_terminal()
    question = "load the agent into it? (no: the GPU's counters only)"
    if options.yes or (asking and output.confirm(question)):
        try:
            return attach.watch_job(candidate.process, ranks_of(candidate.pid), options)
        except CollectorError as fault:
            _say_refused(fault)
    elif not asking:
        output.say(
            f"the GPU's counters only; for kernels and causes: `brrrtop attach {candidate.pid}`"
        )
    return _counters(candidate, options)


WIDTH = 80
TIERS = {
    "kernels": "kernels, steps and causes",
    "steps": "steps, no kernel records",
    "counters": "the GPU's own counters only",
    "nothing": "nothing",
}


def doctor(options: Options) -> int:
    report = diagnose(options.pid, _files())
    if options.json:
        output.write(json.dumps(_document(report)))
    else:
        output.write("\n".join(_lines(report)))
    return report.exit_code


def _files() -> AgentFiles | None:
    try:
        return agent_files()
    except CollectorError as fault:
        output.say(f"{fault.message}: {fault.action}")
        return None


def _document(report: Report) -> dict[str, object]:
    return {
        "schema": "brrrtop.doctor/1",
        "pid": report.pid,
        "tier": report.tier,
        "command": report.command,
        "checks": [
            {
                "name": check.name,
                "status": check.status.value,
                "says": check.message,
                "fix": check.fix,
            }
            for check in report.checks
        ],
    }


def _lines(report: Report) -> list[str]:
    lines = [line for check in report.checks for line in _check(check)]
    who = "this host" if report.pid is None else f"process {report.pid}"
    seen = TIERS[report.tier]
    if report.can_attach:
        seen += ", and the GPU's counters" if report.can_count else "; no counters of the GPU"
    lines += ["", f"What can be seen of {who}: {seen}."]
    return [*lines, f"Next: {report.command}"]


def _check(check: Check) -> list[str]:
    lead = f"{check.status.value:<5}{check.name:<14}"
    lines = output.wrapped(check.message, WIDTH, lead, " " * 19)
    if check.fix and check.status is not Status.FINE:
        lines += output.wrapped(check.fix, WIDTH, " " * 19 + "> ", " " * 21)
    return lines
