"""Blocks of convnets in bf16 and fp16, channels first and last, as plain half and under autocast.

A part of `layers_half.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from cases import Case, Pool, Run, of_module
from language_seated import Cast, seat
from torch import Tensor, nn
from torch.nn import functional as F

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
MODES = (
    (BF16, True, True), (FP16, False, False), (FP16, True, False), (BF16, False, True),
    (BF16, True, False), (FP16, True, True), (BF16, False, False),
)  # fmt: skip
"""Dtype, whether channels are last, whether autocast casts fp32 weights."""
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def conv(
    cin: int, cout: int, k: int = 3, stride: int = 1, groups: int = 1, dilation: int = 1
) -> nn.Conv2d:
    pad = dilation * (k - 1) // 2
    return nn.Conv2d(cin, cout, k, stride, pad, dilation, groups, bias=False)


class Added(nn.Module):
    """A body and a way around it, with an activation behind both."""

    def __init__(self, body: nn.Module, around: nn.Module, act: nn.Module) -> None:
        super().__init__()
        self.body, self.around, self.act = body, around, act

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(self.body(x) + self.around(x))
        return y


class Joined(nn.Module):
    """Branches of the same input, their channels side by side, and what follows."""

    def __init__(self, after: nn.Module, *parts: nn.Module) -> None:
        super().__init__()
        self.after, self.parts = after, nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.after(torch.cat([part(x) for part in self.parts], 1))
        return y


class Squeeze(nn.Module):
    def __init__(self, c: int, low: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(c, low, 1), nn.Conv2d(low, c, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.b(F.silu(self.a(x.mean((2, 3), keepdim=True)))).sigmoid()


class Next(nn.Module):
    """ConvNeXt's: depthwise, a norm and two products with channels last, a scale."""

    def __init__(self, c: int, k: int) -> None:
        super().__init__()
        self.deep, self.norm = nn.Conv2d(c, c, k, padding=k // 2, groups=c), nn.LayerNorm(c)
        self.up, self.down = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
        self.scale = nn.Parameter(torch.full((c,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + F.dropout2d(y.permute(0, 3, 1, 2), 0.1)


class Timed(nn.Module):
    """A diffusion model's residual block: group norms, SiLU, the time as scale and shift."""

    def __init__(self, cin: int) -> None:
        super().__init__()
        c, groups = cin // 2, 8 if cin > 8 else 1
        self.first, self.second = nn.GroupNorm(groups, cin), nn.GroupNorm(groups, c)
        self.a, self.b, self.around = (
            nn.Conv2d(cin, c, 3, 1, 1),
            nn.Conv2d(c, c, 3, 1, 1),
            nn.Conv2d(cin, c, 1),
        )
        self.time = nn.Linear(c, 2 * c)
        self.register_buffer("at", torch.ones(1, c))

    def forward(self, x: Tensor) -> Tensor:
        scale, shift = self.time(F.silu(self.at.to(self.time.weight.dtype)))[..., None, None].chunk(
            2, 1
        )
        y = self.second(self.a(F.silu(self.first(x)))) * (1 + scale) + shift
        return self.around(x) + self.b(F.dropout(F.silu(y), 0.1))


class Dense(nn.Module):
    def __init__(self, c: int, grow: int, many: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(c + i * grow), nn.ReLU(), conv(c + i * grow, grow))
            for i in range(many)
        )

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = torch.cat((x, part(x)), 1)
        return x


class Up(nn.Module):
    """A decoder's step: the smaller map grown, joined with the larger and mixed."""

    def __init__(self, c: int, how: str) -> None:
        super().__init__()
        self.how, self.grow = how, nn.ConvTranspose2d(c, c // 2, 2, 2)
        self.down, self.mix = nn.Conv2d(c, c // 2, 1), Double(c // 2 + c, c // 2)

    def forward(self, x: Tensor) -> Tensor:
        small = F.max_pool2d(x, 2)
        if self.how == "transposed":
            y = self.grow(small)
        else:
            y = self.down(F.interpolate(small, scale_factor=2, mode=self.how))
        return self.mix(torch.cat((y, x), 1))


class Double(nn.Sequential):
    def __init__(self, cin: int, c: int) -> None:
        super().__init__(
            conv(cin, c), nn.BatchNorm2d(c), nn.ReLU(inplace=True),
            conv(c, c), nn.BatchNorm2d(c), nn.ReLU(inplace=True),
        )  # fmt: skip


class Shuffled(nn.Module):
    """ShuffleNet's: half of the channels pass, then all are permuted."""

    def __init__(self, c: int) -> None:
        super().__init__()
        c = c // 2
        self.body = nn.Sequential(*block(c, c, 1), *deep(c, 3), *block(c, c, 1))

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, 1)
        y = torch.cat((a, self.body(b)), 1)
        return y.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


def block(
    cin: int, c: int, k: int = 3, stride: int = 1, act: type[nn.Module] = nn.ReLU
) -> list[nn.Module]:
    return [conv(cin, c, k, stride), nn.BatchNorm2d(c), act()]


def deep(c: int, k: int, stride: int = 1) -> list[nn.Module]:
    return [conv(c, c, k, stride, c), nn.BatchNorm2d(c), nn.SiLU()]


def basic(c: int) -> nn.Module:
    body = nn.Sequential(*block(c, c), conv(c, c), nn.BatchNorm2d(c))
    return Added(body, nn.Identity(), nn.ReLU(inplace=True))


def bottle(c: int, groups: int = 1, stride: int = 1, dilation: int = 1) -> nn.Module:
    low, out = max(c // 4, groups), c
    middle = conv(low, low, 3, stride, groups, dilation)
    body = (
        *block(c, low, 1),
        middle,
        nn.BatchNorm2d(low),
        nn.ReLU(),
        conv(low, out, 1),
        nn.BatchNorm2d(out),
    )
    around = (
        nn.Sequential(conv(c, out, 1, stride), nn.BatchNorm2d(out)) if stride > 1 else nn.Identity()
    )
    return Added(nn.Sequential(*body), around, nn.ReLU(inplace=True))


def inverted(c: int, k: int, squeezes: bool) -> nn.Module:
    squeeze = (Squeeze(4 * c, max(c // 4, 1)),) if squeezes else ()
    body = (
        *block(c, 4 * c, 1, act=nn.SiLU),
        *deep(4 * c, k),
        *squeeze,
        conv(4 * c, c, 1),
        nn.BatchNorm2d(c),
    )
    return Added(nn.Sequential(*body), nn.Identity(), nn.Identity())


def before(c: int) -> nn.Module:
    """Norm and activation before each convolution, as the second ResNet has them."""
    body = [
        nn.BatchNorm2d(c),
        nn.ReLU(),
        conv(c, c),
        nn.BatchNorm2d(c),
        nn.ReLU(),
        nn.Dropout(0.3),
        conv(c, c),
    ]
    return Added(nn.Sequential(*body), nn.Identity(), nn.Identity())


def pyramid(c: int) -> nn.Module:
    """ASPP: the same map seen at four dilations."""
    parts = [
        nn.Sequential(conv(c, c // 4, 3, 1, 1, d), nn.BatchNorm2d(c // 4), nn.ReLU())
        for d in (6, 12, 18)
    ]
    return Joined(nn.Sequential(*block(c, c // 4, 1)), nn.Sequential(*block(c, c // 4, 1)), *parts)


def mixed(c: int) -> nn.Module:
    """An inception."""
    q = c // 4
    parts = (block(c, q, 1), [*block(c, q, 1), *block(q, q)], [*block(c, q, 1), *block(q, q, 5)])
    pool = [nn.AvgPool2d(3, 1, 1), *block(c, q, 1)]
    return Joined(nn.Identity(), *(nn.Sequential(*part) for part in (*parts, pool)))


def critic(c: int) -> nn.Module:
    norm = nn.utils.parametrizations.spectral_norm
    first, second = norm(nn.Conv2d(c, 2 * c, 4, 2, 1)), norm(nn.Conv2d(2 * c, 2 * c, 3, 1, 1))
    return nn.Sequential(
        first, nn.LeakyReLU(0.2), second, nn.InstanceNorm2d(2 * c, affine=True), nn.LeakyReLU(0.2)
    )


def maker(c: int) -> nn.Module:
    grow = nn.ConvTranspose2d(c, c // 2, 4, 2, 1, bias=False)
    last = nn.ConvTranspose2d(c // 2, 3, 3, 2, 1, 1)
    return nn.Sequential(grow, nn.BatchNorm2d(c // 2), nn.ReLU(True), last, nn.Tanh())


def finer(c: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(c, 4 * c, 3, 1, 1), nn.PixelShuffle(2), nn.PReLU(c), nn.Conv2d(c, 3, 3, 1, 1)
    )


def stem(c: int) -> nn.Module:
    return nn.Sequential(*block(3, c, 7, 2), nn.MaxPool2d(3, 2, 1))


def patches(c: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, c, 16, 16), nn.Flatten(2), nn.GELU())


def shrinking(c: int) -> nn.Module:
    return nn.Sequential(nn.GroupNorm(1, c), nn.Conv2d(c, 2 * c, 2, 2), nn.GELU())


def classes(c: int) -> nn.Module:
    return nn.Sequential(
        *block(c, c, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(c, 1000)
    )


def masks(c: int) -> nn.Module:
    grow = nn.Upsample(scale_factor=4, mode="bilinear", align_corners=False)
    return nn.Sequential(*block(c, c), nn.Conv2d(c, 19, 1), grow, nn.LogSoftmax(1))


def large(c: int) -> nn.Module:
    """A kernel of 13 beside one of 5, as RepLKNet is trained."""
    body = nn.Sequential(conv(c, c, 13, 1, c), nn.BatchNorm2d(c))
    return Added(body, nn.Sequential(conv(c, c, 5, 1, c), nn.BatchNorm2d(c)), nn.GELU())


def factored(c: int) -> nn.Module:
    """One row and one column at a time."""
    over, down = nn.Conv2d(c, c, (1, 7), padding=(0, 3)), nn.Conv2d(c, c, (7, 1), padding=(3, 0))
    return nn.Sequential(over, nn.ELU(), down, nn.BatchNorm2d(c), nn.ELU())


def wave(c: int, dilation: int) -> nn.Module:
    body = nn.Sequential(
        nn.LeakyReLU(0.1), nn.Conv1d(c, c, 7, 1, 3 * dilation, dilation),
        nn.LeakyReLU(0.1), nn.Conv1d(c, c, 7, 1, 3),
    )  # fmt: skip
    return Added(body, nn.Identity(), nn.Identity())


def sound(c: int) -> nn.Module:
    grow = nn.ConvTranspose1d(c, c // 2, 8, 4, 2)
    return nn.Sequential(
        nn.Conv1d(c, c, 5, 2, 2), nn.BatchNorm1d(c), nn.GELU(), grow, nn.GroupNorm(1, c // 2)
    )


def volume(c: int) -> nn.Module:
    one, two = nn.Conv3d(c, c, 3, 1, 1), nn.Conv3d(c, 2 * c, 3, 2, 1)
    return nn.Sequential(
        one,
        nn.InstanceNorm3d(c, affine=True),
        nn.LeakyReLU(0.01),
        two,
        nn.InstanceNorm3d(2 * c),
        nn.SiLU(),
    )


def clip(c: int) -> nn.Module:
    """Space and time apart."""
    space, time = (
        nn.Conv3d(c, c, (1, 3, 3), padding=(0, 1, 1)),
        nn.Conv3d(c, c, (3, 1, 1), padding=(1, 0, 0)),
    )
    return nn.Sequential(space, nn.BatchNorm3d(c), nn.ReLU(), time, nn.BatchNorm3d(c), nn.ReLU())


BLOCKS: tuple[tuple[Callable[[int], nn.Module], tuple[tuple[int, ...], ...]], ...] = (
    (basic, ((256, 64, 56),)),
    (bottle, ((128, 256, 56), (32, 2048, 7))),
    (partial(bottle, groups=32), ((32, 1024, 14),)),
    (partial(bottle, stride=2), ((64, 512, 56),)),
    (partial(bottle, dilation=4), ((8, 2048, 65),)),
    (partial(inverted, k=3, squeezes=False), ((128, 24, 112), (64, 96, 14))),
    (partial(inverted, k=5, squeezes=True), ((64, 40, 56),)),
    (partial(Next, k=7), ((64, 128, 56), (32, 1024, 7))),
    (Timed, ((8, 320, 64), (2, 128, 256))),
    (partial(Dense, grow=32, many=3), ((64, 128, 28),)),
    (partial(Up, how="transposed"), ((8, 64, 256),)),
    (partial(Up, how="bilinear"), ((8, 512, 40),)),
    (Shuffled, ((256, 116, 28),)),
    (before, ((128, 160, 32),)),
    (pyramid, ((4, 2048, 33),)),
    (mixed, ((64, 480, 14),)),
    (critic, ((16, 64, 128),)),
    (maker, ((128, 256, 16),)),
    (finer, ((2, 48, 256),)),
    (stem, ((256, 64, 224), (16, 32, 512))),
    (patches, ((256, 768, 224), (32, 1152, 384))),
    (shrinking, ((64, 96, 56),)),
    (classes, ((256, 1280, 7),)),
    (masks, ((2, 128, 161),)),
    (large, ((32, 256, 28),)),
    (factored, ((32, 128, 17), (8, 64, 112))),
    (partial(wave, dilation=5), ((16, 128, 2048),)),
    (sound, ((16, 64, 12000), (8, 512, 1500))),
    (volume, ((2, 32, 96, 96, 96), (2, 128, 24, 24, 24))),
    (clip, ((8, 64, 16, 56, 56), (4, 256, 8, 14, 14))),
)  # fmt: skip
"""Batch, channels, and the extents; one extent for the square of an image, or a sound's length."""
SOUNDS = (wave, sound)


def extents(make: Callable[[int], nn.Module], size: tuple[int, ...]) -> tuple[int, ...]:
    is_sound = (make.func if isinstance(make, partial) else make) in SOUNDS
    return size[2:] if len(size) > 3 or is_sound else (size[2], size[2])


def run(
    make: Callable[[int], nn.Module], size: tuple[int, ...], dtype: torch.dtype, last: bool,
    auto: bool, p: Pool,
) -> Run:  # fmt: skip
    shown = make in (stem, patches)
    # A kernel of 16 and pools need their extents on a CPU too.
    sides = [max(p.n(n), 16) for n in extents(make, size)]
    c, kept = p.n(size[1]), FP32 if auto else dtype
    with torch.device(p.device):
        module = make(c).to(kept)
    layout = torch.contiguous_format
    if last and len(sides) > 1:
        layout = LAST[2 + len(sides)]
        for part in module.modules():
            for w in part.parameters(recurse=False):
                if w.dim() == 2 + len(sides):
                    w.data = w.data.contiguous(memory_format=layout)
    form = torch.empty(
        p.n(size[0]), 3 if shown else c, *sides, dtype=kept, device="meta", memory_format=layout
    )
    x = p.like(form).requires_grad_(not shown)
    module = seat(p, module, kept)
    return of_module(p, Cast(module, dtype) if auto else module, x)


def cases() -> Iterator[Case]:
    i = 0
    for make, sizes in BLOCKS:
        name = (make.func if isinstance(make, partial) else make).__name__
        for size in sizes:
            i += 1
            mode = MODES[i % len(MODES)]
            yield Case(f"{name} {size} {mode}", partial(run, make, size, *mode))
