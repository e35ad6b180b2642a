"""What kernels are: groups of one name, geometry and op with the verdict on each, spread over the columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from brrrtop.kernel_names.facts import NameFacts
from brrrtop.kernel_names.families import Family
from brrrtop.model.estimate import Side
from brrrtop.model.intervals import EMPTY
from brrrtop.model.tables import F8, I8

EVIDENCE = ("L0", "L1", "L1.5", "L2", "L3")
NOTHING, NAME, BYTES, SHAPES, COUNTERS = range(5)
"""Into `EVIDENCE`."""
BUCKETS = ("compute", "memory", "underfilled", "unknown", "comm", "copy")
"""Where time of each side is booked, by the sides' names."""
WORK, COMM, TRANSFER = 0, 1, 2
"""Classes of the sweep line: kernels and on-device copies, collectives, host or peer copies."""


class Group(Struct, frozen=True):
    """Kernels of one name, geometry and op, and the verdict on them."""

    name: str
    family: Family
    facts: NameFacts
    count: int
    total_ns: int
    blocks: int
    waves: float | None
    fills: float
    """Share of the SMs its grid reaches; 1 for a full grid."""
    side: Side
    certainty: float
    """How sure its side is, 0..1 (`roofline`)."""
    level: int
    """Into `EVIDENCE`."""
    flop: float | None = None
    size_bytes: float | None = None
    precision: str | None = None
    compute_share_of_roof: float | None = None
    memory_share_of_roof: float | None = None
    inner: tuple[int, ...] = ()
    channels: int | None = None
    """Of a convolution's image; None for all else."""
    op: str | None = None

    @property
    def mean_ns(self) -> float:
        return max(self.total_ns / self.count, 1.0)

    @property
    def share_of_own_roof(self) -> float | None:
        """Of its side's ceiling, as its amounts count; None where none sets its time, or nobody tells."""
        if self.side is Side.COMPUTE:
            return self.compute_share_of_roof
        return self.memory_share_of_roof if self.side is Side.MEMORY else None


class Labels(Struct, frozen=True, eq=False):
    """Per activity of a window, shape (n,) each, plus the groups they index."""

    group_of: I8
    groups: tuple[Group, ...]
    buckets: npt.NDArray[np.int8]
    """Into `BUCKETS`."""
    weights: F8
    """For charging time that kernels share: share of the SMs."""

    @property
    def classes(self) -> npt.NDArray[np.int8]:
        """`WORK`, `COMM` or `TRANSFER`."""
        return np.maximum(self.buckets - 3, WORK)  # the first four are work

    def take(self, rows: I8) -> Labels:
        """Those of some of the activities."""
        return Labels(self.group_of[rows], self.groups, self.buckets[rows], self.weights[rows])


NO_LABELS = Labels(EMPTY, (), EMPTY.astype(np.int8), EMPTY.astype(np.float64))
