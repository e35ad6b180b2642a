"""Attention: the fused kernels by backend, with masks and shared heads, and the chain written out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from cases import Case, Pool, Run, building, with_tf32
from harness import main
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
FLASH, EFFICIENT = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION
CUDNN, MATH = SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH


class Shape(NamedTuple):
    """Queries of `heads`, keys of `shared` heads (None: as many) and `keys` of them (None: as many)."""

    batch: int
    heads: int
    length: int
    dim: int
    causal: bool = False
    keys: int | None = None
    shared: int | None = None


GPT2, LLAMA, LONG = (
    Shape(8, 12, 1024, 64, True), Shape(2, 32, 2048, 128, True), Shape(1, 32, 4096, 128, True),
)  # fmt: skip
BERT, SHORT, VIT = Shape(16, 12, 512, 64), Shape(32, 12, 128, 64), Shape(32, 12, 197, 64)
HUGE, IMAGE, INNER = Shape(16, 16, 257, 80), Shape(2, 8, 4096, 40), Shape(4, 8, 1024, 80)
SMALL, TINY, SHARED = (
    Shape(4, 4, 64, 32),
    Shape(1, 12, 128, 64),
    Shape(2, 32, 1024, 128, True, None, 8),
)
CROSS, SPEECH = Shape(4, 8, 1024, 80, False, 77), Shape(8, 12, 499, 64)
WIDE, NARROW = Shape(2, 16, 1024, 256, True), Shape(64, 8, 256, 32)
FUSED = (
    *((shape, FLASH, BF16) for shape in (GPT2, LLAMA, LONG, BERT, VIT, HUGE, SMALL, SHARED, IMAGE)),
    *((shape, FLASH, FP16) for shape in (GPT2, SHORT, INNER, CROSS, WIDE, TINY, NARROW)),
    *((shape, EFFICIENT, BF16) for shape in (GPT2, LLAMA, BERT, CROSS, INNER, SMALL, SPEECH)),
    *((shape, EFFICIENT, FP32) for shape in (GPT2, BERT, VIT, SHORT, TINY, IMAGE, HUGE)),
    *((shape, EFFICIENT, FP16) for shape in (SHORT, NARROW, SHARED)),
    *((shape, CUDNN, BF16) for shape in (GPT2, LLAMA, LONG, BERT, VIT, SMALL, SHARED)),
    *((shape, CUDNN, FP16) for shape in (SHORT, SPEECH, INNER)),
    *((shape, MATH, BF16) for shape in (SHORT, Shape(2, 12, 1024, 64, True))),
    *((shape, MATH, FP32) for shape in (TINY, Shape(8, 12, 197, 64))),
)
MASKED = (
    (BERT, EFFICIENT, BF16), (Shape(8, 8, 512, 64), EFFICIENT, FP32), (VIT, EFFICIENT, FP16),
    (SPEECH, CUDNN, BF16), (Shape(4, 12, 197, 64), MATH, BF16),
)  # fmt: skip
WRITTEN_OUT = (
    (Shape(4, 12, 1024, 64, True), BF16, False), (SHORT, FP32, True), (SHORT, FP32, False),
    (Shape(8, 12, 512, 64), FP16, False), (TINY, FP16, False), (Shape(512, 3, 49, 32), FP32, True),
    (Shape(1, 16, 2048, 128, True), BF16, False),
)  # fmt: skip
DECODED = (
    Shape(16, 32, 1, 128, False, 2048), Shape(1, 32, 1, 128, False, 4096),
    Shape(8, 32, 1, 128, False, 1024, 8),
)  # fmt: skip


def heads(p: Pool, shape: Shape, dtype: torch.dtype) -> list[torch.Tensor]:
    """Queries, keys and values as a projection leaves them: heads behind positions, transposed."""
    inner = shape.shared or shape.heads
    keys = shape.keys or shape.length
    sizes = ((shape.length, shape.heads), (keys, inner), (keys, inner))
    return [
        p.randn(shape.batch, length, many, shape.dim, dtype=dtype).transpose(1, 2).requires_grad_()
        for length, many in sizes
    ]


def fused(shape: Shape, backend: SDPBackend, dtype: torch.dtype, masked: bool, p: Pool) -> Run:
    """One backend, forward and backward; a mask is added to the scores, the same for all heads."""
    q, k, v = heads(p, shape, dtype)
    mask = p.randn(shape.batch, 1, shape.length, shape.length, dtype=dtype) if masked else None
    grad = p.like(q)

    def run() -> object:
        with sdpa_kernel([backend]):
            out = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=shape.causal, enable_gqa=shape.shared is not None
            )
        return torch.autograd.grad(out, (q, k, v), grad)

    return run


def decoded(shape: Shape, p: Pool) -> Run:
    """One new position against what was kept of the others."""
    q, k, v = (x.detach() for x in heads(p, shape, BF16))
    shared = shape.shared is not None
    return lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=shared)


def written_out(shape: Shape, dtype: torch.dtype, on: bool, p: Pool) -> Run:
    """The chain of a model that knows no fused attention."""
    q, k, v = heads(p, shape, dtype)
    grad = p.like(q)
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=p.device).triu(1)
    padded = p.randn(shape.batch, 1, 1, shape.length, dtype=dtype)

    def run() -> object:
        scores = q @ k.transpose(-2, -1) / shape.dim**0.5
        scores = scores.masked_fill(hidden, -1e4) if shape.causal else scores + padded
        weights = F.dropout(F.softmax(scores, -1, dtype=torch.float32).to(dtype), 0.1)
        return torch.autograd.grad(weights @ v, (q, k, v), grad)

    return with_tf32(on, run)


def cases() -> Iterator[Case]:
    for shape, backend, dtype in FUSED:
        yield Case(f"{backend.name} {shape} {dtype}", partial(fused, shape, backend, dtype, False))
    for shape, backend, dtype in MASKED:
        name = f"{backend.name} masked {shape} {dtype}"
        yield Case(name, partial(fused, shape, backend, dtype, True))
    for shape, dtype, on in WRITTEN_OUT:
        name = f"written out {shape} {dtype} tf32={on}"
        yield Case(name, partial(written_out, shape, dtype, on))
    for shape in DECODED:
        yield Case(f"decoded {shape}", partial(decoded, shape))


build = building("attention", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
