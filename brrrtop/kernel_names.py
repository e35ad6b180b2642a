"""Device function names as people read them: without return type, arguments and namespaces."""

from __future__ import annotations

import re
from functools import lru_cache

_NOISE = re.compile(
    r"\b(?:void|at::native::|at::|c10::|std::|cutlass::|pytorch_flash::|cublasLt::|cub::|thrust::|"
    r"unnamed>::)\s*|\(anonymous namespace\)::"
)
_INNER = re.compile(r"\b(\w*(?:[Ff]unctor|kernel_cuda|_kernel_impl|Ops?)\w*)")


@lru_cache(maxsize=4096)
def short_name(name: str) -> str:
    """The name that tells kernels apart in a narrow column.

    `void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, …>(int, …)` →
    `vectorized_elementwise_kernel CUDAFunctor_add`. Names without templates stay as they are.
    """
    if name.startswith(("Mem", "[")):
        return name
    head, _, arguments = _NOISE.sub("", name).strip().partition("<")
    head = head.split("(", 1)[0].strip() or name
    if not arguments:
        return head
    inner = [word for word in _INNER.findall(arguments) if word not in head]
    return f"{head} {inner[0]}" if inner else head


def fitted(name: str, width: int) -> str:
    """The short name in `width` columns: both ends, for it is the ends that differ."""
    short = "".join(char if char.isprintable() else "?" for char in short_name(name))
    if len(short) <= width:
        return short
    tail = width // 3
    return f"{short[: width - tail - 1]}…{short[-tail:]}"
