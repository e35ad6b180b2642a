"""Who takes an ended trainer's place: same user, same command line, same folder, started after it."""

import copy
import time
from pathlib import Path

from brrrtop.cli import live
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError
from brrrtop.session.controller import Controller
from brrrtop.session.restart import RestartedProcess
from brrrtop.sources.recording import free_name
from collectors.attach import attach as attaching
from collectors.attach.agent_library import agent_files
from collectors.errors import CollectorError, NoSuchProcess, NotPermitted
from collectors.process import proc
from collectors.process.candidates import Candidate, candidates
from collectors.process.process import Process, read

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
