"""Element-wise work that is strided, broadcast, cast or not float; copies and reductions beside it.

From 1e4 elements to 2e8, the layouts as models have them: gates of a split, rotary written out,
masks, hashes of features, images on their way in, windows of attention, statistics of channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle

import torch
from cases import Case, Pool, Run, both, building
from harness import main
from torch.nn import functional as F

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP16, FP32, FP64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
I64, I32, I16, I8, U8 = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8
BOOL, C64 = torch.bool, torch.complex64
Size = tuple[int, ...]
Op = Callable[..., torch.Tensor]

BROADCAST: tuple[tuple[Size, ...], ...] = (
    ((65536, 512), (65536, 1)), ((4096, 4096), (4096, 1)), ((16384, 1), (1, 4096)),
    ((512, 1, 128), (1, 512, 128)), ((32, 256, 56, 56), (256, 1, 1)), ((64, 64, 112, 112), (64, 64, 1, 1)),
    ((8, 16, 1024, 1024), (16, 1024, 1024)), ((32, 12, 512, 512), (32, 1, 1, 512)), ((32, 196, 768), (768,)),
    ((4, 2048, 32, 128), (2048, 1, 128)), ((1000000, 16), (16,)), ((200, 13), (13,)), ((256, 1), (1, 1024)),
    ((8, 128, 16000), (8, 128, 1)), ((2000000, 3), (2000000, 1)),
)  # fmt: skip
"""By row, by column, by channel, outer and pairwise."""
COMBINED: tuple[Op, ...] = (torch.mul, torch.add, torch.sub, torch.div, torch.maximum)


def gates(x: torch.Tensor, many: int, dim: int = -1) -> tuple[torch.Tensor, ...]:
    return x.split(x.shape[dim] // many, dim)[:many]


def by_gate(f: Op, dim: int = -1) -> Op:
    """`f` of the two halves."""
    return lambda x: f(*gates(x, 2, dim))


def lstm(x: torch.Tensor) -> torch.Tensor:
    i, f, g, o = gates(x, 4)
    cell = f.sigmoid() * 0.5 + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh()


def gru(x: torch.Tensor) -> torch.Tensor:
    r, z, n = gates(x, 3)
    z = z.sigmoid()
    return (1 - z) * (n * r.sigmoid()).tanh() + z


GATED: tuple[tuple[str, Op, Size, torch.dtype], ...] = (
    ("swiglu", by_gate(lambda a, b: F.silu(a) * b), (4096, 22016), BF16),
    ("swiglu", by_gate(lambda a, b: F.silu(a) * b), (8, 256, 5632), FP16),
    ("geglu", by_gate(lambda a, b: a * F.gelu(b)), (4, 4096, 2560), FP16),
    ("geglu", by_gate(lambda a, b: a * F.gelu(b, approximate="tanh")), (8192, 16384), BF16),
    ("reglu", by_gate(lambda a, b: F.relu(a) * b), (256, 1536), FP32), ("glu", F.glu, (16, 1000, 1024), FP32),
    ("glu of channels", lambda x: F.glu(x, 1), (16, 512, 4000), FP32),
    ("wavenet", by_gate(lambda a, b: a.tanh() * b.sigmoid(), 1), (8, 128, 16000), FP32),
    ("simple gate", by_gate(torch.mul, 1), (8, 128, 256, 256), FP16),
    ("every second", lambda x: x[..., ::2] * x[..., 1::2].sigmoid(), (8192, 8192), BF16),
    ("mamba", by_gate(lambda a, b: F.silu(a) * F.silu(b), 1), (8, 3072, 2048), BF16),
    ("lstm", lstm, (256, 4096), FP32), ("lstm", lstm, (8192, 2048), FP16), ("gru", gru, (128, 768), FP32),
)  # fmt: skip
CASTS = (
    (BF16, FP16, (8192, 4096)), (FP64, FP32, (1000000, 13)), (I64, FP32, (16384, 1024)),
    (I64, I32, (64, 4096)), (U8, FP32, (128, 3, 224, 224)), (U8, FP16, (64, 3, 512, 512)),
    (BOOL, FP32, (32, 1, 1024, 1024)), (FP32, BOOL, (4096, 4096)), (FP32, I64, (2000000,)),
    (FP32, U8, (16, 3, 1024, 1024)), (I8, BF16, (16384, 4096)), (BOOL, I64, (256, 2048)),
    (FP16, I8, (8192, 8192)), (BF16, FP32, (50257, 1600)), (I16, FP32, (32, 480000)),
    (U8, I64, (64, 512, 512)),
)  # fmt: skip
WHOLE: tuple[tuple[str, Op, Size, torch.dtype], ...] = (
    ("xor of shift", lambda x: x ^ (x >> 16), (16000000,), I64),
    ("xor of shift", lambda x: x ^ (x >> 7), (1000000,), I32),
    ("multiply", lambda x: x * 2654435761, (4000000,), I64),
    ("remainder", lambda x: x % 1000003, (8192, 39), I64),
    ("remainder", lambda x: x % 524288, (32000000,), I64),
    ("floor divide", lambda x: x // 7, (8000000,), I64), ("and", lambda x: x & 255, (100000000,), U8),
    ("hash", lambda x: ((x * 73856093) ^ (x >> 3) * 19349663) % 524288, (4000000,), I64),
    ("hash of columns", lambda x: (x[:, 0] * 31 + x[:, 1]) % 1000003, (4000000, 2), I64),
    ("either", lambda x: x | x.flip(-1), (4096, 4096), BOOL), ("equal", lambda x: x == 3, (32000000,), I64),
    ("ne pad", lambda x: (x != 0).long(), (256, 512), I64),
    ("positions", lambda x: (x.cumsum(1) * x), (512, 2048), I64),
    ("one of two", lambda x: torch.where(x > 50, x, -100), (64, 8192), I64),
    ("dequantized", lambda x: (x.float() - 8) * 0.1, (11008, 4096), I8),
    ("nibbles", lambda x: torch.stack((x & 15, x >> 4), -1), (4096, 5504), U8),
    ("normed image", lambda x: (x.permute(0, 3, 1, 2).float() / 255 - 0.45) / 0.22, (64, 224, 224, 3), U8),
    ("sine", torch.sin, (8000000,), FP64), ("tanh", torch.tanh, (4096, 4096), FP64),
    ("distances", lambda x: (x[:, None] - x).square().sum(-1).sqrt(), (1024, 3), FP64),
    ("product", lambda x: x * x, (512, 129, 256), C64), ("magnitude", torch.abs, (64, 513, 400), C64),
    ("angle", torch.angle, (64, 513, 400), C64),
    ("power", lambda x: x.real**2 + x.imag**2, (32, 257, 1000), C64),
    ("conjugate product", lambda x: x * x.conj(), (64, 128, 65, 65), C64),
    ("polar", lambda x: torch.polar(x.abs(), x), (16, 513, 1000), FP32),
)  # fmt: skip
"""Integers, booleans, doubles and complex numbers: forward alone."""


def windows(x: torch.Tensor) -> torch.Tensor:
    """Swin's: eight by eight of an image."""
    return x.unflatten(1, (8, -1)).unflatten(3, (8, -1)).transpose(2, 3).contiguous()


def snake(x: torch.Tensor) -> torch.Tensor:
    return x + torch.sin(x * 1.5).square() / 1.5


def radial(x: torch.Tensor) -> torch.Tensor:
    """Distances on a basis of 50 Gaussians, cut off by a cosine."""
    near = torch.linspace(0, 5, 50, device=x.device, dtype=x.dtype)
    wave = 0.5 * (torch.cos(x[:, None]) + 1)
    return torch.exp(-10 * (x[:, None] - near).square()) * wave


def gelu_of_old(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * torch.pow(x, 3))))


def fourier(x: torch.Tensor) -> torch.Tensor:
    """NeRF's encoding of a coordinate."""
    wave = x[..., None] * 2.0 ** torch.arange(10, device=x.device)
    return torch.cat((wave.sin(), wave.cos()), -1).flatten(-2)


CHAINS: tuple[tuple[str, Op, Size, torch.dtype], ...] = (
    ("snake", snake, (8, 512, 8192), FP32), ("radial", radial, (800000,), FP32),
    ("gelu of old", gelu_of_old, (8192, 3072), FP16), ("fourier", fourier, (262144, 3), FP32),
    ("quick gelu", lambda x: x * torch.sigmoid(1.702 * x), (256, 77, 2048), FP16),
    ("siren", lambda x: torch.sin(30 * x), (262144, 256), FP32),
    ("features of elu", lambda x: F.elu(x) + 1, (8, 16, 4096, 64), FP32),
    ("charbonnier", lambda x: (x * x + 1e-6).sqrt(), (16, 3, 256, 256), FP32),
    ("step size", lambda x: F.softplus(x).clamp(1e-4, 10), (8, 2048, 1536), FP32),
    ("decay", lambda x: torch.exp(-torch.exp(x)), (16, 1024, 2048), BF16),
    ("log of sum", lambda x: torch.logaddexp(x, x.flip(0)), (2048, 4096), FP32),
    ("density", lambda x: 1 - torch.exp(-F.relu(x) * 0.01), (65536, 192), FP32),
    ("capped", lambda x: torch.tanh(x / 30) * 30, (2048, 32000), BF16),
    ("power", lambda x: (x.abs() + 0.1).pow(0.75), (1024, 10000), FP32),
    ("loud", lambda x: torch.log(x.abs().clamp(min=1e-5)), (64, 80, 1000), FP32),
    ("log1p", lambda x: torch.log1p(x.abs()), (65536, 13), FP32),
    ("halved", lambda x: x * 0.5, (200000000,), FP32),
)  # fmt: skip


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """By halves, the two written to their places."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def rotary_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)


def rotary_complex(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    turned = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous()) * torch.complex(
        cos, sin
    )
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def film(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return x * (1 + scale) + shift


ROTATED: tuple[tuple[Op, Size, int, torch.dtype], ...] = (
    (rotary, (4, 2048, 32, 128), 1, BF16), (rotary, (8, 12, 1024, 64), 2, FP32),
    (rotary_pairs, (2, 4096, 8, 128), 1, BF16), (rotary_complex, (2, 2048, 32, 128), 1, FP32),
)  # fmt: skip
"""Which, queries, where their positions lie, dtype."""
SEVERAL: tuple[tuple[str, Op, tuple[Size, ...], torch.dtype], ...] = (
    ("film", film, ((32, 256, 64, 64), (32, 256, 1, 1), (32, 256, 1, 1)), FP16),
    ("film", film, ((64, 256, 1152), (64, 1, 1152), (64, 1, 1152)), BF16),
    ("lerp", lambda a, b: torch.lerp(a, b, 0.1), ((64000000,), (64000000,)), FP32),
    ("lerp by weights", torch.lerp, ((4096, 2048), (4096, 2048), (4096, 1)), FP32),
    ("addcmul", torch.addcmul, ((50000000,), (50000000,), (50000000,)), FP32),
    ("addcdiv", torch.addcdiv, ((2048, 4096),) * 3, FP32),
    ("addcmul by row", torch.addcmul, ((16384, 2048), (16384, 1), (2048,)), BF16),
    ("time shift", lambda x, m: x * m + F.pad(x, (0, 0, 1, -1)) * (1 - m), ((8, 1024, 2048), (2048,)), BF16),
    ("clipped ratio", lambda a, b: torch.minimum((a - b).exp(), b.clamp(0.8, 1.2)), ((131072,),) * 2, FP32),
    ("transposed", lambda a, b: a + b.T, ((8192, 8192),) * 2, FP32),
    ("transposed", lambda a, b: a * b.T, ((1000, 1000),) * 2, FP16),
    ("symmetric", lambda a: 0.5 * (a + a.transpose(-1, -2)), ((64, 512, 512),), FP32),
    ("over pairs", lambda a, b: F.relu(a[:, :, None] + b[:, None]), ((4, 256, 128), (4, 256, 128)), FP32),
    ("mixed", lambda a, b: a * 0.3 + b.flip(0) * 0.7, ((128, 3, 224, 224),) * 2, FP32),
    ("from last", lambda a, b: a.permute(0, 2, 3, 1) + b, ((16, 128, 64, 64), (16, 64, 64, 128)), FP16),
)  # fmt: skip
MASKED: tuple[tuple[str, Callable[..., torch.Tensor], Size, Size, torch.dtype], ...] = (
    ("causal", lambda x, m: x.masked_fill(m, -1e4), (16, 16, 1024, 1024), (1024, 1024), FP16),
    ("padding", lambda x, m: x.masked_fill(m, -1e4), (32, 12, 512, 512), (32, 1, 1, 512), FP32),
    ("rows", lambda x, m: x * m, (64, 1500, 512), (64, 1500, 1), FP32),
    ("dropped", lambda x, m: x * m / 0.9, (8192, 4096), (8192, 4096), BF16),
    ("chosen", lambda x, m: torch.where(m, x, x.roll(1, 0)), (4096, 8192), (4096, 8192), BF16),
    ("chosen by row", lambda x, m: torch.where(m, x, -x), (100000, 64), (100000, 1), FP32),
    ("channels", lambda x, m: x * m, (64, 512, 28, 28), (64, 512, 1, 1), FP16),
    ("clamped", lambda x, m: x.clamp(-2, 2).nan_to_num(0.0) * m, (512, 10000), (512, 1), FP32),
)  # fmt: skip
MOVED: tuple[tuple[str, Op, Size, torch.dtype], ...] = (
    ("windows", windows, (32, 56, 56, 96), FP16),
    ("patches", lambda x: F.unfold(x, 16 if x.shape[-1] > 16 else 2, stride=16), (6, 3, 448, 448), FP32),
    ("depth from space", lambda x: F.pixel_unshuffle(x, 2), (16, 64, 128, 128), FP16),
    ("heads", lambda x: x.transpose(1, 2).contiguous(), (8, 2048, 16, 64), BF16),
    ("transposed", lambda x: x.T.contiguous(), (16384, 4096), FP32),
    ("transposed", lambda x: x.T.contiguous(), (100000, 33), FP32),
    ("time first", lambda x: x.transpose(0, 1).contiguous(), (256, 128, 300), FP32),
    ("channels last", lambda x: x.permute(0, 2, 3, 1).contiguous(), (64, 3, 256, 256), FP32),
    ("channels first", lambda x: x.permute(0, 3, 1, 2).contiguous(), (32, 128, 128, 64), BF16),
    ("volumes last", lambda x: x.movedim(1, -1).contiguous(), (2, 32, 64, 96, 96), FP32),
    ("joined", lambda x: torch.cat((x, x[:, :1]), 1), (16, 128, 128, 128), FP16),
    ("joined last", lambda x: torch.cat((x, x[..., :4]), -1), (500000, 64), FP32),
    ("class token", lambda x: torch.cat((x[:, :1], x), 1), (256, 196, 768), FP32),
    ("padded in time", lambda x: F.pad(x, (3, 0)), (8, 1536, 2048), BF16),
    ("reflected", lambda x: F.pad(x, (3, 3), mode="reflect"), (16, 1, 160000), FP32),
    ("rolled", lambda x: x.roll((-3, -3), (1, 2)), (64, 56, 56, 96), FP16),
    ("flipped", lambda x: x.flip(-1), (128, 3, 224, 224), FP32),
    ("groups", lambda x: x[:, :, None].expand(-1, -1, 4, -1, -1).flatten(1, 2), (4, 8, 2048, 128), BF16),
    ("cropped", lambda x: x[..., 4:-3, 4:-3].contiguous(), (128, 3, 256, 256), FP32),
    ("every second", lambda x: x[:, :, ::2, ::2].contiguous(), (64, 128, 56, 56), FP32),
    ("shuffled groups", lambda x: x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2), (128, 116, 28, 28), FP32),
    ("frames", lambda x: x.unfold(-1, 8, 4).contiguous(), (64, 160000), FP32),
    ("diagonals", torch.diag_embed, (256, 512), FP32),
)  # fmt: skip
REDUCED: tuple[tuple[str, Op, Size, torch.dtype], ...] = (
    ("sum of channels", lambda x: x.sum((0, 2, 3)), (64, 256, 56, 56), FP16),
    ("mean of pixels", lambda x: x.mean((2, 3)), (128, 2048, 7, 7), FP16),
    ("sum of rows", lambda x: x.sum(0), (1000000, 16), FP32),
    ("sum of few", lambda x: x.sum(-1), (4000000, 4), FP32),
    ("norm", lambda x: x.norm(dim=-1, keepdim=True), (65536, 128), FP32),
    ("largest norm", lambda x: x.abs().amax(), (32000000,), FP32),
    ("sum of magnitudes", lambda x: torch.linalg.vector_norm(x, 1, -1), (16384, 1024), FP32),
    ("var", lambda x: torch.var(x, (0, 2, 3)), (32, 64, 112, 112), FP32),
    ("std", lambda x: x.std(0), (8192, 2048), FP32),
    ("var of pixels", lambda x: x.var((2, 3), unbiased=False), (8, 128, 256, 256), FP32),
    ("logsumexp", lambda x: x.logsumexp(-1), (4096, 50257), BF16),
    ("most", lambda x: x.amax(1), (32, 1024, 1024), FP32),
    ("most of points", lambda x: x.max(-1).values, (32, 1024, 2048), FP32),
    ("product", lambda x: x.prod(-1), (100000, 24), FP32),
    ("middle", lambda x: x.sum(1), (16, 8192, 96), FP16),
    ("mean of squares", lambda x: x.square().mean(), (96000000,), FP32),
    ("wide sum", lambda x: x.sum(dtype=FP32), (50000000,), FP16),
    ("running down", lambda x: x.cumsum(1), (8, 2048, 1536), FP32),
)  # fmt: skip
"""Forward and backward."""
COUNTED: tuple[tuple[str, Op, Size, torch.dtype], ...] = (
    ("any", lambda x: x.any(-1), (65536, 512), BOOL), ("any", torch.any, (100000000,), BOOL),
    ("all", lambda x: x.all(0), (4096, 4096), BOOL),
    ("count", lambda x: x.count_nonzero(1), (16384, 1024), FP32), ("sum", torch.sum, (50000000,), BOOL),
    ("sum", lambda x: x.sum(-1), (512, 4096), BOOL), ("sum", lambda x: x.sum(0), (100000, 64), I64),
    ("argmax", lambda x: x.argmax(-1), (65536, 1000), BF16),
    ("argmax", lambda x: x.argmax(1), (8, 21, 512, 512), FP32),
    ("range", lambda x: torch.stack(torch.aminmax(x)), (40000000,), FP32),
    ("mean", lambda x: x.mean(0), (100000, 100), FP64), ("var", torch.var, (4096, 4096), FP64),
    ("mean of bytes", lambda x: x.float().mean((0, 2, 3)), (64, 3, 512, 512), U8),
    ("finite", lambda x: x.isfinite().all(), (60000000,), FP16),
    ("median", lambda x: x.median(-1).values, (4096, 512), FP32),
    ("sum of complex", lambda x: x.sum(1), (64, 513, 400), C64),
)  # fmt: skip


def numbers(size: Size, dtype: torch.dtype, p: Pool) -> torch.Tensor:
    """The pool's; half of booleans true."""
    return p.mask(*size) if dtype == BOOL else p.randn(*size, dtype=dtype)


def alone(f: Op, size: Size, dtype: torch.dtype, p: Pool) -> Run:
    x = numbers(size, dtype, p)
    return lambda: f(x)


def several(f: Op, sizes: tuple[Size, ...], dtype: torch.dtype, p: Pool) -> Run:
    return both(p, f, *(p.leaf(*size, dtype=dtype) for size in sizes))


def last_layout(f: Op, size: Size, dtype: torch.dtype, p: Pool) -> Run:
    """An image in channels-last and a number a channel."""
    x = p.leaf(*size, dtype=dtype, layout=torch.channels_last)
    return both(p, f, x, p.leaf(size[1], 1, 1, dtype=dtype))


def cast(source: torch.dtype, target: torch.dtype, size: Size, p: Pool) -> Run:
    x = numbers(size, source, p)
    return lambda: x.to(target)


def rotated(f: Op, size: Size, at: int, dtype: torch.dtype, p: Pool) -> Run:
    """Angles of half a head's width a position; they get no gradient."""
    form = [1] * len(size)
    form[at], form[-1] = size[at], p.n(size[-1]) // 2
    cos, sin = p.randn(*form, dtype=dtype), p.randn(*form, dtype=dtype)
    return both(p, lambda x: f(x, cos, sin), p.leaf(*size, dtype=dtype))


def masked(f: Op, size: Size, of: Size, dtype: torch.dtype, p: Pool) -> Run:
    mask = p.mask(*of)
    return both(p, lambda x: f(x, mask), p.leaf(*size, dtype=dtype))


def cases() -> Iterator[Case]:
    ops, dtypes = cycle(COMBINED), cycle((BF16, FP32, FP16, FP32))
    for sizes in BROADCAST:
        f, dtype = next(ops), next(dtypes)
        yield Case(f"broadcast {sizes} {dtype}", partial(several, f, sizes, dtype))
    for f, size in ((torch.mul, (32, 256, 56, 56)), (torch.add, (64, 96, 56, 56))):
        yield Case(f"channels last {size}", partial(last_layout, f, size, FP16))
    for name, f, size, dtype in (*GATED, *CHAINS, *MOVED, *REDUCED):
        yield Case(f"{name} {size} {dtype}", partial(several, f, (size,), dtype))
    for name, f, size, dtype in (*WHOLE, *COUNTED):
        yield Case(f"{name} {size} {dtype}", partial(alone, f, size, dtype))
    for name, f, sizes, dtype in SEVERAL:
        yield Case(f"{name} {sizes} {dtype}", partial(several, f, sizes, dtype))
    for source, target, size in CASTS:
        yield Case(f"cast {source} {target} {size}", partial(cast, source, target, size))
    for f, size, at, dtype in ROTATED:
        yield Case(f"rotary {size} {dtype}", partial(rotated, f, size, at, dtype))
    for name, f, size, of, dtype in MASKED:
        yield Case(f"masked {name} {size} {dtype}", partial(masked, f, size, of, dtype))


build = building("pointwise_more", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
