"""Evidence L2: FLOPs and bytes of a framework op from the shapes it was called with.

A product is 2MNK FLOPs, attention two products forward and five backward (Dao et al., FlashAttention).
Bytes are the least an op can move, each input read and each output written once, so an achieved rate is
a floor (Williams et al., Roofline).
"""

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from msgspec import Struct

from brrrtop.model.tables import OpSignature

TYPE_BYTES = {
    "float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "long": 8,
    "int": 4, "bool": 1, "unsigned char": 1, "signed char": 1, "short": 2, "short int": 2,
    "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1, "c10::complex<float>": 8,
    "c10::complex<double>": 16, "c10::complex<c10::Half>": 4,
}  # fmt: skip
TYPE_PRECISION = {
    "float": "fp32", "double": "fp64", "c10::BFloat16": "bf16", "c10::Half": "fp16",
    "c10::Float8_e4m3fn": "fp8", "c10::Float8_e5m2": "fp8", "signed char": "int8",
}  # fmt: skip


class Work(Struct, frozen=True):
    flop: float
    size_bytes: float
    precision: str | None
    families: frozenset[str]
    """Kernel families that do this work; the op's other kernels (layout, reduce) are not it."""
    inner: tuple[int, ...] = ()
    """M, N, K of a product, where there is one."""
    written: float = 0.0
    """Bytes that were added for an output that the op's arguments do not show."""
    channels: int | None = None
    """Of a convolution's image, in a group."""
    exact: bool = False
    """No operand is left out and none is guessed: a copy from one type to another."""


GEMMS = frozenset({"gemm", "gemm-skinny", "gemm-grouped"})
CONVS = frozenset({"conv", "gemm"})
ATTENTION = frozenset({"attention"})
LOOKUPS = frozenset({"index"})
GENERATED = frozenset({"fused"})
"""Inductor's kernels: each is called with just the tensors that it reads and writes."""
NO_CACHE = 1 << 27
"""Bytes that no GPU's cache holds: what is spread over leading dimensions is read anew for each of them."""
UNROLLED = 8
"""Of so few elements Inductor sums within one iteration, so all of them are touched (its
`unroll_reductions_threshold`)."""
_REDUCES = re.compile(r"_(sum|mean|a?max|a?min|prod|var|std|norm|softmax|any|all)(_|$)")
STREAMING = frozenset({"elementwise", "reduction", "norm", "softmax", "concat", "activation",
                       "random", "pool", "layout", "rearrange"})  # fmt: skip
"""Kernels that pass once over what the op was given."""


def _shape(dims: Any) -> tuple[int, ...] | None:
    if isinstance(dims, (tuple, list)) and all(isinstance(d, int) and d >= 0 for d in dims):
        return tuple(dims)
    return None


def _shapes(op: OpSignature) -> list[tuple[int, ...]]:
    return [shape for d in op.dims if (shape := _shape(d))]


def bytes_of(op: OpSignature, index: int) -> int:
    return TYPE_BYTES.get(op.types[index], 4) if index < len(op.types) else 4


def _first_type(op: OpSignature) -> tuple[str | None, int]:
    for kind in op.types:
        if kind in TYPE_PRECISION:
            return TYPE_PRECISION[kind], TYPE_BYTES[kind]
    return None, 4


def product(m: int, n: int, k: int, batch: int, element: int, precision: str | None) -> Work:
    size = element * batch * (m * k + k * n + m * n)
    return Work(2.0 * batch * m * n * k, float(size), precision, GEMMS, (m, n, k))


def _mm(op: OpSignature) -> Work | None:
    shapes = [s for s in _shapes(op) if len(s) >= 2]
    if len(shapes) < 2:
        return None
    precision, element = _first_type(op)
    # addmm and baddbmm carry the added tensor first, and where compiled code calls them, theirs last.
    a, b = shapes[:2]
    if op.name.startswith(("aten::addmm", "aten::baddbmm")) and len(op.dims) >= 3:
        factors = [s for s in map(_shape, op.dims[1:3]) if s and len(s) >= 2]
        a, b = factors if len(factors) == 2 else shapes[-2:]
    if op.name == "aten::linear":
        m, k, n = math.prod(a[:-1]), a[-1], b[0]
        return product(m, n, k, 1, element, precision)
    if a[-1] != b[-2]:
        return None
    batch = math.prod(a[:-2])
    return product(a[-2], b[-1], a[-1], batch, element, precision)


def _mv(op: OpSignature) -> Work | None:
    """A matrix times a vector; `addmv` carries the added vector first."""
    shapes = _shapes(op)
    matrix = next((s for s in shapes if len(s) == 2), None)
    if matrix is None or (matrix[1],) not in shapes:
        return None
    precision, element = _first_type(op)
    return product(matrix[0], 1, matrix[1], 1, element, precision)


def _grouped_work(op: OpSignature) -> Work | None:
    """One product an expert, over rows in groups (2D by 3D) or sums in groups (2D by 2D)."""
    shapes = [s for s in _shapes(op) if len(s) in (2, 3)]
    if len(shapes) < 2 or shapes[0][-1] != shapes[1][-2]:
        return None
    a, b = shapes[:2]
    precision, element = _first_type(op)
    if len(a) == len(b) == 3:
        return product(a[1], b[2], a[2], a[0], element, precision)
    m, k, n = a[-2], a[-1], b[-1]
    # How the sums fall into groups is in the offsets, so the outputs count as one.
    experts = math.prod(b[:-2]) * math.prod(a[:-2])
    size = element * (math.prod(a) + math.prod(b) + m * n * (math.prod(a[:-2])))
    inner = (max(m // experts, 1), n, k) if len(b) == 3 else (m, n, k)
    return Work(2.0 * math.prod(a[:-2]) * m * n * k, float(size), precision, GEMMS, inner)


def _conv(op: OpSignature) -> Work | None:
    shapes = _shapes(op)
    backward = "backward" in op.name
    if len(shapes) < (3 if backward else 2):
        return None
    image, weight = shapes[1:3] if backward else shapes[:2]
    if len(image) < 3 or len(weight) != len(image):
        return None
    out: tuple[int, ...]
    transposed = _is_transposed(op)
    if backward:
        out = shapes[0]
    elif transposed:
        out = (image[0], *weight[1:2], *(op.out[2:] or _enlarge(op, image)))
    else:
        spatial = _conv_output(op, image, weight)
        if spatial is None:
            return None
        out = (image[0], weight[0], *spatial)
    if len(out) != len(image) or not (transposed or out[1] == weight[0]):
        return None
    precision, element = _first_type(op)
    taps = math.prod(weight[2:])
    # Each element of the smaller image is multiplied with every tap.
    places = image[2:] if transposed else out[2:]
    flop = 2.0 * out[0] * weight[0] * math.prod(places) * weight[1] * taps
    size = element * (math.prod(image) + math.prod(weight) + math.prod(out))
    inner = (math.prod(places) * out[0], weight[0], weight[1] * taps)
    return Work(flop, float(size), precision, CONVS, inner, channels=weight[1])


def _ints(text: str) -> list[int] | None:
    try:
        return [int(part) for part in text.strip("[]() ").split(",") if part.strip()]
    except ValueError:
        return None


_TRANSPOSED_AT = {
    "aten::convolution": 6,
    "aten::_convolution": 6,
    "aten::convolution_overrideable": 6,
    "aten::convolution_backward": 7,
}
"""Place of `transposed` among the arguments; of cuDNN's own op the sixth is `benchmark`."""


def _is_transposed(op: OpSignature) -> bool:
    at = _TRANSPOSED_AT.get(op.name, len(op.concrete))
    return "transpose" in op.name or op.concrete[at : at + 1] == ("True",)


def _spatial(op: OpSignature, image: tuple[int, ...]) -> list[list[int]]:
    """The op's constants of one number a spatial dimension, in order."""
    lists = [v for text in op.concrete if text.startswith("[") and (v := _ints(text))]
    return [v for v in lists if len(v) == len(image) - 2]


def _enlarge(op: OpSignature, image: tuple[int, ...]) -> tuple[int, ...]:
    """Image of a transposed convolution: as much larger as its stride says."""
    lists = _spatial(op, image)
    at = 2 if op.name == "aten::cudnn_convolution_transpose" else 0
    stride = lists[at] if len(lists) > at else [1] * (len(image) - 2)
    return tuple(i * max(s, 1) for i, s in zip(image[2:], stride, strict=True))


def _conv_output(
    op: OpSignature, image: tuple[int, ...], weight: tuple[int, ...]
) -> tuple[int, ...] | None:
    if op.out:
        return op.out[2:]
    lists = _spatial(op, image)
    if len(lists) < 3:
        return None  # a stride of two makes it a quarter
    stride, padding, dilation = lists[:3]
    if op.name in ("aten::cudnn_convolution", "aten::miopen_convolution"):
        padding, stride = stride, padding
    return tuple(
        max(1, (i + 2 * p - d * (k - 1) - 1) // max(s, 1) + 1)
        for i, k, s, p, d in zip(image[2:], weight[2:], stride, padding, dilation, strict=True)
    )


_CAUSAL_AT = {
    "scaled_dot_product_attention": 5,
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
    "_flash_attention_forward": 8,
    "_efficient_attention_forward": 9,
    "_cudnn_attention_forward": 10,
    "_scaled_dot_product_flash_attention_backward": 11,
    "_scaled_dot_product_efficient_attention_backward": 11,
    "_scaled_dot_product_cudnn_attention_backward": 14,
    "_flash_attention_backward": 11,
    "_efficient_attention_backward": 14,
    "_cudnn_attention_backward": 14,
}
"""Place of `is_causal` among the arguments, or of the kind of mask (1 and 2 are causal): ATen's
native_functions.yaml. Other arguments are true or false as well."""


def _is_causal(op: OpSignature) -> bool:
    at = _CAUSAL_AT.get(op.name.rsplit("::", 1)[-1], len(op.concrete))
    argument = op.concrete[at] if at < len(op.concrete) else ""
    if argument in ("True", "False", "0", "1", "2"):
        return argument in ("True", "1", "2")
    return "True" in op.concrete


def _attention(op: OpSignature) -> Work | None:
    shapes = [s for s in _shapes(op) if len(s) == 4]
    backward = "backward" in op.name
    if len(shapes) < (4 if backward else 3):
        return None
    q, k = shapes[1:3] if backward else shapes[0:2]
    inner = op.name.startswith(("aten::_flash_attention", "aten::_efficient_attention"))
    if inner:
        # These take (batch, sequence, heads, size); what calls them takes the heads first.
        q, k = (q[0], q[2], q[1], q[3]), (k[0], k[2], k[1], k[3])
    precision, element = _first_type(op)
    batch, heads, sq, d = q
    sk = k[2]
    causal = 0.5 if _is_causal(op) and sq == sk else 1.0
    flop = (10.0 if backward else 4.0) * batch * heads * sq * sk * d * causal
    size = element * batch * heads * d * (2 * sq + 2 * sk) * (2.5 if backward else 1.0)
    return Work(flop, float(size), precision, ATTENTION)


def _streaming(op: OpSignature) -> Work | None:
    shapes = [(_shape(dims), bytes_of(op, index)) for index, dims in enumerate(op.dims)]
    tensors = [(math.prod(shape), element) for shape, element in shapes if shape]
    if not tensors:
        return None
    largest, element = max(tensors)
    if not largest:
        return None  # an output that the op has yet to make as large as it will be
    read = sum(n * s for n, s in tensors)
    name = op.name.rsplit("::", 1)[-1]
    reduces = name.startswith(("sum", "mean", "amax", "max", "norm", "argmax", "var", "std", "nll"))
    written = 0 if reduces or name in ("copy_", "fill_", "zero_") else largest * element
    copied = name == "copy_" and len(tensors) == 2
    size = float(read + written)
    return Work(float(largest), size, None, STREAMING, written=float(written), exact=copied)


def _lookup(op: OpSignature) -> Work | None:
    """Rows picked from a table: at least what is written, for rows that come twice are in the cache.

    On counted H200 kernels the DRAM moved 0.75 to 1.8 times that. A bag sums many rows to one: there
    the rows are counted, and the DRAM moved 0.95 of it.
    """
    shapes = [_shape(d) or () for d in op.dims[:3]]
    name = op.name.rsplit("::", 1)[-1].lstrip("_")
    if len(shapes) < 2 or not shapes[0]:
        return None
    places = shapes[2] if name in ("index_select", "gather") and len(shapes) > 2 else shapes[1]
    picked, row = math.prod(places), 1
    if name == "index_select":
        axis = _ints(op.concrete[1]) if len(op.concrete) > 1 else [0]
        at = axis[0] if axis else 0
        if not -len(shapes[0]) <= at < len(shapes[0]):
            return None
        row = math.prod(shapes[0]) // max(shapes[0][at], 1)
    elif name != "gather":
        row = shapes[0][-1]
    if name.startswith("embedding_bag"):
        picked += math.prod(shapes[2]) if len(shapes) > 2 else 0
    size = bytes_of(op, 0) * row * picked
    return Work(0.0, float(size), None, LOOKUPS) if size else None


def _generated_work(op: OpSignature) -> Work | None:
    """A Triton kernel of Inductor's, which traces show as an op of its own arguments.

    What follows the tensors are its numbers of iterations: no tensor is touched more often, though
    it may be a view of more. Gates multiply two parts of a split. A tensor updated in place counts once.
    """
    tensors = [(shape, i) for i, d in enumerate(op.dims) if (shape := _shape(d))]
    counts = [v for text in op.concrete if (v := _count(text)) is not None]
    most = math.prod(counts) if counts else max((math.prod(s) for s, _ in tensors), default=0)
    whole = {shape for shape, _ in tensors if math.prod(shape) == most}
    unrolled = op.name.startswith("triton_poi") and bool(_REDUCES.search(op.name))
    parts = 2 if "_split_" in op.name and "_mul_" in op.name else 1
    size = 0
    for shape, i in tensors:
        elements, each = math.prod(shape), bytes_of(op, i)
        if elements * each > NO_CACHE and any(w[-len(shape) :] == shape for w in whole):
            elements = most
        few = elements <= UNROLLED * most and elements % max(most, 1) == 0
        touched = elements if unrolled and few else min(elements, most * parts)
        size += touched * each
    return Work(0.0, float(size), None, GENERATED) if size else None


def _count(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) > 0 else None


_EXACT: dict[str, Callable[[OpSignature], Work | None]] = {
    "aten::mm": _mm, "aten::addmm": _mm, "aten::bmm": _mm, "aten::baddbmm": _mm,
    "aten::linear": _mm, "aten::_addmm_activation": _mm, "aten::addmm_": _mm,
    "aten::_scaled_mm": _mm, "aten::matmul": _mm,
    "aten::_int_mm": _mm, "aten::mv": _mv, "aten::addmv": _mv,
    "aten::_grouped_mm": _grouped_work, "aten::_scaled_grouped_mm": _grouped_work,
    "aten::embedding": _lookup, "aten::index_select": _lookup, "aten::gather": _lookup,
    "aten::_embedding_bag": _lookup, "aten::_embedding_bag_forward_only": _lookup,
}  # fmt: skip


@lru_cache(maxsize=65536)
def work_of(op: OpSignature) -> Work | None:
    """FLOPs and least bytes of one call; None where the shapes do not say."""
    exact = _EXACT.get(op.name)
    if exact:
        return exact(op)
    lower = op.name.lower()
    if lower.startswith("triton_"):
        return _generated_work(op)
    if "conv" in lower and "aten::" in lower:
        return _conv(op)
    if "attention" in lower:
        return _attention(op)
    several = "foreach" in lower or ("fused" in lower and "norm" not in lower)
    if lower.startswith("aten::") and not several:
        return _streaming(op)
    return None
