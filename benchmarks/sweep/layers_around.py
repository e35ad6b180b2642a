"""What stands between the products of a layer: activations, residuals, rotations, moves, masks, rows.

A part of `layers_norms.py`; what a parameter's name asks for is told in `layers_given.py`.
"""

from __future__ import annotations

from functools import cache

import torch
from layers_given import BF16, FP16, FP32, Group, Look, Op
from torch import Tensor
from torch.nn import functional as F


@cache
def wave(n: int, dim: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    at = torch.arange(n, device=device).float()
    turn = torch.outer(at, 1e4 ** (-torch.arange(0, dim, 2, device=device) / dim))
    return turn.cos().to(dtype), turn.sin().to(dtype)


def halves(x: Tensor) -> Tensor:
    cos, sin = (torch.cat((t, t), -1) for t in wave(*x.shape[-2:], x.dtype, x.device))
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def pairs(x: Tensor) -> Tensor:
    cos, sin = wave(*x.shape[-2:], x.dtype, x.device)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def as_complex(x: Tensor) -> Tensor:
    cos, sin = wave(*x.shape[-2:], FP32, x.device)
    z = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(z * torch.complex(cos, sin)).flatten(-2).to(x.dtype)


def partly(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((halves(x[..., :half]), x[..., half:]), -1)


def wide(x: Tensor) -> Tensor:
    """In fp32 over heads behind positions, and back."""
    y = halves(x.transpose(1, 2).contiguous().transpose(1, 2).float())
    return y.to(x.dtype)


def dropped_path(x: Tensor, y: Tensor) -> Tensor:
    keep = torch.empty((len(x), *[1] * (x.dim() - 1)), dtype=x.dtype, device=x.device).bernoulli_(
        0.9
    )
    return x + y * keep.div_(0.9)


def modulated(x: Tensor, s: Tensor, t: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:]) * (1 + s) + t


def windows(x: Tensor) -> Tensor:
    """Swin's, rolled first."""
    b, c, h, w = x.shape
    x = torch.roll(x, (-2, -2), (2, 3)).view(b, c, h // 4, 4, w // 4, 4)
    return x.permute(0, 2, 4, 3, 5, 1).contiguous().view(-1, 16, c)


def shuffled(x: Tensor) -> Tensor:
    return x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


def folded(x: Tensor) -> Tensor:
    y = F.unfold(x, 4, stride=2, padding=1)
    return F.fold(y, x.shape[2:], 4, stride=2, padding=1)


def mixed(x: Tensor) -> Tensor:
    return 0.7 * x + 0.3 * x.flip(0)


def cut(x: Tensor) -> Tensor:
    """A rectangle of another image."""
    mask = torch.ones_like(x)
    mask[..., 1 : x.shape[-2] // 2, 2 : x.shape[-1] // 2] = 0
    return x * mask + x.roll(1, 0) * (1 - mask)


def shifted(x: Tensor) -> Tensor:
    """Time mix: each position and the one before."""
    before = F.pad(x, (0, 0, 1, 0))[:, :-1]
    return 0.3 * x + 0.7 * before


def gathered(x: Tensor, r: Tensor) -> Tensor:
    return x.log_softmax(-1).gather(-1, r[..., None]).squeeze(-1)


def hot(x: Tensor, r: Tensor) -> Tensor:
    y = F.one_hot(r, x.shape[-1]).to(x.dtype)
    return -(y * 0.9 + 0.1 / x.shape[-1]) * x.log_softmax(-1)


def taken(x: Tensor, h: Tensor) -> Tensor:
    return x.flatten(0, -2)[h.flatten()]


def put(x: Tensor, h: Tensor) -> Tensor:
    flat = x.flatten(0, -2)
    return torch.zeros_like(flat).index_put((h.flatten(),), flat, accumulate=True)


def scattered(x: Tensor, h: Tensor) -> Tensor:
    flat = x.flatten(0, -2)
    return torch.zeros_like(flat).scatter_add(0, h.flatten()[:, None].expand_as(flat), flat)


def of_segments(x: Tensor, h: Tensor) -> Tensor:
    flat, at = x.flatten(0, -2), h.flatten() // 8
    full = torch.zeros_like(flat).index_add(0, at, flat)
    many = torch.zeros(len(flat), dtype=x.dtype, device=x.device).index_add(
        0, at, flat.new_ones(len(flat))
    )
    return full / many.clamp(min=1)[:, None]


def largest(x: Tensor) -> Tensor:
    values, at = x.topk(min(x.shape[-1], 8), -1)
    return torch.zeros_like(x).scatter(-1, at, values.softmax(-1))


def causal(x: Tensor) -> Tensor:
    n = x.shape[-1]
    later = torch.ones(x.shape[-2], n, dtype=torch.bool, device=x.device).triu(1)
    return x.masked_fill(later, float("-inf")).softmax(-1)


def kept_words(z: Tensor) -> Tensor:
    """Top-p of a row."""
    ordered, at = z.sort(-1, descending=True)
    out = ordered.softmax(-1).cumsum(-1) > 0.9
    return z.masked_fill(out.scatter(-1, at, out), float("-inf"))


def generalized(x: Tensor) -> Tensor:
    return x.clamp(min=1e-3).pow(3).mean((2, 3)).pow(1 / 3)


def unpooled(x: Tensor) -> Tensor:
    y, at = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(y, at, 2)


def lookup(x: Tensor) -> Tensor:
    """Warped by a field of small shifts."""
    b, _, h, w = x.shape
    field = torch.eye(2, 3, device=x.device).expand(b, 2, 3)
    return F.grid_sample(x.float(), F.affine_grid(field, [b, 1, h, w], False), align_corners=False)


def resized(how: str, scale: float, **options: bool) -> Op:
    return lambda x: F.interpolate(x, scale_factor=scale, mode=how, **options)


BOTH = (Look(BF16), Look(FP32), Look(FP16))
MAPS = ((16, 64, 112, 112), (32, 256, 28, 28), (4, 32, 256, 256))
WORDS = ((8, 1024, 768), (2, 2048, 4096), (64, 197, 384))
GROUPS = (
    Group("activations", ((50432, 1536), (1024, 8192), (32, 128, 56, 56)), (
        lambda x: F.gelu(x), lambda x: F.gelu(x, approximate="tanh"), lambda x: F.silu(x),
        lambda x: F.relu(x), lambda x: F.leaky_relu(x, 0.2), lambda x: x * torch.sigmoid(1.702 * x))),
    Group("rarer activations", ((16384, 512), (8, 64, 128, 128)), (
        lambda x: F.softplus(x), lambda x: F.elu(x), lambda x: F.mish(x), lambda x: F.hardswish(x),
        lambda x: x.tanh(), lambda x: F.logsigmoid(x), lambda x: F.relu(x).square(),
        lambda x, w: x + (x * w).sin().square() / (w + 1e-6))),
    Group("gates", ((4096, 11008), (8, 512, 1500)), (
        lambda x: F.glu(x, -1), lambda x, y: F.silu(x) * y, lambda x, y: F.gelu(x) * y,
        lambda x, y: x * y.sigmoid(), lambda x, y: (x + y).tanh())),
    Group("residuals", WORDS, (
        lambda x, y: x + F.dropout(y, 0.1), lambda x, y, w: x + y * w, dropped_path, modulated,
        lambda x, y, s: x + s * y, lambda x, y, w, v: F.layer_norm(x + y, w.shape, w, v))),
    Group("residuals of images", MAPS, (
        lambda x, y: F.relu(x + y), lambda x, y, w: x + w * y, lambda x, s: x * s.sigmoid(), dropped_path,
        lambda x, s, t: x * (1 + s) + t, lambda x: F.dropout2d(x, 0.1), lambda x, w: F.prelu(x, w.flatten()))),
    Group("rotations", ((4, 32, 2048, 64), (2, 32, 1025, 128), (16, 12, 577, 80)), (
        halves, pairs, as_complex, partly, wide), (Look(BF16), Look(FP16), Look(FP32))),
    Group("split and joined", ((8, 1024, 2304), (2, 2048, 6144), (64, 257, 960)), (
        lambda x: torch.cat([t * 0.5 for t in x.chunk(3, -1)], -1),
        lambda x: x.unflatten(-1, (-1, 8)).permute(2, 0, 3, 1).contiguous(),
        lambda x, y: torch.cat((x, y), 1), lambda x, y: torch.stack((x, y), 1), shifted,
        lambda x: x.transpose(1, 2).contiguous(), lambda x: x.repeat_interleave(2, 1))),
    Group("channels moved", MAPS, (
        lambda x, y: torch.cat((x, y), 1), lambda x: torch.cat(x.split(x.shape[1] // 2, 1)[::-1], 1),
        lambda x: x.flatten(2).transpose(1, 2).contiguous(), shuffled, windows,
        lambda x: F.pixel_shuffle(x, 2), lambda x: F.pixel_unshuffle(x, 2),
        lambda x: x.contiguous(memory_format=torch.channels_last if x.is_contiguous() else torch.contiguous_format))),
    Group("pads and crops", ((16, 64, 113, 113), (32, 128, 35, 35)), (
        lambda x: F.pad(x, (1, 2, 1, 2)), lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect"),
        lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"), lambda x: F.pad(x, (2, 2, 2, 2), mode="circular"),
        lambda x: x[..., 2:-2, 1:-3].contiguous(), lambda x: x.roll((3, 3), (2, 3)), lambda x: x.flip(-1))),
    Group("folds", ((8, 64, 64, 64), (2, 16, 256, 256)), (
        folded, lambda x: F.unfold(x, 3, padding=1), lambda x: F.unfold(x, 4, stride=4),
        lambda x: x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(3))),
    Group("pictures", ((128, 3, 224, 224), (16, 3, 512, 512)), (
        mixed, cut, lambda z: (z - z.mean((0, 2, 3), keepdim=True)) / z.std((0, 2, 3), keepdim=True),
        lambda z: z.flip(-1).clamp(0, 1), lambda z: (z.mul(255).clamp(0, 255).to(torch.uint8)),
        lambda z: z.to(torch.uint8).float().div(255).sub_(0.45).div_(0.22), lookup)),
    Group("resized", ((16, 128, 40, 40), (4, 64, 128, 128), (8, 19, 65, 129)), (
        resized("nearest", 2.0), resized("bilinear", 2.0, align_corners=False), resized("bicubic", 1.5, align_corners=False),
        resized("area", 0.5), resized("bilinear", 0.5, antialias=True), resized("bilinear", 1.7, align_corners=True))),
    Group("pooled", MAPS, (
        lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: F.avg_pool2d(x, 2), lambda x: F.adaptive_avg_pool2d(x, 1),
        lambda x: F.adaptive_avg_pool2d(x, (3, 3)), lambda x: F.adaptive_max_pool2d(x, 2), lambda x: x.mean((2, 3)),
        generalized, unpooled, lambda x: F.avg_pool2d(x, 5, 1, 2))),
    Group("pooled in time", ((16, 256, 4000), (8, 1024, 1500)), (
        lambda x: F.max_pool1d(x, 4, 4), lambda x: F.avg_pool1d(x, 3, 2, 1), lambda x: F.adaptive_avg_pool1d(x, 7),
        lambda x: F.interpolate(x, scale_factor=2.0), lambda x: F.interpolate(x, scale_factor=0.5, mode="linear"),
        lambda x: torch.cat((x.mean(-1), x.amax(-1), x.std(-1)), -1), lambda x: F.pad(x, (3, 3), mode="reflect"))),
    Group("volumes", ((2, 32, 48, 64, 64), (8, 64, 8, 28, 28)), (
        lambda x: F.max_pool3d(x, 2), lambda x: F.avg_pool3d(x, 2), lambda x: F.adaptive_avg_pool3d(x, 2),
        lambda x: F.interpolate(x, scale_factor=2.0, mode="trilinear"), lambda x: x.flip(2), lambda x: x.mean((2, 3, 4)))),
    Group("rows by index", ((16, 2048, 256), (4, 1024, 2048), (1, 65536, 64)), (taken, put, scattered, of_segments), BOTH),
    Group("along rows", ((65536, 64), (4096, 1000), (1024, 32000)), (
        gathered, hot, largest, lambda x, r: F.cross_entropy(x, r), lambda z, r: (z.argmax(-1) == r).float().mean()), BOTH),
    Group("masked scores", ((8, 12, 512, 512), (2, 16, 1025, 1025), (64, 6, 197, 197)), (
        causal, lambda x, k: x.masked_fill(k, -1e4).softmax(-1), lambda x, m: torch.where(m, x, -1e4).softmax(-1),
        lambda x: F.dropout(x.softmax(-1, dtype=FP32).to(x.dtype), 0.1), lambda x: 30 * (x / 30).tanh(),
        lambda x, z: (x + z).softmax(-1)), BOTH),
    Group("masks", WORDS, (
        lambda x, m: x * m, lambda x, k: x.masked_fill(k, 0), lambda x, y, m: torch.where(m, x, y), lambda x: x.clamp(-1, 1),
        lambda z: z.isfinite().all(), lambda z: torch.nan_to_num(z), lambda x: x.tril(), lambda z, m: (z * m).sum(1) / m.sum(1).clamp(min=1))),
    Group("casts", ((8192, 4096), (32, 256, 56, 56), (16, 3000, 80)), (
        lambda z: z.float(), lambda z: z.to(BF16), lambda z: z.half(), lambda z: z.double(), lambda z: z.to(torch.int8),
        lambda z: z > 0, lambda x: x.to(BF16).float() * 2, lambda z: (z.float() * 16).round().clamp(-127, 127).to(torch.int8).to(z.dtype))),
    Group("reduced", ((64, 1024, 512), (8, 4096, 257), (2048, 16, 1000)), (
        lambda z: z.sum(0), lambda z: z.mean(1), lambda z: z.sum(-1), lambda z: z.amax(0), lambda z: z.argmax(1), lambda z: z.var(-1),
        lambda z: z.norm(dim=1), lambda z: z.logsumexp(0), lambda z: z.float().square().mean(), lambda z: z.std(0), lambda z: z.abs().amax(-1))),
    Group("reduced, learnt", ((64, 512, 512), (4, 8192, 129)), (
        lambda x: x.mean(1), lambda x: x.amax(-1), lambda x: x.var(1), lambda x: x.logsumexp(1), lambda x: x.norm(dim=-1))),
    Group("normalized", ((16384, 128), (512, 65536), (262144, 17)), (
        lambda x: x.softmax(-1), lambda x: x.log_softmax(-1), lambda x: x.logsumexp(-1), lambda x, r: F.cross_entropy(x.float(), r, label_smoothing=0.1),
        lambda x, z: F.kl_div(x.log_softmax(-1), z.softmax(-1), reduction="batchmean")), BOTH),
    Group("columns", ((8192, 1024), (64, 19, 128, 128)), (
        lambda x: x.softmax(0), lambda x: x.log_softmax(1), lambda x: x.softmax(1).square(), lambda z: z.cumsum(0), lambda z: z.argmax(1))),
    Group("ordered", ((64, 50257), (4096, 1024), (262144, 32)), (
        lambda z: z.sort(-1).values, lambda z: z.topk(min(z.shape[-1], 50), -1).values, lambda z: z.cumsum(-1), lambda z: z.median(-1).values, lambda z: z.argsort(-1, descending=True),
        lambda x: x.cumsum(-1), lambda x: x.topk(min(x.shape[-1], 10), -1).values.sum(-1), kept_words), BOTH),
    Group("counted", ((4096, 1024), (1, 3000000)), (
        lambda z: z.histc(100, -3, 3), lambda z: torch.bucketize(z, torch.linspace(-3, 3, 256, device=z.device)), lambda z: z.flatten().cumsum(0),
        lambda z: z.flatten().sort().values, lambda z: (z > 0).sum(),
        lambda z, r: torch.zeros(z.shape[-1], device=z.device).index_add(0, r, torch.ones_like(r, dtype=FP32))), (Look(FP32),)),
    Group("distances", ((16384, 1024), (64, 3, 256, 256)), (
        lambda x, z: F.mse_loss(x, z), lambda x, z: F.smooth_l1_loss(x, z), lambda x, z: F.l1_loss(x.float(), z.float()),
        lambda x, y: F.cosine_similarity(x, y, -1), lambda x, z: F.binary_cross_entropy_with_logits(x, z.sigmoid()),
        lambda x: F.normalize(x, dim=-1), lambda x, y: -F.logsigmoid(x - y).mean(), lambda x, z: ((x - z).square() + 1e-6).sqrt().mean()), (Look(FP32), Look(FP16), Look(FP32), Look(BF16))),
)  # fmt: skip
