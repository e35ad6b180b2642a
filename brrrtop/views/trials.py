"""What `brrrtop try` prints for people. Computes nothing but the scale: times as fast."""

import textwrap
from collections.abc import Iterator

from brrrtop.model.trials import BasePace, TrialReport, TriedEdit
from brrrtop.text import units

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
