"""What plays a job of one rank or more for the screens: its ranks, which of them is shown, and all beside
each other. What moves time is the part of `Live` and `Replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from brrrtop.advisories.advise import rank, split_silenced
from brrrtop.analysis.ranks.lateness import RankActivity
from brrrtop.errors import BrrrtopError
from brrrtop.model.ranks import JobSnapshot, RankRow
from brrrtop.model.run import Run
from brrrtop.model.snapshot import Event, Freshness, Snapshot
from brrrtop.session.job import RankView, job_of, odd_one, rank_of, with_job
from brrrtop.session.session import Session

if TYPE_CHECKING:  # with all that is live: nothing that a file needs, and long to import
    from brrrtop.session.controller import Controller

REACH_NS = 30_000_000_000
"""How much of each rank's past is compared: some bursts of all ranks."""


class Member(Struct, eq=False):
    key: str
    label: str
    rank: int | None
    session: Session | None
    """None: it cannot be watched or read."""
    why: str | None = None
    controller: Controller | None = None
    """Of a live rank that is watched."""
    shift_ns: int = 0
    """What the first rank's clock is ahead of its own, where files were written at different times."""
    noted: dict[int, Event] = field(default_factory=dict)
    """Lines of its log that its recording has."""
    deeds: dict[object, RankActivity] = field(default_factory=dict)
    """What it did in each burst that all ranks share."""

    @property
    def ended(self) -> str | None:
        """Why nothing more comes of it; None while something may."""
        return None if self.session is None else self.session.timeline.ended


class Driver:
    """Makes one snapshot of those of all ranks. Single-threaded, as their sessions are.

    Refuses what not every source can do: a screen asks for that alone whose word is in `can`.

    Args:
        ranks: A single session is a job of one rank.
        of_job: Further ranks may come, though there is one now.
        least_bursts: In which a rank must be recorded to be called slow.
        all_in_view: Whether each rank's own snapshots have their advice, for somebody who wants that of all.
    """

    def __init__(
        self, ranks: Session | Sequence[Member], silenced: frozenset[str] = frozenset(), *,
        of_job: bool = False, least_bursts: int = 1, all_in_view: bool = False,
    ) -> None:  # fmt: skip
        if isinstance(ranks, Session):
            ranks = [Member("", ranks.source.info.label, None, ranks)]
        self.of_job = of_job or len(ranks) > 1
        self._all_in_view = all_in_view or not self.of_job
        self._least_bursts = least_bursts
        self._silenced = silenced
        self.members: list[Member] = []
        for member in ranks:
            self._join(member)
        self._chosen: str | None = None
        """The rank that somebody opened; None: the odd one."""
        self._job: JobSnapshot | None = None
        self._members_seen: tuple[object, ...] = ()
        self._runs_seen: Mapping[str, Run] = {}
        """Of each rank, as they were when ranks were compared."""
        self._frozen: Snapshot | None = None
        """What is shown while a live picture stands still."""

    def _join(self, member: Member) -> None:
        self.members.append(member)
        if member.session is not None:
            member.session.in_view = self._all_in_view

    # --- which rank -----------------------------------------------------------------

    @property
    def watched(self) -> list[tuple[Member, Session]]:
        return [(one, one.session) for one in self.members if one.session is not None]

    @property
    def _shown(self) -> tuple[Member, Session]:
        wanted = self._chosen or (self._job.shown if self._job else None)
        some = self.watched
        return next((one for one in some if one[0].key == wanted), some[0])

    @property
    def session(self) -> Session:
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

    # --- what every source can do -----------------------------------------------------

    def select_device(self, device_id: int) -> None:
        self.session.select_device(device_id)

    def mark_baseline(self) -> str:
        return self.session.mark(self._frozen)

    def silence(self, kind: str) -> str:
        """Gives no such advice for any rank, or gives it again; says which."""
        self._silenced ^= {kind}
        self._members_seen = ()
        message = [session.silence(kind) for _, session in self.watched]
        if self._frozen is not None:
            every = sorted((*self._frozen.advisories, *self._frozen.silenced), key=rank)
            shown, quiet = split_silenced(every, self.session.silenced)
            self._frozen = replace(self._frozen, advisories=shown, silenced=quiet)
        return message[0]

    def _refuse(self, *_: object) -> Any:
        raise BrrrtopError("this source cannot do that")

    seek: Callable[..., Any] = _refuse
    faster: Callable[..., Any] = _refuse
    slower: Callable[..., Any] = _refuse
    continuous: Callable[..., Any] = _refuse
    burst: Callable[..., Any] = _refuse
    shapes: Callable[..., Any] = _refuse
    follow: Callable[..., Any] = _refuse

    # --- beside each other ------------------------------------------------------------

    def combine(self, snapshots: Mapping[str, Snapshot]) -> Snapshot:
        """The snapshot of the rank shown, with the job where it is of one.

        Args:
            snapshots: By key of the members that have one.
        """
        if not self.of_job:
            return next(iter(snapshots.values()))
        if any(one.rank is None for one, _ in self.watched):
            for one in self.members:
                if one.rank is None:
                    one.rank = rank_of(snapshots.get(one.key), one.label)
        compared = tuple((m.key, m.why, m.session and m.session.verdicts) for m in self.members)
        estimates = ((key, at.estimate) for key, at in snapshots.items())
        runs = {key: one.run for key, one in estimates if one is not None and one.run is not None}
        moved = any(run.differs(self._runs_seen.get(key)) for key, run in runs.items())
        if self._job is None or compared != self._members_seen or moved:
            self._job = self._judge(snapshots)
            self._members_seen, self._runs_seen = compared, runs
        job = replace(self._job, ranks=tuple(_present(r, snapshots) for r in self._job.ranks))
        shown, session = self._shown
        return with_job(session.in_full(snapshots[shown.key]), job, shown.key)

    def _judge(self, snapshots: Mapping[str, Snapshot]) -> JobSnapshot:
        views = [
            RankView(
                m.key, m.label, m.rank, snapshots.get(m.key),
                m.session.recorded(REACH_NS) if m.session is not None else None,
                m.deeds, m.why,
            )
            for m in self.members
        ]  # fmt: skip
        job = job_of(views, self._silenced, self._least_bursts)
        odd = odd_one(job, views)
        return replace(job, shown=odd.key if odd else None)


def _present(row: RankRow, snapshots: Mapping[str, Snapshot]) -> RankRow:
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
