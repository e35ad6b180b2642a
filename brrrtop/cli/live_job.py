"""All ranks of a job, running or just started: an agent in each, one screen or one report over them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from brrrtop.cli import live, output
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError
from brrrtop.session.driver import Member
from brrrtop.session.live import Live
from brrrtop.session.session import Session
from collectors.attach.attach import Attached, attach
from collectors.attach.client import Client
from collectors.attach.files import AgentFiles
from collectors.attach.launch import Launched
from collectors.errors import CollectorError
from collectors.process.candidates import Candidate, ranks_of

LOOK_S = 0.5
"""Between two looks into the folder of sockets of a command that was started."""


def rank_options(options: Options, rank: int | None, pid: int) -> Options:
    """The options of one rank: a recording of its own."""
    own = copy.copy(options)
    if options.record is not None:
        path = Path(options.record)
        whose = f"rank{rank}" if rank is not None else f"pid{pid}"
        own.record = str(path.with_name(f"{path.stem}-{whose}{path.suffix}"))
    return own


def opened(
    client: Client, pid: int, rank: int | None, options: Options, cmdline: str,
    device_id: int | None = None,
) -> Member:  # fmt: skip
    """A rank with what watches it, or with the reason why it is not."""
    try:
        controller = live.open_live(client, pid, rank_options(options, rank, pid), cmdline)
    except (CollectorError, BrrrtopError) as fault:
        return _unwatched(pid, rank, fault)
    session = Session(controller.source, device_id=device_id, silenced=options.silenced)
    return Member(str(pid), f"pid {pid}", rank, session, controller=controller)


def _unwatched(pid: int, rank: int | None, fault: CollectorError | BrrrtopError) -> Member:
    return Member(str(pid), f"pid {pid}", rank, None, fault.message)


class JobProcesses:
    """The ranks of one job on this host, and the agents that were put into them."""

    def __init__(self, pid: int, options: Options, files: AgentFiles) -> None:
        self._pid = pid
        self._options = options
        self._files = files
        self._attached: list[Attached] = []
        self._known: set[int] = set()

    def open(self, candidates: Sequence[Candidate]) -> list[Member]:
        """Each of them watched, or with the reason why it is not."""
        self._known |= {one.pid for one in candidates}
        return [self._open(one) for one in candidates]

    def newcomers(self) -> list[Member]:
        """Ranks that started since."""
        fresh = [one for one in ranks_of(self._pid) if one.pid not in self._known and one.on_gpu]
        return self.open(fresh)

    def _open(self, one: Candidate) -> Member:
        try:
            attached = attach(one.pid, self._files)
        except CollectorError as fault:
            return _unwatched(one.pid, one.rank, fault)
        self._attached.append(attached)
        return opened(attached.client, one.pid, one.rank, self._options, one.command)

    def leave(self) -> None:
        """Takes the agents out again, all at once."""
        with ThreadPoolExecutor(max(len(self._attached), 1)) as pool:
            list(pool.map(lambda one: one.leave(), self._attached))
        self._attached.clear()


class LaunchedRanks:
    """The ranks of a command that `run` started: each has an agent, which connects as it appears."""

    def __init__(self, launched: Launched, options: Options) -> None:
        self._launched = launched
        self._options = options
        self._known: set[int] = set()

    def job(self, first: Client, pid: int) -> Live:
        """All ranks as one driver, beginning with one whose agent is connected already."""
        self._known.add(pid)
        ranks = [self._open(pid, first)]
        return Live(ranks, self.newcomers, self._options.silenced, look_s=LOOK_S)

    def newcomers(self) -> list[Member]:
        """Ranks whose agents appeared since."""
        fresh = sorted(set(self._launched.sockets()) - self._known)
        self._known.update(fresh)
        return [self._open(pid) for pid in fresh]

    def _open(self, pid: int, client: Client | None = None) -> Member:
        try:
            client = client or self._launched.connect(pid)
        except CollectorError as fault:
            return _unwatched(pid, None, fault)
        rank = client.hello.get("rank")
        cmdline = " ".join(self._options.command)
        one = opened(client, pid, rank if isinstance(rank, int) else None, self._options, cmdline)
        if one.controller is None:
            client.close()
        return one


def watch(pid: int, candidates: Sequence[Candidate], options: Options, files: AgentFiles) -> int:
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
        seen = [one for one in ranks if one.controller is not None]
        for rank in ranks:
            if rank.why is not None:
                output.say(f"brrrtop: {rank.label}: {rank.why}")
        if not seen:
            raise BrrrtopError(f"none of the {len(ranks)} ranks can be attached to: {ranks[0].why}")
        output.say(f"watching {len(seen)} of {len(ranks)} ranks of the job on this host")
        job = Live(ranks, processes.newcomers, options.silenced)
        return live.shown(job, options, "all ranks of the job")
    finally:
        processes.leave()
