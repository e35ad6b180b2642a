"""Python frames of a trace → samples of the training thread's stack where the device idled.

The same marks that a live trainer's sampler sends, so that whatever reads those reads these.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from brrrtop.model import intervals
from brrrtop.model.nesting import Nest
from brrrtop.model.tables import I8
from brrrtop.model.vocabulary import MarkClass
from brrrtop.protocol.frames import MARK
from brrrtop.sources.importers.trace.columns import Interned
from brrrtop.text.python_frames import is_users, placed

Array = npt.NDArray[Any]
Columns = dict[str, Array]

SAMPLES = 400
LEAST_GAP_NS = 20_000
"""Between kernels of a queue that is never empty there are shorter ones."""


def samples(frames: Columns, kernels: Columns, copies: Columns, names: Interned) -> Array:
    """One mark an instant at which the device idles, evenly spaced over that time; none without frames.

    Args:
        names: Grows by the stacks.
    """
    starts = np.concatenate([kernels["start_ns"], copies["start_ns"]])
    ends = np.concatenate([kernels["end_ns"], copies["end_ns"]])
    if not len(frames["start_ns"]) or not len(starts):
        return np.zeros(0, MARK)
    busy = intervals.merge_unsorted(starts, ends)
    low, high = busy[1][:-1], busy[0][1:]
    low, high = low[high - low >= LEAST_GAP_NS], high[high - low >= LEAST_GAP_NS]
    whole = int((high - low).sum())
    if not whole:
        return np.zeros(0, MARK)
    tids, counts = np.unique(frames["tid"], return_counts=True)
    points = _spread(low, high, whole)
    stacks = _stacks(frames, int(tids[counts.argmax()]), points, list(names))
    known = [row for row, stack in enumerate(stacks) if stack]
    marks = np.zeros(len(known), MARK)
    marks["start_ns"] = marks["end_ns"] = points[known]
    marks["tid"] = tids[counts.argmax()]
    marks["name_id"] = [names[stacks[row]] for row in known]
    marks["mark_class"] = MarkClass.STACK
    return marks


def _spread(low: I8, high: I8, whole: int) -> I8:
    before = np.concatenate(([0], np.cumsum(high - low)))
    offsets = (np.arange(SAMPLES, dtype=np.float64) + 0.5) * (whole / SAMPLES)
    at = np.searchsorted(before, offsets, "right") - 1
    return np.asarray(low[at] + (offsets - before[at]).astype(np.int64))


def _stacks(frames: Columns, tid: int, points: I8, names: list[str]) -> list[str]:
    """`train.py:12 fetch > <built-in function sleep>` of each instant; empty outside the user's code."""
    mine = np.flatnonzero(frames["tid"] == tid)
    nest = Nest(np.zeros(len(mine), np.int64), frames["start_ns"][mine], frames["end_ns"][mine])
    name_ids = frames["name_id"][mine][nest.order]
    own = np.zeros(len(names), np.bool_)
    used = np.unique(name_ids)
    own[used] = [is_users(names[i]) for i in used.tolist()]
    innermost = nest.holder(np.zeros(len(points), np.int64), points, points)
    at = nest.innermost(innermost, own[name_ids])
    stacks = []
    for user, inner in zip(at.tolist(), innermost.tolist(), strict=True):
        stack = placed(names[name_ids[user]]) if user >= 0 else ""
        if stack and inner != user:
            stack += f" > {placed(names[name_ids[inner]])}"
        stacks.append(stack)
    return stacks
