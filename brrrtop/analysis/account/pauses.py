"""What stopped the training thread between the traced spans, as far as marks name it.

A burst holds a few steps and may lie between two saves for a whole watch. Marks come at all times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brrrtop.model import intervals
from brrrtop.model.tables import Window
from brrrtop.model.vocabulary import MarkClass


@dataclass(frozen=True, slots=True)
class Pauses:
    """Marks of one class on the training thread, over the minute around the window or less of it."""

    count: int
    total_ns: int
    """Union of their spans."""
    largest_ns: int
    of_ns: int
    """From the first to the last thing that was seen then."""

    @property
    def share(self) -> float | None:
        """Of the time; None for one alone, whose period nobody knows."""
        return self.total_ns / self.of_ns if self.count > 1 and self.of_ns else None


def pauses(window: Window, kind: MarkClass) -> Pauses | None:
    """Those of a class; None where nobody looked at the training thread, or none was seen.

    The training thread is the one that stack samples are of.
    """
    marks = window.watched
    if marks is None:
        return None
    tids = marks.tids[marks.classes == MarkClass.STACK]
    rows = np.flatnonzero((marks.classes == kind) & np.isin(marks.tids, np.unique(tids)))
    if not len(rows):
        return None
    starts, ends = intervals.merge(marks.starts_ns[rows], marks.ends_ns[rows])
    return Pauses(
        count=len(rows),
        total_ns=int((ends - starts).sum()),
        largest_ns=int((marks.ends_ns[rows] - marks.starts_ns[rows]).max()),
        of_ns=int(marks.ends_ns.max() - marks.starts_ns.min()),
    )
