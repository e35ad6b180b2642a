"""Parts of second-order and layer-wise optimizers, metrics, and tables put in order."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from cases import Case, Pool, Run
from gathers import spread
from science_parts import BF16, FP16, FP32, FP64, Part, learnt, listed, seen
from torch.nn import functional as F


def kronecker(rows: int, fin: int, fout: int, p: Pool) -> Run:
    """K-FAC: running factors of a layer, and a gradient through their inverses."""
    x, g = p.randn(rows, fin), p.randn(rows, fout)
    a, b = torch.eye(p.n(fin), device=p.device), torch.eye(p.n(fout), device=p.device)
    ea, eb = a.clone(), b.clone()

    def f() -> torch.Tensor:
        a.mul_(0.95).addmm_(x.T, x, alpha=0.05 / len(x))
        b.mul_(0.95).addmm_(g.T, g, alpha=0.05 / len(g))
        left, right = (torch.linalg.cholesky_ex(m + 0.1 * e)[0] for m, e in ((a, ea), (b, eb)))
        return torch.cholesky_solve(torch.cholesky_solve(g.T @ x, right).T, left).T

    return seen(f)


def shampoo(high: int, wide: int, p: Pool) -> Run:
    """Both statistics, and a root by two coupled Newton turns."""
    g, left = p.randn(high, wide), torch.eye(p.n(high), device=p.device)
    right, one = torch.eye(p.n(wide), device=p.device), torch.eye(p.n(high), device=p.device)

    def f() -> torch.Tensor:
        left.mul_(0.99).addmm_(g, g.T, alpha=0.01)
        right.mul_(0.99).addmm_(g.T, g, alpha=0.01)
        m = left / left.norm()
        h = one
        for _ in range(2):
            t = (5 * one - m) / 4
            h, m = h @ t, torch.linalg.matrix_power(t, 4) @ m
        return h @ g @ right

    return seen(f)


def muon(high: int, wide: int, p: Pool) -> Run:
    """Momentum made orthogonal by two turns in bf16."""
    w, g, held = p.own(high, wide), p.randn(high, wide), p.own(high, wide)

    def f() -> torch.Tensor:
        held.lerp_(g, 0.05)
        x = g.lerp(held, 0.95).bfloat16()
        x = x / (x.norm() + 1e-7)
        for _ in range(2):
            square = x @ x.mT
            x = torch.addmm(
                x, torch.addmm(square, square, square, beta=-4.775, alpha=2.0315), x, beta=3.4445
            )
        return w.mul_(1 - 1e-6).add_(x, alpha=-1e-6)

    return seen(f)


def lamb(high: int, wide: int, dtype: torch.dtype, p: Pool) -> Run:
    """Adam's step scaled by the norms of a layer."""
    w, m, v = (p.own(high, wide) for _ in range(3))
    v.abs_()
    g = p.randn(high, wide, dtype=dtype)

    def f() -> torch.Tensor:
        wide = g.float()
        m.mul_(0.9).add_(wide, alpha=0.1)
        v.mul_(0.999).addcmul_(wide, wide, value=0.001)
        step = m / 0.9 / ((v / 0.99).sqrt() + 1e-6) + 0.01 * w
        trust = torch.where(step.norm() > 0, w.norm().clamp(0, 10) / step.norm(), 1.0)
        return w.sub_(step * trust * 1e-9)

    return seen(f)


def adafactor(high: int, wide: int, p: Pool) -> Run:
    """Second moments by rows and columns."""
    w, g = p.own(high, wide, dtype=BF16), p.randn(high, wide, dtype=BF16)
    rows, columns = p.own(high).abs(), p.own(wide).abs()

    def f() -> torch.Tensor:
        square = g.float().square() + 1e-30
        rows.lerp_(square.mean(-1), 0.2)
        columns.lerp_(square.mean(-2), 0.2)
        step = g * ((rows / rows.mean())[:, None] * columns).rsqrt()
        step = step / (step.square().mean().sqrt() / 1.0).clamp(min=1.0)
        return w.sub_(1e-9 * step)

    return seen(f)


def sophia(high: int, wide: int, p: Pool) -> Run:
    w, m, h = (p.own(high, wide) for _ in range(3))
    g, many = p.randn(high, wide), 480.0

    def f() -> torch.Tensor:
        m.lerp_(g, 0.035)
        h.mul_(0.99).addcmul_(g, g, value=0.01 * many)
        step = (m.abs() / (0.04 * many * h.abs() + 1e-15)).clamp(None, 1)
        return w.addcmul_(m.sign(), step, value=-1e-9)

    return seen(f)


def clusters(rows: int, dims: int, many: int, fast: bool, p: Pool) -> Run:
    """A turn of k-means."""
    n = p.n(many)

    def f(x: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
        near = (
            (centre.square().sum(-1) - 2 * x @ centre.T).argmin(-1)
            if fast
            else torch.cdist(x, centre).argmin(-1)
        )
        sums = torch.zeros_like(centre).index_add_(0, near, x)
        held = torch.zeros(n, device=x.device).index_add_(0, near, torch.ones_like(x[:, 0]))
        return sums / held.clamp(min=1)[:, None]

    return seen(f, p.randn(rows, dims), p.randn(many, dims))


def mixture(rows: int, dims: int, many: int, dtype: torch.dtype, p: Pool) -> Run:
    """Expectation and maximization of Gaussians with variances a dimension."""

    def f(x: torch.Tensor, mean: torch.Tensor, log: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scale = (-log).exp()
        said = (
            x.square() @ scale.T - 2 * x @ (mean * scale).T + (mean.square() * scale + log).sum(-1)
        )
        share = (-0.5 * said).softmax(-1)
        held = share.sum(0)[:, None] + 1e-6
        new = share.T @ x / held
        return new, (share.T @ x.square() / held - new.square()).clamp(min=1e-6).log()

    sizes = ((rows, dims), (many, dims), (many, dims))
    return seen(f, *(p.randn(*size, dtype=dtype) for size in sizes))


def embedded(points: int, p: Pool) -> Run:
    """The gradient of t-SNE with all pairs."""
    near = p.randn(points, points).softmax(-1)

    def f(y: torch.Tensor) -> torch.Tensor:
        q = 1 / (1 + torch.cdist(y, y).square())
        pull = (near - q / (q.sum() - len(y))) * q
        return 4 * (pull.sum(1)[:, None] * y - pull @ y)

    return seen(f, p.randn(points, 2))


def survival(rows: int, fin: int, p: Pool) -> Run:
    """Cox's partial likelihood: order by time, running sums of exponentials."""
    time, event = p.randn(rows), p.mask(rows)

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        risk = (x @ w)[:, 0][time.argsort(descending=True)]
        return -((risk - risk.logcumsumexp(0)) * event).sum() / event.sum()

    return learnt(p, f, p.randn(rows, fin), p.leaf(fin, 1))


def under_curve(rows: int, tasks: int, p: Pool) -> Run:
    """AUC and average precision a task."""
    y = p.mask(rows, tasks)

    def f(x: torch.Tensor) -> torch.Tensor:
        true = y.gather(0, x.argsort(0, descending=True)).float()
        hits, misses = true.cumsum(0), (1 - true).cumsum(0)
        auc = torch.trapezoid(hits / hits[-1:], misses / misses[-1:], dim=0)
        rank = torch.arange(1, len(x) + 1, device=x.device)[:, None]
        return torch.stack((auc, (true * hits / rank).sum(0) / hits[-1]))

    return seen(f, p.randn(rows, tasks))


def gains(users: int, items: int, top: int, dtype: torch.dtype, p: Pool) -> Run:
    """nDCG and recall of all items, those known left out."""
    known, true = p.mask(users, items) & p.mask(users, items), p.mask(users, items)
    k = min(top, p.n(items))
    off = 1 / torch.log2(torch.arange(k, device=p.device) + 2.0)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        at = x.masked_fill(known, -1e4).topk(k, -1).indices
        hit = true.gather(1, at).float()
        most = true.sum(-1).clamp(min=1, max=k)
        return (hit * off).sum(-1) / off.cumsum(0)[most - 1], hit.sum(-1) / most

    return seen(f, p.randn(users, items, dtype=dtype))


def rank_correlation(rows: int, columns: int, p: Pool) -> Run:
    """Spearman's of all columns."""

    def f(x: torch.Tensor) -> torch.Tensor:
        rank = x.argsort(0).argsort(0).float()
        rank = (rank - rank.mean(0)) / rank.std(0)
        return rank.T @ rank / len(x)

    return seen(f, p.randn(rows, columns))


def mistaken(pixels: int, many: int, p: Pool) -> Run:
    """A confusion matrix by one index of both, and the overlap of classes."""
    y, n = p.index(many, pixels), p.n(many)

    def f(x: torch.Tensor) -> torch.Tensor:
        at = y * n + x.argmax(0)
        m = (
            torch.zeros(n * n, device=x.device)
            .scatter_add_(0, at, torch.ones_like(x[0]))
            .view(n, n)
        )
        return m.diag() / (m.sum(0) + m.sum(1) - m.diag()).clamp(min=1)

    return seen(f, p.randn(many, pixels))


def binned(rows: int, bins: int, p: Pool) -> Run:
    """Calibration: sureness into bins, rates a bin."""
    y = p.mask(rows).float()
    edges = torch.linspace(0, 1, bins + 1, device=p.device)

    def f(x: torch.Tensor) -> torch.Tensor:
        sure = x.sigmoid()
        at = torch.bucketize(sure, edges[1:-1])
        each = torch.zeros(bins, 3, device=x.device)
        each.index_add_(0, at, torch.stack((sure, y, torch.ones_like(y)), -1))
        return ((each[:, 0] - each[:, 1]).abs() / each[:, 2].clamp(min=1)).max() + torch.histc(
            sure, bins, 0, 1
        ).max()

    return seen(f, p.randn(rows))


def joined(left: int, right: int, p: Pool) -> Run:
    """A join by sorted keys."""
    a, b, value = p.index(1 << 40, left), p.index(1 << 40, right), p.randn(right, 4)

    def f() -> torch.Tensor:
        key, order = b.sort()
        at = torch.searchsorted(key, a).clamp_(max=len(key) - 1)
        return torch.where((key[at] == a)[:, None], value[order[at]], torch.nan)

    return seen(f)


def sessions(rows: int, users: int, p: Pool) -> Run:
    """Events by user and time, cut where a pause is long, counted within."""
    user, time = spread("zipf", users, rows, p), p.index(1 << 24, rows)

    def f() -> torch.Tensor:
        key, order = (user * (1 << 24) + time).sort()
        first = torch.cat((torch.ones_like(key[:1], dtype=torch.bool), key.diff() > 1800))
        number = first.cumsum(0) - 1
        start = torch.where(first, torch.arange(len(key), device=key.device), 0).cummax(0).values
        return torch.stack((number, torch.arange(len(key), device=key.device) - start, order))

    return seen(f)


def distinct(rows: int, high: int, p: Pool) -> Run:
    at = spread("zipf", high, rows, p)
    return seen(lambda: torch.unique(at, return_inverse=True))


def drawn(rows: int, words: int, top: int, dtype: torch.dtype, p: Pool) -> Run:
    """Several without putting back, by Gumbel's noise and the largest."""
    k = min(top, p.n(words))

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log = x.float().log_softmax(-1)
        score, at = (log - torch.empty_like(log).exponential_().log()).topk(k, -1)
        return at, (log.gather(-1, at) - score[:, -1:]).exp()

    return seen(f, p.randn(rows, words, dtype=dtype))


def wavelets(batch: int, length: int, p: Pool) -> Run:
    """Two levels of Daubechies' wavelets by strided convolutions, shrunk, and a spectrum beside."""
    taps = torch.tensor(
        [[0.483, 0.837, 0.224, -0.129], [-0.129, -0.224, 0.837, -0.483]], device=p.device
    )

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        low, high = F.conv1d(F.pad(x, (1, 1), "circular"), taps[:, None], stride=2).split(1, 1)
        cut = high.abs().mean(-1, keepdim=True) / 0.6745 * math.sqrt(2)
        return low, F.softshrink(high, 0.5), (high.abs() > cut).sum(-1)

    return seen(f, p.randn(batch, 1, length))


PARTS: tuple[Part, ...] = (
    (kronecker, (8192, 1025, 512)), (shampoo, (1024, 2048)), (muon, (1024, 4096)), (lamb, (4096, 1024, FP16)),
    (adafactor, (4096, 4096)), (sophia, (3072, 1024)), (clusters, (1000000, 64, 256, True)),
    (clusters, (100000, 128, 1000, False)), (mixture, (200000, 32, 64, FP32)), (mixture, (50000, 16, 32, FP64)),
    (embedded, (4096,)), (survival, (200000, 64)), (under_curve, (400000, 12)), (gains, (1024, 26744, 100, FP32)),
    (rank_correlation, (20000, 512)), (mistaken, (2097152, 19)), (binned, (4000000, 15)), (joined, (4000000, 1000000)),
    (sessions, (2000000, 100000)), (distinct, (1000000, 200000)), (drawn, (512, 50257, 64, BF16)),
    (wavelets, (256, 65536)),
)  # fmt: skip


def cases() -> Iterator[Case]:
    yield from listed(PARTS)
