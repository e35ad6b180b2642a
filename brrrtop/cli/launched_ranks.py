"""The ranks of a command that `run` started: each has an agent, which connects as it appears."""

from __future__ import annotations

from collections.abc import Callable

from brrrtop.cli import live
from brrrtop.cli.live_job import rank_options
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError
from brrrtop.session.job_session import Member
from brrrtop.session.live import LiveSession
from brrrtop.session.live_job import LiveJob, LiveRank
from brrrtop.session.session import Session
from collectors.attach.client import Client
from collectors.attach.launch import Launched
from collectors.errors import CollectorError

LOOK_S = 0.5
"""Between two looks into the folder of sockets."""


class LaunchedRanks:
    """Opens every agent of a command once."""

    def __init__(self, launched: Launched, options: Options) -> None:
        self._launched = launched
        self._options = options
        self._known: set[int] = set()

    def job(self, first: Client, pid: int) -> LiveJob:
        """All ranks as one driver, beginning with one whose agent is connected already."""
        self._known.add(pid)
        ranks = [self._open(pid, lambda: first)]
        return LiveJob(ranks, self.newcomers, self._options.silenced, look_s=LOOK_S)

    def newcomers(self) -> list[LiveRank]:
        """Ranks whose agents appeared since."""
        fresh = sorted(set(self._launched.sockets()) - self._known)
        self._known.update(fresh)
        return [self._open(pid, lambda pid=pid: self._launched.connect(pid)) for pid in fresh]  # type: ignore[misc]

    def _open(self, pid: int, connect: Callable[[], Client]) -> LiveRank:
        member = Member(str(pid), f"pid {pid}", None, None)
        try:
            client = connect()
        except CollectorError as fault:
            member.why = fault.message
            return LiveRank(member)
        rank = client.hello.get("rank")
        member.rank = rank if isinstance(rank, int) else None
        own = rank_options(self._options, member.rank, pid)
        try:
            source = live.open_live(client, pid, own, " ".join(self._options.command))
        except (CollectorError, BrrrtopError) as fault:
            client.close()
            member.why = fault.message
            return LiveRank(member)
        session = Session(source, silenced=self._options.silenced)
        member.session = session
        return LiveRank(member, LiveSession(session, source), source)
