"""Convolutions of images, sounds and volumes: stems, wide and thin, depthwise, grouped, transposed."""

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
    tf32: bool
    channels_last: bool


class Conv(NamedTuple):
    """One layer; `extents` are those of the input behind its channels."""

    batch: int
    cin: int
    extents: tuple[int, ...]
    cout: int
    kernel: tuple[int, ...]
    stride: int = 1
    groups: int = 1
    dilation: int = 1
    transposed: bool = False


TF32 = Mode(torch.float32, True, False)
FP32 = Mode(torch.float32, False, False)
TF32_LAST = Mode(torch.float32, True, True)
HALF = Mode(torch.bfloat16, False, False)
BF16_LAST = Mode(torch.bfloat16, False, True)
FP16_LAST = Mode(torch.float16, False, True)
MODES = (TF32, BF16_LAST, FP32, FP16_LAST, HALF, TF32_LAST)
CALLS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def image(
    batch: int, cin: int, side: int, cout: int, k: int, stride: int = 1, groups: int = 1
) -> Conv:
    return Conv(batch, cin, (side, side), cout, (k, k), stride, groups)


IMAGES = (
    image(32, 3, 224, 64, 7, 2), image(32, 64, 56, 64, 1), image(32, 64, 56, 64, 3),
    image(32, 256, 56, 64, 1), image(32, 64, 56, 256, 1), image(32, 128, 56, 128, 3, 2),
    image(64, 256, 14, 256, 3), image(32, 1024, 14, 256, 1), image(32, 512, 7, 512, 3),
    image(32, 512, 7, 2048, 1), image(32, 256, 56, 512, 1, 2), image(32, 96, 56, 96, 7, 1, 96),
    image(16, 384, 14, 384, 7, 1, 384), image(32, 3, 224, 96, 4, 4), image(32, 144, 56, 144, 3, 2, 144),
    image(32, 240, 28, 240, 5, 1, 240), image(32, 32, 112, 32, 3, 1, 32), image(16, 128, 56, 128, 3, 1, 32),
    image(4, 64, 128, 64, 3), image(4, 320, 64, 320, 3), image(4, 640, 32, 640, 3),
    image(2, 1, 256, 32, 3), image(4, 64, 128, 1, 1), image(64, 1, 28, 32, 3), image(1, 16, 28, 32, 5),
    image(8, 33, 64, 65, 3), image(16, 3, 224, 64, 3), image(16, 1280, 7, 320, 1),
    image(16, 3, 224, 768, 16, 16), image(128, 16, 32, 16, 3),
)  # fmt: skip
SOUNDS = (
    Conv(4, 1, (160000,), 512, (10,), 5), Conv(4, 512, (15999,), 512, (3,), 2),
    Conv(8, 768, (499,), 768, (128,), 1, 16), Conv(8, 80, (3000,), 384, (3,)),
    Conv(8, 384, (3000,), 384, (3,), 2), Conv(4, 64, (16000,), 128, (2,), 1, 1, 8),
    Conv(16, 512, (400,), 512, (31,), 1, 512), Conv(4, 512, (250,), 256, (16,), 8, transposed=True),
    Conv(8, 1536, (1024,), 1536, (4,), 1, 1536), Conv(1, 32, (2000,), 32, (3,)),
)  # fmt: skip
VOLUMES = (
    Conv(2, 1, (64, 64, 64), 32, (3, 3, 3)), Conv(2, 32, (64, 64, 64), 32, (3, 3, 3)),
    Conv(2, 64, (32, 32, 32), 64, (3, 3, 3)), Conv(1, 128, (16, 16, 16), 128, (3, 3, 3)),
    Conv(4, 3, (16, 112, 112), 64, (3, 7, 7), 2), Conv(2, 64, (32, 32, 32), 32, (2, 2, 2), 2, transposed=True),
    Conv(2, 32, (64, 64, 64), 4, (1, 1, 1)), Conv(1, 16, (8, 8, 8), 16, (3, 3, 3)),
)  # fmt: skip
GROWING = (
    Conv(8, 256, (32, 32), 128, (2, 2), 2, transposed=True),
    Conv(32, 100, (1, 1), 512, (4, 4), 1, transposed=True),
    Conv(32, 512, (4, 4), 256, (4, 4), 2, transposed=True),
    Conv(16, 128, (32, 32), 64, (4, 4), 2, transposed=True),
    Conv(4, 64, (128, 128), 3, (4, 4), 2, transposed=True),
)


def make(c: Conv, mode: Mode, bias: bool, p: Pool) -> Run:
    """Forward, and the gradients of input, weight and bias; a stem's input wants none."""
    dims = len(c.extents)
    layout = LAST[dims] if mode.channels_last and dims in LAST else torch.contiguous_format
    groups = p.n(c.groups)
    cin, cout = p.n(c.cin), p.n(c.cout)
    stem = c.cin in (1, 3)
    x = (p.randn if stem else p.leaf)(c.batch, cin, *c.extents, dtype=mode.dtype, layout=layout)
    # A weight has its channels undivided on one side, and a tiny kernel is no larger than its input.
    sides = (cin, cout // groups) if c.transposed else (cout, cin // groups)
    w = p.leaf(*sides, *c.kernel, dtype=mode.dtype, layout=layout)
    b = p.leaf(cout, dtype=mode.dtype) if bias else None
    padding = 0 if c.transposed and max(c.extents) == 1 else c.dilation * (c.kernel[-1] - 1) // 2
    padding = min(padding, p.n(c.kernel[-1]) // 2 if c.kernel[-1] > 8 and p.tiny else padding)
    if c.transposed:
        f = partial(TRANSPOSED[dims], stride=c.stride, padding=padding, groups=groups)
    else:
        f = partial(
            CALLS[dims], stride=c.stride, padding=padding, groups=groups, dilation=c.dilation
        )
    return with_tf32(mode.tf32, both(p, f, x, w, b))


def cases() -> Iterator[Case]:
    every = [(c, 2) for c in IMAGES] + [(c, 1) for c in (*SOUNDS, *VOLUMES, *GROWING)]
    turn = 0
    for c, modes in every:
        for _ in range(modes):
            mode = MODES[turn % len(MODES)]
            turn += 1
            yield Case(f"{c} {mode}", partial(make, c, mode, turn % 3 == 0))
        # Pairs would else meet the same two of six modes again and again.
        turn += len(c.extents) == 2 and c.cin % 3 == 1


build = building("conv", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
