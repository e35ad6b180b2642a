"""What stands between the convolutions of vision models, from bytes of an image to the loss of pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle

import torch
from cases import Case, Pool, Run, both, building, of_module
from harness import main
from torch import nn
from torch.nn import functional as F
from vision_ops import (
    attention_map,
    binary,
    blurred,
    boxes,
    bright,
    channels_first_norm,
    charbonnier,
    depth,
    depths,
    dropped_block,
    erased,
    flipped,
    focal,
    gray,
    heat,
    merged,
    mixed,
    moved,
    normal,
    pasted,
    patches,
    power_mean,
    response_norm,
    swapped,
    unit,
    variation,
    windows,
)

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
LOOKS = ((FP16, True), (FP32, False), (BF16, False), (FP32, True), (BF16, True), (FP16, False))
"""Dtype, and whether channels are last."""
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
Size = tuple[int, ...]
Op = Callable[..., torch.Tensor]


def layout(size: Size, last: bool) -> torch.memory_format:
    return LAST.get(len(size), torch.contiguous_format) if last else torch.contiguous_format


def scaled(mode: str, factor: float, **options: bool) -> Op:
    return partial(F.interpolate, scale_factor=factor, mode=mode, **options)


ONE: dict[str, tuple[Op, tuple[Size, ...]]] = {
    "silu": (F.silu, ((64, 96, 112, 112), (64, 1152, 14, 14))),
    "hardswish": (F.hardswish, ((128, 16, 112, 112), (256, 960, 7, 7))),
    "hard sigmoid": (F.hardsigmoid, ((64, 72, 28, 28),)),
    "gelu": (F.gelu, ((32, 512, 56, 56), (64, 3072, 7, 7))),
    "tanh gelu": (partial(F.gelu, approximate="tanh"), ((16, 1536, 28, 28),)),
    "leaky relu": (partial(F.leaky_relu, negative_slope=0.2), ((16, 64, 128, 128), (2, 32, 96, 96, 96), (16, 512, 31, 31))),
    "relu 6": (F.relu6, ((128, 144, 56, 56),)),
    "relu": (F.relu, ((256, 64, 112, 112), (128, 64, 32, 32))),
    "sigmoid": (torch.sigmoid, ((16, 255, 52, 52),)),
    "glu": (partial(F.glu, dim=1), ((8, 512, 64, 64),)),
    "max 3/2": (lambda x: F.max_pool2d(x, 3, 2, 1), ((128, 64, 112, 112),)),
    "max 2": (lambda x: F.max_pool2d(x, 2), ((16, 128, 256, 256), (256, 32, 28, 28))),
    "max 5/1": (lambda x: F.max_pool2d(x, 5, 1, 2), ((16, 256, 20, 20),)),
    "max 3d": (lambda x: F.max_pool3d(x, 2), ((8, 64, 16, 56, 56),)),
    "average 2": (lambda x: F.avg_pool2d(x, 2), ((64, 256, 56, 56), (128, 512, 14, 14))),
    "average 3/1": (lambda x: F.avg_pool2d(x, 3, 1, 1), ((64, 96, 56, 56),)),
    "global": (lambda x: F.adaptive_avg_pool2d(x, 1), ((256, 2048, 7, 7), (64, 1280, 10, 10))),
    "mean": (lambda x: x.mean((2, 3)), ((128, 1024, 7, 7), (64, 96, 56, 56))),
    "global max": (lambda x: F.adaptive_max_pool2d(x, 1), ((64, 512, 28, 28),)),
    "adaptive 7": (lambda x: F.adaptive_avg_pool2d(x, 7), ((64, 512, 14, 14),)),
    "adaptive 3": (lambda x: F.adaptive_avg_pool2d(x, 3), ((8, 2048, 60, 60),)),
    "power mean": (power_mean, ((32, 512, 24, 32),)),
    "bilinear 2": (scaled("bilinear", 2, align_corners=False), ((8, 512, 32, 32), (16, 256, 64, 64))),
    "bilinear 2 corners": (scaled("bilinear", 2, align_corners=True), ((4, 128, 128, 128), (16, 64, 112, 112))),
    "bilinear 4": (scaled("bilinear", 4), ((8, 21, 129, 129),)),
    "bilinear down": (scaled("bilinear", 0.5), ((32, 3, 448, 448),)),
    "bilinear smooth": (scaled("bilinear", 0.5, antialias=True), ((64, 3, 320, 320),)),
    "nearest 2": (scaled("nearest", 2), ((2, 512, 128, 128), (16, 256, 25, 25))),
    "nearest half": (scaled("nearest-exact", 0.5), ((16, 64, 256, 256),)),
    "bicubic 4": (scaled("bicubic", 4), ((16, 3, 64, 64), (1, 768, 16, 16))),
    "trilinear 2": (scaled("trilinear", 2), ((2, 64, 48, 48, 48),)),
    "pixel shuffle 2": (partial(F.pixel_shuffle, upscale_factor=2), ((16, 256, 96, 96),)),
    "pixel unshuffle 2": (partial(F.pixel_unshuffle, downscale_factor=2), ((4, 64, 256, 256),)),
    "merged": (merged, ((64, 96, 56, 56), (16, 3, 640, 640))),
    "swapped": (swapped, ((128, 116, 28, 28), (128, 464, 7, 7))),
    "patches": (patches, ((64, 3, 224, 224),)),
    "windows": (windows, ((64, 56, 56, 96),)),
    "pieces": (lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), ((16, 128, 80, 80),)),
    "flat": (lambda x: x.flatten(2).transpose(1, 2).contiguous(), ((64, 768, 14, 14),)),
    "reflect 1": (lambda x: F.pad(x, (1,) * 4, mode="reflect"), ((1, 256, 64, 64),)),
    "reflect 3": (lambda x: F.pad(x, (3,) * 4, mode="reflect"), ((4, 3, 256, 256),)),
    "replicate": (lambda x: F.pad(x, (1,) * 4, mode="replicate"), ((8, 64, 180, 180),)),
    "one side": (lambda x: F.pad(x, (0, 1, 0, 1)), ((4, 128, 256, 256),)),
    "crop": (lambda x: x[..., 2:-2, 2:-2].contiguous(), ((4, 64, 568, 568),)),
    "unfold 3": (lambda x: F.unfold(x, 3, padding=1), ((8, 64, 64, 64),)),
    "unfold 7/4": (lambda x: F.unfold(x, 7, stride=4, padding=2), ((32, 3, 224, 224),)),
    "fold": (lambda x: F.fold(F.unfold(x, 3, padding=1), x.shape[-2:], 3, padding=1), ((8, 32, 56, 56),)),
    "dropout 2d": (F.dropout2d, ((16, 256, 56, 56), (128, 1024, 7, 7))),
    "dropout": (partial(F.dropout, p=0.2), ((256, 1280),)),
    "dropped block": (dropped_block, ((64, 256, 28, 28),)),
    "channels first norm": (channels_first_norm, ((64, 192, 28, 28),)),
    "response norm": (response_norm, ((64, 384, 28, 28),)),
    "local response norm": (lambda x: F.local_response_norm(x, 5), ((128, 96, 27, 27),)),
    "unit": (unit, ((8, 256, 46, 62), (1024, 128))),
    "attention map": (attention_map, ((64, 256, 28, 28),)),
}  # fmt: skip
"""One image in, forward and backward."""
SKIP = (4, 64, 256, 256), (4, 64, 256, 256)
TWO: dict[str, tuple[Op, tuple[tuple[Size, ...], ...]]] = {
    "prelu": (F.prelu, (((128, 64, 112, 112), (64,)), ((128, 512, 7, 7), (512,)), ((16, 64, 96, 96), (1,)))),
    "add": (torch.add, (((128, 256, 56, 56),) * 2, ((8, 320, 64, 64),) * 2)),
    "add relu": (lambda a, b: F.relu_(a + b), (((64, 512, 28, 28),) * 2, ((128, 64, 32, 32),) * 2)),
    "layer scale": (lambda a, b, g: a + g * b, (((64, 192, 28, 28),) * 2 + ((1, 192, 1, 1),),)),
    "embedded": (lambda x, t: x + t[:, :, None, None], (((8, 640, 32, 32), (8, 640)), ((128, 128, 32, 32), (128, 128)))),
    "film": (lambda x, a, b: x * (1 + a) + b, (((8, 320, 64, 64), (8, 320, 1, 1), (8, 320, 1, 1)),)),
    "squeeze": (lambda x, s: x * s.sigmoid(), (((64, 1152, 14, 14), (64, 1152, 1, 1)),)),
    "hard squeeze": (lambda x, s: x * F.hardsigmoid(s), (((128, 120, 28, 28), (128, 120, 1, 1)),)),
    "attention gate": (lambda x, m: x * m.sigmoid(), (((4, 256, 64, 64), (4, 1, 64, 64)),)),
    "depth": (depth, (((64, 256, 28, 28),) * 2,)),
    "cat": (lambda *x: torch.cat(x, 1), (SKIP, ((8, 512, 32, 32),) * 2, ((16, 256, 80, 80), (16, 128, 80, 80)), ((8, 256, 33, 33),) * 5, ((64, 256, 28, 28), (64, 32, 28, 28)))),
    "gru": (lambda z, h, q: (1 - z) * h + z * q.tanh(), (((6, 128, 46, 62),) * 3,)),
    "style": (lambda x, w: x * w[:, :, None, None], (((8, 512, 64, 64), (8, 512)),)),
    "correlation": (lambda a, b: (a.float() * b.float()).mean(1), (((8, 128, 64, 128),) * 2,)),
    "swiglu": (lambda x, y: F.gelu(x) * y, (((8, 254, 128, 128),) * 2,)),
}  # fmt: skip
"""Several inputs that want gradients."""
BATCHES = (
    ((128, 64, 112, 112), BF16, True), ((256, 64, 56, 56), FP16, False), ((64, 256, 56, 56), FP32, True),
    ((128, 512, 28, 28), BF16, True), ((256, 2048, 7, 7), FP16, True), ((2, 64, 256, 256), FP32, False),
    ((128, 16, 32, 32), FP32, False), ((128, 512, 4, 4), FP16, True), ((64, 1536, 10, 10), BF16, False),
    ((8, 2048, 33, 33), FP32, False), ((4096, 256), FP32, False), ((256, 2048), FP32, False),
    ((16, 64, 16000), FP16, False), ((2, 32, 96, 96, 96), FP32, False), ((8, 144, 16, 56, 56), BF16, True),
    ((1024, 64, 32, 40), FP32, False),
)  # fmt: skip
GROUPS = (
    ((1, 128, 512, 512), 32, BF16, False), ((8, 512, 64, 64), 32, FP16, True), ((8, 1280, 16, 16), 32, FP32, False),
    ((8, 2560, 8, 8), 32, BF16, False), ((128, 128, 32, 32), 32, FP32, True), ((16, 256, 100, 136), 32, FP32, False),
    ((8, 512, 3999), 1, FP32, False), ((2, 32, 96, 96, 96), 8, FP16, False), ((64, 96, 56, 56), 1, BF16, True),
)  # fmt: skip
INSTANCES = (
    ((4, 256, 64, 64), FP32, False), ((1, 64, 256, 256), FP16, False), ((2, 32, 128, 128, 64), FP32, False),
    ((12, 32, 512, 512), FP16, True), ((2, 320, 8, 8, 8), BF16, False),
)  # fmt: skip
LAYERS = (((64, 56, 56, 96), FP16), ((64, 14, 14, 384), FP32), ((128, 28, 28, 128), BF16))


def single(f: Op, size: Size, dtype: torch.dtype, last: bool, p: Pool) -> Run:
    return both(p, f, p.leaf(*size, dtype=dtype, layout=layout(size, last)))


def several(f: Op, sizes: tuple[Size, ...], dtype: torch.dtype, last: bool, p: Pool) -> Run:
    return both(p, f, *(p.leaf(*one, dtype=dtype, layout=layout(one, last)) for one in sizes))


def batch(size: Size, dtype: torch.dtype, last: bool, p: Pool) -> Run:
    """Statistics and weights stay fp32, as under autocast."""
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(size)]
    x = p.leaf(*size, dtype=dtype, layout=layout(size, last))
    return of_module(p, kind(p.n(size[1])).to(p.device), x)


def frozen(size: Size, dtype: torch.dtype, last: bool, p: Pool) -> Run:
    """A detector's: running statistics, and only the image wants a gradient."""
    x = p.leaf(*size, dtype=dtype, layout=layout(size, last))
    mean, var, w, b = (torch.ones(p.n(size[1]), device=p.device) for _ in range(4))
    return both(p, lambda x: F.batch_norm(x, mean, var, w, b), x)


def group(size: Size, many: int, dtype: torch.dtype, last: bool, p: Pool) -> Run:
    x = p.leaf(*size, dtype=dtype, layout=layout(size, last))
    w, b = p.leaf(size[1], dtype=dtype), p.leaf(size[1], dtype=dtype)
    return both(p, lambda x, w, b: F.group_norm(x, p.n(many), w, b), x, w, b)


def layer(size: Size, dtype: torch.dtype, p: Pool) -> Run:
    x, w, b = (
        p.leaf(*size, dtype=dtype),
        p.leaf(size[-1], dtype=dtype),
        p.leaf(size[-1], dtype=dtype),
    )
    return both(p, lambda x, w, b: F.layer_norm(x, w.shape, w, b), x, w, b)


def pixels(size: Size, dtype: torch.dtype, how: str, p: Pool) -> Run:
    """Cross entropy of classes at dim 1; half precision is widened first, as autocast does."""
    x, y = p.leaf(*size, dtype=dtype), p.index(size[1], size[0], *size[2:])
    options: dict[str, object] = {}
    if how == "ignored":
        y[p.mask(size[0], *size[2:])] = 255
        options["ignore_index"] = 255
    elif how == "weighted":
        options["weight"] = torch.rand(x.shape[1], device=p.device) + 0.5
    elif how == "smooth":
        options["label_smoothing"] = 0.1
    return both(p, lambda x: F.cross_entropy(x.float(), y, **options), x)


def dice(size: Size, dtype: torch.dtype, p: Pool) -> Run:
    x, y = p.leaf(*size, dtype=dtype), p.index(size[1], size[0], *size[2:])
    behind = tuple(range(2, len(size)))

    def f(x: torch.Tensor) -> torch.Tensor:
        share = x.float().softmax(1)
        truth = torch.zeros_like(share).scatter_(1, y[:, None], 1)
        shared = (share * truth).sum(behind)
        return 1 - (2 * shared / (share.sum(behind) + truth.sum(behind) + 1e-5)).mean()

    return both(p, f, x)


LOSSES: dict[str, tuple[Op, tuple[Size, ...]]] = {
    "binary": (binary, ((16, 1, 512, 512), (2, 1, 96, 96, 96))),
    "focal": (focal, ((4, 24552, 80), (16, 8400, 80))),
    "heat": (heat, ((16, 80, 128, 128),)),
    "charbonnier": (charbonnier, ((16, 3, 192, 192), (4, 3, 1024, 1024))),
    "variation": (variation, ((4, 3, 256, 256),)),
    "depths": (depths, ((8, 1, 480, 640),)),
    "boxes": (boxes, ((300000, 4),)),
}


def loss(f: Op, size: Size, dtype: torch.dtype, p: Pool) -> Run:
    y = p.own(*size).sigmoid().to(dtype)
    return both(p, f, p.leaf(*size, dtype=dtype), y)


def places(n: int, h: int, w: int, p: Pool, off: float) -> torch.Tensor:
    """Where to take pixels from: near where they are, or up to `off` of the image away."""
    still = torch.eye(2, 3, device=p.device).expand(p.n(n), 2, 3)
    grid = F.affine_grid(still, [p.n(n), 1, p.n(h), p.n(w)], align_corners=False)
    return grid + off * torch.randn_like(grid)


def sampled(size: Size, side: tuple[int, int], off: float, how: str, learnt: bool, p: Pool) -> Run:
    dtype = FP16 if how == "border" else FP32
    mode = how if how in ("nearest", "bicubic") else "bilinear"
    padding = "border" if how == "border" else "zeros"
    grid = places(size[0], *side, p, off).to(dtype).requires_grad_(learnt)
    f = partial(F.grid_sample, mode=mode, padding_mode=padding, align_corners=False)
    return both(p, f, p.leaf(*size, dtype=dtype), grid)


BYTES: dict[str, tuple[Op, tuple[Size, ...]]] = {
    "normal": (
        normal,
        (
            (128, 3, 224, 224),
            (16, 3, 640, 640),
        ),
    ),
    "normal of rows": (lambda x: normal(x.permute(0, 3, 1, 2)), ((128, 224, 224, 3),)),
    "half": (lambda x: x.half() / 255, ((16, 3, 640, 640), (256, 4, 84, 84))),
    "to last": (lambda x: x.to(BF16, memory_format=LAST[4]).mul_(1 / 255), ((64, 3, 256, 256),)),
    "video": (lambda x: x.permute(0, 4, 1, 2, 3).float() / 127.5 - 1, ((8, 16, 128, 128, 3),)),
    "fewer bits": (lambda x: (x & 240).float(), ((64, 3, 224, 224),)),
    "moved": (moved, ((256, 9, 84, 84),)),
}
PIXELS: dict[str, tuple[Op, tuple[Size, ...]]] = {
    "mixed": (mixed, ((128, 3, 224, 224), (256, 3, 32, 32))),
    "pasted": (pasted, ((128, 3, 224, 224),)),
    "flipped": (flipped, ((256, 3, 224, 224), (512, 3, 32, 32))),
    "bright": (bright, ((64, 3, 224, 224),)),
    "gray": (gray, ((64, 3, 224, 224),)),
    "blurred": (blurred, ((64, 3, 224, 224),)),
    "noisy": (lambda x: x + 0.1 * torch.randn_like(x), ((16, 3, 512, 512),)),
    "erased": (erased, ((128, 3, 224, 224),)),
    "solar": (lambda x: torch.where(x >= 0.5, 1 - x, x), ((128, 3, 224, 224),)),
    "clipped": (lambda x: x.clamp(-1, 1).sub(0.1).div(0.3), ((2, 1, 160, 160, 160),)),
    "whitened": (lambda x: (x - x.mean((2, 3), True)) / x.std((2, 3), keepdim=True), ((64, 3, 256, 256),)),
}  # fmt: skip


def prepared(f: Op, size: Size, dtype: torch.dtype, p: Pool) -> Run:
    """What a batch goes through before the model: no gradients."""
    x = p.randn(*size, dtype=dtype)
    return lambda: f(x)


def losses() -> Iterator[Case]:
    for i, (size, how) in enumerate((
        ((8, 19, 512, 1024), "ignored"), ((4, 150, 128, 128), ""), ((8, 21, 513, 513), "ignored"),
        ((4, 2, 388, 388), "weighted"), ((2, 4, 96, 96, 96), "weighted"), ((16, 81, 28, 28), ""),
        ((1024, 1000), "smooth"),
    )):  # fmt: skip
        dtype = (FP32, BF16, FP16)[i % 3]
        yield Case(f"pixels {size} {how} {dtype}", partial(pixels, size, dtype, how))
    for size, dtype in (((2, 4, 96, 96, 96), FP32), ((12, 3, 512, 512), FP16)):
        yield Case(f"dice {size} {dtype}", partial(dice, size, dtype))
    for i, (name, (f, sizes)) in enumerate(LOSSES.items()):
        for size in sizes:
            dtype = (FP32, FP32, BF16)[i % 3]
            yield Case(f"{name} loss {size} {dtype}", partial(loss, f, size, dtype))


def preparations() -> Iterator[Case]:
    for name, (f, sizes) in BYTES.items():
        for size in sizes:
            yield Case(f"bytes {name} {size}", partial(prepared, f, size, torch.uint8))
    for i, (name, (f, sizes)) in enumerate(PIXELS.items()):
        for j, size in enumerate(sizes):
            dtype = (FP32, FP32, FP16)[(i + j) % 3]
            yield Case(f"{name} {size} {dtype}", partial(prepared, f, size, dtype))
    for size, side, off, how, learnt in (
        ((64, 3, 224, 224), (224, 224), 0.01, "zeros", False), ((17112, 1, 46, 62), (9, 9), 0.01, "zeros", False),
        ((16, 32, 100, 134), (1000, 16), 0.3, "zeros", True), ((8, 64, 96, 128), (96, 128), 0.02, "border", True),
        ((16, 3, 256, 256), (128, 128), 0.0, "bicubic", False), ((8, 21, 128, 128), (128, 128), 0.05, "nearest", False),
    ):  # fmt: skip
        make = partial(sampled, size, side, off, how, learnt)
        yield Case(f"grid sample {size} {side} {how}", make)
    yield Case("affine grid", lambda p: partial(places, 64, 224, 224, p, 0.0))


def cases() -> Iterator[Case]:
    looks = cycle(LOOKS)
    for table, make in ((ONE, single), (TWO, several)):
        for i, (name, (f, sizes)) in enumerate(table.items()):
            for size in sizes:
                dtype, last = next(looks)
                yield Case(f"{name} {size} {dtype} {last}", partial(make, f, size, dtype, last))
            if i % 4 == 3:
                next(looks)
    for size, dtype, last in BATCHES:
        yield Case(f"batch norm {size} {dtype} {last}", partial(batch, size, dtype, last))
    for size, dtype, last in (BATCHES[2], BATCHES[4]):
        yield Case(f"frozen batch norm {size} {dtype}", partial(frozen, size, dtype, last))
    for size, many, dtype, last in GROUPS:
        yield Case(f"group norm {size} {many} {dtype}", partial(group, size, many, dtype, last))
    for size, dtype, last in INSTANCES:
        yield Case(f"instance {size} {dtype}", partial(single, F.instance_norm, size, dtype, last))
    for size, dtype in LAYERS:
        yield Case(f"layer norm {size} {dtype}", partial(layer, size, dtype))
    yield from losses()
    yield from preparations()


build = building("vision_parts", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
