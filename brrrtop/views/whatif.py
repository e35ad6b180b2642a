"""What-if in words: the same on the screen and in a report. No colour."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.text import phrases, units

WIDTH = 80
WORTH_A_LINE = 0.01
"""Of an edit that wins less nobody needs the line of code."""
MOST_QUIET = 4
"""Edits whose gain without the profiler is said, too."""
TWICE = -1.0
"""A saving at which steps are twice as long; below, how many times as long says more."""
TERMS = (
    "One step, simulated with the edit made; the range holds the true saving four times of five. "
    "double-batch: an offer, per sample; it changes the training."
)


def percent(share: float) -> str:
    """0.341 → `34%`, without a sign before 0."""
    return f"{round(100 * share)}%"


def span(low: float, high: float) -> str:
    """0.28, 0.41 → `28-41%`; `-2 to 3%` where a sign would read as a dash."""
    between = "-" if round(100 * low) >= 0 else " to "
    return f"{round(100 * low)}{between}{percent(high)}"


def saving(row: WhatIf) -> tuple[str, str]:
    """What an edit saves, and from where to where: `34%`, `28-41%`. Of one that makes steps more than
    twice as long: `slower`, `1.6-5.9× as long`."""
    if row.saves > TWICE:
        return percent(row.saves), span(row.saves_low, row.saves_high)
    return "slower", f"{1 - row.saves_high:.1f}-{1 - row.saves_low:.1f}× as long"


def times(row: WhatIf) -> str:
    """`4.46 ms → 2.88 ms`."""
    return f"{units.duration(row.present_ns)} → {units.duration(row.step_ns)}"


def last(pair: WhatIf) -> str:
    """The edit that a pair ends with."""
    return pair.edit.rsplit("+", maxsplit=1)[-1]


def more(pair: WhatIf, first: WhatIf) -> str:
    """What the second of two edits adds to the first: `4% more`, of the step as it is now."""
    if pair.saves < 0 < first.saves:
        return "slower than now"
    added = round(100 * (pair.saves - first.saves))
    if added == 0:
        return "nothing more"
    return f"{added}% more" if added > 0 else f"{-added}% less"


def gain(advisory: Advisory, most: str = "at most ") -> str | None:
    """`saves 34% (28-41%)` where it was simulated, else `saves at most 42%`; None: it saves nothing itself.
    Of an edit that `brrrtop try` has measured `tried: +31 %`: so many more steps a second.

    Args:
        most: What stands before a bound.
    """
    if advisory.tried is not None and advisory.tried < 1:
        return f"tried: {100 / (1 - advisory.tried) - 100:+.0f} %"
    if advisory.saves is not None and advisory.saves_at_most is not None:
        low = advisory.saves if advisory.saves_low is None else advisory.saves_low
        return f"saves {percent(advisory.saves)} ({span(low, advisory.saves_at_most)})"
    if advisory.saves_at_most is None:
        return None
    return f"saves {most}{units.share(advisory.saves_at_most)}"


def lines(rows: Sequence[WhatIf], after: Sequence[WhatIf]) -> Iterator[str]:
    """The table in 80 columns, and what comes after the best edit."""
    yield f"{'What if':<27}{'now → then':>22}{'saves':>8}  range"
    for row in rows:
        saves, between = saving(row)
        yield f"  {row.edit:<25}{times(row):>22}{saves:>8}  {between}"
        if row.saves >= WORTH_A_LINE:
            yield from textwrap.wrap(
                row.line, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 8
            )
        if row.risk:
            yield from textwrap.wrap(
                phrases.RISKS[row.risk], WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 8
            )
    if after:
        next_edits = ", ".join(f"{last(pair)} {more(pair, rows[0])}" for pair in after)
        yield from textwrap.wrap(
            f"After {rows[0].edit}: {next_edits}.",
            WIDTH,
            initial_indent="  ",
            subsequent_indent="    ",
            break_on_hyphens=False,
        )
    yield from textwrap.wrap(terms(rows), WIDTH, initial_indent="  ", subsequent_indent="  ")


def terms(rows: Sequence[WhatIf]) -> str:
    """What the table's figures are, with what is simulated of a step without its profiler."""
    quiet = [(row.edit, row.unprofiled) for row in rows if row.unprofiled is not None]
    if not quiet:
        return TERMS
    saved = ", ".join(f"{edit} {percent(gain.saves)}" for edit, gain in quiet[:MOST_QUIET])
    return f"{TERMS} now: as recorded. Without the profiler, simulated: {saved}."
