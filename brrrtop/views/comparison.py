"""Before and after in words: the same on the screen, in a report and in JSON. No colour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict

from brrrtop.kernel_names.readable import fitted
from brrrtop.model.comparison import Baseline, Change, Comparison, PromiseResult
from brrrtop.text import units

FAMILIES_SHOWN = 8
KERNELS_SHOWN = 8
NO_BASELINE = (
    "No baseline yet: m marks what is judged now. Then change one thing and come back here.",
    "A recording or a trace of an earlier run can be the baseline too: --baseline FILE.",
)


def waiting(baseline: Baseline) -> str:
    """Why there is nothing to compare with this baseline yet."""
    return f"Waiting for two whole steps to compare with the baseline ({baseline.label})."


def unit(comparison: Comparison) -> str:
    """What the times of a comparison are of."""
    return "per step, mean" if comparison.per_step else "per second"


def averaged(steps: float | None) -> str:
    """`mean of 59 steps`: what one side's times are, as reports show the median step; empty where
    they are not of steps."""
    if steps is None:
        return ""
    count = f"{steps:.1f}" if steps < 10 and steps % 1 else f"{steps:.0f}"
    return f"mean of {count} step{'s' * (count != '1')}"


def promise(one: PromiseResult) -> str:
    """What one advisory promised, and what came of it."""
    won = "not measured" if one.won_share is None else units.share(one.won_share)
    if one.won_share is not None and one.is_noise:
        won = f"no change beyond noise ({units.within(one.won_share, one.noise_share)})"
    elif one.won_share is not None and one.won_share < 0:
        won = f"nothing: it costs {units.share(-one.won_share)}"
    kept = one.kept_share
    tail = f", {units.share(kept)} of that" if kept is not None and kept > 0 else ""
    if kept is not None and kept > 1.1:
        tail = ", more than that: something else changed too"
    promised = f"promised {units.share(one.promised_share)} at most"
    if one.predicted:
        promised = f"predicted {units.share(one.promised_share)}"
    return f"{one.kind} {promised}; won: {won}{tail}"


def promises(comparison: Comparison) -> tuple[str, ...]:
    """All promises of a size, as sentences."""
    return tuple(promise(one) for one in comparison.promises if one.promised_share is not None)


def lines(comparison: Comparison, before_label: str, after_label: str) -> Iterator[str]:
    """The comparison in 80 columns, the sentence first."""
    yield from _wrap(comparison.says, "")
    yield ""
    yield from _sides(comparison, before_label, after_label)
    for kind in comparison.changes:
        yield f"changed {kind}"
    yield ""
    yield f"{unit(comparison):<44}  before     after       won"
    yield _row("the whole", Change("", comparison.before_ns, comparison.after_ns))
    for change in comparison.buckets:
        yield _row(change.name, change)
    yield from _section("kernels by family", comparison.families[:FAMILIES_SHOWN])
    yield from _section("kernels that changed most", comparison.kernels[:KERNELS_SHOWN])
    if kept := promises(comparison):
        yield ""
        for sentence in kept:
            yield from _wrap(sentence)


def _sides(comparison: Comparison, before_label: str, after_label: str) -> Iterator[str]:
    labels = (before_label, after_label)
    sides = zip(("before", "after"), labels, comparison.verdicts, comparison.steps, strict=True)
    for name, label, verdict, steps in sides:
        yield f"{name:<8}{verdict}"
        yield f"        {label}"
        if comparison.per_step and steps is not None:
            yield f"        {averaged(steps)}"


def _wrap(sentence: str, hang: str = " " * 8) -> Iterator[str]:
    import textwrap

    yield from textwrap.wrap(sentence, 80, subsequent_indent=hang)


def _section(title: str, changes: tuple[Change, ...]) -> Iterator[str]:
    if changes:
        yield ""
        yield title
    for change in changes:
        yield _row(fitted(change.name, 40), change)


def _row(name: str, change: Change) -> str:
    before, after, won = figures(change)
    return f"  {name:<42}{before:>8}{after:>10}{won:>10}"


def figures(change: Change) -> tuple[str, str, str]:
    """Before, after and won, as people read them."""
    before, after, won = (
        units.duration(value) for value in (change.before_ns, change.after_ns, change.won_ns)
    )
    return before, after, won


def document(comparison: Comparison) -> dict[str, Any]:
    """For JSON: `comparison` in `brrrtop.compare/1` and in reports with a baseline.

    Times are ns a step, or ns per second of wall where `per_step` is false; `won_ns` is before
    minus after. Shares are of the wall before. What nobody measured is null.
    """
    whole = asdict(comparison)
    del whole["regimes"]  # the verdicts name them
    for key in ("buckets", "families", "kernels"):
        rows = getattr(comparison, key)
        whole[key] = [asdict(row) | {"won_ns": row.won_ns} for row in rows]
    whole["promises"] = [
        asdict(one) | {"kept_share": one.kept_share} for one in comparison.promises
    ]
    return whole
