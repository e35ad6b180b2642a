"""Products, attention, kernels, spectra, factorizations and tables in fp32, TF32 and fp64.

A part of `layers_float.py`; modes are those of `float_nets.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle

import torch
from cases import Case, Pool, Run, both, with_tf32
from float_nets import dtype
from torch import Tensor
from torch.nn import functional as F

Op = Callable[..., Tensor]
Size = tuple[int, ...]
PRODUCTS: dict[str, Op] = {
    "bmm": torch.bmm,
    "added": lambda a, b: torch.baddbmm(a[:, :1, :1], a, b, alpha=0.1),
    "transposed": lambda a, b: torch.bmm(b.mT, a.mT),
    "einsum": lambda a, b: torch.einsum("bik,bkj->bji", a, b),
    "shared": lambda a, b: torch.matmul(a, b[0]),
    "turned": lambda a, b: torch.matmul(a, b).tanh().mT.contiguous(),
    "gram": lambda a, b: torch.bmm(a, a.mT).sum(-1) + b.mean((1, 2))[:, None],
    "vector": lambda a, b: torch.bmm(a, b[..., :1]).squeeze(-1),
}
BATCHES: tuple[Size, ...] = (
    (100000, 4, 4, 4), (60000, 3, 3, 3), (65536, 8, 8, 8), (30000, 6, 12, 6), (20000, 16, 16, 16),
    (16384, 12, 4, 24), (12000, 24, 24, 24), (8192, 32, 32, 32), (6000, 20, 64, 20), (4096, 32, 64, 16),
    (4096, 48, 48, 48), (3000, 7, 128, 50), (2048, 64, 64, 64), (1500, 96, 32, 96), (1024, 80, 80, 80),
    (1024, 128, 16, 128), (600, 100, 100, 100), (512, 128, 128, 128), (400, 64, 128, 64), (256, 17, 128, 96),
    (200, 128, 64, 128), (96, 112, 112, 112), (64, 128, 128, 128), (48, 60, 90, 120),
)  # fmt: skip
"""Batch, M, K, N: each product takes three of them."""
EINSUMS: tuple[tuple[str, Size, Size], ...] = (
    ("bnd,bmd->bnm", (32, 300, 96), (32, 500, 96)), ("bsd,hde->bhse", (16, 256, 256), (8, 256, 32)),
    ("bijd,bikd->bjkd", (8, 32, 48, 64), (8, 32, 48, 64)), ("nchw,ck->nkhw", (16, 64, 64, 64), (64, 48)),
    ("ni,nj->ij", (100000, 24), (100000, 40)), ("bti,io->bot", (64, 200, 128), (128, 96)),
    ("zij,zjk->zik", (50000, 5, 9), (50000, 9, 5)), ("bhi,hij->bhj", (4096, 12, 64), (12, 64, 64)),
)  # fmt: skip


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    far = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    score = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(far, float("-inf"))
    return score.softmax(-1) @ v


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k = F.elu(q) + 1, F.elu(k) + 1
    total = torch.einsum("bhld,bhd->bhl", q, k.sum(2))
    return (
        torch.einsum("bhld,bhde->bhle", q, torch.einsum("bhld,bhle->bhde", k, v)) / total[..., None]
    )


def additive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    score = torch.tanh(q[:, :, :, None] + k[:, :, None]).sum(-1)
    return score.softmax(-1) @ v


def dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    score = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("bhij,bhjd->bhid", F.dropout(score.softmax(-1), 0.1), v)


def biased(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Linear biases of the distance, from the queries' last to the keys'."""
    at = [torch.arange(x.shape[-2], device=q.device) for x in (q, k)]
    bias = (at[1][None] - at[0][:, None]).abs().neg().float() * 0.125
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))


ATTENTIONS: tuple[tuple[str, Op, Size], ...] = (
    ("masked", masked, (8, 8, 512, 512, 64)), ("masked", masked, (64, 4, 128, 128, 32)),
    ("dropped", dropped, (16, 12, 197, 197, 64)), ("dropped", dropped, (256, 3, 49, 49, 32)),
    ("linear", linear_attention, (8, 8, 2048, 2048, 32)), ("linear", linear_attention, (4, 4, 4096, 4096, 64)),
    ("additive", additive, (16, 1, 64, 400, 128)), ("biased", biased, (4, 16, 768, 768, 64)),
    ("sdpa", F.scaled_dot_product_attention, (16, 12, 256, 256, 64)),
    ("sdpa", F.scaled_dot_product_attention, (2, 8, 1024, 77, 40)),
    ("causal", partial(F.scaled_dot_product_attention, is_causal=True), (4, 12, 1024, 1024, 64)),
    ("causal", partial(F.scaled_dot_product_attention, is_causal=True), (32, 4, 200, 200, 96)),
    ("sdpa", F.scaled_dot_product_attention, (1, 2, 4000, 4000, 128)),
)  # fmt: skip
"""Batch, heads, queries, keys, width of a head."""


def sinkhorn(x: Tensor, y: Tensor) -> Tensor:
    cost = torch.cdist(x, y).square() / 0.1
    f, g = torch.zeros_like(cost[:, 0]), torch.zeros_like(cost[0])
    for _ in range(2):
        f = -torch.logsumexp(g[None] - cost, 1)
        g = -torch.logsumexp(f[:, None] - cost, 0)
    return (torch.exp(f[:, None] + g[None] - cost) * cost).sum()


def chamfer(x: Tensor, y: Tensor) -> Tensor:
    d = (x[:, :, None] - y[:, None]).square().sum(-1)
    return d.amin(1).mean() + d.amin(2).mean()


def rational(x: Tensor, y: Tensor) -> Tensor:
    d = x.square().sum(-1)[:, None] - 2 * x @ y.mT + y.square().sum(-1)[None]
    return (1 + d / 2).pow(-0.7) @ y


def discrepancy(x: Tensor, y: Tensor) -> Tensor:
    inner, outer = torch.cdist(x, x), torch.cdist(x, y)
    return torch.exp(-inner / 8).mean() - 2 * torch.exp(-outer / 8).mean()


def nearest(x: Tensor, y: Tensor) -> Tensor:
    return torch.cdist(x, y).topk(min(8, len(y)), largest=False).values.mean(-1)


def cosine(x: Tensor, y: Tensor) -> Tensor:
    return (F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).mT / 0.07).logsumexp(-1)


DISTANCES: tuple[tuple[str, Op, Size, Size], ...] = (
    ("cdist", torch.cdist, (3000, 64), (2000, 64)), ("cdist", torch.cdist, (64, 200, 3), (64, 300, 3)),
    ("taxi", partial(torch.cdist, p=1.0), (1500, 24), (700, 24)), ("sinkhorn", sinkhorn, (1200, 32), (900, 32)),
    ("chamfer", chamfer, (8, 1024, 3), (8, 700, 3)), ("rational", rational, (4000, 10), (3000, 10)),
    ("discrepancy", discrepancy, (1024, 128), (1024, 128)), ("nearest", nearest, (4096, 16), (4096, 16)),
    ("cosine", cosine, (2048, 256), (3000, 256)), ("rational", rational, (800, 300), (640, 300)),
)  # fmt: skip


def filtered(x: Tensor, w: Tensor) -> Tensor:
    """A long convolution over the last dimension."""
    n = 2 * x.shape[-1]
    return torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(w, n), n)[..., : x.shape[-1]]


def spectral(x: Tensor, w: Tensor) -> Tensor:
    """A Fourier layer over images: a product a frequency kept."""
    full, w = torch.fft.rfft2(x), torch.complex(w, w.flip(0))
    h, v = min(w.shape[2], full.shape[2]), min(w.shape[3], full.shape[3])
    low = torch.einsum("bihw,iohw->bohw", full[..., :h, :v], w[..., :h, :v])
    low = F.pad(low, (0, full.shape[3] - v, 0, full.shape[2] - h))
    return torch.fft.irfft2(low, s=x.shape[-2:])


def spectrogram(x: Tensor, w: Tensor) -> Tensor:
    n = w.shape[-1]
    frames = x.unfold(-1, n, max(n // 4, 1)) * w
    return torch.fft.rfft(frames).abs().square().add(1e-6).log()


def mixed(x: Tensor, w: Tensor) -> Tensor:
    return torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real * w


def correlated(x: Tensor, w: Tensor) -> Tensor:
    f = torch.fft.rfft(x * w)
    return torch.fft.irfft(f * f.conj(), x.shape[-1])


def poisson(x: Tensor, w: Tensor) -> Tensor:
    k = [torch.fft.fftfreq(n, device=x.device).square().to(x.dtype) for n in x.shape[-3:]]
    total = k[0][:, None, None] + k[1][:, None] + k[2] + 1e-3
    return torch.fft.ifftn(torch.fft.fftn(x * w, dim=(-3, -2, -1)) / total, dim=(-3, -2, -1)).real


SPECTRA: tuple[tuple[str, Op, Size, Size], ...] = (
    ("filtered", filtered, (8, 128, 4096), (128, 4096)), ("filtered", filtered, (32, 64, 1000), (64, 1000)),
    ("spectral", spectral, (16, 32, 64, 64), (32, 32, 12, 12)), ("spectral", spectral, (4, 48, 128, 160), (48, 24, 20, 20)),
    ("spectrogram", spectrogram, (16, 64000), (1024,)), ("spectrogram", spectrogram, (64, 16000), (400,)),
    ("mixed", mixed, (16, 512, 384), (384,)), ("correlated", correlated, (256, 12, 500), (500,)),
    ("poisson", poisson, (4, 80, 80, 96), (96,)),
)  # fmt: skip


def eye(a: Tensor) -> Tensor:
    return torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)


def positive(a: Tensor) -> Tensor:
    return a @ a.mT / a.shape[-1] + 0.5 * eye(a)


def evidence(a: Tensor) -> Tensor:
    low = torch.linalg.cholesky_ex(positive(a))[0]
    off = torch.linalg.solve_triangular(low, a[..., :1], upper=False)
    return off.square().sum((-2, -1)) + 2 * low.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def kalman(a: Tensor) -> Tensor:
    """A step of a filter: predict, gain, update."""
    cov = a @ positive(a) @ a.mT + 0.1 * eye(a)
    gain = cov @ torch.linalg.inv_ex(cov + eye(a))[0]
    return (eye(a) - gain) @ cov


def cayley(a: Tensor) -> Tensor:
    skew = (a - a.mT) / a.shape[-1]
    return torch.linalg.solve_ex(eye(a) + skew, eye(a) - skew)[0]


def orthogonal(a: Tensor) -> Tensor:
    """Newton and Schulz's steps towards the nearest orthogonal matrix."""
    x = a / a.norm(dim=(-2, -1), keepdim=True)
    for _ in range(2):
        x = 1.5 * x - 0.5 * x @ x.mT @ x
    return x


def whitened(a: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(positive(a))
    return vectors @ (values.rsqrt()[..., None] * vectors.mT)


FACTORS: tuple[tuple[str, Op, Size], ...] = (
    ("cholesky", lambda a: torch.linalg.cholesky_ex(positive(a))[0], (2000, 24, 24)),
    ("cholesky", lambda a: torch.linalg.cholesky_ex(positive(a))[0], (256, 64, 64)),
    ("evidence", evidence, (512, 40, 40)), ("evidence", evidence, (8, 256, 256)),
    ("inverse", lambda a: torch.linalg.inv_ex(a + 4 * eye(a))[0], (20000, 4, 4)),
    ("inverse", lambda a: torch.linalg.inv_ex(a + 4 * eye(a))[0], (300, 48, 48)),
    ("solve", lambda a: torch.linalg.solve_ex(a + 4 * eye(a), a[..., :2])[0], (4000, 12, 12)),
    ("kalman", kalman, (10000, 6, 6)), ("cayley", cayley, (128, 32, 32)),
    ("orthogonal", orthogonal, (64, 128, 128)), ("whitened", whitened, (4096, 4, 4)),
    ("whitened", whitened, (500, 20, 20)), ("determinant", torch.linalg.det, (5000, 10, 10)),
)  # fmt: skip


def looked_up(rows: Tensor, at: Tensor) -> Tensor:
    return F.relu(F.embedding(at, rows)).mean(1)


def summed(rows: Tensor, at: Tensor) -> Tensor:
    return F.embedding_bag(at, rows, mode="sum")


def averaged(rows: Tensor, at: Tensor) -> Tensor:
    return F.embedding_bag(at, rows, mode="mean").tanh()


def scored(rows: Tensor, at: Tensor) -> Tensor:
    """Two towers: dot products of each pair, whose loss is softplus."""
    pair = F.embedding(at, rows)
    return F.softplus(-(pair[:, 0] * pair[:, 1]).sum(-1))


def factored(rows: Tensor, at: Tensor) -> Tensor:
    """A factorization machine of second order."""
    x = rows[at]
    return 0.5 * (x.sum(1).square() - x.square().sum(1)).sum(-1)


def tied(rows: Tensor, at: Tensor) -> Tensor:
    return F.embedding(at, rows).mean(1) @ rows.mT


def crossed(rows: Tensor, at: Tensor) -> Tensor:
    x = F.normalize(F.embedding(at, rows), dim=-1)
    return torch.bmm(x, x.mT).flatten(1)


TABLES: tuple[tuple[str, Op, Size, Size, bool], ...] = (
    ("looked up", looked_up, (30000, 128), (4096, 8), True), ("looked up", looked_up, (500, 64), (65536, 4), False),
    ("summed", summed, (1000000, 16), (16384, 20), True), ("averaged", averaged, (100000, 64), (8192, 12), True),
    ("scored", scored, (200000, 96), (32768, 2), True), ("factored", factored, (50000, 10), (16384, 39), True),
    ("tied", tied, (10000, 192), (2048, 5), False), ("crossed", crossed, (4000, 32), (4096, 26), False),
    ("looked up", looked_up, (64, 512), (2048, 16), True),
)  # fmt: skip
"""Rows and width of the table, bags and indices each, most of them among a few."""


def of_leaves(f: Op, sizes: tuple[Size, ...], mode: str, p: Pool) -> Run:
    leaves = [p.leaf(*size, dtype=dtype(mode)) for size in sizes]
    return with_tf32(mode == "t", both(p, f, *leaves))


def multiplied(f: Op, sizes: tuple[Size, ...], mode: str, p: Pool) -> Run:
    """One product at several sizes."""
    runs = [of_leaves(f, ((b, m, k), (b, k, n)), mode, p) for b, m, k, n in sizes]
    return lambda: [run() for run in runs]


def attended(f: Op, size: Size, mode: str, p: Pool) -> Run:
    batch, heads, long, keys, dim = size
    of_keys = (batch, heads, keys, dim)
    return of_leaves(f, ((batch, heads, long, dim), of_keys, of_keys), mode, p)


def embedded(f: Op, table: Size, many: Size, hot: bool, mode: str, p: Pool) -> Run:
    at, rows = p.index(table[0], *many, hot=hot), p.leaf(*table, dtype=dtype(mode))
    return with_tf32(mode == "t", both(p, lambda rows: f(rows, at), rows))


def cases() -> Iterator[Case]:
    for i, (name, f) in enumerate(PRODUCTS.items()):
        for j, mode in enumerate(("ft", "tf", "fd", "dt")[i % 4]):
            # Sizes eight apart, begun anew by each product and mode: small, middle and large ones.
            sizes = tuple(BATCHES[(3 * i + 13 * j + 8 * k) % len(BATCHES)] for k in range(3))
            yield Case(f"{name} {sizes} {mode}", partial(multiplied, f, sizes, mode))
    for (equation, *sizes), mode in zip(EINSUMS, cycle("tfftdtf"), strict=False):
        make = partial(of_leaves, partial(torch.einsum, equation), tuple(sizes), mode)
        yield Case(f"{equation} {sizes} {mode}", make)
    for (name, f, size), mode in zip(ATTENTIONS, cycle("tff"), strict=False):
        yield Case(f"{name} {size} {mode}", partial(attended, f, size, mode))
    for (name, f, *sizes), mode in zip((*DISTANCES, *SPECTRA), cycle("ftfdt"), strict=False):
        yield Case(f"{name} {sizes} {mode}", partial(of_leaves, f, tuple(sizes), mode))
    for (name, f, size), mode in zip(FACTORS, cycle("fdtf"), strict=False):
        yield Case(f"{name} {size} {mode}", partial(of_leaves, f, (size,), mode))
    for given, mode in zip(TABLES, cycle("fftfd"), strict=False):
        yield Case(f"{given[0]} {given[2:]} {mode}", partial(embedded, *given[1:], mode))
