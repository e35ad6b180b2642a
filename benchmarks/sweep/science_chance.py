"""Parts of probabilistic models: Gaussian processes, flows, diffusion of points, transport, samplers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from cases import Case, Pool, Run
from science_parts import FP32, FP64, Part, learnt, listed, mlp, put, seen
from torch import nn
from torch.nn import functional as F


def process(points: int, dims: int, dtype: torch.dtype, p: Pool) -> Run:
    """A Gaussian process's likelihood with its length scales learnt."""
    x, y = p.randn(points, dims, dtype=dtype), p.randn(points, 1, dtype=dtype)
    noise = 0.5 * torch.eye(len(x), dtype=dtype, device=p.device)

    def f(scale: torch.Tensor) -> torch.Tensor:
        z = x * F.softplus(scale)
        square = (z.square().sum(-1)[:, None] + z.square().sum(-1) - 2 * z @ z.T).clamp(min=0)
        low = torch.linalg.cholesky_ex(torch.exp(-0.5 * square) + noise)[0]
        off = torch.linalg.solve_triangular(low, y, upper=False)
        return 0.5 * off.square().sum() + low.diagonal().log().sum()

    return learnt(p, f, p.leaf(dims, dtype=dtype))


def inducing(batch: int, points: int, dims: int, dtype: torch.dtype, p: Pool) -> Run:
    """A sparse process: means and variances of a batch by inducing points."""
    x, one = p.randn(batch, dims, dtype=dtype), torch.eye(p.n(points), dtype=dtype, device=p.device)

    def f(z: torch.Tensor, mean: torch.Tensor, root: torch.Tensor) -> torch.Tensor:
        low = torch.linalg.cholesky_ex(torch.exp(-0.5 * torch.cdist(z, z).square()) + 0.01 * one)[0]
        a = torch.linalg.solve_triangular(low, torch.exp(-torch.cdist(z, x)), upper=False)
        return a.T @ mean + ((root.tril().T @ a).square() - a.square()).sum(0)[:, None] + 1

    n, d = len(one), x.shape[1]
    return seen(f, *(p.like(torch.empty(size, dtype=dtype)) for size in ((n, d), (n, 1), (n, n))))


def random_features(rows: int, dims: int, waves: int, p: Pool) -> Run:
    """Ridge regression on random features, solved."""
    turn, shift, y = p.randn(dims, waves), p.randn(waves), p.randn(rows, 10)
    one = torch.eye(p.n(waves), device=p.device)

    def f(x: torch.Tensor) -> torch.Tensor:
        z = math.sqrt(2 / len(shift)) * torch.cos(x @ turn + shift)
        return torch.cholesky_solve(z.T @ y, torch.linalg.cholesky_ex(z.T @ z + 0.1 * one)[0])

    return seen(f, p.randn(rows, dims))


def coupled(rows: int, dims: int, width: int, p: Pool) -> Run:
    """RealNVP: one half scaled and moved by the other."""
    n, w = p.n(dims) // 2, p.n(width)
    net = mlp(p, n, w, 2 * n)

    def f(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        log, move = net(a).chunk(2, -1)
        log = torch.tanh(log)
        z = torch.cat((a, b * log.exp() + move), -1)
        return 0.5 * z.square().sum(-1) - log.sum(-1)

    return learnt(p, f, p.leaf(rows, 2 * n), of=(net,))


def spline(rows: int, dims: int, bins: int, p: Pool) -> Run:
    """A rational quadratic spline an element, as samples go through it."""

    def f(
        x: torch.Tensor, wide: torch.Tensor, high: torch.Tensor, slope: torch.Tensor
    ) -> torch.Tensor:
        xs = F.pad(wide.softmax(-1).cumsum(-1), (1, 0)) * 6 - 3
        ys = F.pad(high.softmax(-1).cumsum(-1), (1, 0)) * 6 - 3
        at = torch.searchsorted(xs.detach(), x.detach()[..., None]).clamp(1, xs.shape[-1] - 1)
        x0, x1 = xs.gather(-1, at - 1)[..., 0], xs.gather(-1, at)[..., 0]
        y0, y1 = ys.gather(-1, at - 1)[..., 0], ys.gather(-1, at)[..., 0]
        steep = F.softplus(slope)
        d0, d1 = steep.gather(-1, at - 1)[..., 0], steep.gather(-1, (at % slope.shape[-1]))[..., 0]
        s, t = (y1 - y0) / (x1 - x0), (x - x0) / (x1 - x0)
        below = s + (d1 + d0 - 2 * s) * t * (1 - t)
        return y0 + (y1 - y0) * (s * t * t + d0 * t * (1 - t)) / below

    return seen(f, p.randn(rows, dims), *(p.randn(rows, dims, bins) for _ in range(3)))


def turned(batch: int, channels: int, size: int, p: Pool) -> Run:
    """Glow: a norm of channels, an invertible product of them, its determinant."""

    def f(x: torch.Tensor, w: torch.Tensor, log: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        x = (x + shift[:, None, None]) * log.exp()[:, None, None]
        bits = (log.sum() + torch.linalg.slogdet(w)[1]) * x.shape[-1] ** 2
        return F.conv2d(x, w[:, :, None, None]).square().sum((1, 2, 3)) / 2 - bits

    inputs = p.leaf(channels, channels), p.leaf(channels), p.leaf(channels)
    return learnt(p, f, p.leaf(batch, channels, size, size), *inputs)


def masked(rows: int, dims: int, width: int, dtype: torch.dtype, p: Pool) -> Run:
    """A masked autoregressive flow's two layers."""
    n, w = p.n(dims), p.n(width)
    order = torch.arange(w, device=p.device) % max(1, n - 1)
    first = (order[:, None] >= torch.arange(n, device=p.device)).to(dtype)
    last = (torch.arange(n, device=p.device).repeat(2)[:, None] > order).to(dtype)

    def f(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        mean, log = F.linear(F.relu(F.linear(x, a * first)), b * last).chunk(2, -1)
        return ((x - mean) * (-log).exp()).square().sum(-1) / 2 + log.sum(-1)

    sizes = ((w, n), (2 * n, w))
    return learnt(
        p,
        f,
        p.randn(rows, n, dtype=dtype),
        *(p.like(torch.empty(s, dtype=dtype)).requires_grad_() for s in sizes),
    )


def continuous(rows: int, dims: int, width: int, p: Pool) -> Run:
    """A continuous flow's trace by a random vector."""
    n = p.n(dims)
    net, x = mlp(p, n, p.n(width), n, act=nn.Softplus), p.leaf(rows, n)

    def f() -> torch.Tensor:
        e, y = torch.randn_like(x), net(x)
        trace = (torch.autograd.grad(y, x, e, create_graph=True)[0] * e).sum(-1)
        return y.square().sum(-1) + trace

    return learnt(p, f, of=(net,))


def denoised(batch: int, points: int, width: int, cast: torch.dtype | None, p: Pool) -> Run:
    """Karras's preconditioned loss on clouds of points, features of the noise level added."""
    w = p.n(width)
    first, last, level = put(p, nn.Linear(3, w), nn.Linear(2 * w, 3), nn.Linear(64, w))
    waves = torch.exp(torch.linspace(0, 7, 32, device=p.device))

    def f(x: torch.Tensor) -> torch.Tensor:
        sigma = (1.2 * torch.randn(len(x), 1, 1, device=x.device) - 1.2).exp()
        noisy = x + sigma * torch.randn_like(x)
        angle = sigma.log()[:, 0] / 4 * waves
        h = F.silu(
            first(noisy / (sigma**2 + 0.25).sqrt())
            + level(torch.cat((angle.sin(), angle.cos()), -1))[:, None]
        )
        h = torch.cat((h, h.amax(1, keepdim=True).expand_as(h)), -1)
        said = noisy * 0.25 / (sigma**2 + 0.25) + last(h) * sigma * 0.5 / (sigma**2 + 0.25).sqrt()
        return ((sigma**2 + 0.25) / (sigma * 0.5) ** 2 * (said - x) ** 2).mean()

    return learnt(p, f, p.randn(batch, points, 3), of=(first, last, level), cast=cast)


def transported(batch: int, points: int, dims: int, turns: int, p: Pool) -> Run:
    """Sinkhorn in logarithms, a few turns."""

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        cost = torch.cdist(x, y).square()
        u, v = torch.zeros_like(cost[:, :, 0]), torch.zeros_like(cost[:, 0])
        for _ in range(turns):
            u = -(v[:, None] - cost / 0.1).logsumexp(2)
            v = -(u[:, :, None] - cost / 0.1).logsumexp(1)
        return ((u[:, :, None] + v[:, None] - cost / 0.1).exp() * cost).sum((1, 2))

    return learnt(p, f, p.leaf(batch, points, dims), p.leaf(batch, points, dims))


def discrepancy(rows: int, dims: int, p: Pool) -> Run:
    """MMD with kernels of five widths."""
    y = p.randn(rows, dims)

    def f(x: torch.Tensor) -> torch.Tensor:
        every = torch.cat((x, y))
        far = torch.cdist(every, every, compute_mode="use_mm_for_euclid_dist").square()
        k = torch.stack(
            [torch.exp(-far / (far.detach().mean() * s)) for s in (0.25, 1.0, 4.0)]
        ).sum(0)
        n = len(x)
        return k[:n, :n].mean() + k[n:, n:].mean() - 2 * k[:n, n:].mean()

    return learnt(p, f, p.leaf(rows, dims))


def chamfer(batch: int, points: int, p: Pool) -> Run:
    y = p.randn(batch, points, 3)

    def f(x: torch.Tensor) -> torch.Tensor:
        far = (x[:, :, None] - y[:, None]).square().sum(-1)
        return far.amin(1).mean(-1) + far.amin(2).mean(-1)

    return learnt(p, f, p.leaf(batch, points, 3))


def sliced(rows: int, dims: int, ways: int, p: Pool) -> Run:
    """Wasserstein's distance by sorts along random lines."""
    y, n = p.randn(rows, dims), p.n(ways)

    def f(x: torch.Tensor) -> torch.Tensor:
        line = F.normalize(torch.randn(x.shape[1], n, device=x.device), dim=0)
        return ((x @ line).sort(0).values - (y @ line).sort(0).values).square().mean()

    return learnt(p, f, p.leaf(rows, dims))


def heston(paths: int, steps: int, dtype: torch.dtype, p: Pool) -> Run:
    """An option by simulated paths of price and variance."""
    many = p.n(paths)

    def f(start: torch.Tensor) -> torch.Tensor:
        log, var = start.new_zeros(many), start[1].abs().expand(many)
        for _ in range(steps):
            a, b = torch.randn(2, many, dtype=dtype, device=p.device)
            step = (var.clamp(min=1e-6) * 0.01).sqrt()
            log = log - 0.005 * var + step * a
            var = var + 0.02 * (0.04 - var) + 0.3 * step * (-0.7 * a + 0.71 * b)
        return F.relu(start[0] * log.exp() - 1.0).mean()

    return seen(f, torch.tensor([1.0, 0.04], dtype=dtype, device=p.device))


def ising(batch: int, size: int, p: Pool) -> Run:
    """Half of a chessboard's spins tried at once."""
    n = p.n(size)
    at = torch.arange(n, device=p.device)
    even = (at[:, None] + at) % 2 == 0
    spin = torch.randint(2, (p.n(batch), n, n), dtype=torch.int8, device=p.device) * 2 - 1

    def f() -> torch.Tensor:
        near = spin.roll(1, 1) + spin.roll(-1, 1) + spin.roll(1, 2) + spin.roll(-1, 2)
        taken = torch.rand(spin.shape, device=spin.device) < torch.exp(-0.88 * (spin * near))
        return torch.where(even & taken, -spin, spin)

    return seen(f)


def leapfrog(chains: int, rows: int, dims: int, p: Pool) -> Run:
    """A step of Hamiltonian Monte Carlo for logistic regression, accepted or not."""
    x, y = p.randn(rows, dims), p.mask(rows, 1).float()

    def f(w: torch.Tensor) -> torch.Tensor:
        def energy(w: torch.Tensor) -> torch.Tensor:
            said = x @ w.T
            return (F.softplus(said) - y * said).sum(0) + 0.5 * w.square().sum(-1)

        def pull(w: torch.Tensor) -> torch.Tensor:
            return ((x @ w.T).sigmoid() - y).T @ x + w

        m = torch.randn_like(w)
        half = m - 0.005 * pull(w)
        new = w + 0.01 * half
        last = half - 0.005 * pull(new)
        gain = energy(w) - energy(new) + 0.5 * (m.square() - last.square()).sum(-1)
        return torch.where((torch.rand_like(gain).log() < gain)[:, None], new, w)

    return seen(f, p.randn(chains, dims))


def particles(filters: int, many: int, dims: int, p: Pool) -> Run:
    """A filter: move, weigh, draw again with even steps."""
    y, n = p.randn(filters, 1, dims), p.n(many)
    even = torch.arange(n, device=p.device) / n

    def f(x: torch.Tensor) -> torch.Tensor:
        x = 0.9 * x + torch.sin(x) + 0.3 * torch.randn_like(x)
        weight = (-0.5 * (x - y).square().sum(-1)).softmax(-1)
        place = even + torch.rand(len(x), 1, device=x.device) / n
        at = torch.searchsorted(weight.cumsum(-1), place).clamp(max=n - 1)
        return x.gather(1, at[..., None].expand_as(x))

    return seen(f, p.randn(filters, n, dims))


def rejected(rows: int, tries: int, dtype: torch.dtype, p: Pool) -> Run:
    """von Mises and Fisher's by trying at once and keeping the first that is taken."""
    n = p.n(tries)

    def f(kappa: torch.Tensor) -> torch.Tensor:
        kappa = kappa.abs()[:, None] + 0.1
        r = 1 + (1 + 4 * kappa**2).sqrt()
        rho = (r - (2 * r).sqrt()) / (2 * kappa)
        s = (1 + rho**2) / (2 * rho)
        a, b = torch.rand(2, len(kappa), n, dtype=dtype, device=p.device)
        z = torch.cos(math.pi * a)
        w = (1 + s * z) / (s + z)
        c = kappa * (s - w)
        good = (c * (2 - c) - b > 0) | ((c / b).log() + 1 - c >= 0)
        return w.gather(1, good.to(torch.uint8).argmax(1, keepdim=True)).clamp(-1, 1).acos()

    return seen(f, p.randn(rows, dtype=dtype))


def counts(cells: int, genes: int, width: int, p: Pool) -> Run:
    """scVI's negative binomial of every gene."""
    (out,), x = (
        put(p, nn.Linear(p.n(width), p.n(genes))),
        p.randn(cells, genes).abs().mul_(4).floor_(),
    )

    def f(h: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
        mean, r = out(h).softmax(-1) * 1e4, spread.exp()
        both = (r + mean + 1e-8).log()
        said = r * ((r + 1e-8).log() - both) + x * ((mean + 1e-8).log() - both)
        return -(said + torch.lgamma(x + r) - torch.lgamma(r) - torch.lgamma(x + 1)).sum(-1).mean()

    return learnt(p, f, p.leaf(cells, width), p.leaf(genes), of=(out,))


PARTS: tuple[Part, ...] = (
    (process, (4096, 8, FP32)), (process, (1000, 4, FP64)), (inducing, (8192, 512, 16, FP32)),
    (random_features, (100000, 64, 1024)), (coupled, (65536, 64, 256)), (spline, (16384, 32, 8)), (turned, (64, 48, 32)),
    (masked, (16384, 63, 512, FP32)), (continuous, (32768, 43, 256)), (denoised, (128, 2048, 128, None)),
    (transported, (16, 1024, 3, 1)), (discrepancy, (2048, 256)), (chamfer, (4, 2048)),
    (sliced, (65536, 64, 128)), (heston, (1048576, 2, FP64)), (ising, (64, 1024)), (leapfrog, (256, 100000, 54)),
    (particles, (256, 4096, 4)), (rejected, (262144, 8, FP32)), (counts, (512, 18000, 128)),
)  # fmt: skip


def cases() -> Iterator[Case]:
    yield from listed(PARTS)
