"""Nets over rows, lines, images, volumes and sequences, their widths and extents drawn over a grid.

A part of `layers_float.py`. A mode is a letter: f for fp32, t for fp32 with TF32, d for fp64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, pairwise
from math import gcd
from typing import NamedTuple

import torch
from cases import Case, Pool, Run, of_module, with_tf32
from torch import nn
from torch.nn import functional as F

Size = tuple[int, ...]
Layers = list[nn.Module]
ACTS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU, "in place": partial(nn.ReLU, inplace=True), "gelu": nn.GELU, "silu": nn.SiLU,
    "tanh": nn.Tanh, "softplus": nn.Softplus, "elu": nn.ELU, "leaky": nn.LeakyReLU, "sigmoid": nn.Sigmoid,
    "mish": nn.Mish, "selu": nn.SELU, "hard": nn.Hardswish, "dropout": partial(nn.Dropout, 0.1),
    "celu": nn.CELU, "rectified": nn.PReLU,
}  # fmt: skip
MLPS = (
    (256, (1024, 4096, 4096, 1024), "relu", ""), (512, (32, 64, 64, 32), "tanh", ""),
    (1024, (256, 256, 256, 1), "in place", ""), (2048, (784, 512, 256, 10), "dropout", "batch"),
    (4096, (128, 256, 512, 128), "gelu", "layer"), (8192, (512, 2048, 512), "gelu", "layer"),
    (16384, (64, 128, 64, 3), "softplus", ""), (32768, (96, 192, 96), "silu", "layer"),
    (65536, (32, 64, 64, 32), "elu", ""), (131072, (48, 96, 48), "leaky", "batch"),
    (262144, (64, 64, 64, 4), "in place", ""), (524288, (40, 80, 16), "silu", ""),
    (1000000, (32, 32, 32), "tanh", ""), (1000000, (3, 64, 1), "sigmoid", ""),
    (65536, (256, 512, 256), "relu", "batch"), (16384, (1024, 1024, 1024), "mish", ""),
    (300, (2048, 1000, 500, 100), "selu", ""), (5000, (333, 777, 55), "celu", "layer"),
    (720, (640, 1280, 640), "hard", ""), (100000, (100, 300, 20), "rectified", ""),
    (384, (4096, 4096, 32), "silu", "layer"), (1536, (384, 1536, 384, 1536, 384), "gelu", ""),
    (12288, (192, 768, 192), "dropout", "layer"), (2500, (150, 450, 450, 150), "tanh", "batch"),
)  # fmt: skip
"""Rows, widths, activation, norm behind each layer but the last."""


class Net(NamedTuple):
    """`extents` stand behind the channels; a block of the style takes each pair of channels."""

    style: str
    batch: int
    extents: Size
    channels: Size
    kernel: int = 3
    stride: int = 1
    last: bool = False


CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
BATCHES = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
POOLS = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
MEANS = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
LINES = (
    Net("plain", 16, (16000,), (1, 32, 64), 9, 4), Net("batch", 64, (1024,), (64, 128, 128), 5),
    Net("dilated", 32, (2048,), (128, 128, 64)), Net("separable", 16, (4000,), (256, 256), 15),
    Net("grouped", 64, (500,), (96, 192)), Net("up", 16, (1024,), (256, 128, 64), 4),
    Net("pooled", 128, (256,), (16, 32, 64), 7), Net("inverted", 32, (400,), (144, 144), 31),
)  # fmt: skip
IMAGES = (
    Net("batch", 256, (28, 28), (3, 32, 64)), Net("batch", 128, (32, 32), (64, 128, 128), last=True),
    Net("plain", 64, (56, 56), (128, 64, 64)), Net("plain", 16, (224, 224), (3, 48, 48), 5, 2, True),
    Net("group", 8, (64, 64), (256, 320, 320)), Net("group", 32, (28, 28), (512, 256), last=True),
    Net("separable", 64, (112, 112), (32, 64, 128), 3, 2), Net("separable", 32, (56, 56), (128, 256), 5, 1, True),
    Net("grouped", 32, (56, 56), (256, 128)), Net("grouped", 64, (28, 28), (512, 256), 3, 2, True),
    Net("dilated", 8, (65, 65), (512, 256, 128)), Net("dilated", 4, (192, 192), (64, 96), 3, 1, True),
    Net("up", 32, (16, 16), (512, 256, 64), 4), Net("up", 8, (64, 64), (128, 64, 32), 2, 2, True),
    Net("nearest", 4, (128, 128), (128, 64, 3)), Net("nearest", 16, (32, 32), (256, 128), 3, 1, True),
    Net("pooled", 64, (96, 96), (3, 24, 48)), Net("pooled", 8, (256, 256), (16, 32, 64), 3, 1, True),
    Net("inverted", 64, (56, 56), (24, 32)), Net("inverted", 128, (28, 28), (96, 96), 5, 2, True),
    Net("next", 32, (56, 56), (96, 96), 7), Net("next", 64, (28, 28), (192, 192), 7, 1, True),
    Net("squeezed", 64, (28, 28), (256, 256)), Net("average", 16, (200, 200), (12, 36, 72), 5),
    Net("average", 32, (80, 80), (48, 96), 3, 1, True), Net("batch", 4, (512, 512), (3, 16, 32), 7, 2),
    Net("batch", 32, (28, 28), (1024, 512), 1), Net("instance", 4, (256, 256), (64, 64, 3)),
    Net("plain", 512, (28, 28), (16, 16, 8)), Net("batch", 16, (84, 84), (200, 100), 3, 1, True),
)  # fmt: skip
VOLUMES = (
    Net("batch", 2, (64, 64, 64), (4, 24, 24)), Net("group", 1, (96, 96, 96), (16, 32), last=True),
    Net("separable", 4, (16, 56, 56), (48, 96)), Net("pooled", 2, (32, 112, 112), (3, 16, 32)),
    Net("up", 2, (24, 24, 24), (128, 64, 32), 2, 2), Net("plain", 8, (8, 28, 28), (128, 128), 3, 1, True),
)  # fmt: skip
DOUBLES = (
    Net("plain", 16, (28, 28), (16, 32, 16)), Net("batch", 8, (1000,), (32, 64), 5),
    Net("dilated", 8, (48, 48), (32, 32)),
)  # fmt: skip
SEQUENCES = (
    ("LSTM", 5, 16, 64, 64, 2, False), ("GRU", 4, 64, 128, 128, 1, True), ("LSTM", 4, 128, 96, 256, 1, True),
    ("GRU", 5, 256, 512, 512, 1, False), ("LSTM", 5, 512, 256, 1024, 1, False), ("RNN", 5, 1024, 64, 128, 1, False),
    ("GRU", 4, 32, 1024, 2048, 1, False), ("LSTM", 3, 1024, 512, 2048, 1, False), ("GRU", 4, 48, 300, 200, 2, False),
    ("RNN", 3, 192, 768, 768, 1, True), ("LSTM", 4, 768, 40, 384, 1, False), ("LSTM", 3, 100, 128, 650, 2, False),
)  # fmt: skip
"""Kind, length, batch, features, hidden, layers, both ways. Short: some launch kernels a position."""
ENCODERS = (
    (16, 196, 384, 6, 1536, True), (8, 512, 512, 8, 2048, False), (256, 24, 128, 8, 256, True),
)  # fmt: skip
"""Batch, length, width, heads, inner, norm first."""


class Residual(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class Gated(nn.Module):
    """Squeeze and excitation over any extents."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(c, c // 4), nn.Linear(c // 4, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.up(F.silu(self.down(x.flatten(2).mean(2)))).sigmoid()
        return x * gate.view(*gate.shape, *[1] * (x.dim() - 2))


def block(c: Net, cin: int, cout: int) -> Layers:
    dims, k, stride = len(c.extents), c.kernel, c.stride
    conv, batch, pad = CONVS[dims], BATCHES[dims], c.kernel // 2
    if c.style in ("plain", "pooled", "average"):
        after = {"pooled": [POOLS[dims](2)], "average": [MEANS[dims](2)]}.get(c.style, [])
        return [conv(cin, cout, k, stride, pad), nn.LeakyReLU(0.1), *after]
    if c.style in ("batch", "squeezed"):
        body = [conv(cin, cout, k, stride, pad, bias=False), batch(cout), nn.ReLU(inplace=True)]
        return [*body, Gated(cout)] if c.style == "squeezed" else body
    if c.style in ("group", "instance"):
        norm = nn.GroupNorm(min(cout, 8 if c.style == "group" else cout), cout)
        return [conv(cin, cout, k, stride, pad), norm, nn.SiLU()]
    if c.style == "separable":
        deep = conv(cin, cin, k, stride, pad, groups=cin, bias=False)
        return [deep, conv(cin, cout, 1, bias=False), batch(cout), nn.ReLU6()]
    if c.style == "grouped":
        body = [conv(cin, cout, 1, bias=False), batch(cout), nn.ReLU(inplace=True)]
        wide = conv(cout, cout, k, stride, pad, groups=min(cout, 8), bias=False)
        return [*body, wide, batch(cout), nn.ReLU(inplace=True)]
    if c.style == "dilated":
        return [conv(cin, cout, k, 1, 2 * pad, dilation=2), nn.ELU()]
    if c.style == "up":
        return [TRANSPOSED[dims](cin, cout, k, 2, (k - 2) // 2, bias=False), batch(cout), nn.ReLU()]
    if c.style == "nearest":
        return [nn.Upsample(scale_factor=2), conv(cin, cout, k, 1, pad), nn.Tanh()]
    if c.style == "inverted":
        wide = 4 * cin
        deep = [conv(wide, wide, k, stride, pad, groups=wide, bias=False), batch(wide)]
        out = [nn.Hardswish(), conv(wide, cout, 1, bias=False), batch(cout)]
        return [conv(cin, wide, 1, bias=False), batch(wide), nn.Hardswish(), *deep, *out]
    deep = conv(cin, cin, k, 1, pad, groups=cin)
    body = [deep, nn.GroupNorm(1, cin), conv(cin, 4 * cin, 1), nn.GELU(), conv(4 * cin, cin, 1)]
    return [Residual(nn.Sequential(*body))]


def placed(build: Callable[[], nn.Module], mode: str, p: Pool) -> nn.Module:
    """A module made where it runs, in the dtype of the mode."""
    with torch.device(p.device):
        return build().to(dtype(mode))


def dtype(mode: str) -> torch.dtype:
    return torch.float64 if mode == "d" else torch.float32


def convolved(c: Net, mode: str, p: Pool) -> Run:
    """An input of at most four channels is data, and wants no gradient."""

    def build() -> nn.Module:
        pairs = pairwise(map(p.n, c.channels))
        return nn.Sequential(*(layer for a, b in pairs for layer in block(c, a, b)))

    layout = LAST[len(c.extents)] if c.last else torch.contiguous_format
    module = placed(build, mode, p).to(memory_format=layout)
    source = p.randn if c.channels[0] <= 4 else p.leaf
    x = source(c.batch, c.channels[0], *c.extents, dtype=dtype(mode), layout=layout)
    return with_tf32(mode == "t", of_module(p, module, x))


def perceptron(rows: int, widths: Size, act: str, norm: str, skip: bool, mode: str, p: Pool) -> Run:
    def layers() -> Iterator[nn.Module]:
        cut = [p.n(width) for width in widths]
        for i, (a, b) in enumerate(pairwise(cut)):
            yield nn.Linear(a, b)
            if i < len(cut) - 2:
                if norm:
                    yield nn.LayerNorm(b) if norm == "layer" else nn.BatchNorm1d(b)
                yield ACTS[act]()

    def build() -> nn.Module:
        body = nn.Sequential(*layers())
        return Residual(body) if skip else body

    x = p.leaf(rows, widths[0], dtype=dtype(mode))
    return with_tf32(mode == "t", of_module(p, placed(build, mode, p), x))


def sequence(
    kind: str, length: int, batch: int, fin: int, hidden: int, layers: int, both: bool, mode: str,
    p: Pool,
) -> Run:  # fmt: skip
    build = partial(getattr(nn, kind), p.n(fin), p.n(hidden), layers, bidirectional=both)
    x = p.leaf(length, batch, fin, dtype=dtype(mode))
    return with_tf32(mode == "t", of_module(p, placed(build, mode, p), x))


def encoder(
    batch: int, length: int, width: int, heads: int, inner: int, first: bool, mode: str, p: Pool
) -> Run:
    build = partial(
        nn.TransformerEncoderLayer, p.n(width), gcd(p.n(width), heads), p.n(inner), 0.1, "gelu",
        batch_first=True, norm_first=first,
    )  # fmt: skip
    x = p.leaf(batch, length, width, dtype=dtype(mode))
    return with_tf32(mode == "t", of_module(p, placed(build, mode, p), x))


def cases() -> Iterator[Case]:
    for given, mode in zip(MLPS, cycle("ftfttftd"), strict=False):
        skip = given[1][0] == given[1][-1]
        yield Case(f"perceptron {given} {mode}", partial(perceptron, *given, skip, mode))
    for c, mode in zip((*LINES, *IMAGES, *VOLUMES), cycle("fttftf"), strict=False):
        yield Case(f"{c} {mode}", partial(convolved, c, mode))
    for c in DOUBLES:
        yield Case(f"{c} d", partial(convolved, c, "d"))
    for given, mode in zip(SEQUENCES, "ftftftftdtft", strict=True):
        yield Case(f"sequence {given} {mode}", partial(sequence, *given, mode))
    for given, mode in zip(ENCODERS, "tft", strict=True):
        yield Case(f"encoder {given} {mode}", partial(encoder, *given, mode))
