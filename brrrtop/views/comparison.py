"""Before and after in words: the same on the screen, in a report and in JSON. No colour."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict

from brrrtop.model.advice import Baseline, Comparison, PromiseResult
from brrrtop.text import phrases, units
from brrrtop.views import tables
from brrrtop.views.table import text_lines, wrap

_HANG = " " * 8
NO_BASELINE = (
    "No baseline yet: m marks what is judged now. Then change one thing and come back here.",
    "A recording or a trace of an earlier run can be the baseline too: --baseline FILE.",
)


def waiting(baseline: Baseline) -> str:
    """Why there is nothing to compare with this baseline yet."""
    return f"Waiting for two whole steps to compare with the baseline ({baseline.label})."


def averaged(steps: float | None) -> str:
    """`mean of 59 steps`: what one side's times are, as reports show the median step; empty where
    they are not of steps."""
    if steps is None:
        return ""
    count = f"{steps:.1f}" if steps < 10 and steps % 1 else f"{steps:.0f}"
    return f"mean of {count} step{'s' * (count != '1')}"


def promise(result: PromiseResult) -> str:
    won = "not measured" if result.won_share is None else units.share(result.won_share)
    if result.won_share is not None and result.is_noise:
        won = f"no change beyond noise ({units.within(result.won_share, result.noise_share)})"
    elif result.won_share is not None and result.won_share < 0:
        won = f"nothing: it costs {units.share(-result.won_share)}"
    kept = result.kept_share
    tail = f", {units.share(kept)} of that" if kept is not None and kept > 0 else ""
    if kept is not None and kept > 1.1:
        tail = ", more than that: something else changed too"
    promised = f"promised {units.share(result.promised_share)} at most"
    if result.predicted:
        promised = f"predicted {units.share(result.promised_share)}"
    return f"{result.kind} {promised}; won: {won}{tail}"


def promises(comparison: Comparison) -> tuple[str, ...]:
    return tuple(promise(one) for one in comparison.promises if one.promised_share is not None)


def lines(comparison: Comparison, before_label: str, after_label: str) -> Iterator[str]:
    yield from wrap(comparison.says, "")
    yield ""
    yield from _sides(comparison, before_label, after_label)
    for kind in comparison.changes:
        yield f"changed {kind}"
    for table in tables.changes(comparison):
        yield from text_lines(table)
    if kept := promises(comparison):
        yield ""
        for sentence in kept:
            yield from wrap(sentence, "", _HANG)


def badges(comparison: Comparison) -> list[str]:
    sides = zip(comparison.regimes, comparison.causes, strict=True)
    return [phrases.badge_of(regime, cause) for regime, cause in sides]


def _sides(comparison: Comparison, before_label: str, after_label: str) -> Iterator[str]:
    labels = (before_label, after_label)
    sides = zip(("before", "after"), labels, badges(comparison), comparison.steps, strict=True)
    for name, label, verdict, steps in sides:
        yield f"{name:<8}{verdict}"
        yield f"        {label}"
        if comparison.per_step and steps is not None:
            yield f"        {averaged(steps)}"


def document(comparison: Comparison) -> dict[str, Any]:
    """For JSON: `comparison` in `brrrtop.compare/1` and in reports with a baseline.

    Times are ns a step, or ns per second of wall where `per_step` is false; `won_ns` is before
    minus after. Shares are of the wall before. What nobody measured is null.
    """
    whole = asdict(comparison)
    verdicts = zip(whole.pop("regimes"), whole.pop("causes"), strict=True)
    whole["verdicts"] = [phrases.verdict(*one) for one in verdicts]
    for key in ("buckets", "families", "kernels"):
        rows = getattr(comparison, key)
        whole[key] = [asdict(row) | {"won_ns": row.won_ns} for row in rows]
    whole["promises"] = [
        asdict(one) | {"kept_share": one.kept_share} for one in comparison.promises
    ]
    return whole
