"""Finds the products of attention written out: the one that fills the scores and the one that uses them.

Their names say GEMM, and without shapes nothing else does. But what stands on both sides of a
softmax has the scores as its output or input: at most `head size` FLOPs a byte, and head sizes are
64 to 128 where ridges are 139 (V100) to 295 (H100). Such a product is on the memory side of any GPU
(regime theory study, section 0: 61 FLOP/B on an H100).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from brrrtop.kernel_names.families import family_of
from brrrtop.model.tables import I8, Activities, Bool, Window

_BETWEEN, _PRODUCT, _SOFTMAX, _BACKWARD, _OTHER = range(5)
_PRODUCTS = frozenset({"gemm", "gemm-skinny"})
_PASSING = frozenset(
    {"elementwise", "activation", "random", "rearrange", "reduction", "concat", "copy", "memset"}
)


def score_products(window: Window) -> Bool | None:
    """Whether each activity is such a product, shape (n,); None where no softmax ran."""
    acts = window.activities
    kinds = np.full(len(window.names), _OTHER, np.int8)
    used = np.unique(acts.name_ids)
    for name_id in used.tolist():
        kinds[name_id] = _kind(window.names[name_id])
    if not np.isin(kinds[used], (_SOFTMAX, _BACKWARD)).any():
        return None
    order = _in_stream_order(acts)
    kind = kinds[acts.name_ids[order]]
    before, after = _nearest(kind), _mirrored(_nearest(kind[::-1]))
    at = np.flatnonzero((kind == _SOFTMAX) | (kind == _BACKWARD))
    at = at[(before[at] >= 0) & (after[at] >= 0)]
    found = np.zeros(len(order), np.bool_)
    found[before[at]] = found[after[at]] = True
    # Backward has a second product on either side: dV before, dQ or dK after.
    back = at[kind[at] == _BACKWARD]
    further = np.concatenate((before[before[back]], after[after[back]]))
    found[further[further >= 0]] = True
    mask = np.zeros(len(order), np.bool_)
    mask[order] = found
    return mask


def _kind(name: str) -> int:
    family = family_of(name).name
    if family in _PRODUCTS:
        return _PRODUCT
    if family in _PASSING:
        return _BETWEEN
    lower = name.lower()
    loss = "logsoftmax" in lower or "log_softmax" in lower or "nll" in lower or "entropy" in lower
    if loss or "softmax" not in lower or family not in ("softmax", "fused"):
        return _BETWEEN if family == "fused" else _OTHER
    return _BACKWARD if "backward" in lower else _SOFTMAX


def _in_stream_order(acts: Activities) -> I8:
    if len(acts) and (acts.stream_ids == acts.stream_ids[0]).all():
        return np.arange(len(acts), dtype=np.int64)
    return np.lexsort((acts.starts_ns, acts.stream_ids)).astype(np.int64)


def _nearest(kind: npt.NDArray[np.int8]) -> I8:
    """Position of the last product before each, nothing but passing kernels between; -1: none."""
    rows = np.arange(len(kind), dtype=np.int64)
    product = _last_before(np.where(kind == _PRODUCT, rows, -1))
    other = _last_before(np.where(kind == _OTHER, rows, -1))
    return np.where(product > other, product, -1)


def _last_before(rows: I8) -> I8:
    last = np.full(len(rows), -1, np.int64)
    last[1:] = np.maximum.accumulate(rows)[:-1]
    return last


def _mirrored(rows: I8) -> I8:
    """Positions found in the reversed sequence, in the sequence itself."""
    turned = rows[::-1]
    return np.where(turned >= 0, len(rows) - 1 - turned, -1)
