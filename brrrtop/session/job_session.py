"""The ranks of a job as one session: plays or watches all of them, and shows one beside the others.

`JobSession` needs a session a rank and their snapshots; who advances them is up to the driver, so that
files (`JobReplay`) and live trainers (`LiveJob`) go through the same lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from brrrtop.errors import BrrrtopError
from brrrtop.model.ranks import JobSnapshot, RankRow
from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.model.tables import Span
from brrrtop.session.job import RankView, job_of, odd_one, rank_of, with_job
from brrrtop.session.live import LiveSession
from brrrtop.session.replay import Replay
from brrrtop.session.session import Session

REACH_NS = 30_000_000_000
"""How much of each rank's past is compared: some bursts of all ranks."""


class Member(Struct, eq=False):
    """One rank of the job."""

    key: str
    label: str
    rank: int | None
    session: Session | None
    """None: it cannot be watched or read."""
    why: str | None = None
    driver: LiveSession | None = None
    """Of a live rank that is watched."""
    shift_ns: int = 0
    """What the first rank's clock is ahead of its own, where files were written at different times."""


class JobSession:
    """Makes one snapshot of those of all ranks. Single-threaded, as its sessions are.

    Args:
        least_bursts: In which a rank must be recorded to be called slow.
        all_in_view: Whether each rank's own snapshots have their advice, for somebody who wants that of all.
    """

    def __init__(
        self,
        members: Sequence[Member],
        silenced: frozenset[str] = frozenset(),
        least_bursts: int = 1,
        all_in_view: bool = False,
    ) -> None:
        self._all_in_view = all_in_view
        self.members: list[Member] = []
        for member in members:
            self.join(member)
        self._least_bursts = least_bursts
        self._silenced = silenced
        self._chosen: str | None = None
        """The rank that somebody opened; None: the odd one."""
        self._job: JobSnapshot | None = None
        self._judged: tuple[object, ...] = ()

    def join(self, member: Member) -> None:
        """One more rank."""
        self.members.append(member)
        if member.session is not None:
            member.session.in_view = self._all_in_view

    @property
    def watched(self) -> list[tuple[Member, Session]]:
        """Members that can be, with their sessions."""
        return [(one, one.session) for one in self.members if one.session is not None]

    @property
    def _shown(self) -> tuple[Member, Session]:
        wanted = self._chosen or (self._job.shown if self._job else None)
        some = self.watched
        return next((one for one in some if one[0].key == wanted), some[0])

    @property
    def shown(self) -> Member:
        """The rank that is shown; keys and wishes are about it."""
        return self._shown[0]

    @property
    def session(self) -> Session:
        """Of the rank shown."""
        return self._shown[1]

    def select_rank(self, key: str) -> None:
        """The next snapshots are of this rank.

        Raises:
            BrrrtopError: Nothing is known of it; says why.
        """
        for one in self.members:
            if one.key == key:
                if one.session is None:
                    raise BrrrtopError(f"nothing is seen of {one.label}: {one.why}")
                self._chosen = key

    def silence(self, kind: str) -> str:
        """Gives no such advice for any rank, or gives it again; says which."""
        self._silenced ^= {kind}
        self._judged = ()
        says = [session.silence(kind) for _, session in self.watched]
        return says[0]

    def combine(self, snapshots: Mapping[str, Snapshot]) -> Snapshot:
        """The snapshot of the rank shown, with the job.

        Args:
            snapshots: By key of the members that have one.
        """
        if any(one.rank is None for one, _ in self.watched):
            for one in self.members:
                if one.rank is None:
                    one.rank = rank_of(snapshots.get(one.key), one.label)
        judged = tuple((m.key, m.why, m.session and m.session.verdicts) for m in self.members)
        if self._job is None or judged != self._judged:
            self._job = self._judge(snapshots)
            self._judged = judged
        job = replace(self._job, ranks=tuple(_present(r, snapshots) for r in self._job.ranks))
        shown, session = self._shown
        return with_job(session.in_full(snapshots[shown.key]), job, shown.key)

    def _judge(self, snapshots: Mapping[str, Snapshot]) -> JobSnapshot:
        views = [
            RankView(
                m.key, m.label, m.rank, snapshots.get(m.key),
                m.session.recorded(REACH_NS) if m.session is not None else None,
                m.why,
            )
            for m in self.members
        ]  # fmt: skip
        job = job_of(views, self._silenced, self._least_bursts)
        odd = odd_one(job, views)
        return replace(job, shown=odd.key if odd else None)


def _present(row: RankRow, snapshots: Mapping[str, Snapshot]) -> RankRow:
    """The row with the newest gauges and verdict."""
    snapshot = snapshots.get(row.key)
    if snapshot is None:
        return row
    why, notes = row.why, snapshot.source.notes
    if snapshot.freshness is Freshness.ENDED and snapshot.source.kind == "live":
        why = notes[0] if notes else "it ended"
    elif snapshot.estimate is None:
        why = notes[0] if notes else why
    elif row.estimate is None:
        why = None  # it had said what it waited for
    return replace(row, gauges=snapshot.gauges, estimate=snapshot.estimate, why=why)


class JobReplay(Replay):
    """The recordings of several ranks under one playhead, which goes by the first one's clock."""

    can = Replay.can | {"ranks"}

    def __init__(
        self, job: JobSession, *, speed: float | None = None, loop: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.job = job
        known = [(m, span) for m, s in job.watched if (span := s.source.span) is not None]
        first = known[0][1]
        for member, span in known:
            if span.t1_ns < first.t0_ns or span.t0_ns > first.t1_ns:
                member.shift_ns = first.t0_ns - span.t0_ns
        begin_ns = min(span.t0_ns + m.shift_ns for m, span in known)
        end_ns = max(span.t1_ns + m.shift_ns for m, span in known)
        both = Span(begin_ns, end_ns)
        super().__init__(job.session, speed=speed, loop=loop, clock=clock, span=both)

    def _at(self, now_ns: int) -> Snapshot:
        snapshots = {m.key: s.advance(now_ns - m.shift_ns) for m, s in self.job.watched}
        whole = self.job.combine(snapshots)
        self._session = self.job.session
        played = (now_ns - self.span.t0_ns) / max(self.span.duration_ns, 1)
        return replace(whole, progress=min(1.0, max(0.0, played)))

    def select_rank(self, key: str) -> None:
        self.job.select_rank(key)
        self._session = self.job.session

    def silence(self, kind: str) -> str:
        return self.job.silence(kind)

    def close(self) -> None:
        for _, session in self.job.watched:
            session.source.close()
