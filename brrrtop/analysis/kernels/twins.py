"""Kernels whose launch no op is known of, beside others that are the same in all but that.

A trace that begins or ends within a step, or that lost ids, has kernels without an op. Where all kernels
of the same name and geometry that have one did the same work in as much time, so did these.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from brrrtop.analysis.kernels.ops import work_of
from brrrtop.model.tables import I8, ActivityType, Window

AS_LONG = 1.5
"""Ratio of mean durations up to which two groups of kernels may do the same work: libraries give products
of any size one grid where each block goes through many tiles."""


def inherited(window: Window, key: npt.NDArray[np.uint64], op_ids: I8) -> I8:
    """The op of each activity, with those of twins where all of them agree.

    Args:
        key: Equal for activities of one name and geometry.
        op_ids: -1: no op known.
    """
    acts = window.activities
    linked = op_ids >= 0
    bare = ~linked & (acts.types == ActivityType.KERNEL) & (acts.graph_ids == 0)
    if not bare.any() or not linked.any():
        return op_ids
    _, twin_of = np.unique(key, return_inverse=True)
    count = int(twin_of.max()) + 1
    both = np.flatnonzero(
        (np.bincount(twin_of[bare], minlength=count) > 0)
        & (np.bincount(twin_of[linked], minlength=count) > 0)
    )
    lengths = (acts.ends_ns - acts.starts_ns).astype(np.float64)
    means = [
        np.bincount(twin_of[some], lengths[some], count)[both]
        / np.bincount(twin_of[some], minlength=count)[both]
        for some in (linked, bare)
    ]
    ratio = np.maximum(means[0], 1.0) / np.maximum(means[1], 1.0)
    alike = both[(ratio <= AS_LONG) & (ratio >= 1 / AS_LONG)]
    shared = np.full(count, -1, np.int64)
    pairs = np.unique(np.stack((twin_of[linked], op_ids[linked])), axis=1)
    for twin in alike.tolist():
        shared[twin] = _agreed(window, pairs[1][pairs[0] == twin].tolist())
    return np.where(bare, shared[twin_of], op_ids)


def _agreed(window: Window, op_ids: list[int]) -> int:
    """One of these ops if all of them are as much work; -1 if not."""
    works = {work_of(window.ops[op_id]) for op_id in op_ids} if len(op_ids) > 1 else {None}
    return op_ids[0] if len(works) == 1 else -1
