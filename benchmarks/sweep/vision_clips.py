"""Blocks of video, volumes, sounds as pictures, GANs and flows; and updates of one block's weights.

A part of `vision_layers.py`. `n` cuts a width where a CPU only tries the script.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from cases import Case, Pool, Run
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm
from vision_blocks import Cut, Residual

Size = tuple[int, ...]


def split(n: Cut, cin: int, mid: int, cout: int) -> nn.Module:
    """R(2+1)D: space, then time."""
    return Residual(nn.Sequential(
        nn.Conv3d(n(cin), n(mid), (1, 3, 3), padding=(0, 1, 1), bias=False),
        nn.BatchNorm3d(n(mid)), nn.ReLU(inplace=True),
        nn.Conv3d(n(mid), n(cout), (3, 1, 1), padding=(1, 0, 0), bias=False),
        nn.BatchNorm3d(n(cout)),
    ))  # fmt: skip


class Thin(nn.Module):
    """X3D's: narrow, a depthwise volume, excited."""

    def __init__(self, n: Cut, c: int, mid: int) -> None:
        super().__init__()
        self.up = nn.Sequential(
            nn.Conv3d(n(c), n(mid), 1, bias=False), nn.BatchNorm3d(n(mid)), nn.ReLU()
        )
        self.deep = nn.Conv3d(n(mid), n(mid), 3, padding=1, groups=n(mid), bias=False)
        self.norm, self.squeeze = nn.BatchNorm3d(n(mid)), nn.Conv3d(n(mid), n(mid), 1)
        self.down = nn.Conv3d(n(mid), n(c), 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.deep(self.up(x)))
        y = y * torch.sigmoid(self.squeeze(F.adaptive_avg_pool3d(y, 1)))
        return x + self.down(F.silu(y))


class Cell(nn.Module):
    """ConvLSTM's."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        self.gates = nn.Conv2d(2 * n(c), 4 * n(c), 3, padding=1)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        i, f, o, g = torch.chunk(self.gates(torch.cat((x, h), 1)), 4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c)


class Motion(nn.Module):
    """RAFT's GRU over rows."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        wide = 2 * n(c)
        self.z, self.r, self.q = (nn.Conv2d(wide, n(c), (1, 5), padding=(0, 2)) for _ in range(3))

    def forward(self, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        both = torch.cat((h, x), 1)
        z, r = torch.sigmoid(self.z(both)), torch.sigmoid(self.r(both))
        return (1 - z) * h + z * torch.tanh(self.q(torch.cat((r * h, x), 1)))


class Shifted(nn.Module):
    """TSM's: an eighth of the channels a frame on, an eighth a frame back."""

    def __init__(self, n: Cut, c: int, frames: int) -> None:
        super().__init__()
        self.conv, self.frames = nn.Conv2d(n(c), n(c), 1, bias=False), n(frames)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.view(-1, self.frames, *x.shape[1:])
        out, fold = torch.zeros_like(y), max(1, y.shape[2] // 8)
        out[:, :-1, :fold] = y[:, 1:, :fold]
        out[:, 1:, fold : 2 * fold] = y[:, :-1, fold : 2 * fold]
        out[:, :, 2 * fold :] = y[:, :, 2 * fold :]
        return self.conv(out.view_as(x))


class Nonlocal(nn.Module):
    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        self.a, self.b, self.v = (nn.Conv3d(n(c), n(c // 2), 1) for _ in range(3))
        self.out = nn.Sequential(nn.Conv3d(n(c // 2), n(c), 1), nn.BatchNorm3d(n(c)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = F.max_pool3d(x, (1, 2, 2))
        a, b, v = self.a(x).flatten(2), self.b(small).flatten(2), self.v(small).flatten(2)
        share = torch.softmax(torch.bmm(a.transpose(1, 2), b) * a.shape[1] ** -0.5, -1)
        y = torch.bmm(v, share.transpose(1, 2)).view(len(x), -1, *x.shape[2:])
        return x + self.out(y)


class Divided(nn.Module):
    """TimeSformer's attention of a place over time."""

    def __init__(self, n: Cut, c: int, heads: int, frames: int) -> None:
        super().__init__()
        self.heads, self.frames = n(heads), n(frames)
        self.norm, self.qkv, self.proj = (
            nn.LayerNorm(n(c)), nn.Linear(n(c), 3 * n(c)), nn.Linear(n(c), n(c)),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, many, c = x.shape
        y = x.view(b, self.frames, -1, c).transpose(1, 2).reshape(-1, self.frames, c)
        q, k, v = self.qkv(self.norm(y)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        share = ((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)).softmax(-1)
        y = self.proj((share @ v).transpose(1, 2).flatten(2))
        return x + y.view(b, -1, self.frames, c).transpose(1, 2).reshape(b, many, c)


def volume(n: Cut, c: int, stride: int) -> nn.Module:
    """nnU-Net's step down."""
    return nn.Sequential(
        nn.Conv3d(n(c), 2 * n(c), 3, stride, 1), nn.InstanceNorm3d(2 * n(c), affine=True),
        nn.LeakyReLU(0.01, inplace=True), nn.Conv3d(2 * n(c), 2 * n(c), 3, padding=1),
    )  # fmt: skip


def heard(n: Cut, cin: int, cout: int) -> nn.Module:
    """A block of PANNs' CNN14."""
    return nn.Sequential(
        nn.Conv2d(n(cin), n(cout), 3, padding=1, bias=False), nn.BatchNorm2d(n(cout)), nn.ReLU(),
        nn.AvgPool2d(2), nn.Dropout(0.2),
    )  # fmt: skip


class Spoken(nn.Module):
    """A front end that makes a spectrogram four times shorter, then rows."""

    def __init__(self, n: Cut, c: int, bands: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, n(c), 3, 2), nn.Conv2d(n(c), n(c), 3, 2)
        self.last = nn.Linear(n(c) * (((n(bands) - 1) // 2 - 1) // 2), n(c))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.second(F.relu(self.first(x[:, None]))))
        return self.last(x.transpose(1, 2).flatten(2))


def judged(n: Cut, cin: int, cout: int) -> nn.Module:
    """A step of pix2pix's discriminator."""
    return nn.Sequential(
        nn.Conv2d(n(cin), n(cout), 4, 2, 1), nn.InstanceNorm2d(n(cout)), nn.LeakyReLU(0.2, True),
    )  # fmt: skip


def bounded(n: Cut, c: int) -> nn.Module:
    """A discriminator's with a spectral norm."""
    first, second = (spectral_norm(nn.Conv2d(n(c), n(c), 3, padding=1)) for _ in range(2))
    return Residual(nn.Sequential(nn.ReLU(), first, nn.ReLU(), second), act=False)


def mirrored(n: Cut, c: int) -> nn.Module:
    """CycleGAN's."""
    return Residual(nn.Sequential(
        nn.ReflectionPad2d(1), nn.Conv2d(n(c), n(c), 3), nn.InstanceNorm2d(n(c)), nn.ReLU(True),
        nn.ReflectionPad2d(1), nn.Conv2d(n(c), n(c), 3), nn.InstanceNorm2d(n(c)),
    ), act=False)  # fmt: skip


class Dense(nn.Module):
    """ESRGAN's, three of its five."""

    def __init__(self, n: Cut) -> None:
        super().__init__()
        c, g = n(64), n(32)
        self.a, self.b = nn.Conv2d(c, g, 3, 1, 1), nn.Conv2d(c + g, g, 3, 1, 1)
        self.c = nn.Conv2d(c + 2 * g, c, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = F.leaky_relu(self.a(x), 0.2, inplace=True)
        b = F.leaky_relu(self.b(torch.cat((x, a), 1)), 0.2, inplace=True)
        return self.c(torch.cat((x, a, b), 1)) * 0.2 + x


class Coupled(nn.Module):
    """Glow's affine coupling after a norm and a mixing of channels."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        c = n(c)
        self.log, self.bias = (
            nn.Parameter(torch.zeros(1, c, 1, 1)),
            nn.Parameter(torch.zeros(1, c, 1, 1)),
        )
        self.mix = nn.Parameter(torch.eye(c))
        self.net = nn.Sequential(
            nn.Conv2d(c // 2, n(512), 3, padding=1), nn.ReLU(), nn.Conv2d(n(512), c, 3, padding=1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.conv2d((x + self.bias) * self.log.exp(), self.mix[..., None, None])
        a, b = x.chunk(2, 1)
        shift, scale = self.net(a)[:, 0::2], torch.sigmoid(self.net[2].bias[1::2] + 2)
        b = (b + shift) * scale.view(1, -1, 1, 1)
        prior = -0.5 * (b.square() + math.log(2 * math.pi)).flatten(1).sum(1)
        return prior + self.log.sum() * x.shape[2] * x.shape[3]


class Causal(nn.Module):
    """PixelCNN's masked and gated convolution."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(n(c), 2 * n(c), 7, padding=3)
        mask = torch.ones(7, 7)
        mask[3, 3:], mask[4:] = 0, 0
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.conv2d(x, self.conv.weight * self.mask, self.conv.bias, padding=3)
        a, b = y.chunk(2, 1)
        return x + torch.tanh(a) * torch.sigmoid(b)


def penalty(n: int, c: int, side: int, p: Pool) -> Run:
    """R1: the gradient of a discriminator's gradient."""
    x, w = p.leaf(n, 3, side, side), p.leaf(c, 3, 3, 3)
    last = p.leaf(c, c, 4, 4)

    def run() -> object:
        y = F.conv2d(F.softplus(F.conv2d(x, w, padding=1)), last, stride=4).sum()
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        return torch.autograd.grad(slope.square().sum((1, 2, 3)).mean(), (w, last))

    return run


BLOCKS: dict[str, tuple[Size, ...]] = {
    "vit": ((2304, 768), (2304,), (768, 768), (768,), (3072, 768), (768, 3072)),
    "resnet": ((512, 1024, 1, 1), (512,), (512, 512, 3, 3), (512,), (2048, 512, 1, 1), (2048,)),
    "unet": ((640, 1280, 3, 3), (640,), (640, 640, 3, 3), (640, 1280), (640, 1280, 1, 1)),
    "convnext": ((384, 1, 7, 7), (1536, 384), (1536,), (384, 1536), (384,)),
    "mobile": ((672, 112, 1, 1), (672,), (672, 1, 5, 5), (112, 672, 1, 1), (28, 672, 1, 1)),
    "deit": ((1536, 384), (1536,), (384, 384)),
    "stem": ((64, 3, 7, 7), (256, 64, 1, 1), (64,)),
    "field": ((6 << 20, 2), (64, 32), (64, 64), (3, 64)),
}


def lamb(ws: list[torch.Tensor], gs: list[torch.Tensor], ms: list[torch.Tensor], vs: list[torch.Tensor]) -> None:  # fmt: skip
    for w, g, m, v in zip(ws, gs, ms, vs, strict=True):
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        step = m / v.sqrt().add_(1e-6) + 0.01 * w
        ratio = w.norm() / (step.norm() + 1e-6)
        w.sub_(step * ratio.clamp(max=10), alpha=1e-7)


def clipped(ws: list[torch.Tensor], gs: list[torch.Tensor], _ms: object, _vs: object) -> None:
    """NFNet's: each unit's gradient by the size of its weights."""
    for w, g in zip(ws, gs, strict=True):
        over = tuple(range(1, w.dim())) or (0,)
        most = w.norm(2, over, keepdim=True).clamp_(min=1e-3) * 0.01
        size = g.norm(2, over, keepdim=True)
        w.sub_(torch.where(size > most, g * (most / size.clamp(min=1e-6)), g), alpha=1e-7)


def lion(
    ws: list[torch.Tensor], gs: list[torch.Tensor], ms: list[torch.Tensor], _vs: object
) -> None:
    torch._foreach_mul_(ws, 1 - 1e-6)
    step = torch._foreach_lerp(ms, gs, 0.1)
    torch._foreach_add_(ws, torch._foreach_sign(step), alpha=-1e-6)
    torch._foreach_lerp_(ms, gs, 0.01)


def averaged(ws: list[torch.Tensor], gs: list[torch.Tensor], _ms: object, _vs: object) -> None:
    torch._foreach_lerp_(ws, gs, 0.0001)


def perturbed(ws: list[torch.Tensor], gs: list[torch.Tensor], ms: list[torch.Tensor], _vs: object) -> None:  # fmt: skip
    """Sharpness-aware: up the slope and back."""
    size = torch.stack(torch._foreach_norm(gs)).norm() + 1e-12
    torch._foreach_copy_(ms, ws)
    for w, g in zip(ws, gs, strict=True):
        w.add_(w.pow(2) * g * (1e-4 / size))
    torch._foreach_copy_(ws, ms)


WRITTEN = (
    (lamb, "deit"), (clipped, "stem"), (lion, "convnext"), (averaged, "unet"), (perturbed, "mobile"),
    (averaged, "mobile"),
)  # fmt: skip
MADE = (
    ("SGD", "resnet", {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-4, "foreach": True}),
    ("SGD", "mobile", {"momentum": 0.9, "foreach": False}), ("SGD", "unet", {"momentum": 0.9, "fused": True}),
    ("Adam", "field", {"eps": 1e-15, "foreach": True}), ("Adam", "stem", {"foreach": False}),
    ("AdamW", "vit", {"fused": True}), ("AdamW", "unet", {"foreach": True}),
    ("RMSprop", "mobile", {"momentum": 0.9, "foreach": True}), ("Adam", "convnext", {"fused": True, "amsgrad": True}),
)  # fmt: skip


def written(f: object, block: str, p: Pool) -> Run:
    ws, gs, ms, vs = ([p.own(*s) for s in BLOCKS[block]] for _ in range(4))
    for v in vs:
        v.abs_()
    return partial(f, ws, gs, ms, vs)  # type: ignore[call-overload]


def made(kind: str, block: str, options: dict[str, object], p: Pool) -> Run:
    """Gradients clipped first where the weights are few."""
    ws = [p.own(*s).requires_grad_() for s in BLOCKS[block]]
    for w in ws:
        w.grad = torch.randn_like(w)
    given = {"lr": 1e-7, **options}
    optimizer = getattr(torch.optim, kind)(ws, **given)
    clips = block in ("vit", "convnext")

    def run() -> object:
        if clips:
            nn.utils.clip_grad_norm_(ws, 1.0, foreach=True)
        return optimizer.step()

    return run


def updates() -> Iterator[Case]:
    for f, block in WRITTEN:
        yield Case(f"{f.__name__} of {block}", partial(written, f, block))
    for kind, block, options in MADE:
        yield Case(f"{kind} of {block} {options}", partial(made, kind, block, options))
    yield Case("R1 penalty", partial(penalty, 16, 64, 128))
