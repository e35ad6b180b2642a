"""Convolutions as known nets have them: classifiers, segmenters, GANs, diffusion, flow, sound, volumes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from cases import Case, Pool, Run, both, building, with_tf32
from harness import main
from torch.nn import functional as F

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}


class Mode(NamedTuple):
    dtype: torch.dtype
    channels_last: bool
    tf32: bool = True


class Layer(NamedTuple):
    """`extents` are those of the input behind its channels; without `padding` it is half the kernel."""

    batch: int
    cin: int
    extents: tuple[int, ...]
    cout: int
    kernel: tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    groups: int = 1
    dilation: int = 1
    padding: int | None = None
    transposed: bool = False


BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
MODES = (
    Mode(BF16, True), Mode(FP32, False), Mode(FP16, False), Mode(FP32, True, False),
    Mode(FP16, True), Mode(FP32, False, False), Mode(BF16, False), Mode(FP32, True),
)  # fmt: skip
CALLS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def square(
    batch: int, cin: int, side: int, cout: int, k: int, stride: int = 1, groups: int = 1,
    dilation: int = 1, padding: int | None = None, transposed: bool = False,
) -> Layer:  # fmt: skip
    """A layer of square images with a square kernel."""
    options = stride, groups, dilation, padding, transposed
    return Layer(batch, cin, (side, side), cout, (k, k), *options)


def depthwise(batch: int, channels: int, side: int, k: int, stride: int = 1) -> Layer:
    return square(batch, channels, side, channels, k, stride, channels)


def sound(
    batch: int, cin: int, length: int, cout: int, k: int, stride: int = 1, groups: int = 1,
    dilation: int = 1, padding: int | None = None, transposed: bool = False,
) -> Layer:  # fmt: skip
    options = stride, groups, dilation, padding, transposed
    return Layer(batch, cin, (length,), cout, (k,), *options)


RESNETS = (
    square(256, 3, 224, 64, 7, 2), square(128, 64, 56, 64, 3), square(128, 64, 56, 128, 3, 2),
    square(256, 256, 14, 256, 3), square(64, 64, 56, 128, 1, 2), square(128, 512, 7, 512, 3),
    square(128, 256, 56, 64, 1), square(64, 128, 28, 512, 1), square(64, 1024, 14, 2048, 1, 2),
    square(256, 2048, 7, 512, 1), square(128, 256, 28, 256, 3, 2), square(8, 512, 14, 512, 3, 2),
    square(1, 64, 200, 64, 3), square(128, 3, 32, 64, 3), square(256, 64, 32, 64, 3),
    square(128, 512, 4, 512, 3), square(128, 160, 32, 160, 3), square(128, 640, 8, 640, 3),
)  # fmt: skip
GROUPED = (
    square(64, 64, 56, 64, 3, 2, 4), square(64, 400, 14, 400, 3, 1, 25),
    square(32, 448, 28, 448, 3, 2, 8), square(64, 896, 14, 896, 3, 1, 16),
    square(16, 2016, 7, 2016, 3, 1, 36), square(64, 1024, 14, 1024, 3, 1, 32),
    Layer(1, 4096, (32, 32), 4096, (3, 3), 1, 8),  # StyleGAN 2: a kernel an image
)  # fmt: skip
MOBILE = (
    square(128, 24, 112, 96, 3, 2), square(64, 24, 150, 24, 3), square(64, 48, 75, 192, 3),
    square(64, 192, 38, 64, 1), square(128, 16, 112, 96, 1), square(256, 24, 56, 144, 1),
    square(128, 112, 14, 672, 1), square(128, 960, 7, 160, 1), square(256, 320, 7, 1280, 1),
    square(64, 1536, 10, 256, 1), square(64, 3, 300, 24, 3, 2), square(256, 3, 224, 32, 3, 2),
    depthwise(128, 96, 112, 3, 2), depthwise(128, 672, 14, 5), depthwise(64, 960, 19, 3),
    depthwise(64, 1152, 7, 5), depthwise(256, 144, 56, 3), depthwise(1, 384, 14, 3),
    depthwise(32, 40, 28, 5, 2),
)  # fmt: skip
CONVNEXT = (
    square(64, 3, 224, 128, 4, 4, padding=0), depthwise(64, 128, 56, 7), depthwise(128, 192, 28, 7),
    depthwise(64, 768, 14, 7), depthwise(64, 1024, 7, 7), square(64, 192, 28, 384, 2, 2, padding=0),
    depthwise(8, 256, 14, 31), square(32, 3, 384, 1024, 14, 14, padding=0),
)  # fmt: skip
SEGMENTERS = (
    square(2, 1, 572, 64, 3, padding=0), square(4, 64, 570, 64, 3, padding=0), square(4, 1024, 30, 1024, 3, padding=0),
    square(4, 128, 392, 64, 3, padding=0), square(4, 64, 388, 2, 1), square(12, 32, 512, 32, 3),
    square(12, 480, 16, 480, 3), square(8, 2048, 33, 256, 3, dilation=12),
    square(8, 2048, 33, 256, 3, dilation=24), square(4, 512, 65, 512, 3, dilation=2),
    square(8, 304, 129, 256, 3), square(16, 48, 128, 48, 3), square(8, 256, 129, 21, 1),
    square(8, 256, 100, 256, 3), square(16, 256, 25, 720, 3),
)  # fmt: skip
MAKERS = (
    square(2, 3, 512, 128, 3), square(2, 128, 512, 128, 3), square(2, 256, 256, 256, 3),
    square(4, 512, 64, 512, 3), square(2, 128, 512, 3, 3), square(8, 4, 64, 320, 3),
    square(8, 320, 64, 320, 3, 2), square(8, 1920, 32, 640, 3), square(8, 2560, 8, 1280, 3),
    square(4, 960, 64, 320, 1), square(128, 128, 32, 128, 3), square(128, 256, 16, 256, 3),
    square(8, 6, 256, 64, 4, 2), square(8, 64, 128, 128, 4, 2), square(8, 256, 32, 512, 4),
    square(8, 512, 31, 1, 4), square(1, 256, 64, 256, 3, padding=0), square(16, 160, 48, 32, 3),
    square(16, 256, 48, 256, 3), square(4, 64, 192, 64, 3),
)  # fmt: skip
OTHERS = (
    Layer(6, 384, (46, 62), 128, (1, 5)), Layer(6, 384, (46, 62), 128, (5, 1)),
    Layer(6, 324, (46, 62), 256, (1, 1)), Layer(6, 2, (46, 62), 128, (7, 7)),
    Layer(12, 3, (368, 496), 64, (7, 7), 2), Layer(6, 128, (46, 62), 576, (1, 1)),
    square(16, 128, 64, 256, 3), square(256, 256, 19, 256, 3), square(256, 4, 84, 32, 8, 4, padding=0),
    square(64, 32, 20, 64, 4, 2, padding=0), square(32, 64, 9, 64, 3, padding=0),
    Layer(16, 1, (2731, 3), 32, (5, 1), (3, 1)), Layer(16, 128, (304, 3), 512, (5, 1), (3, 1)),
    Layer(32, 1, (128, 1024), 64, (3, 3)), Layer(8, 512, (16, 128), 512, (3, 3)),
)  # fmt: skip
SOUNDS = (
    sound(16, 80, 32, 512, 7), sound(16, 256, 256, 256, 11, dilation=5), sound(16, 128, 2048, 128, 7, dilation=3),
    sound(16, 32, 8192, 32, 3), sound(16, 512, 32, 256, 16, 8, padding=4, transposed=True),
    sound(16, 64, 4096, 32, 4, 2, padding=1, transposed=True), sound(16, 32, 8192, 1, 7),
    sound(16, 128, 8192, 128, 41, 2, 4), sound(16, 256, 1024, 512, 41, 4, 16),
    sound(8, 64, 16000, 128, 2, dilation=512, padding=256), sound(8, 256, 16000, 256, 1),
    sound(8, 1, 32000, 512, 16, 8, padding=0), sound(8, 128, 3999, 512, 1),
    sound(8, 512, 3999, 512, 3, groups=512, dilation=64), sound(8, 512, 3999, 1, 16, 8, padding=0, transposed=True),
    sound(16, 80, 3000, 768, 3), sound(16, 768, 3000, 768, 3, 2), sound(4, 2, 343980, 64, 8, 4),
    sound(64, 64, 4096, 128, 17, 4), sound(64, 300, 64, 100, 5), sound(8, 2304, 2048, 2304, 3, groups=2304),
    sound(32, 32, 24000, 64, 4, 2),
)  # fmt: skip
VOLUMES = (
    Layer(8, 3, (16, 112, 112), 64, (3, 7, 7), (1, 2, 2)), Layer(8, 64, (16, 56, 56), 144, (1, 3, 3)),
    Layer(8, 144, (16, 56, 56), 64, (3, 1, 1)), Layer(4, 54, (16, 28, 28), 54, (3, 3, 3), 1, 54),
    Layer(8, 256, (4, 14, 14), 256, (3, 3, 3)), Layer(4, 8, (32, 56, 56), 16, (5, 1, 1), (4, 1, 1)),
    Layer(2, 32, (128, 128, 128), 32, (3, 3, 3)), Layer(2, 32, (96, 96, 96), 64, (3, 3, 3), 2),
    Layer(2, 320, (8, 8, 8), 320, (3, 3, 3)), Layer(2, 32, (96, 96, 96), 3, (1, 1, 1)),
    Layer(2, 128, (16, 16, 16), 64, (2, 2, 2), 2, padding=0, transposed=True),
    Layer(2, 16, (64, 64, 64), 16, (5, 5, 5)), Layer(1, 128, (9, 96, 96), 128, (3, 3, 3)),
    Layer(16, 1, (32, 32, 32), 32, (5, 5, 5), 2),
)  # fmt: skip
GROWING = (
    square(4, 1024, 28, 512, 2, 2, padding=0, transposed=True), square(12, 64, 256, 32, 2, 2, padding=0, transposed=True),
    square(128, 100, 1, 512, 4, padding=0, transposed=True), square(128, 256, 16, 128, 4, 2, padding=1, transposed=True),
    square(64, 128, 32, 3, 4, 2, padding=1, transposed=True), square(4, 256, 64, 128, 3, 2, padding=1, transposed=True),
    square(8, 21, 32, 21, 16, 8, 21, padding=4, transposed=True), square(64, 64, 7, 32, 3, 2, padding=1, transposed=True),
)  # fmt: skip
FROZEN = (
    square(8, 64, 256, 64, 3), square(8, 128, 128, 128, 3), square(8, 256, 64, 256, 3),
    square(8, 512, 32, 512, 3), square(32, 1024, 14, 256, 1), depthwise(64, 240, 28, 5),
)  # fmt: skip
"""Whose weights want no gradient: those of a perceptual loss and of a backbone that is kept."""
SEARCHED = (
    square(64, 128, 28, 128, 3), square(8, 64, 96, 96, 3), square(64, 256, 14, 1024, 1), depthwise(32, 192, 14, 3),
)  # fmt: skip
"""For which cuDNN tries its algorithms first, as `torch.backends.cudnn.benchmark` asks."""


def call(c: Layer) -> partial[torch.Tensor]:
    dims = len(c.extents)
    padding = tuple(c.dilation * (k - 1) // 2 if c.padding is None else c.padding for k in c.kernel)
    options = {"stride": c.stride, "padding": padding, "dilation": c.dilation}
    return partial((TRANSPOSED if c.transposed else CALLS)[dims], **options)


def make(c: Layer, mode: Mode, bias: bool, frozen: bool, p: Pool) -> Run:
    """Forward, and the gradients of input, weight and bias; a stem's input wants none."""
    layout = torch.contiguous_format
    if mode.channels_last:
        layout = LAST.get(len(c.extents), layout)
    groups = p.n(c.groups)
    cin, cout = p.n(c.cin), p.n(c.cout)
    stem = c.cin <= 4 and not frozen
    x = (p.randn if stem else p.leaf)(c.batch, cin, *c.extents, dtype=mode.dtype, layout=layout)
    sides = (cin, cout // groups) if c.transposed else (cout, cin // groups)
    w = (p.randn if frozen else p.leaf)(*sides, *c.kernel, dtype=mode.dtype, layout=layout)
    b = p.leaf(cout, dtype=mode.dtype) if bias and not frozen else None
    return with_tf32(mode.tf32, both(p, partial(call(c), groups=groups), x, w, b))


def forward(c: Layer, mode: Mode, p: Pool) -> Run:
    """A teacher's, or an evaluation's between steps."""
    layout = torch.channels_last if mode.channels_last else torch.contiguous_format
    x = p.randn(c.batch, c.cin, *c.extents, dtype=mode.dtype, layout=layout)
    w = p.randn(c.cout, p.n(c.cin) // p.n(c.groups), *c.kernel, dtype=mode.dtype, layout=layout)
    f = partial(call(c), groups=p.n(c.groups))
    return with_tf32(mode.tf32, lambda: f(x, w))


def search(c: Layer, mode: Mode, p: Pool) -> Run:
    """Forward and backward with cuDNN's search, whose answer is kept a shape."""
    run = make(c, mode, False, False, p)

    def switched() -> object:
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = True
        try:
            return run()
        finally:
            torch.backends.cudnn.benchmark = before

    return switched


def cases() -> Iterator[Case]:
    every = (*RESNETS, *GROUPED, *MOBILE, *CONVNEXT, *SEGMENTERS, *MAKERS, *OTHERS)
    for i, c in enumerate((*every, *SOUNDS, *VOLUMES, *GROWING)):
        # Each ninth layer twice; never the same mode, and not always the same pair of them.
        for j in range(1 + (i % 9 == 0)):
            mode = MODES[(i + j * (3 + i // 8 % 5)) % len(MODES)]
            bias = (i + j) % 3 == 0
            yield Case(f"{c} {mode} {bias}", partial(make, c, mode, bias, False))
    for i, c in enumerate(FROZEN):
        yield Case(f"frozen {c}", partial(make, c, MODES[(1, 4, 6, 0, 7, 2)[i]], False, True))
    for i, c in enumerate((RESNETS[1], MOBILE[5], MOBILE[13], SEGMENTERS[5], MAKERS[10])):
        yield Case(f"forward {c}", partial(forward, c, MODES[(2, 0, 4, 1, 6)[i]]))
    for i, c in enumerate(SEARCHED):
        yield Case(f"searched {c}", partial(search, c, MODES[(4, 1, 0, 2)[i]]))


build = building("conv_layers", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
