"""Attention written out: a softmax between two matrix products, and what a fused one would cost.

Forward is `GEMM, scale, mask, softmax, dropout, GEMM`; backward has the softmax's derivative
between the last product of the gradients into it and the first out of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from brrrtop.analysis.kernels.traits import Role, Trait
from brrrtop.analysis.signals.chains import stream_order
from brrrtop.analysis.signals.joined import Joined
from brrrtop.model.tables import I8, Bool, OpSignature

_BATCHED = ("bmm", "baddbmm", "matmul", "einsum")
_ONLY_BATCHED, _ONLY_PLAIN = ("bmm", "baddbmm"), ("mm", "addmm", "linear", "addmv", "mv")
_FORWARD = (0, 1)
_BACKWARD = (-1, 0, 1, 2)
"""Products around the softmax that belong to it, as offsets from the one before it: backward has
dV and dP before, dQ and dK after."""
_UNKNOWN, _PLAIN, _IS_BATCHED = 0, 1, 2
_FUSED_SOFTMAX = r"^(?!.*(log_softmax|nll)).*(?<!prepare)_softmax"
"""An Inductor kernel that holds a softmax and no loss."""
_BETWEEN = (Role.POINTWISE, Role.SOFTMAX, Role.COPY, Role.SET, Role.FUSED, Role.REDUCTION)


@dataclass(frozen=True, slots=True)
class WrittenAttention:
    """Unfused attention of the window."""

    count: int
    """Softmax calls inside it, forward and backward."""
    total_ns: int
    """Its products and everything between them."""
    rows: I8
    """Activities that belong to it."""
    shape: tuple[int, int, int, int] | None = None
    """Batch x heads, queries, keys, head size of the largest; None where no shapes were recorded."""


@dataclass(frozen=True, slots=True, eq=False)
class _Products:
    """Matrix products in stream order, shape (p,)."""

    at: I8
    """Position in the order."""
    kinds: I8
    """`_UNKNOWN`, `_PLAIN` or `_IS_BATCHED`, from recorded shapes or the op's name."""
    op_ids: I8


def eager_attention(joined: Joined) -> WrittenAttention | None:
    """Eager attention in the window; None when there is none."""
    softmax = joined.is_role(Role.SOFTMAX)
    softmax |= joined.named(_FUSED_SOFTMAX, joined.is_role(Role.FUSED))
    written = joined.named(r"::exp_kernel", joined.is_role(Role.POINTWISE))
    if not softmax.any() and not written.any():
        return None
    order = stream_order(joined, ~joined.is_role(Role.SET))
    found = _products(joined, order)
    if len(found.at) < 2:
        return None
    at = np.flatnonzero((softmax | written)[order])
    before = np.searchsorted(found.at, at) - 1
    ok = (before >= 0) & (before + 1 < len(found.at))
    at, before = at[ok], before[ok]
    ok = _between_products(joined, order, found, before) & (found.kinds[before] != _PLAIN)
    # Written with exp and sum, it is only believed where shapes show batched products around it.
    ok &= softmax[order][at] | (
        (found.kinds[before] == _IS_BATCHED) & (found.kinds[before + 1] == _IS_BATCHED)
    )
    at, before = at[ok], before[ok]
    if not len(at):
        return None
    return _gather(joined, order, found, at, before)


def _gather(joined: Joined, order: I8, found: _Products, at: I8, before: I8) -> WrittenAttention:
    """What lies from the first to the last product around each softmax."""
    backward = joined.has(Trait.BACKWARD)[order][at]
    streams = joined.window.activities.stream_ids[order]
    edge = np.zeros(len(order) + 1, np.int64)
    low, high = found.at[before].copy(), found.at[before + 1].copy()
    for offset in _BACKWARD:
        index = np.clip(before + offset, 0, len(found.at) - 1)
        mine = (backward | (offset in _FORWARD)) & (found.kinds[index] != _PLAIN)
        mine &= (streams[found.at[index]] == streams[at]) & (index == before + offset)
        low = np.where(mine, np.minimum(low, found.at[index]), low)
        high = np.where(mine, np.maximum(high, found.at[index]), high)
    np.add.at(edge, low, 1)
    np.add.at(edge, high + 1, -1)
    rows = np.sort(order[np.cumsum(edge[:-1]) > 0])
    return WrittenAttention(
        count=len(at),
        total_ns=int(joined.durations_ns[rows].sum()),
        rows=rows,
        shape=_score_shape(joined, found, before[~backward]),
    )


def _products(joined: Joined, order: I8) -> _Products:
    """The products of the window, with batching where shapes were recorded."""
    product = joined.is_role(Role.GEMM, Role.SKINNY) & ~joined.has(Trait.EPILOGUE)
    at = np.flatnonzero(product[order])
    links = joined.window.links
    op_ids = np.full(len(at), -1, np.int64)
    if len(links):
        wanted = joined.window.activities.correlations[order[at]]
        near = np.minimum(np.searchsorted(links.correlations, wanted), len(links) - 1)
        hit = (links.correlations[near] == wanted) & (wanted != 0)
        op_ids[hit] = links.op_ids[near[hit]]
    ids, inverse = np.unique(op_ids, return_inverse=True)
    ops = [joined.window.ops.get(op_id) for op_id in ids.tolist()]
    kinds = [_kind(op) for op in ops]
    return _Products(at, np.array(kinds, np.int64)[inverse], op_ids)


def _kind(op: OpSignature | None) -> int:
    """Whether a product is batched, from its op's shapes; from its name where none were recorded."""
    if op is None:
        return _UNKNOWN
    if _batched_size(op) is not None:
        return _IS_BATCHED
    if op.dims:
        return _PLAIN
    bare = op.name.rsplit("::", 1)[-1]
    return _IS_BATCHED if bare in _ONLY_BATCHED else _PLAIN if bare in _ONLY_PLAIN else _UNKNOWN


def _batched_size(op: OpSignature) -> tuple[int, int, int, int] | None:
    """Batch, M, K, N of a batched product; None when `op` is none."""
    if not any(op.name.endswith(name) for name in _BATCHED):
        return None
    dims = [d for d in op.dims if isinstance(d, tuple) and len(d) >= 3 and isinstance(d[0], int)]
    if len(dims) < 2:
        return None
    # baddbmm carries the added tensor first; compiled code's calls end with the output.
    left, right = dims[1:3] if "baddbmm" in op.name and len(dims) > 2 else dims[:2]
    return int(np.prod(left[:-2])), int(left[-2]), int(left[-1]), int(right[-1])


def _score_shape(joined: Joined, found: _Products, before: I8) -> tuple[int, int, int, int] | None:
    """Batch x heads, queries, keys and head size of the forward call with the most scores: a model
    may attend along an axis of few places too."""
    called = np.unique(found.op_ids[before[found.kinds[before] == _IS_BATCHED]])
    sizes = [_batched_size(joined.window.ops[op_id]) for op_id in called.tolist()]
    known = [(batch, m, n, k) for batch, m, k, n in filter(None, sizes)]
    return max(known, key=lambda shape: math.prod(shape[:3]), default=None)


def _between_products(joined: Joined, order: I8, found: _Products, before: I8) -> Bool:
    """Whether only pointwise work, softmax and copies lie between two products of one stream.

    A loss, routing or a search between them means that the softmax is no attention.
    """
    other = ~joined.is_role(*_BETWEEN) & ~joined.is_role(Role.GEMM, Role.SKINNY)
    other |= joined.has(Trait.GATHERING)
    running = np.concatenate(([0], np.cumsum(other[order])))
    low, high = found.at[before], found.at[before + 1]
    streams = joined.window.activities.stream_ids[order]
    return np.asarray((running[high] == running[low]) & (streams[low] == streams[high]))
