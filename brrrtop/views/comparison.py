"""Before and after in words: the same on the screen, in a report and in JSON; what `brrrtop try` prints."""

import textwrap
from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict

from brrrtop.model.advice import Baseline, Comparison, PromiseResult
from brrrtop.model.trials import BasePace, TrialReport, TriedEdit
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


WIDTH = 80
_COLUMNS = "  {:<33}{:>10}{:>9}  {:<14}{:>9}"
_LOSS_SIGNS = 0.00005
"""A relative difference that four digits show as none."""


def heading() -> str:
    return _COLUMNS.format("edit", "predicted", "measured", "95 %", "memory").rstrip()


def base_line(base: BasePace) -> str:
    """`as it is: 51.5 ms a step ±0.4, 311 samples/s, 76% of it waiting for data`."""
    unit = {"step": "a step", "batch": "a batch"}.get(base.unit, "a backward pass")
    parts = [f"{_ms(base.step_ms)} {unit} ± {_ms(base.step_ms_error)}"]
    if base.samples_per_s is not None:
        parts.append(f"{units.figure(base.samples_per_s)} samples/s")
    parts.append(f"{units.share(base.waits)} of it waiting for data")
    if base.peak_bytes is not None:
        parts.append(f"{units.size(base.peak_bytes)} at the peak")
    if base.runs > 1:
        parts.append(f"{base.runs} runs, {units.share(base.drift)} apart")
    return f"as it is: {', '.join(parts)}"


def rows(row: TriedEdit) -> Iterator[str]:
    predicted = units.UNMEASURED if row.predicted is None else _times(row.predicted)
    measured, between = units.UNMEASURED, ""
    if row.measured is not None:
        assert row.measured_low is not None and row.measured_high is not None
        measured = _times(row.measured)
        between = f"{_times(row.measured_low)[:-1]}–{_times(row.measured_high)}"
    memory = units.size(row.peak_bytes)
    yield _COLUMNS.format(row.edit, predicted, measured, between, memory).rstrip()
    notes = list(_notes(row))
    if notes:
        yield from _wrap(", ".join(notes), "      ")


def _notes(row: TriedEdit) -> Iterator[str]:
    if row.fault is not None:
        yield f"failed: {row.fault}"
    if row.stopped_early:
        yield "slower from the start, ended early"
    if row.compile_s is not None:
        pays = (
            ""
            if row.pays_back_steps is None
            else f", paid back after {row.pays_back_steps:,} steps"
        )
        yield f"starts {row.compile_s:.0f} s later{pays}"
    if row.samples_per_s is not None:
        yield f"{units.figure(row.samples_per_s)} samples/s"
    if row.loss_difference is not None:
        same = abs(row.loss_difference) < _LOSS_SIGNS
        yield "same loss" if same else f"loss {100 * row.loss_difference:+.2f} %"
    if row.changes_numbers:
        yield "changes the numbers"


def closing(report: TrialReport, command: str) -> Iterator[str]:
    """The lines to write, what was not tried, and how to check the change."""
    yield ""
    best = next((row for row in report.edits if row.edit == "+".join(report.best)), None)
    if best is None or best.measured is None:
        yield "Nothing that was tried is faster for certain: keep the program as it is."
    else:
        yield f"Best: {best.edit}, {_times(best.measured)} as fast. Write"
        for line in report.lines.values():
            yield f"    {line}"
        if best.changes_numbers:
            yield from _wrap("It changes the numbers: see that it still learns as well.", "  ")
        if (
            report.base is not None and report.base.gpu is not None
        ):  # else there is nothing to record
            yield "and check it:"
            yield f"    brrrtop run --record before.brrr -- {command}   # after.brrr: with the edit"
            yield "    brrrtop compare before.brrr after.brrr"
            expects = [f"{_ms(best.step_ms or 0)} a step", *report.checks]
            yield from _wrap(f"which is to show: {', '.join(expects)}.", "  ")
    if report.skipped:
        by_reason: dict[str, list[str]] = {}
        for name, reason in report.skipped.items():
            by_reason.setdefault(reason, []).append(name)
        texts = [f"{', '.join(names)} ({reason})" for reason, names in by_reason.items()]
        yield from _wrap(f"Not tried: {'; '.join(texts)}.", "")


def _times(saves: float) -> str:
    """Of a share of the time that is saved: `1.35×`."""
    return f"{1 / (1 - saves):.2f}×" if saves < 1 else units.UNMEASURED


def _ms(value_ms: float) -> str:
    return units.duration(value_ms * 1e6)


def _wrap(text: str, lead: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=lead, subsequent_indent=lead + "  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
