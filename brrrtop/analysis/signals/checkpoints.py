"""Saves of the training state: bursts of large copies to the host that the loop stands still for.

`torch.save` copies tensor after tensor to pageable memory and writes each to the file: many copies,
no kernel between them, and nothing on the device until the file is closed. Probes mark the call;
without marks the pattern speaks: in a few of many steps, many large copies in one go. What reads
results back does so every step, or launches kernels between its copies.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from brrrtop.analysis.signals.joined import Joined, mark_spans
from brrrtop.model import intervals
from brrrtop.model.tables import I8, Bool
from brrrtop.model.vocabulary import CopyKind, MarkClass

READ_BACK_BYTES = 4096
"""A value, a flag or a few of them: a larger copy to the host is traffic."""
LEAST_COPIES = 8
"""Large copies in one go: four layers' weights and biases; a batch's results are fewer tensors."""
LEAST_BYTES = 4_000_000
"""A state of a million parameters; less is written in no time."""
FEW = 0.5
"""Saves a step, at most."""
LEAST_STEPS = 3.0
"""In a shorter window one copy of results looks like a save: one of two steps is half of them."""


class Checkpoints(Struct, frozen=True, eq=False):
    """Saves in the window."""

    count: int
    marked: bool
    """Probes saw the calls; else their copies look like it."""
    repeated: bool
    """Most sizes come twice or more: parameters beside the optimizer's state of the same shapes."""
    copies: int
    size_bytes: int
    exposed_ns: int
    """Copies with no kernel beside them."""
    idle_ns: int
    """Idle gaps from the last kernel before to the first one after."""
    largest_ns: int
    """Copies and gaps of the longest."""
    rows: Bool
    """Which activities are their copies, shape (n,)."""
    starts_ns: I8
    """Shape (count,), sorted: when the device had nothing but the save."""
    ends_ns: I8


def saves(joined: Joined, steps: float | None) -> Checkpoints | None:
    """Saves of the window; None where nothing looks like one.

    Args:
        joined: The window's activities.
        steps: How many the window covers, where something marks them; else nothing tells an unmarked
            save from reading back.
    """
    activities = joined.window.activities
    down = np.asarray((activities.copy_kinds == CopyKind.DTOH) & ~joined.kernels)
    large = down & (activities.size_bytes > READ_BACK_BYTES)
    if not large.any():
        return None
    burst = np.cumsum(joined.kernels, dtype=np.int64)
    starts, ends = mark_spans(joined.window, MarkClass.CHECKPOINT)
    marked = bool(len(starts))
    if marked:
        launched = joined.launched_ns
        rows = down & (intervals.Cover(starts, ends).between(launched, launched + 1) > 0)
    else:
        rows = down & _looks_like(burst, large, activities.size_bytes)[burst]
        covered = steps or 0.0
        rows &= covered >= LEAST_STEPS and len(np.unique(burst[rows])) <= FEW * covered
    return _sum(joined, rows, burst, marked) if (rows & large).any() else None


def _looks_like(burst: I8, large: Bool, sizes: I8) -> Bool:
    """Which bursts look like a save; `burst` counts the kernels before each activity."""
    length = int(burst[-1]) + 1
    counts = np.bincount(burst[large], minlength=length)
    sums = np.bincount(burst[large], sizes[large].astype(np.float64), minlength=length)
    return np.asarray((counts >= LEAST_COPIES) & (sums >= LEAST_BYTES))


def _sum(joined: Joined, rows: Bool, burst: I8, marked: bool) -> Checkpoints:
    activities, span = joined.window.activities, joined.window.span
    which = np.unique(burst[rows])
    reach = np.maximum.accumulate(np.where(joined.kernels, activities.ends_ns, span.t0_ns))
    low = np.maximum(reach[np.searchsorted(burst, which)], span.t0_ns)
    following = np.append(activities.starts_ns, span.t1_ns)
    after = following[np.searchsorted(burst, which, "right")]
    high = np.maximum(np.minimum(after, span.t1_ns), low)
    copying = intervals.Cover(
        *intervals.merge(activities.starts_ns[rows], activities.ends_ns[rows])
    ).between(low, high)
    # Gaps hold no time that was not traced.
    idle = intervals.Cover(joined.gap_starts_ns, joined.gap_ends_ns).between(low, high)
    large = rows & (activities.size_bytes > READ_BACK_BYTES)
    _, times = np.unique(activities.size_bytes[large], return_counts=True)
    return Checkpoints(
        count=len(which),
        marked=marked,
        repeated=bool(times[times > 1].sum() * 2 > times.sum()),
        copies=int(rows.sum()),
        size_bytes=int(np.maximum(activities.size_bytes[rows], 0).sum()),
        exposed_ns=int(copying.sum()),
        idle_ns=int(idle.sum()),
        largest_ns=int((copying + idle).max(initial=0)),
        rows=rows,
        starts_ns=low,
        ends_ns=high,
    )
