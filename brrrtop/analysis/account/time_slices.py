"""Time within recorded kernels that another process had: two processes on a GPU take turns.

Without MPS the driver runs one process at a time and stops it when its time slice is over. CUPTI
records a stopped kernel from its start to its end, the other's turn included: the device looks
busy, and a kernel that was hit is longer than its like by a whole turn (2.5 ms on an H200 beside a
neighbour that always has work, less beside one that pauses), however long it takes by itself. A
turn hits whoever runs, so it shows in kernels of many names, out of proportion to what they take,
and between two that were not hit; a kernel that is slow for reasons of its own is so alone, in
proportion, together with those around it, or at the same place of each step. Launches are therefore
compared with those that have the same neighbours on their stream: persistent kernels share one
name and grid among matrices of all sizes, but not their place.

At least what is found was taken: launches without their like, kernels long enough to be hit each
time, copies, collectives (which wait for others by nature) and turns of less than a millisecond
are left as they were recorded.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from brrrtop.analysis.kernels.labels import U8, one_number
from brrrtop.analysis.kernels.traits import by_name
from brrrtop.kernel_names import families
from brrrtop.model import intervals
from brrrtop.model.tables import F8, I8, Activities, ActivityType, Bool, TimeSlices, Window
from collectors.vocabulary import Metric

LEAST_NS = 1_000_000
"""Less extra time is not told from a kernel's own spread."""
LEAST_PART = 0.25
"""Part of its own time that a kernel's clocks and data may well add to it."""
LEAST_LIKE = 3
"""Launches of a kind, from which one may be judged by the others."""
LOW = 10
"""A kind's own pace is at its lowest 1/10: of long kernels few escape all turns."""
LEAST_HIT = 8
LEAST_NAMES = 3
"""Fewer names may be slow for reasons of their own."""
TOLERANCE = 0.15
"""Turns this much longer or shorter are alike. Those of an H200 are more so: 63 launches of 13 names
that a busy neighbour stopped all took 2.54 ms longer, within 2 %."""
MOST_TURNS = 4
"""Of one launch: beyond that any extra time is near a whole number of turns."""
LEAST_ALIKE = 0.6
"""Part of the extra times that are a whole number of turns; by accident it is 0.3."""
MANY_NAMES = 5
"""Where turns are not alike: a mixture of experts has three kernels or four that its data rule."""
OUT_OF_PROPORTION = 2.0
"""Extra time over own time of most launches that turns of any length hit."""
UNTOUCHED = 1.25
"""Over own time: most launches beside one that was hit take less."""
SLOW_TOO = 0.5
"""Part of the extra share of those that were hit: launches beside them that have more are slow for
the same reason, as at low clocks."""
NOBODY: tuple[I8, I8] = (intervals.EMPTY, intervals.EMPTY)


def others_there(window: Window) -> tuple[I8, I8]:
    """When other processes were on the device, merged; never where nobody counted them.

    A count holds until the next one, the first one also before itself. It says that they were
    there, not that they computed.
    """
    gauges, span = window.gauges, window.span
    rows = (gauges.metrics == Metric.FOREIGN_PROCESS_COUNT) & np.isfinite(gauges.values)
    rows &= np.isin(gauges.device_ids, (window.device.device_id, -1))
    if not rows.any():
        return NOBODY
    starts = gauges.times_ns[rows].astype(np.int64)
    ends = np.append(starts[1:], max(span.t1_ns, starts[-1]))
    starts[0] = min(span.t0_ns, starts[0])
    there = gauges.values[rows] > 0
    return intervals.merge(starts[there], ends[there])


def without_other_processes(window: Window, uncut: Window) -> Window:
    """The window with its kernels as long as they had the device, and what others had as `turns`.

    The same again where nobody else was counted, where MPS lets processes run side by side, and
    where no turns show. Which part of a kernel's record was the others' is not known: its end is
    taken for it.

    Args:
        uncut: The same window with all that was recorded, to compare launches with.
    """
    there = others_there(window)
    if window.mps or not len(there[0]) or not len(window.activities):
        return window
    slices = _find_slices(uncut, there)
    if slices is None:
        return window
    acts = window.activities
    everywhere_ns, turn_ns, alike = slices
    extra_ns = everywhere_ns[np.isin(uncut.activities.starts_ns, acts.starts_ns)]
    ends = acts.ends_ns - extra_ns
    hit = np.flatnonzero(extra_ns)
    if not len(hit):
        return window
    taken = intervals.merge_unsorted(ends[hit], acts.ends_ns[hit])
    turns = TimeSlices(*taken, len(hit), turn_ns, alike)
    return replace(window, activities=replace(acts, ends_ns=ends), time_slices=turns)


def _find_slices(window: Window, there: tuple[I8, I8]) -> tuple[I8, int, float] | None:
    """Of each activity the time beyond its own pace, 0 where it was not hit, shape (n,); the length of a
    turn; and the part of the turns that are of that length. None where no turns show."""
    acts = window.activities
    lengths = np.maximum(acts.ends_ns - acts.starts_ns, 0)
    kernels = np.flatnonzero(_judgeable(window))
    if not len(kernels):
        return None
    mine = lengths[kernels]
    _, kind = np.unique(_places(acts)[kernels], return_inverse=True)
    beside = intervals.Cover(*there).between(acts.starts_ns[kernels], acts.ends_ns[kernels]) > 0
    low, counts = _least(mine, kind)
    longer = mine - low >= np.maximum(LEAST_NS, LEAST_PART * low)
    hit = longer & (counts >= LEAST_LIKE) & beside
    names = acts.name_ids[kernels[hit]]
    if np.count_nonzero(hit) < LEAST_HIT or len(np.unique(names)) < LEAST_NAMES:
        return None
    size = int(kind.max()) + 1
    free = np.bincount(kind[~hit], minlength=size)
    own = np.bincount(kind[~hit], mine[~hit], size) / np.maximum(free, 1)
    extra = np.maximum(mine[hit] - np.rint(own[kind[hit]]).astype(np.int64), 0)
    turn_ns, alike = _usual(extra)
    order = np.lexsort((acts.starts_ns[kernels], acts.stream_ids[kernels]))
    if alike < LEAST_ALIKE:
        slower = mine / np.maximum(own[kind], 1.0)
        if len(np.unique(names)) < MANY_NAMES or not _sudden(slower[order], hit[order]):
            return None
        turn_ns = round(float(np.median(extra)))
    elif _in_proportion(
        (mine / np.maximum(low, 1))[order], hit[order], (counts >= LEAST_LIKE)[order], alike
    ):
        return None
    everywhere = np.zeros(len(acts), np.int64)
    everywhere[kernels[hit]] = extra
    return everywhere, turn_ns, alike


def _judgeable(window: Window) -> Bool:
    """Kernels but those that wait for somebody by nature."""
    acts = window.activities
    kernel = np.asarray(acts.types == ActivityType.KERNEL)
    waiting = (families.COMM, families.SPIN)
    waits = by_name(
        window.names, acts.name_ids[kernel], lambda name: families.family_of(name).kind in waiting
    )
    return np.asarray(kernel & (waits[acts.name_ids] == 0))


def _places(acts: Activities) -> U8:
    """One number for what runs, after which two and before which two on its stream; shape (n,)."""
    what = one_number(
        acts.name_ids, acts.blocks, acts.threads, acts.registers, acts.shared_bytes,
        acts.size_bytes, acts.stream_ids,
    )  # fmt: skip
    order = np.lexsort((acts.starts_ns, acts.stream_ids))
    _, kinds = np.unique(what[order], return_inverse=True)
    around = np.concatenate(([-1, -1], kinds, [-1, -1]))
    places = np.empty_like(what)
    places[order] = one_number(*(around[at : at + len(what)] for at in range(5)))
    return places


def _least(lengths: I8, kind: npt.NDArray[np.intp]) -> tuple[I8, I8]:
    """The shortest length of each one's kind but for the lowest tenth, and how many it has; (n,)."""
    order = np.lexsort((lengths, kind))
    counts = np.bincount(kind)
    first = np.cumsum(counts) - counts
    low = lengths[order][first + (counts - 1) // LOW]
    return np.asarray(low[kind]), np.asarray(counts[kind])


def _in_proportion(slower: F8, hit: Bool, like: Bool, alike: float) -> bool:
    """Whether launches are hit in proportion to their own time, or those beside them are slow too:
    low clocks make kernels of one length longer by one time, and no neighbour is needed for it.

    Args:
        slower: Time over the shortest of their kind, of kernels in the order of their streams.
        hit: Which of them were.
        like: Which have enough of their kind.
        alike: Part of them that turns of one length explain.
    """
    at = np.flatnonzero(hit)
    more = slower[at] - 1
    usual = float(np.median(more))
    if usual >= OUT_OF_PROPORTION:
        return False
    beside = _beside(at, len(slower))
    beside = beside[like[beside] & ~hit[beside]]
    if len(beside) and float(np.median(slower[beside])) - 1 > SLOW_TOO * usual:
        return True
    return float(np.mean(np.abs(more / usual - 1) <= TOLERANCE)) >= alike


def _sudden(slower: F8, hit: Bool) -> bool:
    """Whether launches are hit out of proportion, and those just before and after them are not.

    Args:
        slower: Time over own time, of kernels in the order of their streams.
        hit: Which of them were.
    """
    at = np.flatnonzero(hit)
    beside = slower[_beside(at, len(slower))]
    return bool(np.median(slower[at]) >= 1 + OUT_OF_PROPORTION and np.median(beside) <= UNTOUCHED)


def _beside(at: I8, count: int) -> I8:
    """Rows just before and after these, of so many."""
    beside = np.concatenate((at - 1, at + 1))
    return beside[(beside >= 0) & (beside < count)]


def _usual(extra: I8) -> tuple[int, float]:
    """The length of a turn that explains most extra times, and the part it explains."""
    best = 0, 0.0
    for turn in np.maximum(np.quantile(extra, (0.1, 0.25, 0.5)), 1.0).tolist():
        turns = np.clip(np.rint(extra / turn), 1, MOST_TURNS)
        alike = float(np.mean(np.abs(extra / turn - turns) <= TOLERANCE))
        best = max(best, (round(turn), alike), key=lambda one: one[1])
    return best
