"""Several sessions of one job's ranks, shown as one: each rank's own picture, and all of them together."""

import re
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from brrrtop.advisories.rules.distributed import advise_job, beside_peers
from brrrtop.analysis.ranks.job import RankInput, judge_job
from brrrtop.analysis.ranks.lateness import RankActivity
from brrrtop.errors import BadInput
from brrrtop.model.ranks import JobSnapshot, RankRow
from brrrtop.model.snapshot import Snapshot
from brrrtop.model.tables import Window
from brrrtop.session.verdict import of_step

_IN_NAME = re.compile(r"(?:rank|worker|gpu)[-_.]?(\d{1,6})(?!\d)", re.IGNORECASE)
ONE_RUN = "name the files of one run of one job, one a rank"


class RankView(Struct, frozen=True, eq=False):
    key: str
    label: str
    rank: int | None
    snapshot: Snapshot | None = None
    window: Window | None = None
    """All that is kept of its GPU's timeline; None where there is none to judge."""
    known: dict[object, RankActivity] = {}
    """Of what it did in each burst, by earlier looks."""
    why: str | None = None
    """Why it cannot be watched or read, as a clause."""
    world: int | None = None
    """Of how many ranks its job is; None where nobody says."""
    job: str | None = None
    """The same for all ranks of one start of a job; None where nobody says."""


def rank_of(snapshot: Snapshot | None, label: str) -> int | None:
    """What a source says its rank is, else what its file is called."""
    if snapshot is not None and snapshot.source.rank is not None:
        return snapshot.source.rank
    match = _IN_NAME.search(label)
    return int(match[1]) if match else None


def job_of(
    views: Sequence[RankView], silenced: frozenset[str] = frozenset(), least_bursts: int = 1
) -> JobSnapshot:
    """All ranks beside each other, with what they advise together."""
    sources = [one.snapshot.source if one.snapshot is not None else None for one in views]
    inputs = [
        RankInput(_row(one), one.window, one.known, source is not None and source.tier == "trace")
        for one, source in zip(views, sources, strict=True)
    ]
    world = max((one.world for one in sources if one and one.world), default=None)
    job = judge_job(inputs, world, least_bursts)
    return advise_job(job, silenced)


def _row(view: RankView) -> RankRow:
    snapshot = view.snapshot
    waits = snapshot.source.notes[:1] if snapshot and snapshot.estimate is None else ()
    return RankRow(
        rank=view.rank,
        label=view.label,
        key=view.key,
        pid=snapshot.source.pid if snapshot else None,
        estimate=snapshot.estimate if snapshot else None,
        why=view.why or next(iter(waits), None),
        gauges=snapshot.gauges if snapshot else {},
    )


def with_job(snapshot: Snapshot, job: JobSnapshot, key: str) -> Snapshot:
    """A rank's snapshot with the job that it belongs to: the job's advice comes first."""
    step_ns = snapshot.run.step_ns if snapshot.run is not None else None
    fixed = tuple(of_step(row, step_ns) for row in job.whatif)
    shown = replace(job, shown=key, whatif=fixed)
    waits = job.waited_for is not None and job.waited_for.is_slow
    # A collective that waits for a late peer would wait as long beside compute.
    own = [row for row in snapshot.whatif if not (waits and row.edit == "overlap-communication")]
    rows = sorted((*fixed, *own), key=lambda row: row.place)
    return replace(
        snapshot,
        job=shown,
        advisories=(*job.advisories, *beside_peers(snapshot.advisories, job)),
        whatif=tuple(rows),
        # Pairs go on from the first edit: none was simulated after another first one.
        whatif_after=snapshot.whatif_after if rows and rows[0] not in fixed else (),
    )


def odd_one(job: JobSnapshot, views: Sequence[RankView]) -> RankView | None:
    """The rank to speak of first: the one that the others wait for, else the first with a verdict."""
    by_key = {view.key: view for view in views}
    for row in job.ranks:
        view = by_key.get(row.key)
        if view is not None and view.snapshot is not None and view.snapshot.estimate is not None:
            return view
    return None


def require_one_job(views: Sequence[RankView]) -> None:
    """Refuses files of several jobs.

    Raises:
        BadInput: Two of them are of one rank, of jobs of different sizes, or of two starts of a job.
    """
    if (two := _first_unlike(views, lambda view: view.world)) is not None:
        one, other = two
        raise BadInput(
            f"these are of several jobs: {one.label} is of {one.world} ranks, "
            f"{other.label} of {other.world}",
            ONE_RUN,
        )
    if (two := _first_unlike(views, lambda view: view.job)) is not None:
        one, other = two
        raise BadInput(
            f"these are of several jobs, or of several starts of one: {one.label} is of "
            f"{one.job}, {other.label} of {other.job} (port, run and Slurm job)",
            ONE_RUN,
        )
    seen: dict[int, str] = {}
    for view in views:
        if view.rank is None:
            continue
        if view.rank in seen:
            raise BadInput(
                f"rank {view.rank} is there twice: {seen[view.rank]} and {view.label}",
                ONE_RUN,
            )
        seen[view.rank] = view.label


def _first_unlike(
    views: Sequence[RankView], trait: Callable[[RankView], object]
) -> tuple[RankView, RankView] | None:
    """The first that says the trait, and the first that says it otherwise; None where all agree."""
    saying = [view for view in views if trait(view)]
    other = next((view for view in saying if trait(view) != trait(saying[0])), None)
    return None if other is None else (saying[0], other)
