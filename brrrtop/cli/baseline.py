"""`--baseline FILE`: an earlier run, judged whole, to compare with."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from msgspec.structs import replace

from brrrtop.cli.options import Options
from brrrtop.model.comparison import Baseline
from brrrtop.model.snapshot import Snapshot


def load(options: Options) -> Baseline | None:
    """The baseline that was asked for; None when none was. A file is read once.

    Raises:
        BrrrtopError: The file cannot be used; says why.
    """
    if options.baseline is None:
        return None
    from brrrtop.advisories.ranking import parted

    baseline = _read(options.baseline, options.force)
    return replace(baseline, advisories=parted(baseline.advisories, options.silenced)[0])


@cache
def _read(path: str, force: bool) -> Baseline:
    from brrrtop.session.analyze import analyze
    from brrrtop.session.baseline import baseline_of
    from brrrtop.sources.registry import open_source

    source = open_source(path, force)
    try:
        return baseline_of(analyze(source, trimmed=True), Path(path).name)
    finally:
        source.close()


def compare(snapshot: Snapshot, baseline: Baseline | None) -> Snapshot:
    """A whole source's snapshot, beside the baseline."""
    if baseline is None or snapshot.estimate is None:
        return snapshot
    from brrrtop.session.baseline import compared_whole

    comparison = compared_whole(baseline, snapshot.estimate)
    return replace(snapshot, baseline=baseline, comparison=comparison)
