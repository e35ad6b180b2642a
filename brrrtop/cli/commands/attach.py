"""`brrrtop attach PID`: the agent into a running trainer, and into the one that takes its place (same user,
command line and folder, started after it); what they see on the screen.
"""

import copy
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from brrrtop.cli import live, output
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError
from brrrtop.session.controller import Controller
from brrrtop.session.restart import RestartedProcess
from brrrtop.sources.recording import free_name
from brrrtop.text import units
from collectors.attach import agent_library
from collectors.attach import attach as attaching
from collectors.attach.agent_library import agent_files
from collectors.attach.attach import Attached, attach
from collectors.errors import CollectorError, NoSuchProcess, NotPermitted
from collectors.process import proc
from collectors.process import process as processes
from collectors.process.candidates import Candidate, candidates, check_trains, ranks_of
from collectors.process.process import Process, mapped_bytes, read

_CUPTI = "libcupti.so"


def run(options: Options) -> int:
    assert options.pid is not None
    options.gates  # noqa: B018 - a wrong one is refused before anything is done
    process = processes.read(options.pid)
    candidates = ranks_of(options.pid)
    if not options.yes and len(candidates) < 2:
        check_trains(process)
    if not _confirm(process, options):
        return 0
    return watch_job(process, candidates, options)


def watch_job(process: Process, candidates: Sequence[Candidate], options: Options) -> int:
    """The job with all of these ranks, or the one process where it is no job."""
    if len(candidates) < 2:
        return watch(process, options)
    from brrrtop.cli import live

    return live.watch_job(process.pid, candidates, options, agent_files())


def watch(process: Process, options: Options) -> int:
    """Attaches and shows; detaches at the end."""
    live.refuse_taken_file(options)

    attached = attach(process.pid, agent_files(), report=output.say)
    try:
        output.say(_how(attached))
        successors = RestartedProcesses(process, options, agent=True)
        try:
            cmdline = " ".join(process.cmdline)
            controller = live.open_live(attached.client, process.pid, options, cmdline)
            return live.watch(controller, options, successors)
        finally:
            successors.close()
    finally:
        farewell = _left(attached, attached.leave())
        if farewell:
            output.tell(farewell)


def _confirm(process: Process, options: Options) -> bool:
    """Somebody else's process is only entered after a yes; one's own was named, which is a yes."""
    if options.yes or process.uid == os.geteuid() or not sys.stdin.isatty():
        return True
    owner = processes.user_name(process.uid)
    output.say(f"process {process.pid} belongs to {owner}: {' '.join(process.cmdline)[:60]}")
    return output.confirm("load brrrtop's agent into it?")


def _left(attached: Attached, ended: bool) -> str:
    """What detaching leaves behind; empty: the process is gone, and that is told elsewhere."""
    process = attached.process
    pid = process.pid
    if not process.still_the_same():
        return ""
    try:
        process = processes.read(pid)
        remains = mapped_bytes(process, agent_library.LIBRARY_NAME)
        cupti = mapped_bytes(process, _CUPTI) > 0
    except CollectorError:
        return ""
    if not ended and attached.stays:
        return f"left process {pid}: the agent ends by itself once it can: {attached.stays}"
    if not ended:
        return f"left process {pid}: the agent stays, as another monitor watches, or it does not answer"
    sentence = f"detached from process {pid}: a {units.size(remains)} library stays loaded but idle"
    return sentence + (", and so does CUPTI's own state" if cupti else "")


def _how(attached: Attached) -> str:
    took = units.duration(attached.took_ns)
    if attached.shared:
        return f"joined the agent that is in process {attached.process.pid} already ({took})"
    held_for = units.duration(attached.stopped_ns)
    return (
        f"attached by {attached.method} in {took}; a thread of the trainer was held for {held_for}"
    )


UNNOTICED_S = 3.0
"""A trainer's end is noticed this much later at most, besides the interval between two looks."""
IMPORTS_S = 15.0
"""A trainer without a GPU context is past its imports by then."""


class RestartedProcesses:
    """Implements `session.restart.RestartedProcesses` by the process list and the ways in.

    Args:
        process: The trainer whose successors are looked for; it runs still.
        agent: Successors get the agent, as this one did; else their GPU's counters are read.
    """

    def __init__(self, process: Process, options: Options, *, agent: bool) -> None:
        self.agreed = options.yes
        self.how = "watch it" if agent else "watch its counters"
        self._before = process
        self._cwd = _cwd(process)
        self._rank = _rank(process)
        self._options = options
        self._agent = agent
        self._since_s: float | None = None
        self._attached: list[attaching.Attached] = []

    def find(self) -> RestartedProcess | None:
        """The one that fits best now; the first call follows the end closely."""
        if self._since_s is None:
            self._since_s = (
                time.clock_gettime(time.CLOCK_BOOTTIME) - UNNOTICED_S - self._options.interval
            )
        trainers = [
            candidate
            for candidate in candidates(matching=self._fits)
            if self._is_trainer(candidate)
        ]
        if not trainers:
            return None
        one = trainers[0]
        ready = one.on_gpu or proc.age_s(one.process.start_ticks) >= IMPORTS_S
        return RestartedProcess(one.pid, ready, len(trainers) == 1)

    def _fits(self, process: Process) -> bool:
        before = self._before
        if (process.uid, process.cmdline) != (before.uid, before.cmdline):
            return False
        since_s = self._since_s or 0.0
        return process.start_ticks / proc.TICKS_PER_S >= since_s and _cwd(process) == self._cwd

    def _is_trainer(self, candidate: Candidate) -> bool:
        same_rank = self._rank is None or candidate.rank is None or candidate.rank == self._rank
        return not candidate.not_because and same_rank

    def enter(self, pid: int) -> Controller:
        options = copy.copy(self._options)
        if options.record is not None:
            options.record = free_name(Path(options.record))
        try:
            process = read(pid)
            client = None
            if self._agent:
                attached = attaching.attach(pid, agent_files())
                self._attached.append(attached)
                client = attached.client
            controller = live.open_live(client, pid, options, " ".join(process.cmdline))
        except CollectorError as fault:
            raise BrrrtopError(fault.message, fault.action) from fault
        self._before, self._since_s = process, None
        return controller

    def close(self) -> None:
        while self._attached:
            self._attached.pop().leave()


def _cwd(process: Process) -> str | None:
    try:
        return process.cwd
    except (NotPermitted, NoSuchProcess):
        return None


def _rank(process: Process) -> int | None:
    try:
        return process.ranks.get("RANK", process.ranks.get("SLURM_PROCID"))
    except (NotPermitted, NoSuchProcess):
        return None
