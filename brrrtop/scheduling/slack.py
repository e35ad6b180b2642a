"""How much of what tracing adds is absorbed by waits for loader workers. No clock, no I/O.

A thread that comes late to a loader whose workers are behind waits that much less: its extra time is
on nobody's critical path. Extra time is owed until as much of it has been waited for, halved for
safety; a stretch at whose end nothing is owed cost nothing. Loaders without workers absorb nothing:
what they do is done by the training thread itself.
"""

import numpy as np
from msgspec import Struct

from brrrtop.model.tables import I8

SECOND = 1_000_000_000
KEEP_NS = 30 * SECOND
LEAST_NS = 3 * SECOND
"""Of watching, before waits are relied upon."""
_BIN_NS = 50_000_000
GUST_MOST_NS = 5 * SECOND
"""Waits that are further apart than this absorb no burst that ends between them."""
_ABSORBED = 0.5
"""Of a wait: the other half is kept for what the estimate of the extra time lacks."""
RELIABLE = 0.9
"""Of the time of late lies in stretches that cost nothing: the next burst will too."""


class Absorbed(Struct, frozen=True):
    """What waits would have made of tracing all the time of late."""

    share: float
    """Of the time, in stretches at whose end nothing was owed."""
    gust_ns: int
    """The longest of nine tenths of those stretches: a burst as long ends behind a wait."""

    @property
    def reliable(self) -> bool:
        return self.share >= RELIABLE


class Slack:
    """Waits for loaders with workers in, in any order between calls; what they absorb out."""

    def __init__(self) -> None:
        self._starts = np.zeros(0, np.int64)
        self._ends = np.zeros(0, np.int64)
        self._since_ns: int | None = None

    def add_waits(self, starts_ns: I8, ends_ns: I8) -> None:
        if not len(ends_ns):
            return
        if self._since_ns is None:
            self._since_ns = int(starts_ns.min())
        starts = np.concatenate([self._starts, starts_ns])
        ends = np.concatenate([self._ends, ends_ns])
        kept = np.flatnonzero(ends > ends.max() - KEEP_NS)
        kept = kept[np.argsort(ends[kept], kind="stable")]
        self._starts, self._ends = starts[kept], ends[kept]

    def absorbed(self, now_ns: int, rate: float, stall_ns: float) -> Absorbed:
        """Had all been traced of late, in bursts that begin behind each stretch that cost nothing.

        Args:
            rate: What tracing adds to each ns that is not waited.
            stall_ns: What it adds once, where a burst begins.
        """
        first_ns = max(now_ns - KEEP_NS, self._since_ns or now_ns)
        if now_ns - first_ns < LEAST_NS:
            return Absorbed(0.0, 0)
        since_ns, waited, stretches = first_ns, 0, []
        for end_ns, wait_ns in self._binned(first_ns, now_ns):
            waited += wait_ns
            worked = max(end_ns - since_ns - waited, 0)
            if end_ns - since_ns > GUST_MOST_NS:
                since_ns, waited = end_ns, 0
            elif _ABSORBED * waited >= stall_ns + rate * worked:
                stretches.append(end_ns - since_ns)
                since_ns, waited = end_ns, 0
        if not stretches:
            return Absorbed(0.0, 0)
        gust_ns = int(np.quantile(stretches, 0.9))
        under_way_ns = min(now_ns - since_ns, 2 * gust_ns)
        share = sum(stretches) / max(now_ns - first_ns - under_way_ns, 1)
        return Absorbed(min(share, 1.0), gust_ns)

    def left_of(self, start_ns: int, end_ns: int, rate: float, stall_ns: float) -> float:
        """What a burst from then to then still owed `GUST_MOST_NS` later, in ns."""
        owed, since_ns = stall_ns, start_ns
        for at_ns, wait_ns in self._binned(start_ns, end_ns + GUST_MOST_NS):
            worked = min(at_ns, end_ns) - since_ns - wait_ns
            owed = max(owed + rate * max(worked, 0) - _ABSORBED * wait_ns, 0.0)
            since_ns = max(min(at_ns, end_ns), since_ns)
        return owed + rate * max(end_ns - since_ns, 0)

    def worked_ns(self, start_ns: int, end_ns: int) -> int:
        """Of that time, what was not waited."""
        waited = np.minimum(self._ends, end_ns) - np.maximum(self._starts, start_ns)
        return end_ns - start_ns - int(waited.clip(0).sum())

    def _binned(self, from_ns: int, to_ns: int) -> list[tuple[int, int]]:
        """Ends of bins in which waits ended, and what was waited there: of each wait the part after
        `from_ns`."""
        rows = (self._ends > from_ns) & (self._ends <= to_ns)
        ends = self._ends[rows]
        lengths = ends - np.maximum(self._starts[rows], from_ns)
        if not len(ends):
            return []
        bins = (ends - from_ns) // _BIN_NS
        firsts = np.flatnonzero(np.diff(bins, prepend=-1))
        sums = np.add.reduceat(lengths, firsts)
        lasts = ends[np.append(firsts[1:], len(ends)) - 1]
        return list(zip(lasts.tolist(), sums.tolist(), strict=True))
