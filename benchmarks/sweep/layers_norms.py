"""Norms of every kind and all that stands around the products of a step, drawn over sizes and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import layers_around
import layers_steps
import torch
from cases import Case, Pool, Run, building, of_module
from harness import main
from layers_given import BF16, FP16, FP32, LAST, Group, Look, Size, listed
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}


def layer(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    var = (x - mean).pow(2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(var + 1e-5) * w + v


def by_var_mean(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    var, mean = torch.var_mean(x.float(), -1, keepdim=True, correction=0)
    return ((x - mean) * (var + 1e-5).rsqrt()).to(x.dtype) * w + v


def rms(x: Tensor, w: Tensor) -> Tensor:
    wide = x.float()
    return w * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def one_plus(x: Tensor, w: Tensor) -> Tensor:
    """Gemma's."""
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * (1 + w.float())).to(
        x.dtype
    )


def half_rms(x: Tensor, w: Tensor) -> Tensor:
    return x / (x.norm(dim=-1, keepdim=True) * x.shape[-1] ** -0.5 + 1e-6) * w


def batch(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    mean = x.mean((0, 2, 3), keepdim=True)
    var = x.var((0, 2, 3), keepdim=True, unbiased=False)
    return (x - mean) / (var + 1e-5).sqrt() * w + v


def grouped(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    y = x.reshape(len(x), 4, -1).float()
    var, mean = torch.var_mean(y, -1, keepdim=True)
    return ((y - mean) * (var + 1e-5).rsqrt()).view(x.shape).to(x.dtype) * w + v


def instance(x: Tensor, s: Tensor, t: Tensor) -> Tensor:
    """AdaIN's."""
    mean, std = x.mean((2, 3), keepdim=True), x.std((2, 3), keepdim=True) + 1e-5
    return (x - mean) / std * s + t


def over_channels(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    mean = x.mean(1, keepdim=True)
    var = (x - mean).pow(2).mean(1, keepdim=True)
    return w * ((x - mean) / torch.sqrt(var + 1e-6)) + v


def turned(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    y = F.layer_norm(x.permute(0, 2, 3, 1), (x.shape[1],), w.flatten(), v.flatten())
    return y.permute(0, 3, 1, 2)


def response(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """ConvNeXt 2's."""
    size = x.norm(p=2, dim=(2, 3), keepdim=True)
    return w * (x * size / (size.mean(1, keepdim=True) + 1e-6)) + v + x


def standardized(x: Tensor) -> Tensor:
    """A convolution's weight."""
    var, mean = torch.var_mean(x, (1, 2, 3), keepdim=True)
    return (x - mean) * torch.rsqrt(var * x[0].numel() + 1e-4)


def demodulated(x: Tensor, w: Tensor) -> Tensor:
    y = x * w
    return y * (y.square().sum((1, 2, 3), keepdim=True) + 1e-8).rsqrt()


def shared(x: Tensor) -> Tensor:
    """The deviation of a batch as one more channel, pixels' norm before."""
    x = x * (x.square().mean(1, keepdim=True) + 1e-8).rsqrt()
    dev = x.var(0, unbiased=False).add(1e-8).sqrt().mean()
    return torch.cat((x, dev.expand(len(x), 1, *x.shape[2:])), 1)


def still(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """A frozen batch norm: a scale and a shift from statistics."""
    scale = w * (v.square() + 1e-5).rsqrt()
    return x * scale + (v - w * scale)


THREE = (Look(BF16), Look(FP32), Look(FP16))
GROUPS = (
    Group("norms of rows", ((8192, 768), (2048, 8192), (8, 1025, 1280)), (
        lambda x, w, v: F.layer_norm(x, w.shape, w, v), lambda x: F.layer_norm(x, x.shape[-1:]), lambda x, w: F.rms_norm(x, w.shape, w)), THREE),
    Group("norms written out", ((4096, 1024), (2, 1500, 4096), (32, 77, 512)), (layer, by_var_mean, rms, one_plus, half_rms), THREE),
    Group("dynamic", ((16384, 512),), (lambda x, w, v: torch.tanh(0.5 * x) * w + v, lambda x, w: F.normalize(x, dim=-1) * w)),
    Group("norms of maps", ((32, 64, 112, 112), (64, 256, 28, 28), (128, 512, 7, 7), (4, 32, 256, 256)), (
        lambda x: F.batch_norm(x, None, None, training=True), lambda x, w, v: F.group_norm(x, 4, w.flatten(), v.flatten()),
        lambda x: F.instance_norm(x), still)),
    Group("maps written out", ((16, 128, 56, 56), (32, 512, 14, 14), (2, 64, 257, 257)), (batch, grouped, instance, over_channels, response)),
    Group("maps turned", ((64, 96, 56, 56), (32, 1024, 7, 7), (8, 40, 113, 113)), (turned, lambda x: F.local_response_norm(x, 5), shared)),
    Group("norms of weights", ((512, 512, 3, 3), (2048, 1024, 1, 1)), (standardized, demodulated), THREE),
)  # fmt: skip
Make = Callable[[int], nn.Module]
MODULES: tuple[tuple[str, Make, Size, Look, bool], ...] = (
    ("batch", nn.BatchNorm2d, (64, 64, 56, 56), Look(BF16, True), True),
    ("batch", nn.BatchNorm2d, (32, 1024, 14, 14), Look(FP16), False),
    ("batch", nn.BatchNorm2d, (256, 16, 32, 32), Look(FP32, True), True),
    ("batch", nn.BatchNorm1d, (32, 512, 1500), Look(FP16), True),
    ("batch", nn.BatchNorm3d, (4, 64, 16, 56, 56), Look(FP32, True), True),
    ("batch", nn.BatchNorm3d, (2, 32, 64, 96, 96), Look(BF16), True),
    ("group", lambda c: nn.GroupNorm(min(32, c), c), (8, 320, 64, 64), Look(FP16, True), False),
    ("group", lambda c: nn.GroupNorm(min(32, c), c), (2, 128, 256, 256), Look(FP32), True),
    ("group", lambda c: nn.GroupNorm(c, c), (16, 512, 4000), Look(FP32), True),
    ("instance", lambda c: nn.InstanceNorm2d(c, affine=True), (8, 64, 128, 128), Look(FP16), True),
    ("instance", lambda c: nn.InstanceNorm2d(c, track_running_stats=True), (4, 256, 64, 64), Look(FP32, True), True),
    ("spectral", lambda c: spectral_norm(nn.Conv2d(c, c, 3, 1, 1)), (4, 512, 14, 14), Look(FP32), False),
    ("spectral", lambda c: spectral_norm(nn.Linear(c, c)), (512, 4096), Look(BF16), False),
    ("weight", lambda c: weight_norm(nn.Conv1d(c, c, 7, 1, 3)), (16, 256, 1024), Look(FP32), False),
    ("embedded", lambda c: nn.Sequential(nn.LayerNorm(c), nn.Dropout(0.1), nn.Softsign()), (32, 512, 768), Look(FP32), False),
)  # fmt: skip
"""The last of each: whether the weights stay fp32, as under autocast."""


def module(make: Make, size: Size, look: Look, stays: bool, p: Pool) -> Run:
    channels = p.n(size[1] if len(size) > 2 and make not in ROWS else size[-1])
    layout = LAST[len(size)] if look.last else torch.contiguous_format
    x = p.leaf(*size, dtype=look.dtype, layout=layout)
    with torch.device(p.device):
        of = make(channels).to(FP32 if stays else look.dtype)
    return of_module(p, of, x)


ROWS = (MODULES[-1][1],)


def cases() -> Iterator[Case]:
    yield from listed(GROUPS)
    yield from listed(layers_around.GROUPS)
    for name, *rest in MODULES:
        yield Case(f"{name} {rest[1:]}", partial(module, *rest))
    yield from layers_steps.cases()


build = building("layers_norms", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
