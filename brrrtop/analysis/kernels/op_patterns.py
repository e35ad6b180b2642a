"""What shapes and names tell of ops: attention written out, which is a softmax between two matrix products;
and what of convolutions a layout depends on.

Forward is `GEMM, scale, mask, softmax, dropout, GEMM`; backward has the softmax's derivative
between the last product of the gradients into it and the first out of it. Names of the products say
GEMM, and without shapes nothing else does. But the scores are their output or input: at most `head size`
FLOPs a byte, and head sizes are 64 to 128 where ridges are 139 (V100) to 295 (H100): they are memory-bound.
"""

import math
import re

import numpy as np
from msgspec import Struct

from brrrtop.analysis.facts.table import Facts
from brrrtop.kernel_names.traits import Role, Trait, used
from brrrtop.model.tables import I8, Bool, OpSignature, Window

_BATCHED = ("bmm", "baddbmm", "matmul", "einsum")
_ONLY_BATCHED, _ONLY_PLAIN = ("bmm", "baddbmm"), ("mm", "addmm", "linear", "addmv", "mv")
_FORWARD = (0, 1)
_BACKWARD = (-1, 0, 1, 2)
"""Products around the softmax that belong to it, as offsets from the one before it: backward has
dV and dP before, dQ and dK after."""
_UNKNOWN, _PLAIN, _IS_BATCHED = 0, 1, 2
_FUSED_SOFTMAX = re.compile(r"^(?!.*(log_softmax|nll)).*(?<!prepare)_softmax")
"""An Inductor kernel that holds a softmax and no loss."""
_PRODUCTS = (Role.GEMM, Role.SKINNY)
_BETWEEN = (Role.POINTWISE, Role.SOFTMAX, Role.COPY, Role.SET, Role.FUSED, Role.REDUCTION)


class WrittenAttention(Struct, frozen=True, eq=False):
    count: int
    """Softmax calls inside it, forward and backward."""
    rows: I8
    """Activities that belong to it: its products and everything between them."""
    products: I8
    shape: tuple[int, int, int, int] | None = None
    """Batch x heads, queries, keys, head size of the largest; None where no shapes were recorded."""


class _Products(Struct, frozen=True, eq=False):
    """Matrix products in stream order, shape (p,)."""

    at: I8
    """Position in the order."""
    kinds: I8
    """`_UNKNOWN`, `_PLAIN` or `_IS_BATCHED`, from recorded shapes or the op's name."""
    op_ids: I8


def written_attention(facts: Facts) -> WrittenAttention | None:
    """Attention written out in the window; None when there is none."""
    window, acts = facts.window, facts.window.activities
    by_name, named_traits = facts.roles_by_name, facts.traits_by_name
    softmax = by_name == Role.SOFTMAX
    for name_id in used(acts.name_ids):
        if by_name[name_id] == Role.FUSED:
            softmax[name_id] = _FUSED_SOFTMAX.search(window.names[name_id]) is not None
    if not softmax[acts.name_ids].any():
        return None
    order = np.lexsort((acts.starts_ns, acts.stream_ids))
    order = order[by_name[acts.name_ids[order]] != Role.SET]
    ids, streams = acts.name_ids[order], acts.stream_ids[order]
    roles, traits = by_name[ids], named_traits[ids]
    is_product = np.isin(roles, _PRODUCTS)
    products = _products(window, order, is_product & ((traits & Trait.EPILOGUE) == 0))
    if len(products.at) < 2:
        return None
    at = np.flatnonzero(softmax[ids])
    before = np.searchsorted(products.at, at) - 1
    kept = (before >= 0) & (before + 1 < len(products.at))
    at, before = at[kept], before[kept]
    # A loss, routing or a search between the products means that the softmax is no attention.
    other = ~np.isin(roles, _BETWEEN) & ~is_product
    other |= (traits & Trait.GATHERING) != 0
    running = np.concatenate(([0], np.cumsum(other)))
    low, high = products.at[before], products.at[before + 1]
    kept = (running[high] == running[low]) & (streams[low] == streams[high])
    kept &= products.kinds[before] != _PLAIN
    at, before = at[kept], before[kept]
    if not len(at):
        return None
    backward = ((traits & Trait.BACKWARD) != 0)[at]
    return _gather(window, order, products, at, before, backward)


def _gather(
    window: Window, order: I8, products: _Products, at: I8, before: I8, backward: Bool
) -> WrittenAttention:
    """What lies from the first to the last product around each softmax."""
    streams = window.activities.stream_ids[order]
    edge = np.zeros(len(order) + 1, np.int64)
    low, high = products.at[before].copy(), products.at[before + 1].copy()
    own = np.zeros(len(products.at), np.bool_)
    for offset in _BACKWARD:
        index = np.clip(before + offset, 0, len(products.at) - 1)
        in_block = (backward | (offset in _FORWARD)) & (products.kinds[index] != _PLAIN)
        in_block &= (streams[products.at[index]] == streams[at]) & (index == before + offset)
        low = np.where(in_block, np.minimum(low, products.at[index]), low)
        high = np.where(in_block, np.maximum(high, products.at[index]), high)
        own[index[in_block]] = True
    np.add.at(edge, low, 1)
    np.add.at(edge, high + 1, -1)
    return WrittenAttention(
        count=len(at),
        rows=np.sort(order[np.cumsum(edge[:-1]) > 0]),
        products=order[products.at[own]],
        shape=_score_shape(window, products, before[~backward]),
    )


def _products(window: Window, order: I8, product: Bool) -> _Products:
    """The products of the window, with batching where shapes were recorded."""
    at = np.flatnonzero(product)
    op_ids = window.links.ops_of(window.activities.correlations[order[at]])
    ids, inverse = np.unique(op_ids, return_inverse=True)
    kinds = [_kind(window.ops.get(op_id)) for op_id in ids.tolist()]
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


def _score_shape(
    window: Window, products: _Products, before: I8
) -> tuple[int, int, int, int] | None:
    """Batch x heads, queries, keys and head size of the forward call with the most scores: a model
    may attend along an axis of few places too."""
    called = np.unique(products.op_ids[before[products.kinds[before] == _IS_BATCHED]])
    sizes = [_batched_size(window.ops[op_id]) for op_id in called.tolist()]
    known = [(batch, m, n, k) for batch, m, k, n in filter(None, sizes)]
    return max(known, key=lambda shape: math.prod(shape[:3]), default=None)


_IMAGE_AND_WEIGHT = {
    "aten::conv1d": 0, "aten::conv2d": 0, "aten::conv3d": 0, "aten::convolution": 0, "aten::_convolution": 0,
    "aten::cudnn_convolution": 0, "aten::_conv_depthwise2d": 0, "aten::convolution_backward": 1,
}  # fmt: skip
"""Place of the image among the inputs; the weight follows."""


def keeps_layout(op: OpSignature) -> bool:
    """A convolution for whose sake Inductor leaves the images of a training step as they lie.

    One in groups, one with a window that halves the channels or more, or one over volumes
    (`GraphLowering.decide_layout_opt` and `convolution` of torch 2.4 to 2.11).
    """
    shapes = _image_and_weight(op)
    if shapes is None:
        return False
    _, weight = shapes
    narrows = 2 * weight[0] <= weight[1] and weight[2] > 1
    return in_groups(op) or narrows or len(weight) > 4


def in_groups(op: OpSignature) -> bool:
    shapes = _image_and_weight(op)
    return shapes is not None and shapes[0][1] > shapes[1][1] > 1


def is_depthwise(op: OpSignature) -> bool:
    """A convolution with each channel as a group of its own."""
    shapes = _image_and_weight(op)
    return shapes is not None and shapes[0][1] > shapes[1][1] == 1


def is_converted_by_group(op: OpSignature) -> bool:
    """A convolution in groups of a number of channels that cuDNN does not take as they lie: of channels-last
    images it converts one group at a time."""
    shapes = _image_and_weight(op)
    return shapes is not None and in_groups(op) and shapes[1][1] not in (4, 8, 16, 32, 64)


def last_over_first(op: OpSignature, bits: int) -> float | None:
    """Time of a convolution in groups over channels-last images over that over channels-first ones, without
    what converts between the two, in numbers of so many bits; None of any other.

    Measured on an H200, forward and backward (torch 2.11.0+cu130, 2026-11).
    """
    shapes = _image_and_weight(op)
    if shapes is None or shapes[0][1] == shapes[1][1]:
        return None
    _, channels, *window = shapes[1]
    if channels == 1:
        widths = sum(max(window) > size for size in (3, 5))
        return DEPTHWISE_16_BIT if bits == 16 else DEPTHWISE[widths]
    narrow, wide = (2.0, 0.5) if channels == 4 else (1.0, 1.2)
    return narrow if bits == 16 else wide


DEPTHWISE = (0.27, 0.37, 1.9)
"""By window, up to 3, up to 5 and more: `last_over_first` where each channel is a group of its own."""
DEPTHWISE_16_BIT = 0.2


def is_wide(op: OpSignature) -> bool:
    """A convolution with a window of 32 places or more in one direction: tensor cores of 16 bits leave it to
    slower kernels."""
    shapes = _image_and_weight(op, least=3)
    return shapes is not None and max(shapes[1][2:]) >= 32


def _image_and_weight(
    op: OpSignature, least: int = 4
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    at = _IMAGE_AND_WEIGHT.get(op.name)
    if at is None or len(op.dims) < at + 2:
        return None
    image, weight = op.dims[at : at + 2]
    if len(image) < least or len(weight) != len(image):
        return None
    if at and op.dims[0][1] != weight[0]:
        return None  # transposed
    return tuple(image), tuple(weight)
