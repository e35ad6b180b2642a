"""Norms, softmax, losses and dropout, forward and backward, from less than a wave to the whole DRAM."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from cases import Case, Pool, Run, both, building, of_module
from harness import main
from torch import nn
from torch.nn import functional as F

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
LAST = torch.channels_last
ROWS = (
    ((8192, 768), BF16), ((4096, 4096), BF16), ((16384, 1024), FP32), ((512, 768), FP32),
    ((128, 1024), FP16), ((65536, 96), FP32), ((2048, 8192), BF16), ((3136, 384), FP16),
    ((16384, 4096), BF16), ((1023, 1021), FP32),
)  # fmt: skip
IMAGES = (
    ((32, 64, 112, 112), FP32, False), ((32, 256, 56, 56), FP16, True), ((32, 512, 28, 28), BF16, True),
    ((32, 1024, 14, 14), FP32, False), ((32, 2048, 7, 7), FP32, True), ((8, 64, 28, 28), FP32, False),
    ((64, 128, 28, 28), FP16, False), ((16, 96, 56, 56), FP32, True), ((2, 32, 8, 8), FP32, False),
)  # fmt: skip
GROUPED = (
    ((4, 320, 64, 64), FP32, False), ((4, 640, 32, 32), FP16, False), ((8, 128, 128, 128), BF16, True),
    ((2, 1280, 8, 8), FP32, False), ((8, 256, 56, 56), FP32, True),
)  # fmt: skip
VOLUMES = ((2, 32, 64, 64, 64), (2, 128, 16, 16, 16), (16, 64, 32, 32))
WIDTHS = (
    ((65536, 32), FP32), ((24576, 128), BF16), ((49152, 512), FP16), ((12288, 1024), BF16),
    ((8192, 2048), FP32), ((2048, 4096), BF16), ((1024, 32000), FP32), ((1024, 50257), BF16),
    ((256, 128256), FP32), ((256, 10), FP32), ((1024, 1000), FP32), ((96, 197), FP16),
    ((4096, 49), FP32), ((64, 50304), FP16),
)  # fmt: skip
CLASSES = (
    (256, 1000, FP32), (1024, 50257, FP32), (2048, 32000, BF16), (512, 128256, BF16),
    (65536, 10, FP32), (4096, 2, FP32), (128, 10, FP32), (2048, 30522, FP16),
)  # fmt: skip
SIZES = ((512, 768), (8192, 768), (4096, 4096), (16384, 3072))


def layer(size: tuple[int, ...], dtype: torch.dtype, p: Pool) -> Run:
    width = size[-1:]
    x, w, b = (p.leaf(*s, dtype=dtype) for s in (size, width, width))
    return both(p, lambda x, w, b: F.layer_norm(x, w.shape, w, b), x, w, b)


def rms(size: tuple[int, ...], dtype: torch.dtype, fused: bool, p: Pool) -> Run:
    """In one op, or written out as the models of Hugging Face have it."""
    x, w = p.leaf(*size, dtype=dtype), p.leaf(size[-1], dtype=dtype)

    def written_out(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return w * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    return both(p, (lambda x, w: F.rms_norm(x, w.shape, w)) if fused else written_out, x, w)


def batch(size: tuple[int, ...], dtype: torch.dtype, last: bool, p: Pool) -> Run:
    """As under autocast: statistics and weights stay fp32."""
    x = p.leaf(*size, dtype=dtype, layout=LAST if last else torch.contiguous_format)
    return of_module(p, nn.BatchNorm2d(p.n(size[1])).to(p.device), x)


def group(size: tuple[int, ...], dtype: torch.dtype, last: bool, p: Pool) -> Run:
    x = p.leaf(*size, dtype=dtype, layout=LAST if last else torch.contiguous_format)
    w, b = p.leaf(size[1], dtype=dtype), p.leaf(size[1], dtype=dtype)
    return both(p, lambda x, w, b: F.group_norm(x, p.n(32), w, b), x, w, b)


def instance(size: tuple[int, ...], p: Pool) -> Run:
    x, w, b = p.leaf(*size), p.leaf(size[1]), p.leaf(size[1])
    return both(p, lambda x, w, b: F.instance_norm(x, weight=w, bias=b), x, w, b)


def across(size: tuple[int, ...], p: Pool) -> Run:
    """ConvNeXt's: the norm of an image's channels, by a transposed view and back."""
    x, w, b = p.leaf(*size, dtype=BF16), p.leaf(size[1], dtype=BF16), p.leaf(size[1], dtype=BF16)

    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x.permute(0, 2, 3, 1), w.shape, w, b).permute(0, 3, 1, 2)

    return both(p, f, x, w, b)


def soft(size: tuple[int, int], dtype: torch.dtype, log: bool, dim: int, p: Pool) -> Run:
    x = p.leaf(*size, dtype=dtype)
    return both(p, partial(F.log_softmax if log else F.softmax, dim=dim), x)


def cross_entropy(rows: int, classes: int, dtype: torch.dtype, smooth: float, p: Pool) -> Run:
    """Logits of half precision are widened first, as autocast does."""
    x, y = p.leaf(rows, classes, dtype=dtype), p.index(classes, rows)
    return both(p, lambda x: F.cross_entropy(x.float(), y, label_smoothing=smooth), x)


def per_pixel(p: Pool) -> Run:
    x, y = p.leaf(8, 21, 256, 256), p.index(21, 8, 256, 256)
    return both(p, lambda x: F.cross_entropy(x, y), x)


def loss(name: str, size: tuple[int, ...], p: Pool) -> Run:
    x, y = p.leaf(*size), p.randn(*size).sigmoid()
    return both(p, lambda x: getattr(F, name)(x, y), x)


def dropout(size: tuple[int, int], dtype: torch.dtype, p: Pool) -> Run:
    return both(p, partial(F.dropout, p=0.1), p.leaf(*size, dtype=dtype))


def cases() -> Iterator[Case]:
    for i, (size, dtype) in enumerate(ROWS):
        yield Case(f"layer norm {size} {dtype}", partial(layer, size, dtype))
        if i < 6:
            yield Case(f"rms norm {size} {dtype}", partial(rms, size, dtype, True))
    for size, dtype in (((4096, 4096), BF16), ((512, 2048), BF16)):
        yield Case(f"rms norm written out {size}", partial(rms, size, dtype, False))
    for size, dtype, last in IMAGES:
        yield Case(f"batch norm {size} {dtype} {last}", partial(batch, size, dtype, last))
    for size, dtype, last in GROUPED:
        yield Case(f"group norm {size} {dtype} {last}", partial(group, size, dtype, last))
    for size in VOLUMES:
        yield Case(f"instance norm {size}", partial(instance, size))
    for size in ((32, 96, 56, 56), (32, 768, 7, 7)):
        yield Case(f"norm across channels {size}", partial(across, size))
    for i, (size, dtype) in enumerate(WIDTHS):
        yield Case(f"softmax {size} {dtype}", partial(soft, size, dtype, False, -1))
        if i % 2 == 0:
            yield Case(f"log softmax {size} {dtype}", partial(soft, size, dtype, True, -1))
    for size in ((512, 4096), (64, 100000)):
        yield Case(f"softmax over rows {size}", partial(soft, size, FP32, False, 0))
    for i, (rows, classes, dtype) in enumerate(CLASSES):
        smooth = 0.1 if i % 4 == 0 else 0.0
        make = partial(cross_entropy, rows, classes, dtype, smooth)
        yield Case(f"cross entropy {rows} {classes} {dtype} {smooth}", make)
    yield Case("cross entropy of pixels", per_pixel)
    for name in ("mse_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits", "l1_loss"):
        for size in ((65536,), (16, 3, 512, 512)):
            yield Case(f"{name} {size}", partial(loss, name, size))
    for i, size in enumerate(SIZES):
        dtype = (BF16, FP32, FP16, BF16)[i]
        yield Case(f"dropout {size} {dtype}", partial(dropout, size, dtype))


build = building("norms", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
