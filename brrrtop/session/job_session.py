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
from brrrtop.model.snapshot import Freshness, Snapshot, SourceInfo
from brrrtop.model.tables import Span
from brrrtop.session.job import RankView, job_of, odd_one, rank_of, with_job
from brrrtop.session.replay import CAN, Replay
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
    def shown(self) -> Member:
        """The rank that is shown; keys and wishes are about it."""
        wanted = self._chosen or (self._job.shown if self._job else None)
        some = [one for one in self.members if one.session is not None]
        return next((one for one in some if one.key == wanted), some[0])

    @property
    def session(self) -> Session:
        """Of the rank shown."""
        session = self.shown.session
        assert session is not None
        return session

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
        says = [one.session.silence(kind) for one in self.members if one.session is not None]
        return says[0]

    def combine(self, snapshots: Mapping[str, Snapshot]) -> Snapshot:
        """The snapshot of the rank shown, with the job.

        Args:
            snapshots: By key of the members that have one.
        """
        if any(one.session is not None and one.rank is None for one in self.members):
            for one in self.members:
                one.rank = (
                    rank_of(snapshots.get(one.key), one.label) if one.rank is None else one.rank
                )
        judged = tuple((m.key, m.why, m.session and m.session.verdicts) for m in self.members)
        if self._job is None or judged != self._judged:
            self._job = self._judge(snapshots)
            self._judged = judged
        job = replace(self._job, ranks=tuple(_present(r, snapshots) for r in self._job.ranks))
        key = self.shown.key
        return with_job(self.session.in_full(snapshots[key]), job, key)

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


class JobFiles:
    """The ranks' recordings as one session with one playhead, as `Replay` asks for."""

    def __init__(self, job: JobSession) -> None:
        self.job = job
        spans = [(m, m.session.source.span) for m in job.members if m.session is not None]
        known = [(m, span) for m, span in spans if span is not None]
        first = known[0][1]
        for member, span in known:
            if span.t1_ns < first.t0_ns or span.t0_ns > first.t1_ns:
                member.shift_ns = first.t0_ns - span.t0_ns
        moved = [Span(s.t0_ns + m.shift_ns, s.t1_ns + m.shift_ns) for m, s in known]
        self.span = Span(min(s.t0_ns for s in moved), max(s.t1_ns for s in moved))
        self.ended = True
        self.info: SourceInfo = job.session.source.info
        self.device_id: int | None = None

    @property
    def source(self) -> JobFiles:
        return self

    def advance(self, now_ns: int) -> Snapshot:
        """All ranks at one time of the first one's clock."""
        snapshots = {}
        for one in self.job.members:
            if one.session is not None:
                snapshots[one.key] = one.session.advance(now_ns - one.shift_ns)
        whole = self.job.combine(snapshots)
        played = (now_ns - self.span.t0_ns) / max(self.span.duration_ns, 1)
        return replace(whole, progress=min(1.0, max(0.0, played)))

    def select_device(self, device_id: int | None) -> None:
        self.job.session.select_device(device_id)

    def mark(self) -> str:
        return self.job.session.mark()

    def silence(self, kind: str) -> str:
        return self.job.silence(kind)

    def close(self) -> None:
        for one in self.job.members:
            if one.session is not None:
                one.session.source.close()


class JobReplay(Replay):
    """A replay of several ranks."""

    def __init__(
        self, files: JobFiles, *, speed: float | None = None, loop: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        super().__init__(files, speed=speed, loop=loop, clock=clock)  # type: ignore[arg-type]
        self._job = files.job

    @property
    def can(self) -> frozenset[str]:
        return CAN | {"ranks"}

    def select_rank(self, key: str) -> None:
        self._job.select_rank(key)
