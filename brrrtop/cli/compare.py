"""`brrrtop compare BEFORE AFTER`: what changed between two recordings or traces."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict

from brrrtop import units, words
from brrrtop.advisories.compare import Change, Comparison, compare
from brrrtop.cli.analyze import read
from brrrtop.cli.options import Options
from brrrtop.errors import BadInput
from brrrtop.kernel_names import fitted
from brrrtop.model import Estimate
from brrrtop.report import document

SCHEMA = "brrrtop.compare/1"
_FAMILIES_SHOWN = 8
_KERNELS_SHOWN = 8


def run(options: Options) -> int:
    labels = (options.before, options.after)
    snapshots = [read(path, options) for path in labels]
    estimates: list[Estimate] = []
    for path, snapshot in zip(labels, snapshots, strict=True):
        if snapshot.estimate is None:
            raise BadInput(f"{path}: no GPU activity to compare")
        estimates.append(snapshot.estimate)
    before, after = estimates
    found = compare(before, after, snapshots[0].advisories)
    if options.json:
        whole = {"schema": SCHEMA, "comparison": asdict(found)}
        whole |= {"before": document(snapshots[0]), "after": document(snapshots[1])}
        sys.stdout.write(json.dumps(whole, allow_nan=False) + "\n")
    else:
        sys.stdout.write("\n".join(lines(found, before, after, labels)) + "\n")
    return 0


def in_a_line(before: Estimate, after: Estimate) -> str:
    """The change in one sentence, for a status line."""
    return f"{compare(before, after).says}; now {words.verdict(after)}"


def lines(
    found: Comparison, before: Estimate, after: Estimate, labels: tuple[str, str]
) -> Iterator[str]:
    """The comparison in 80 columns, the sentence first."""
    yield found.says
    yield ""
    for name, label, estimate in zip(("before", "after"), labels, (before, after), strict=True):
        sure = units.share(estimate.confidence)
        yield f"{name:<8}{words.verdict(estimate)}, {sure} sure"
        yield f"        {label}"
    for kind in found.changes:
        yield f"changed {kind}"
    yield ""
    yield f"{'per step' if found.per_step else 'per second':<44}  before     after       won"
    yield _row("the whole", Change("", found.before_ns, found.after_ns))
    for change in found.buckets:
        yield _row(change.name, change)
    yield from _section("kernels by family", found.families[:_FAMILIES_SHOWN])
    yield from _section("kernels that changed most", found.kernels[:_KERNELS_SHOWN])
    promises = [one for one in found.promises if one.promised_share is not None]
    if promises:
        yield ""
    for one in promises:
        won = units.share(one.won_share) if one.won_share is not None else "nobody knows"
        yield f"{one.kind} promised {units.share(one.promised_share)} at most; won: {won}"


def _section(title: str, changes: tuple[Change, ...]) -> Iterator[str]:
    if changes:
        yield ""
        yield title
    for change in changes:
        yield _row(fitted(change.name, 40), change)


def _row(name: str, change: Change) -> str:
    figures = (change.before_ns, change.after_ns, change.won_ns)
    before, after, won = (units.duration(value) for value in figures)
    return f"  {name:<42}{before:>8}{after:>10}{won:>10}"
