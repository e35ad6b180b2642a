"""Blocks of convolutional nets as their authors have them, each a module of its real widths.

A part of `vision_layers.py`. `n` cuts a width where a CPU only tries the script.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

Cut = Callable[[int], int]
Act = Callable[[], nn.Module]


def relu() -> nn.Module:
    return nn.ReLU(inplace=True)


def conv(
    cin: int, cout: int, k: int = 1, stride: int = 1, groups: int = 1, act: Act | None = relu,
) -> nn.Sequential:  # fmt: skip
    """Convolution, batch norm and, mostly, an activation."""
    body = nn.Conv2d(cin, cout, k, stride, k // 2, groups=groups, bias=False)
    return nn.Sequential(body, nn.BatchNorm2d(cout), *((act(),) if act else ()))


class Residual(nn.Module):
    def __init__(self, body: nn.Module, short: nn.Module | None = None, act: bool = True) -> None:
        super().__init__()
        self.body, self.short, self.act = body, short, act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x) + (x if self.short is None else self.short(x))
        return F.relu_(y) if self.act else y


class Squeeze(nn.Module):
    """Squeeze and excitation."""

    def __init__(
        self, c: int, mid: int, act: Act = relu, gate: type[nn.Module] = nn.Sigmoid
    ) -> None:
        super().__init__()
        self.down, self.up, self.act, self.gate = (
            nn.Conv2d(c, mid, 1), nn.Conv2d(mid, c, 1), act(), gate(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(self.up(self.act(self.down(x.mean((2, 3), keepdim=True)))))


def bottleneck(n: Cut, cin: int, mid: int, out: int, stride: int = 1, groups: int = 1) -> nn.Module:
    """ResNet's and, in groups, ResNeXt's."""
    body = nn.Sequential(
        conv(n(cin), n(mid)),
        conv(n(mid), n(mid), 3, stride, n(groups)),
        conv(n(mid), n(out), act=None),
    )
    short = None if cin == out and stride == 1 else conv(n(cin), n(out), 1, stride, act=None)
    return Residual(body, short)


def basic(n: Cut, cin: int, cout: int, stride: int = 1) -> nn.Module:
    body = nn.Sequential(conv(n(cin), n(cout), 3, stride), conv(n(cout), n(cout), 3, act=None))
    short = None if cin == cout else conv(n(cin), n(cout), 1, stride, act=None)
    return Residual(body, short)


def regnet(n: Cut, c: int, width: int, stride: int) -> nn.Module:
    body = nn.Sequential(
        conv(n(c), n(c)), conv(n(c), n(c), 3, stride, n(c // width)),
        Squeeze(n(c), n(c // 4)), conv(n(c), n(c), act=None),
    )  # fmt: skip
    return Residual(body, conv(n(c), n(c), 1, stride, act=None) if stride > 1 else None)


def stem(n: Cut) -> nn.Module:
    return nn.Sequential(conv(3, n(64), 7, 2), nn.MaxPool2d(3, 2, 1))


def vgg(n: Cut, cin: int, cout: int) -> nn.Module:
    both = (nn.Conv2d(n(cin), n(cout), 3, padding=1), relu())
    again = (nn.Conv2d(n(cout), n(cout), 3, padding=1), relu(), nn.MaxPool2d(2))
    return nn.Sequential(*both, *again)


def preactivated(n: Cut, cin: int, cout: int) -> nn.Module:
    """Wide ResNet's."""
    body = nn.Sequential(
        nn.BatchNorm2d(n(cin)), relu(), nn.Conv2d(n(cin), n(cout), 3, padding=1, bias=False),
        nn.BatchNorm2d(n(cout)), relu(), nn.Dropout(0.3),
        nn.Conv2d(n(cout), n(cout), 3, padding=1, bias=False),
    )  # fmt: skip
    return Residual(body, nn.Conv2d(n(cin), n(cout), 1, bias=False), act=False)


def inverted(n: Cut, cin: int, mid: int, k: int, act: Act, squeeze: int = 0) -> nn.Module:
    """MobileNet's and EfficientNet's: wide within, thin between blocks."""
    gate = nn.Hardsigmoid if act is nn.Hardswish else nn.Sigmoid
    excite = (Squeeze(n(mid), n(squeeze), act, gate),) if squeeze else ()
    body = nn.Sequential(
        conv(n(cin), n(mid), act=act), conv(n(mid), n(mid), k, 1, n(mid), act), *excite,
        conv(n(mid), n(cin), act=None),
    )  # fmt: skip
    return Residual(body, act=False)


def fused(n: Cut, cin: int, cout: int) -> nn.Module:
    """EfficientNet V2's first stages."""
    return nn.Sequential(
        conv(n(cin), n(4 * cin), 3, 2, act=nn.SiLU), conv(n(4 * cin), n(cout), act=None)
    )


class ConvNeXt(nn.Module):
    def __init__(self, n: Cut, c: int, second: bool = False, drop: float = 0.2) -> None:
        super().__init__()
        c, self.drop = n(c), drop
        self.wide = nn.Conv2d(c, c, 7, padding=3, groups=c)
        self.norm, self.up, self.down = nn.LayerNorm(c), nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
        self.scale = None if second else nn.Parameter(1e-6 * torch.ones(c))
        self.gamma, self.beta = (nn.Parameter(torch.zeros(1, 1, 1, 4 * c)) for _ in range(2))
        self.second = second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.gelu(self.up(self.norm(self.wide(x).permute(0, 2, 3, 1))))
        if self.second:
            size = torch.norm(y, p=2, dim=(1, 2), keepdim=True)
            y = self.gamma * (y * (size / (size.mean(-1, keepdim=True) + 1e-6))) + self.beta + y
        y = self.down(y)
        if self.scale is not None:
            y = self.scale * y
        y = y.permute(0, 3, 1, 2)
        kept = x.new_empty(len(x), 1, 1, 1).bernoulli_(1 - self.drop).div_(1 - self.drop)
        return x + y * kept


class Dense(nn.Module):
    """A layer of DenseNet: all maps so far joined, 32 more."""

    def __init__(self, n: Cut, cin: int) -> None:
        super().__init__()
        self.first = nn.BatchNorm2d(2 * n(cin))
        self.narrow = nn.Conv2d(2 * n(cin), n(128), 1, bias=False)
        self.second, self.grow = (
            nn.BatchNorm2d(n(128)), nn.Conv2d(n(128), n(32), 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, *maps: torch.Tensor) -> torch.Tensor:
        y = self.narrow(F.relu(self.first(torch.cat(maps, 1))))
        return self.grow(F.relu(self.second(y)))


class Inception(nn.Module):
    def __init__(self, n: Cut, cin: int) -> None:
        super().__init__()
        c = n(cin)
        self.one = conv(c, n(64))
        self.five = nn.Sequential(conv(c, n(48)), conv(n(48), n(64), 5))
        self.pool = conv(c, n(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = self.pool(F.avg_pool2d(x, 3, 1, 1))
        return torch.cat((self.one(x), self.five(x), pooled), 1)


class Ghost(nn.Module):
    def __init__(self, n: Cut, cin: int, cout: int) -> None:
        super().__init__()
        half = n(cout // 2)
        self.main, self.cheap = conv(n(cin), half), conv(half, half, 3, groups=half)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.main(x)
        return torch.cat((y, self.cheap(y)), 1)


class RepVGG(nn.Module):
    """Three branches while it trains."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        self.three, self.one = conv(n(c), n(c), 3, act=None), conv(n(c), n(c), act=None)
        self.same = nn.BatchNorm2d(n(c))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.three(x) + self.one(x) + self.same(x))


class Shuffled(nn.Module):
    """ShuffleNet V2's."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        half = n(c) // 2
        self.branch = nn.Sequential(
            conv(half, half), conv(half, half, 3, groups=half, act=None), conv(half, half)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept, x = x.chunk(2, 1)
        x = torch.cat((kept, self.branch(x)), 1)
        b, c, h, w = x.shape
        return x.view(b, 2, c // 2, h, w).transpose(1, 2).contiguous().view(b, c, h, w)


class Gate(nn.Module):
    """CBAM's two attentions: of channels, of places."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(n(c), n(c // 16)), nn.ReLU(), nn.Linear(n(c // 16), n(c))
        )
        self.place = conv(2, 1, 7, act=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        by = self.mlp(F.adaptive_avg_pool2d(x, 1).flatten(1))
        by = by + self.mlp(F.adaptive_max_pool2d(x, 1).flatten(1))
        x = x * torch.sigmoid(by)[:, :, None, None]
        both = torch.cat((x.max(1, keepdim=True)[0], x.mean(1, keepdim=True)), 1)
        return x * torch.sigmoid(self.place(both))


class Standardized(nn.Module):
    """Big Transfer's: weights standardized, group norm."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(n(32), n(c))
        self.conv = nn.Conv2d(n(c), n(c), 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        var, mean = torch.var_mean(self.conv.weight, dim=(1, 2, 3), keepdim=True, unbiased=False)
        w = (self.conv.weight - mean) / torch.sqrt(var + 1e-10)
        return x + F.conv2d(F.relu(self.norm(x)), w, padding=1)


class Pooled(nn.Module):
    """PoolFormer's: an average instead of attention."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        self.norm, self.scale = nn.GroupNorm(1, n(c)), nn.Parameter(torch.ones(n(c), 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.scale * (F.avg_pool2d(y, 3, 1, 1, count_include_pad=False) - y)


class Head(nn.Module):
    """A classifier's end, with its loss."""

    def __init__(self, n: Cut, c: int, classes: int) -> None:
        super().__init__()
        self.last, self.classes = nn.Linear(n(c), n(classes)), n(classes)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = F.dropout(F.adaptive_avg_pool2d(x, 1).flatten(1), 0.2)
        return F.cross_entropy(self.last(x), y, label_smoothing=0.1)


class Stages(nn.Module):
    """YOLOv8's C2f with one bottleneck."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        half = n(c) // 2
        self.enter = conv(n(c), n(c), act=nn.SiLU)
        self.inner = nn.Sequential(
            conv(half, half, 3, act=nn.SiLU), conv(half, half, 3, act=nn.SiLU)
        )
        self.leave = conv(3 * half, n(c), act=nn.SiLU)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        parts.append(parts[-1] + self.inner(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class Pyramid(nn.Module):
    """A level of a feature pyramid: lateral, what is above, smoothed."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        self.lateral = nn.Conv2d(n(c), n(256), 1)
        self.smooth = nn.Conv2d(n(256), n(256), 3, padding=1)

    def forward(self, x: torch.Tensor, above: torch.Tensor) -> torch.Tensor:
        x = self.lateral(x)
        return self.smooth(x + F.interpolate(above, size=x.shape[-2:], mode="nearest"))


class Atrous(nn.Module):
    """DeepLab's head with three of its five branches."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        self.one = conv(n(c), n(256))
        self.wide = nn.Conv2d(n(c), n(256), 3, padding=12, dilation=12, bias=False)
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(n(c), n(256), 1), nn.ReLU())
        self.joined = conv(3 * n(256), n(256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        all_ = F.interpolate(self.whole(x), size=x.shape[2:], mode="bilinear", align_corners=False)
        return self.joined(torch.cat((self.one(x), F.relu(self.wide(x)), all_), 1))


class Bins(nn.Module):
    """PSPNet's pooled pyramid."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(k), conv(n(c), n(c // 4))) for k in (2, 6)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[2:]
        up = [F.interpolate(f(x), size, mode="bilinear", align_corners=True) for f in self.parts]
        return torch.cat((x, *up), 1)


class Up(nn.Module):
    """U-Net's way up."""

    def __init__(self, n: Cut, c: int, dims: int = 2) -> None:
        super().__init__()
        flat = dims == 2
        grow, plain, norm = (
            (nn.ConvTranspose2d, nn.Conv2d, nn.BatchNorm2d) if flat
            else (nn.ConvTranspose3d, nn.Conv3d, nn.InstanceNorm3d)
        )  # fmt: skip
        half = n(c // 2)
        self.grow = grow(n(c), half, 2, 2)
        self.body = nn.Sequential(
            plain(half + half, half, 3, padding=1), norm(half, affine=True), nn.LeakyReLU(0.01)
        )

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        x = self.grow(x)
        if x.shape[2:] != skip.shape[2:]:
            for dim, size in enumerate(skip.shape[2:], 2):
                x = x.narrow(dim, 0, size)
        return self.body(torch.cat((skip, x), 1))


class Segformer(nn.Module):
    """SegFormer's head: two levels to one size, classes."""

    def __init__(self, n: Cut, fine: int, coarse: int) -> None:
        super().__init__()
        self.fine, self.coarse = nn.Linear(n(fine), n(256)), nn.Linear(n(coarse), n(256))
        self.fuse, self.said = conv(2 * n(256), n(256)), nn.Conv2d(n(256), n(150), 1)

    def forward(self, fine: torch.Tensor, coarse: torch.Tensor) -> torch.Tensor:
        a = self.fine(fine.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, fine.shape[2:])
        b = self.coarse(coarse.flatten(2).transpose(1, 2))
        b = b.permute(0, 2, 1).reshape(len(b), -1, *coarse.shape[2:])
        b = F.interpolate(b, size=a.shape[2:], mode="bilinear", align_corners=False)
        return self.said(F.dropout2d(self.fuse(torch.cat((b, a), 1)), 0.1))
