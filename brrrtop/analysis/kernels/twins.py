"""Kernels whose launch no op is known of, beside others that are the same in all but that.

A trace that begins or ends within a step, or that lost ids, has kernels without an op. Where all kernels
of the same name and geometry that have one did the same work in as much time, so did these.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from brrrtop.analysis.kernels.ops import work_of
from brrrtop.model.tables import F8, I8, Bool, Window

AS_LONG = 1.5
"""Ratio of mean durations up to which two groups of kernels may do the same work: libraries give products
of any size one grid where each block goes through many tiles."""


def twin_groups(
    window: Window, key: npt.NDArray[np.uint64], op_ids: I8, means_ns: F8, bare: Bool
) -> I8:
    """For each group of kernels the one whose op is its own: of a group without one that of its twins,
    where all of them agree; else itself. All shapes (groups,).

    Args:
        key: Equal for groups of one name and geometry.
        op_ids: -1: no op known.
        means_ns: Mean durations.
        bare: Groups that may inherit an op.
    """
    targets = np.arange(len(key))
    linked = np.flatnonzero(op_ids >= 0)
    order = linked[np.argsort(key[linked], kind="stable")]
    for group in np.flatnonzero(bare).tolist():
        low, high = (np.searchsorted(key[order], key[group], side) for side in ("left", "right"))
        twins = order[low:high]
        if not len(twins) or not _agree(window, op_ids[twins].tolist()):
            continue
        ratios = np.maximum(means_ns[twins], 1.0) / max(means_ns[group], 1.0)
        if ratios.max() <= AS_LONG and ratios.min() >= 1 / AS_LONG:
            targets[group] = twins[0]
    return targets


def _agree(window: Window, op_ids: list[int]) -> bool:
    return len(op_ids) == 1 or len({work_of(window.ops[op_id]) for op_id in op_ids}) == 1
