"""Front-ends and layers of speech models, the Evoformer of protein models.

A part of `language_layers.py`.
"""

from __future__ import annotations

import torch
from language_seated import Block
from torch import Tensor, nn
from torch.nn import functional as F

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


class Front(nn.Module):
    """Convolutions before a speech model; input (batch, channels, time)."""

    def __init__(self, time: int, *layers: nn.Module) -> None:
        super().__init__()
        self.widths, self.layers = time, nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y


class Glued(nn.Module):
    """Conformer's convolution: GLU, depthwise, batch norm; (batch, time, channels)."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.widths, self.norm, self.batch = width, nn.LayerNorm(width), nn.BatchNorm1d(width)
        self.up, self.down = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.deep = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.glu(self.up(self.norm(x).transpose(1, 2)), 1)
        y = self.down(F.silu(self.batch(self.deep(y))))
        return x + F.dropout(y.transpose(1, 2), 0.1)


class Triangle(nn.Module):
    """Evoformer's multiplication of edges, or its attention of rows with the pair's bias."""

    def __init__(self, width: int, h: int, attends: bool) -> None:
        super().__init__()
        self.widths, self.h, self.attends = width, h, attends
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.gates, self.out = (nn.Linear(width, m * width) for m in (3, 2, 1))
        self.bias = nn.Linear(width, h, bias=False)

    def forward(self, z: Tensor) -> Tensor:
        y = self.norm(z)
        a, b, v = self.into(y).chunk(3, -1)
        g, e = self.gates(y).sigmoid().chunk(2, -1)
        if not self.attends:
            both = torch.einsum("bikc,bjkc->bijc", a * g, b * e)
            return z + self.out(self.last(both)) * g
        q, k, v = (t.unflatten(-1, (self.h, -1)) for t in (a, b, v))
        scores = torch.einsum("biqhc,bikhc->bihqk", q, k) * q.shape[-1] ** -0.5
        share = (scores + self.bias(y).permute(0, 3, 1, 2)[:, None]).softmax(-1)
        out = torch.einsum("bihqk,bikhc->biqhc", share, v).flatten(-2)
        return z + self.out(out * g)


class Outer(nn.Module):
    """Evoformer's mean of outer products of an alignment."""

    def __init__(self, width: int, low: int, pair: int) -> None:
        super().__init__()
        self.widths, self.norm = width, nn.LayerNorm(width)
        self.a, self.b, self.out = (
            nn.Linear(width, low),
            nn.Linear(width, low),
            nn.Linear(low * low, pair),
        )

    def forward(self, m: Tensor) -> Tensor:
        y = self.norm(m)
        outer = torch.einsum("bsic,bsjd->bijcd", self.a(y), self.b(y)).flatten(-2)
        return self.out(outer / m.shape[1])


BLOCKS = (
    Block("whisper front", lambda n: Front(n(3000), nn.Conv1d(n(80), n(768), 3, padding=1), nn.GELU(), nn.Conv1d(n(768), n(768), 3, 2, 1), nn.GELU()), ((16, 80),), FP16, "autocast"),
    Block("conformer front", lambda n: Front(n(80), nn.Conv2d(1, n(256), 3, 2, 1), nn.ReLU(), nn.Conv2d(n(256), n(256), 3, 2, 1), nn.ReLU()), ((8, 1, 1600),), FP32, "tf32"),
    Block("wav2vec front", lambda n: Front(n(31999), nn.Conv1d(1, n(512), 10, 5, 5), nn.GroupNorm(n(512), n(512)), nn.GELU(), nn.Conv1d(n(512), n(512), 3, 2, 1), nn.GELU()), ((4, 1),), FP32),
    Block("wav2vec positions", lambda n: Front(n(749), nn.utils.weight_norm(nn.Conv1d(n(768), n(768), 128, padding=64, groups=n(16)), dim=2), nn.GELU()), ((6, 768),), FP16, "autocast"),
    Block("conformer convolution", lambda n: Glued(n(512), 31), ((16, 400),), FP16, "autocast"),
    Block("evoformer triangle", lambda n: Triangle(n(128), n(4), False), ((1, 384, 384),), BF16),
    Block("evoformer attention", lambda n: Triangle(n(128), n(4), True), ((1, 192, 192),), FP32, "frozen"),
    Block("evoformer outer", lambda n: Outer(n(256), n(32), n(128)), ((1, 128, 256),), BF16),
)  # fmt: skip
