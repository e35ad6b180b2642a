"""What a live recording does not say of an op, from what its kernel is called and from other ops.

The recorder gives names and shapes; element types and constants are missing. A kernel's name tells
the type. An op whose type nobody knows, or whose output cannot be worked out, is no evidence.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from brrrtop.kernel_names import families
from brrrtop.kernel_names.facts import name_facts
from brrrtop.kernel_names.families import family_of
from brrrtop.model.tables import OpSignature

_OF_PRECISION = {
    "fp64": "double", "fp32": "float", "tf32": "float", "bf16": "c10::BFloat16",
    "fp16": "c10::Half", "fp8": "c10::Float8_e4m3fn", "int8": "signed char",
}  # fmt: skip
_OF_BYTES = {8: "long int", 4: "float", 2: "c10::BFloat16", 1: "unsigned char"}
_ROWS = re.compile(r"\bvectorized_gather_kernel<")
"""Names the type of the indices only. Its blocks tell rows of 16-bit elements from those of fp32 where they
are wide (`row_gathers`)."""
_WIDE = re.compile(r"\b(?:double|long)\b")
_WHOLE = re.compile(
    r"flash_(?:fwd|bwd)\w*<.*?_traits<.*?>\s*>?,\s*(?:\(bool\))?(?:true|false|[01])"
    r",\s*(?:\(bool\))?(?:false|0)\b"
)
"""FlashAttention 2 without a causal mask: `kernel<traits, Is_dropout, Is_causal, …>`."""


_INTO = re.compile(r"\b(bfloat16|float16|float8)_copy_kernel_cuda\b.*?lambda\(([\w: ]+)\)")
_CAST = re.compile(r"\bdirect_copy_kernel_cuda\b.*?lambda\(([\w: ]+)\)#\d+\}?, .*\bLoadWithCast\b")
"""Copies that convert (ATen's Copy.cu): into a named type from the lambda's, or into the lambda's."""
_TARGETS = {
    "bfloat16": "c10::BFloat16", "float16": "c10::Half", "float8": "c10::Float8_e4m3fn",
}  # fmt: skip
_HALVES = ("c10::BFloat16", "c10::Half")


@lru_cache(maxsize=4096)
def type_of(kernel: str) -> str | None:
    """The element type that a kernel's name tells, as torch writes it."""
    if _ROWS.search(kernel):
        return "float"
    facts = name_facts(kernel)
    if facts.tensor_cores is False and facts.element_bytes == 2:
        return _OF_BYTES[2]  # 16-bit tensors, multiplied as fp32
    if family_of(kernel).kind == families.COMPUTE or facts.tensor_cores:
        return _OF_PRECISION.get(facts.precision or "")
    if facts.element_bytes is not None:
        wide = _WIDE.search(kernel)
        if facts.element_bytes == 8 and wide and wide[0] == "double":
            return "double"
        return _OF_BYTES.get(facts.element_bytes)
    return _OF_PRECISION.get(facts.precision or "")


def half_of(kernels: Iterable[str]) -> str | None:
    """The one 16-bit type that kernels name as torch does; None for none, or both.

    Libraries write f16 for either.
    """
    halves = {half for kernel in kernels for half in _HALVES if half in kernel}
    return halves.pop() if len(halves) == 1 else None


def signature(
    op: OpSignature, kernel: str, others: Iterable[OpSignature], half: str | None = None
) -> OpSignature | None:
    """The op as this kernel's work; None where it says too little to be evidence.

    Args:
        others: Ops of the same step: the backward of a convolution has the shape of its output.
        half: The 16-bit type of the step: what is converted to fp32 was most likely of it.
    """
    kind = type_of(kernel)
    if kind is None or not any(op.dims):
        return None
    known = replace(op, types=tuple(kind if dims else "" for dims in op.dims))
    if op.name == "aten::copy_":
        return replace(op, types=_copy_types(kernel, half) or known.types)
    lower = op.name.lower()
    if "conv" in lower:
        out = _convolution_shape(known, others)
        return replace(known, out=out) if out else None
    if "attention" in lower and not _WHOLE.search(kernel):
        # Most names do not say. Half of the work is a floor, as achieved rates are meant to be.
        return replace(known, concrete=("True",))
    return known


def _copy_types(kernel: str, half: str | None) -> tuple[str, str] | None:
    """Types of target and source of a copy that converts; None: it does not."""
    into, cast = _INTO.search(kernel), _CAST.search(kernel)
    if into:
        return _TARGETS[into[1]], into[2]
    return (cast[1], half) if cast and cast[1] == "float" and half else None


def _shapes(op: OpSignature) -> list[tuple[int, ...]]:
    return [dims for dims in op.dims if dims and isinstance(dims[0], int)]


def _convolution_shape(op: OpSignature, others: Iterable[OpSignature]) -> tuple[int, ...] | None:
    """Output shape of a convolution, from the gradient that comes back for it."""
    shapes = _shapes(op)
    if "transpose" in op.name:
        return None
    if "backward" in op.name:
        return shapes[0] if len(shapes) >= 3 and _plain(*shapes[:3]) else None
    signatures = set()
    for other in others:
        if "conv" in other.name and "backward" in other.name:
            # Rows run as images one high: forward says so, backward says what was asked for.
            theirs = [_widen(shape, len(shapes[0])) for shape in _shapes(other)[:3]]
            if len(theirs) >= 3 and theirs[1:3] == shapes[:2] and _plain(*theirs[:3]):
                signatures.add(theirs[0])
    return signatures.pop() if len(signatures) == 1 else None


def _widen(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The shape of a row as that of an image, where images have `size` dimensions."""
    return (*shape[:2], 1, *shape[2:]) if (len(shape), size) == (3, 4) else shape


def _plain(out: Any, image: Any, weight: Any) -> bool:
    """Not a transposed convolution: those make images larger, and swap the weight's channels."""
    if not len(out) == len(image) == len(weight) or out[1] != weight[0]:
        return False
    return all(o <= i for o, i in zip(out[2:], image[2:], strict=True))
