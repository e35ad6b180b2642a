"""Matrix products in fp32 with TF32 off and on, fp64, complex, int8 and fp8 with its casts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from cases import Case, Pool, Run, both, building, with_tf32
from harness import main
from torch.nn import functional as F

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
LAYERS = (
    (4096, 768, 768), (4096, 768, 3072), (4096, 3072, 768), (512, 768, 3072), (128, 768, 768),
    (2048, 1024, 4096), (2048, 13, 512), (2048, 512, 256), (8192, 479, 1024), (4096, 1024, 1024),
    (8192, 256, 1), (64, 1024, 4096), (256, 2048, 1000), (169343, 128, 256), (10000, 500, 16),
    (512, 768, 30522), (2708, 1433, 64), (16, 256, 256), (65536, 64, 64), (1023, 515, 259),
    (3136, 96, 384),
)  # fmt: skip
"""Rows, features in and out."""
SQUARES = (
    (64, 64, 64), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048),
    (4096, 4096, 4096), (128, 16384, 128), (8192, 32, 8192), (1001, 777, 999), (8, 4096, 4096),
)  # fmt: skip
"""M, K and N."""
BATCHES = (
    (96, 512, 64, 512), (96, 512, 512, 64), (384, 197, 64, 197), (16, 128, 128, 128),
    (1024, 49, 32, 49), (2048, 27, 64, 27), (64, 1, 64, 512),
)  # fmt: skip
"""Batch, M, K and N."""
EIGHTS = ((4096, 4096, 4096), (1024, 768, 3072), (8192, 1024, 1024), (64, 4096, 4096),
          (256, 512, 512), (16384, 2048, 128))  # fmt: skip
FP8 = torch.float8_e4m3fn


def linear(size: tuple[int, int, int], on: bool, bias: bool, p: Pool) -> Run:
    rows, fin, fout = size
    b = p.leaf(fout) if bias else None
    return with_tf32(on, both(p, F.linear, p.leaf(rows, fin), p.leaf(fout, fin), b))


def product(size: tuple[int, int, int], layout: str, dtype: torch.dtype, on: bool, p: Pool) -> Run:
    """A product alone; T is a transposed view, as the gradients of a layer have it."""
    m, k, n = size
    a = p.randn(m, k, dtype=dtype) if layout[0] == "N" else p.randn(k, m, dtype=dtype).t()
    b = p.randn(k, n, dtype=dtype) if layout[1] == "N" else p.randn(n, k, dtype=dtype).t()
    return with_tf32(on, lambda: torch.mm(a, b))


def batched(size: tuple[int, int, int, int], on: bool, p: Pool) -> Run:
    batch, m, k, n = size
    return with_tf32(on, both(p, torch.bmm, p.leaf(batch, m, k), p.leaf(batch, k, n)))


def int8(size: tuple[int, int, int], p: Pool) -> Run:
    m, k, n = size
    a, b = p.randn(m, k, dtype=torch.int8), p.randn(n, k, dtype=torch.int8).t()
    return lambda: torch._int_mm(a, b)


def fp8(size: tuple[int, int, int], by_row: bool, p: Pool) -> Run:
    m, k, n = size
    a, b = p.randn(m, k, dtype=FP8), p.randn(n, k, dtype=FP8).t()
    left = torch.ones((p.n(m), 1) if by_row else (), device=p.device)
    right = torch.ones((1, p.n(n)) if by_row else (), device=p.device)
    return lambda: torch._scaled_mm(
        a, b, scale_a=left, scale_b=right, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def to_fp8(rows: int, columns: int, p: Pool) -> Run:
    """The cast with a scale that a tensor's own maximum gives."""
    x = p.randn(rows, columns, dtype=torch.bfloat16)

    def run() -> object:
        scale = 448.0 / x.abs().amax().float().clamp(min=1e-12)
        return (x.float() * scale).clamp(-448.0, 448.0).to(FP8)

    return run


def cases() -> Iterator[Case]:
    for i, size in enumerate(LAYERS):
        for on in (False, True):
            yield Case(f"linear {size} tf32={on}", partial(linear, size, on, i % 2 == 0))
    for i, size in enumerate(SQUARES):
        for on in (False, True):
            for layout in (("NN", "TN"), ("NT", "NN"))[(i + on) % 2]:
                make = partial(product, size, layout, torch.float32, on)
                yield Case(f"mm {layout} {size} tf32={on}", make)
    for size in BATCHES:
        for on in (False, True):
            yield Case(f"bmm {size} tf32={on}", partial(batched, size, on))
    for size in SQUARES[1:5] + SQUARES[6:7]:
        yield Case(f"mm {size} fp64", partial(product, size, "NT", torch.float64, False))
    for size in ((512, 512, 512), (1024, 2048, 1024)):
        yield Case(f"mm {size} complex", partial(product, size, "NN", torch.complex64, False))
    for size in EIGHTS:
        yield Case(f"int8 {size}", partial(int8, size))
        yield Case(f"fp8 {size}", partial(fp8, size, False))
        yield Case(f"fp8 {size} by row", partial(fp8, size, True))
    for rows, columns in ((8192, 4096), (512, 1024)):
        yield Case(f"to fp8 {rows} {columns}", partial(to_fp8, rows, columns))


build = building("gemm_float", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
