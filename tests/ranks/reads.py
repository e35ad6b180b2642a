"""Reads the cut traces of jobs as the ranks' tests need them."""

from functools import cache
from pathlib import Path

from msgspec.structs import replace

from brrrtop.model.ranks import JobSnapshot, RankRow
from brrrtop.model.tables import Span, Window
from brrrtop.session.analyze import analyze, read
from brrrtop.session.job import RankView, job_of, rank_of
from brrrtop.sources.registry import open_source

TRACES = Path(__file__).parent / "traces"


def files(job: str) -> list[Path]:
    """The traces of a job, by rank."""
    return sorted((TRACES / job).iterdir())


@cache
def views(job: str) -> tuple[RankView, ...]:
    """Each rank of a job by itself."""
    result = []
    for path in files(job):
        source = open_source(path)
        timeline = read(source)
        snapshot = analyze(source, timeline=timeline)
        window = timeline.window(snapshot.estimate.span, snapshot.estimate.device.device_id)
        result.append(
            RankView(str(path), path.name, rank_of(snapshot, path.name), snapshot, window)
        )
    return tuple(result)


@cache
def job(name: str) -> JobSnapshot:
    """All ranks of a job beside each other."""
    return job_of(views(name))


def row(job: JobSnapshot, rank: int) -> RankRow:
    """The row of one rank."""
    return next(row for row in job.ranks if row.rank == rank)


def moved(window: Window, by_ns: int) -> Window:
    """The same on a clock that is so much ahead."""
    tables = {
        name: replace(table, starts_ns=table.starts_ns + by_ns, ends_ns=table.ends_ns + by_ns)
        for name in ("activities", "calls", "marks")
        if (table := getattr(window, name)) is not None
    }
    span = Span(window.span.t0_ns + by_ns, window.span.t1_ns + by_ns)
    observed = window.observed
    if observed is not None:
        observed = tuple(Span(s.t0_ns + by_ns, s.t1_ns + by_ns) for s in observed)
    return replace(window, span=span, observed=observed, **tables)
