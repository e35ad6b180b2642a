"""Attention written out: a softmax between two matrix products, and what a fused one would cost.

Forward is `GEMM, scale, mask, softmax, dropout, GEMM`; backward has the softmax's derivative
between the last product of the gradients into it and the first out of it (regime-theory, A46).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brrrtop.estimator.chains import stream_order
from brrrtop.estimator.joined import Joined
from brrrtop.estimator.traits import Role, Trait
from brrrtop.model import I8, Bool, OpSignature

_BATCHED = ("bmm", "baddbmm", "matmul", "einsum")
_AROUND = 2
"""Products on each side of the backward softmax that belong to it: dV, dP before, dQ, dK after."""


@dataclass(frozen=True, slots=True)
class EagerAttention:
    """Unfused attention of the window."""

    count: int
    """Softmax calls inside it, forward and backward."""
    total_ns: int
    """Its products and everything between them."""
    product_ns: int
    rows: I8
    """Activities that belong to it."""
    shape: tuple[int, int, int, int] | None = None
    """Batch x heads, queries, keys, head size; None where no shapes were recorded."""
    flop: float | None = None
    """Of all its products; None where shapes are missing for some."""


def _op(joined: Joined, row: int) -> OpSignature | None:
    links = joined.window.links
    correlation = int(joined.window.activities.correlations[row])
    at = int(np.searchsorted(links.correlations, correlation))
    if at >= len(links) or int(links.correlations[at]) != correlation:
        return None
    return joined.window.ops.get(int(links.op_ids[at]))


def _batched_shape(op: OpSignature | None) -> tuple[int, int, int, int] | None:
    """Batch, M, K, N of a batched product, None when `op` is none."""
    if op is None or not any(op.name.endswith(name) for name in _BATCHED):
        return None
    dims = [d for d in op.dims if isinstance(d, tuple) and len(d) >= 3 and isinstance(d[0], int)]
    if len(dims) < 2:
        return None
    left, right = dims[-2], dims[-1]
    return int(np.prod(left[:-2])), int(left[-2]), int(left[-1]), int(right[-1])


def eager_attention(joined: Joined) -> EagerAttention | None:
    """Eager attention in the window; None when there is none."""
    softmax = joined.is_role(Role.SOFTMAX) | _fused_softmax(joined)
    if not softmax.any():
        return None
    order = stream_order(joined, ~joined.is_role(Role.SET))
    streams = joined.window.activities.stream_ids[order]
    product = joined.is_role(Role.GEMM, Role.SKINNY)[order] & ~joined.has(Trait.EPILOGUE)[order]
    products = np.flatnonzero(product)
    found: list[I8] = []
    flop: float | None = 0.0
    shape: tuple[int, int, int, int] | None = None
    count = 0
    for at in np.flatnonzero(softmax[order]):
        before = int(np.searchsorted(products, at)) - 1
        if before < 0 or before + 1 >= len(products):
            continue
        near = (products[before], products[before + 1])
        if streams[near[0]] != streams[at] or streams[near[1]] != streams[at]:
            continue
        between = order[near[0] + 1 : near[1]]
        if not _plain(joined, between):
            continue
        backward = _is_backward(joined, int(order[at]))
        reach = _AROUND if backward else 1
        low = max(before - reach + 1, 0)
        group = products[low : before + 1 + reach]
        shapes = [_batched_shape(_op(joined, int(order[p]))) for p in group]
        known = _op(joined, int(order[near[0]])) is not None
        if known and _batched_shape(_op(joined, int(order[near[0]]))) is None:
            continue
        if known:
            group = group[[s is not None for s in shapes]]
            shapes = [s for s in shapes if s is not None]
        count += 1
        found.append(order[group[0] : group[-1] + 1])
        sizes = [2.0 * b * m * k * n for b, m, k, n in (s for s in shapes if s is not None)]
        flop = flop + sum(sizes) if flop is not None and len(sizes) == len(group) else None
        first = shapes[0] if shapes else None
        if first is not None and not backward and shape is None:
            shape = (first[0], first[1], first[3], first[2])
    if not found:
        return None
    rows = np.unique(np.concatenate(found))
    is_product = joined.is_role(Role.GEMM, Role.SKINNY)
    return EagerAttention(
        count=count,
        total_ns=int(joined.durations_ns[rows].sum()),
        product_ns=int(joined.durations_ns[rows][is_product[rows]].sum()),
        rows=rows,
        shape=shape,
        flop=flop if flop else None,
    )


def _fused_softmax(joined: Joined) -> Bool:
    """Inductor kernels that hold a softmax and no loss."""
    window = joined.window
    found = np.zeros(len(window.names), np.bool_)
    for name_id in np.unique(window.activities.name_ids[joined.is_role(Role.FUSED)]):
        name = window.names[name_id].replace("prepare_softmax", "")
        found[name_id] = "_softmax" in name and "log_softmax" not in name and "nll" not in name
    return np.asarray(found[window.activities.name_ids])


def _plain(joined: Joined, rows: I8) -> bool:
    """Nothing but pointwise work, softmax and copies: no loss, no routing, no search."""
    roles = joined.roles[rows]
    allowed = np.isin(
        roles, [Role.POINTWISE, Role.SOFTMAX, Role.COPY, Role.SET, Role.FUSED, Role.REDUCTION]
    )
    return bool(allowed.all()) and not bool(joined.has(Trait.GATHERING)[rows].any())


def _is_backward(joined: Joined, row: int) -> bool:
    return bool(joined.traits[row] & int(Trait.BACKWARD))
