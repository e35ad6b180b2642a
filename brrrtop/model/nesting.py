"""Which of many intervals holds which, thread by thread."""

from __future__ import annotations

import numpy as np

from brrrtop.model.tables import I8, Bool


class Nest:
    """Ops of all threads as a forest: which op holds which."""

    def __init__(self, tids: I8, starts: I8, ends: I8) -> None:
        self.order = np.lexsort((-ends, starts, tids))
        """Rows of the given columns, by thread and start, outer ops first."""
        self._tids, self._starts, self._ends = (
            tids[self.order],
            starts[self.order],
            ends[self.order],
        )
        parents = np.arange(-1, len(tids) - 1, dtype=np.int64)
        if len(tids):
            parents[0] = -1
            parents[1:][self._tids[1:] != self._tids[:-1]] = -1
        self.parents = self._climb(parents, self._ends)
        """Position in `order` of the op that holds each; -1: outermost."""

    @property
    def durations_ns(self) -> I8:
        """By position in `order`."""
        return self._ends - self._starts

    def _climb(self, candidates: I8, ends: I8) -> I8:
        """From a candidate upwards to the first op that lasts until `ends`.

        While `parents` is being built it is `candidates` itself: everything between a candidate and its
        op ends before the op does, so jumping by unfinished candidates skips nothing.
        """
        chain = getattr(self, "parents", candidates)
        rows = np.flatnonzero(candidates >= 0)
        while len(rows):
            rows = rows[self._ends[candidates[rows]] < ends[rows]]
            candidates[rows] = chain[candidates[rows]]
            rows = rows[candidates[rows] >= 0]
        return candidates

    def holder(self, tids: I8, starts: I8, ends: I8) -> I8:
        """Position of the innermost op of the same thread around each span; -1: none."""
        if not len(self.order):
            return np.full(len(tids), -1, np.int64)
        merged = np.lexsort(
            (
                np.arange(len(self.order) + len(tids)) >= len(self.order),
                np.concatenate([self._starts, starts]),
                np.concatenate([self._tids, tids]),
            )
        )
        is_op = merged < len(self.order)
        before = np.cumsum(is_op)
        holders = np.empty(len(tids), np.int64)
        holders[merged[~is_op] - len(self.order)] = before[~is_op] - 1
        holders[(holders >= 0) & (self._tids[holders] != tids)] = -1
        return self._climb(holders, ends)

    def innermost(self, innermost: I8, wanted: Bool) -> I8:
        """From each position upwards to the first wanted op; -1: there is none."""
        innermost = innermost.copy()
        rows = np.flatnonzero(innermost >= 0)
        while len(rows):
            rows = rows[~wanted[innermost[rows]]]
            innermost[rows] = self.parents[innermost[rows]]
            rows = rows[innermost[rows] >= 0]
        return innermost

    def outermost(self, result: I8, wanted: Bool) -> I8:
        """The outermost wanted op at or above each position; -1: there is none."""
        best = np.full(len(result), -1, np.int64)
        at = result.copy()
        while (rows := np.flatnonzero(at >= 0)).size:
            hit = rows[wanted[at[rows]]]
            best[hit] = at[hit]
            at[rows] = self.parents[at[rows]]
        return best
