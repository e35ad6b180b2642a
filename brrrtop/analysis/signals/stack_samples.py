"""Where samples found the training thread: of the judged span, or of the minute around it.

The agent looks at the thread now and then, so that it costs nothing, and traces for a moment: few
samples fall into a span of one burst. The loop does the same outside it, so where a span holds too
few of them those of the watch speak for it. What they give the idle time is an estimate, in
proportion: it is told by how many they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from brrrtop.analysis.signals import stack_lines
from brrrtop.model import intervals
from brrrtop.model.stack_samples import Line, StackSamples
from brrrtop.model.tables import I8, Marks, Window
from brrrtop.model.vocabulary import MarkClass

LEAST_SAMPLES = 20
"""Fewer samples put too wide an error on a line's share."""
LEAST_PART = 0.25
"""Of the samples: a cause or a line that fewer of them name is not told from chance."""
FEW_SAMPLES, MOST_OF_FEW = 5, 0.5
"""So few name a line, for a sentence that says how many they were, where most are at it."""
_Z = 1.96
"""Of the normal distribution, for 95 %."""


def looks(window: Window, named: tuple[MarkClass, ...]) -> StackSamples | None:
    """Samples outside marks of the classes `named`, which name a cause; None without any."""
    marks, rows = window.marks, _outside(window.marks, named)
    within = len(rows) >= LEAST_SAMPLES or window.watched is None
    if not within:
        assert window.watched is not None
        marks, rows = window.watched, _outside(window.watched, named)
    if not len(rows):
        return None
    shares = stack_lines.shares(window.names, marks.name_ids[rows])
    at = marks.starts_ns[rows]
    return StackSamples(
        count=len(rows),
        span_ns=int(at.max() - at.min()),
        within=within,
        lines=_lines(window.names, marks.name_ids[rows]),
        shares=shares,
        io_bounds=bounds(shares.get("io", 0.0), len(rows)),
    )


def io_part(samples: StackSamples | None) -> float:
    """Part of the host's unexplained idle time that is `io`: that of the samples whose line reads
    as file or network work. 0 where too few samples or too small a part would make it a guess.

    Such a part of the wall is idle as often as the rest of the host's time, which lies between the
    least and the most that the two shares allow.
    """
    if samples is None or samples.count < LEAST_SAMPLES:
        return 0.0
    part = samples.shares.get("io", 0.0)
    return part if part >= LEAST_PART else 0.0


def bounds(part: float, count: int) -> tuple[float, float]:
    """Between which shares the true one is, 95 times of 100 (Wilson's score interval).

    Args:
        part: Of `count` samples, taken to be independent.
    """
    square = _Z * _Z / count
    middle = (part + square / 2) / (1 + square)
    reach = _Z * np.sqrt(part * (1 - part) / count + square / (4 * count)) / (1 + square)
    return max(0.0, float(middle - reach)), min(1.0, float(middle + reach))


def _outside(marks: Marks, named: tuple[MarkClass, ...]) -> I8:
    """Rows of the samples that no mark of these classes holds."""
    rows = np.flatnonzero(marks.classes == MarkClass.STACK)
    spans = np.isin(marks.classes, np.array([int(c) for c in named]))
    cover = intervals.Cover(*intervals.merge(marks.starts_ns[spans], marks.ends_ns[spans]))
    at = marks.starts_ns[rows]
    return np.asarray(rows[cover.between(at, at + 1) == 0])


def _lines(names: Sequence[str], name_ids: I8) -> tuple[Line, ...]:
    """Lines of the user's own code that enough samples are at, whatever was called from there."""
    total = len(name_ids)
    at, inside = by_line(names, name_ids)
    least = LEAST_PART if total >= LEAST_SAMPLES else MOST_OF_FEW
    if total < FEW_SAMPLES:
        return ()
    return tuple(
        Line(*place, count, *reading(inside[place]))
        for place, count in at.most_common()
        if count >= least * total
    )


def by_line(
    names: Sequence[str], name_ids: I8
) -> tuple[Counter[tuple[str, str]], dict[tuple[str, str], str]]:
    """Samples by line of the user's own code, its place and its source, whatever was called from
    there; and the name of most samples of each.
    """
    at: Counter[tuple[str, str]] = Counter()
    inside: dict[tuple[str, str], Counter[str]] = {}
    ids, counts = np.unique(name_ids, return_counts=True)
    for name_id, count in zip(ids.tolist(), counts.tolist(), strict=True):
        place = stack_lines.parted(names[name_id])
        at[place] += count
        inside.setdefault(place, Counter())[names[name_id]] += count
    return at, {place: most.most_common(1)[0][0] for place, most in inside.items()}


def reading(name: str) -> tuple[str | None, bool]:
    """The cause that a sample's line names, and whether it reads a file."""
    cause = stack_lines.reads_as(name)
    return cause, cause == "io" and stack_lines.is_reading(name)
