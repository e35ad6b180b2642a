"""Rows that ATen's gather of whole rows picks: how many and of what size.

`vectorized_gather_kernel` (ATen IndexKernelUtils.cu) gives each row a block, several where it has more
than 256 vectors, and `aten::index` does not tell how many places it was asked for: the grid does.
"""

from __future__ import annotations

import math
import re

from brrrtop.estimator.ops import LOOKUPS, Work, bytes_of
from brrrtop.tables import OpSignature

_KERNEL = re.compile(r"\bvectorized_gather_kernel<\s*(\d+)\s*,")
_MOST_THREADS, _WARP = 256, 32
_ELSE = (4, 2, 8, 1)
"""Bytes of an element where those of the op's type fit no block: a live recording guesses the type."""


def picked_rows(name: str, op: OpSignature | None, blocks: int, threads: int) -> Work | None:
    """Bytes of the rows picked, once: what is written; None for any other kernel, and where no part of
    the table's dimensions makes rows of such blocks.

    Args:
        op: What launched it; the table is its first operand.
        threads: Of a block.
    """
    kernel = _KERNEL.search(name)
    table = op.dims[0] if op is not None and op.dims else ()
    if kernel is None or op is None or not table or not all(isinstance(d, int) for d in table):
        return None
    vector = int(kernel[1])
    for element in dict.fromkeys((bytes_of(op, 0), *_ELSE)):
        for axis in range(1, len(table) + 1):
            row = math.prod(int(d) for d in table[axis:]) * element
            vectors = -(-row // vector)
            if row and min(_MOST_THREADS, -(-vectors // _WARP) * _WARP) == threads:
                return Work(0.0, blocks / -(-vectors // _MOST_THREADS) * row, None, LOOKUPS)
    return None
