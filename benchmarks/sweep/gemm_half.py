"""Matrix products in bf16 and fp16: layers, heads, adapters, experts, batches, odd and thin ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from cases import Case, Pool, Run, both, building
from harness import main
from torch.nn import functional as F

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP16 = torch.bfloat16, torch.float16
LAYERS = (
    (8192, 768, 768), (8192, 768, 2304), (8192, 768, 3072), (8192, 3072, 768),
    (4096, 1024, 4096), (2048, 2048, 8192), (4096, 4096, 4096), (2048, 4096, 11008),
    (2048, 14336, 4096), (512, 768, 3072), (512, 512, 512), (128, 768, 768), (64, 4096, 4096),
    (8, 4096, 4096), (1, 4096, 11008), (256, 2048, 1000), (32, 1280, 1000), (6304, 768, 768),
    (1024, 768, 50257), (2048, 768, 50304), (1024, 4096, 32000), (256, 2048, 128256),
    (4096, 4096, 8), (4096, 8, 4096), (4096, 4096, 64), (8192, 64, 768), (2047, 1021, 1023),
    (4096, 1000, 333), (3136, 96, 384), (25088, 384, 96),
)  # fmt: skip
"""Rows, features in and out."""
SQUARES = (
    (64, 64, 64), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048),
    (4096, 4096, 4096), (8192, 4096, 8192), (16, 16384, 16), (128, 16384, 128), (8192, 64, 16384),
    (16384, 16, 256), (4096, 511, 4096), (1001, 1001, 1001), (8, 8192, 8192), (2048, 8, 2048),
)  # fmt: skip
"""M, K and N."""
BATCHES = (
    (96, 512, 64, 512), (96, 512, 512, 64), (384, 197, 64, 197), (64, 1024, 128, 1024),
    (64, 1024, 1024, 128), (1024, 49, 32, 49), (16, 128, 128, 128), (512, 27, 64, 27),
    (8, 512, 1024, 4096), (256, 1, 128, 1024), (12, 77, 40, 4096), (2048, 16, 16, 16),
)  # fmt: skip
"""Batch, M, K and N."""


def linear(size: tuple[int, int, int], dtype: torch.dtype, bias: bool, p: Pool) -> Run:
    rows, fin, fout = size
    b = p.leaf(fout, dtype=dtype) if bias else None
    return both(p, F.linear, p.leaf(rows, fin, dtype=dtype), p.leaf(fout, fin, dtype=dtype), b)


def product(size: tuple[int, int, int], layout: str, dtype: torch.dtype, p: Pool) -> Run:
    """A product alone; T is a transposed view, as the gradients of a layer have it."""
    m, k, n = size
    a = p.randn(m, k, dtype=dtype) if layout[0] == "N" else p.randn(k, m, dtype=dtype).t()
    b = p.randn(k, n, dtype=dtype) if layout[1] == "N" else p.randn(n, k, dtype=dtype).t()
    return lambda: torch.mm(a, b)


def batched(size: tuple[int, int, int, int], dtype: torch.dtype, p: Pool) -> Run:
    batch, m, k, n = size
    return both(p, torch.bmm, p.leaf(batch, m, k, dtype=dtype), p.leaf(batch, k, n, dtype=dtype))


def epilogue(size: tuple[int, int, int], gelu: bool, dtype: torch.dtype, p: Pool) -> Run:
    m, k, n = size
    bias, x = p.randn(n, dtype=dtype), p.randn(m, k, dtype=dtype)
    w = p.randn(n, k, dtype=dtype).t()
    return lambda: torch._addmm_activation(bias, x, w, use_gelu=gelu)


def added(size: tuple[int, int, int, int], dtype: torch.dtype, p: Pool) -> Run:
    """Experts with a bias each."""
    batch, m, k, n = size
    bias, x = p.leaf(batch, 1, n, dtype=dtype), p.leaf(batch, m, k, dtype=dtype)
    return both(p, torch.baddbmm, bias, x, p.leaf(batch, k, n, dtype=dtype))


def grouped(experts: int, rows: int, k: int, n: int, p: Pool) -> Run:
    """Experts of unlike size in one launch."""
    x, w = p.leaf(rows, k, dtype=BF16), p.leaf(experts, k, n, dtype=BF16)
    experts = p.n(experts)
    ends = torch.arange(1, experts + 1, device=p.device, dtype=torch.int32)
    ends = (ends * ends * p.n(rows) // experts**2 // 16 * 16).to(torch.int32)
    ends[-1] = p.n(rows)
    return both(p, lambda a, b: torch._grouped_mm(a, b, offs=ends), x, w)


def vector(rows: int, columns: int, dtype: torch.dtype, p: Pool) -> Run:
    a, v = p.randn(rows, columns, dtype=dtype), p.randn(columns, dtype=dtype)
    return lambda: (torch.mv(a, v), torch.dot(v, v))


def einsum(heads: int, p: Pool) -> Run:
    """Relative positions: a batch that is not the first dimension."""
    q, r = p.leaf(8, heads, 512, 64, dtype=BF16), p.leaf(512, heads, 64, dtype=BF16)
    return both(p, partial(torch.einsum, "bhqd,khd->bhqk"), q, r)


def cases() -> Iterator[Case]:
    for i, size in enumerate(LAYERS):
        dtype = FP16 if i % 3 == 2 else BF16
        yield Case(f"linear {size} {dtype}", partial(linear, size, dtype, i % 2 == 0))
    for i, size in enumerate(SQUARES):
        for j, layout in enumerate(("NN", "NT", "TN")):
            dtype = FP16 if (i + j) % 3 == 2 else BF16
            yield Case(f"mm {layout} {size} {dtype}", partial(product, size, layout, dtype))
    for i, size in enumerate(BATCHES):
        dtype = FP16 if i % 3 == 1 else BF16
        yield Case(f"bmm {size} {dtype}", partial(batched, size, dtype))
    for i, size in enumerate(((8192, 768, 3072), (2048, 4096, 16384), (256, 1024, 4096))):
        yield Case(f"gelu {size}", partial(epilogue, size, True, FP16 if i % 2 else BF16))
        yield Case(f"relu {size}", partial(epilogue, size, False, BF16 if i % 2 else FP16))
    for many in ((8, 512, 1024, 4096), (16, 64, 512, 2048), (64, 32, 256, 256)):
        yield Case(f"baddbmm {many}", partial(added, many, BF16))
    for experts, rows, k, n in ((8, 4096, 1024, 4096), (64, 8192, 512, 1024), (8, 256, 2048, 1024)):
        yield Case(f"grouped {experts} {rows}", partial(grouped, experts, rows, k, n))
    for rows, columns in ((4096, 4096), (16384, 8192), (512, 256)):
        yield Case(f"mv {rows} {columns}", partial(vector, rows, columns, BF16))
    for heads in (12, 4):
        yield Case(f"einsum {heads}", partial(einsum, heads))


build = building("gemm_half", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
