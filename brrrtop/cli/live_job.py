"""All ranks of a running job: an agent in each, one screen or one report over them."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from brrrtop.cli import fail_if as gate
from brrrtop.cli import live, output
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError, NoTrainer
from brrrtop.model.snapshot import Freshness
from brrrtop.session.job_session import Member
from brrrtop.session.live import LiveSession
from brrrtop.session.live_job import LiveJob, LiveRank
from brrrtop.session.session import Session
from collectors.attach.attach import Attached, attach
from collectors.attach.files import AgentFiles
from collectors.errors import CollectorError
from collectors.process.candidates import Candidate
from collectors.process.jobs import ranks_of


def rank_options(options: Options, rank: int | None, pid: int) -> Options:
    """The options of one rank: a recording of its own."""
    own = copy.copy(options)
    if options.record is not None:
        path = Path(options.record)
        whose = f"rank{rank}" if rank is not None else f"pid{pid}"
        own.record = str(path.with_name(f"{path.stem}-{whose}{path.suffix}"))
    return own


class JobProcesses:
    """The ranks of one job on this host, and the agents that were put into them."""

    def __init__(self, pid: int, options: Options, files: AgentFiles) -> None:
        self._pid = pid
        self._options = options
        self._files = files
        self._attached: list[Attached] = []
        self._known: set[int] = set()

    def open(self, candidates: Sequence[Candidate]) -> list[LiveRank]:
        """Each of them watched, or with the reason why it is not."""
        self._known |= {one.pid for one in candidates}
        return [self._open(one) for one in candidates]

    def newcomers(self) -> list[LiveRank]:
        """Ranks that started since."""
        fresh = [one for one in ranks_of(self._pid) if one.pid not in self._known and one.on_gpu]
        return self.open(fresh)

    def _open(self, one: Candidate) -> LiveRank:
        label = f"pid {one.pid}"
        member = Member(str(one.pid), label, one.rank, None)
        own = rank_options(self._options, one.rank, one.pid)
        try:
            attached = attach(one.pid, self._files)
            self._attached.append(attached)
            source = live.open_live(attached.client, one.pid, own, one.command)
        except (CollectorError, BrrrtopError) as fault:
            member.why = fault.message
            return LiveRank(member)
        session = Session(source, silenced=self._options.silenced)
        member.session = session
        return LiveRank(member, LiveSession(session, source), source)

    def leave(self) -> None:
        """Takes the agents out again, all at once."""
        with ThreadPoolExecutor(max(len(self._attached), 1)) as pool:
            list(pool.map(lambda one: one.leave(), self._attached))
        self._attached.clear()


def watch(
    pid: int, candidates: Sequence[Candidate], options: Options, gates: tuple[gate.Gate, ...],
    files: AgentFiles,
) -> int:  # fmt: skip
    """Attaches to all ranks and shows them; detaches at the end.

    Raises:
        BrrrtopError: None of them can be attached to; says why.
        GateTripped: A gate held for long enough.
    """
    for one in candidates:
        live.refuse_taken_file(rank_options(options, one.rank, one.pid))
    processes = JobProcesses(pid, options, files)
    try:
        ranks = processes.open(candidates)
        seen = [one for one in ranks if one.driver is not None]
        for rank in ranks:
            if rank.member.why is not None:
                output.say(f"brrrtop: {rank.member.label}: {rank.member.why}")
        if not seen:
            raise BrrrtopError(
                f"none of the {len(ranks)} ranks can be attached to: {ranks[0].member.why}"
            )
        output.say(f"watching {len(seen)} of {len(ranks)} ranks of the job on this host")
        job = LiveJob(ranks, processes.newcomers, options.silenced)
        once = partial(_once, job, options, gates)
        return live.shown(job, options, gates, "all ranks of the job", once)
    finally:
        processes.leave()


def _once(job: LiveJob, options: Options, gates: Sequence[gate.Gate]) -> int:
    """A report of the first snapshot in which ranks are compared, or of the last before patience ends."""
    deadline_s = time.monotonic() + live.FIRST_VERDICT_S
    while True:
        snapshot = job.advance()
        compared = snapshot.job is not None and snapshot.job.together_ns
        if compared or time.monotonic() > deadline_s:
            break
        if snapshot.freshness is Freshness.ENDED:
            raise NoTrainer("all ranks ended before they could be judged")
        time.sleep(min(options.interval, 0.1))
    output.report(snapshot, options)
    gate.check(gates, snapshot)
    return 0
