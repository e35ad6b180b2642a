"""Copies between host and device, batches that arrive late; how much of it the device sees."""

import numpy as np
from msgspec import Struct

from brrrtop.analysis.facts.table import READ_BACK_BYTES, Facts
from brrrtop.model import intervals
from brrrtop.model.tables import Bool
from collectors.vocabulary import CopyKind, MemoryKind

FAULT_NS = 50_000
"""A page fault takes tens of microseconds (NVIDIA, "Maximizing Unified Memory Performance in CUDA", 2017)."""


class Copies(Struct, frozen=True):
    count: int = 0
    size_bytes: int = 0
    total_ns: int = 0
    exposed_ns: int = 0
    """With no kernel beside them; of copies to the host, which run beside uploads, no upload either."""
    large: int = 0
    """Copies of more than a few values."""
    after_ns: int = 0
    """Idle right after one of them, until the next activity."""
    early: int = 0
    """Copies that ended before the first kernel began."""

    @property
    def bytes_per_s(self) -> float | None:
        return self.size_bytes * 1e9 / self.total_ns if self.total_ns else None


class Transfers(Struct, frozen=True):
    """Host copies and memsets of the window."""

    pageable_up: Copies
    pinned_up: Copies
    pageable_down: Copies
    pinned_down: Copies
    saved: Copies
    """To the host within saves: none of the others."""
    pages: Copies
    """Of managed memory, which moves by itself: none of the others."""
    fault_ns: int
    """Idle before a page moves, as far as a fault may take so long: the rest is the host's own work."""
    set_ns: int
    """Memsets."""
    set_bytes: int


def transfers(facts: Facts) -> Transfers:
    activities = facts.window.activities
    kernels = facts.kernels
    gap_rows, gap_starts, gap_ends = facts.gaps
    pageable_source = activities.src_kinds == MemoryKind.PAGEABLE
    pageable_target = activities.dst_kinds == MemoryKind.PAGEABLE
    copied = (
        ~kernels & ~facts.migrations
    )  # pages that move by themselves: nobody wrote these copies
    up = (activities.copy_kinds == CopyKind.HTOD) & copied
    down = (activities.copy_kinds == CopyKind.DTOH) & copied
    saved = down & facts.in_save
    down &= ~saved
    first_ns = int(activities.starts_ns[kernels].min(initial=np.iinfo(np.int64).max))

    def copies(rows: Bool, others: Bool = kernels) -> Copies:
        cover = intervals.Cover(
            *intervals.merge(activities.starts_ns[others], activities.ends_ns[others])
        )
        hidden = cover.between(activities.starts_ns[rows], activities.ends_ns[rows])
        length = activities.ends_ns[rows] - activities.starts_ns[rows]
        large = rows & (activities.size_bytes > READ_BACK_BYTES)
        follows = np.isin(gap_starts, activities.ends_ns[large])
        return Copies(
            count=int(rows.sum()),
            size_bytes=int(np.maximum(activities.size_bytes[rows], 0).sum()),
            total_ns=int(length.sum()),
            exposed_ns=int((length - hidden).sum()),
            large=int(large.sum()),
            after_ns=int((gap_ends - gap_starts)[follows].sum()),
            early=int((activities.ends_ns[rows] <= first_ns).sum()),
        )

    sets = activities.types == 2
    return Transfers(
        pageable_up=copies(np.asarray(up & pageable_source)),
        pinned_up=copies(np.asarray(up & ~pageable_source)),
        pageable_down=copies(np.asarray(down & pageable_target), kernels | up),
        pinned_down=copies(np.asarray(down & ~pageable_target), kernels | up),
        saved=copies(np.asarray(saved)),
        pages=copies(facts.migrations),
        fault_ns=int(np.minimum(gap_ends - gap_starts, FAULT_NS)[facts.migrations[gap_rows]].sum()),
        set_ns=facts.total_ns(np.asarray(sets)),
        set_bytes=int(np.maximum(activities.size_bytes[sets], 0).sum()),
    )
