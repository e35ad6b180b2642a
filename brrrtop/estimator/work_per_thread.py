"""Which of ATen's two layouts of pointwise kernels a process uses: 4 elements a thread, or 8.

ATen's `CUDALoops.cuh` by release of torch (vectorised kernels; what is unrolled says so itself):

| torch | elements a thread | vector width in the name | tensors in the name |
|---|---|---|---|
| before 2.7 | 4 | at most 4 | `at::detail::Array<char*, k>`, lately `std::array<char*, k>` |
| from 2.7 | 8 (16: fills of one-byte types) | 16 bytes: 8 for 16-bit types, 4 for fp32 | `std::array` |

The wrong one halves or doubles the bytes of every such kernel. A live trainer tells its torch; a
trace does not, so its own records are asked: recorded shapes first, then names.
"""

from __future__ import annotations

import math
import re

import numpy as np

from brrrtop.tables import ActivityType, OpSignature, Window

FIRST_NEW = (2, 7)
LEAST_BLOCKS = 64
"""The last block of a grid is part-empty: one in 64 is 1.6 % of the elements."""
ASKED = 256
"""Kernels with recorded shapes that are looked at."""
OLDEST_CUDA_OF_NEW = 12060
"""Torch 2.7 was built for CUDA 11.8, 12.6 and 12.8, none before it for the last."""
_VECTORIZED = "vectorized_elementwise_kernel<"
_HALF_RESULT = re.compile(
    r"vectorized_elementwise_kernel<\s*4\s*,.*(?:CUDAFunctor_add<c10::(?:BFloat16|Half)>"
    r"|[ABU]*(?:Unary|Binary)Functor<(?:[^,<>]+, ?){2}c10::(?:BFloat16|Half)\b)"
)
"""16-bit results four at a time: 8 fit into a load, and the layout with 8 a thread loads them."""


def torch_is_new(window: Window) -> bool:
    """Whether vectorised pointwise kernels give each thread 8 elements; unknown counts as new."""
    if any(f"{_VECTORIZED}8" in name for name in window.names):
        return True
    version = _version(window)
    if version is not None:
        return version >= FIRST_NEW
    shown = _by_shapes(window)
    if shown is not None:
        return shown
    if any("at::detail::Array<char*" in name for name in window.names):
        return False
    runtime = window.hello.get("cuda_runtime")
    if isinstance(runtime, int) and 12000 <= runtime < OLDEST_CUDA_OF_NEW:
        return False
    return not any(_HALF_RESULT.search(name) for name in window.names)


def _version(window: Window) -> tuple[int, int] | None:
    parts = str(window.hello.get("torch") or "").split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return None


def _by_shapes(window: Window) -> bool | None:
    """By kernels whose op was given tensors of one shape: elements over threads; None: no such."""
    acts, links = window.activities, window.links
    if not len(links) or not window.ops:
        return None
    named = np.array([_VECTORIZED in name for name in window.names], np.bool_)
    rows = np.flatnonzero((acts.types == ActivityType.KERNEL) & (acts.blocks >= LEAST_BLOCKS))
    rows = rows[acts.threads[rows] > 0]
    rows = rows[named[acts.name_ids[rows]] & (acts.graph_ids[rows] == 0)]
    at = np.minimum(np.searchsorted(links.correlations, acts.correlations[rows]), len(links) - 1)
    rows, at = (column[links.correlations[at] == acts.correlations[rows]] for column in (rows, at))
    votes = []
    for row, link in zip(rows[:ASKED].tolist(), at[:ASKED].tolist(), strict=True):
        elements = _elements(window.ops.get(int(links.op_ids[link])))
        if elements:
            each = elements / (int(acts.blocks[row]) * int(acts.threads[row]))
            votes += [True] if 7.0 <= each <= 8.0 else [False] if 3.5 <= each <= 4.0 else []
    return 2 * sum(votes) > len(votes) if votes else None


def _elements(op: OpSignature | None) -> int | None:
    """Elements of every tensor of the op; None where they differ or are not told."""
    shapes = {d for d in op.dims if d and isinstance(d, tuple)} if op is not None else set()
    shape = shapes.pop() if len(shapes) == 1 else ()
    return math.prod(shape) if shape and all(isinstance(size, int) for size in shape) else None
