"""`brrrtop try -- COMMAND`: measures edits on a program, without a change of its code."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import json

from brrrtop.advisories.steady import keep
from brrrtop.cli import live, output
from brrrtop.cli.options import Options
from brrrtop.errors import INTERRUPTED, UsageError
from brrrtop.model.advice import WhatIf
from brrrtop.model.trials import BasePace, Header, TriedEdit
from brrrtop.trials.conduct import Plan, Trials
from brrrtop.trials.program import Program, guarded_folder
from brrrtop.views import comparison as view
from brrrtop.views.text import in_ascii
from collectors.attach import agent_library, launch, run_folders
from collectors.attach.launch import Launched
from collectors.errors import CollectorError

MOST_WORKERS = 8
SHORTEST_S, LONGEST_S = 0.5, 600.0
PREDICTED_WITHIN_S = 30.0
"""Of the first kernels: bursts, shapes and a verdict with them."""
PREDICTED_SHARE = 0.2
"""Of the budget, at most."""
WITH_SHAPES_S = 4.0
"""After the shapes of a step came: the next burst is priced with them."""
FIRST_AGENT_S = 180.0


def run(options: Options) -> int:
    if not options.command:
        raise UsageError("try what?", "brrrtop try -- python train.py")
    if not SHORTEST_S <= options.seconds <= LONGEST_S:
        raise UsageError(
            f"--seconds is between {SHORTEST_S:g} and {LONGEST_S:g}", "8 is the default"
        )
    command = shlex.join(options.command)
    output.tell(_warning(command, options))
    if not options.yes and not output.confirm("start?"):
        raise UsageError("not started", "--yes starts without asking")
    workers = min(MOST_WORKERS, len(os.sched_getaffinity(0)))
    plan = Plan(options.seconds, options.budget_s, workers, options.edits)
    scratch = Path(options.scratch).absolute() if options.scratch else None
    with guarded_folder() as folder:
        program = Program(options.command, folder, workers, scratch)
        trials = Trials(
            program, plan, lambda header: _predict(program, header, options),
            lambda result: _report(result, options), lambda what: output.say(f"{what} …"),
        )  # fmt: skip
        report = trials.conduct()
    tried = trials.kept(report)
    if tried is not None:
        output.say(f"kept for live screens of this program: {keep(tried)}")
    if options.json:
        output.write(json.encode(report).decode())
    else:
        _print("\n".join(view.closing(report, command)), options)
    return INTERRUPTED if trials.interrupted else 0


def _warning(command: str, options: Options) -> str:
    kept = f"is kept in {options.scratch}" if options.scratch else "is removed (--scratch keeps it)"
    return (
        f"This runs `{command}` from its start again and again, as it is and with one edit at a time, "
        f"for {options.seconds:g} s of steady steps each and at most {options.budget_s / 60:.0f} min in "
        "all, and interrupts it each time. What a run prints, logs to W&B (offline) and TensorBoard and "
        f"saves through torch.save {kept}; all else that the program writes, it writes each time."
    )


def _report(result: TriedEdit | BasePace, options: Options) -> None:
    if isinstance(result, TriedEdit) and options.json:
        output.write(json.encode(result).decode())
    elif isinstance(result, TriedEdit):
        _print("\n".join(view.rows(result)), options)
    elif options.json:
        output.say(view.base_line(result))
    else:
        _print(f"{view.base_line(result)}\n\n{view.heading()}", options)


def _print(text: str, options: Options) -> None:
    output.write(in_ascii(text) if output.only_ascii(options) else text)


def _predict(program: Program, header: Header, options: Options) -> Mapping[str, WhatIf]:
    """What the edits are predicted to gain, from one more run that our agent watches; empty without a GPU."""
    if header.gpu is None:
        return {}
    try:
        files, folder = agent_library.agent_files(), run_folders.make()
    except CollectorError as fault:
        output.say(f"nothing is predicted: {fault}")
        return {}
    try:
        with program.running(
            (), lambda environment: launch.environment(folder, files, "", "cuda", environment)
        ):
            assert program.process is not None
            rank = None if header.rank is None else int(header.rank)
            return _watch(Launched(program.process, folder), rank, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _watch(launched: Launched, rank: int | None, options: Options) -> Mapping[str, WhatIf]:
    """The gains that a live verdict predicts, by what-if edit, once it knows the shapes of a step."""
    options.shapes = True
    rows: dict[str, WhatIf] = {}
    try:
        client = launched.first_agent(FIRST_AGENT_S, rank)
        if client is None:
            return {}
        pid = int(client.hello.get("pid") or launched.pid)
        driver = live.plain(
            live.open_live(client, pid, options, " ".join(options.command)), options
        )
        try:
            within_s = min(PREDICTED_WITHIN_S, options.budget_s * PREDICTED_SHARE)
            ends_s, last_s, snapshot = time.monotonic() + within_s, None, driver.advance()
            while time.monotonic() < min(ends_s, last_s or ends_s) and launched.exit_code is None:
                snapshot = driver.advance()
                predicted = (*snapshot.whatif, *snapshot.whatif_after)
                rows = {row.edit: row for row in predicted} or rows
                if rows and last_s is None and live.outcome_of_shapes(snapshot, options):
                    last_s = time.monotonic() + WITH_SHAPES_S
                time.sleep(options.interval)
            if not rows:
                told = [*(advisory.says for advisory in snapshot.advisories[:1]),
                        *(event.says for event in snapshot.events[-3:])]  # fmt: skip
                output.say(f"nothing is predicted: {'; '.join(told) or snapshot.freshness.value}")
        finally:
            live.detach(driver)
    except Exception as fault:  # noqa: BLE001 - without a prediction the edits are tried all the same
        output.say(f"nothing more is predicted: {fault}")
    return rows
