"""Parts of physics: equations as losses, operators of fields, stencils, potentials, waves of electrons, proteins."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from cases import Case, Pool, Run
from science_parts import BF16, C64, FP16, FP32, FP64, Part, Size, learnt, listed, mlp, put, seen
from torch import nn
from torch.nn import functional as F


def slopes(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def informed(points: int, width: int, dtype: torch.dtype, p: Pool) -> Run:
    """Burgers' equation as a loss: second derivatives of a network by its inputs."""
    net = mlp(p, 2, p.n(width), 1, act=nn.Tanh, dtype=dtype)
    x = p.leaf(points, 2, dtype=dtype)

    def f() -> torch.Tensor:
        u = net(x)
        du = slopes(u, x)
        return (du[:, 1:] + u * du[:, :1] - 0.003 * slopes(du[:, 0], x)[:, :1]).square().mean()

    return learnt(p, f, of=(net,))


def hamiltonian(rows: int, dims: int, width: int, p: Pool) -> Run:
    """The field of a learnt energy against what was measured."""
    n = p.n(dims)
    net = mlp(p, 2 * n, p.n(width), 1, act=nn.Softplus)
    x, y = (
        p.like(torch.empty(p.n(rows), 2 * n)).requires_grad_(),
        p.like(torch.empty(p.n(rows), 2 * n)),
    )

    def f() -> torch.Tensor:
        dq, dp = slopes(net(x), x).chunk(2, -1)
        return F.mse_loss(torch.cat((dp, -dq), -1), y)

    return learnt(p, f, of=(net,))


def siren(points: int, width: int, cast: torch.dtype | None, p: Pool) -> Run:
    w = p.n(width)
    one, two, out = put(p, nn.Linear(2, w), nn.Linear(w, w), nn.Linear(w, 3))
    x, y = p.randn(points, 2), p.randn(points, 3)

    def f() -> torch.Tensor:
        return F.mse_loss(out(torch.sin(30 * two(torch.sin(30 * one(x))))), y)

    return learnt(p, f, of=(one, two, out), cast=cast)


def fourier_features(points: int, dims: int, waves: int, fast: bool, p: Pool) -> Run:
    turn, k = 10 * p.randn(dims, waves), p.n(waves)
    net = mlp(p, 2 * k, 256, 1)

    def f(x: torch.Tensor) -> torch.Tensor:
        angle = 2 * math.pi * x @ turn
        return net(torch.cat((angle.sin(), angle.cos()), -1))

    return learnt(p, f, p.randn(points, dims), of=(net,), fast=fast)


def operator(batch: int, width: int, size: Size, kept: int, p: Pool) -> Run:
    """A Fourier neural operator's layer in one to three dimensions."""
    w, size = p.n(width), p.shape(*size)
    n = min(kept, size[-1] // 2)
    letters = "xyz"[: len(size)]
    weight = (
        torch.randn(w, w, *[n] * len(size), dtype=C64, device=p.device).div_(w).requires_grad_()
    )
    beside = put(p, nn.Conv1d(w, w, 1))[0]
    dims = tuple(range(-len(size), 0))

    def f(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        low = torch.fft.rfftn(x, dim=dims)
        part = (..., *[slice(n)] * len(size))
        out = torch.zeros_like(low)
        out[part] = torch.einsum(f"bi{letters},io{letters}->bo{letters}", low[part], weight)
        return F.gelu(torch.fft.irfftn(out, size, dims) + beside(x.flatten(2)).view_as(x))

    return learnt(p, f, p.leaf(batch, w, *size), weight, of=(beside,))


def adaptive_operator(batch: int, high: int, wide: int, blocks: int, dim: int, p: Pool) -> Run:
    """FourCastNet's: frequencies through a small MLP of complex numbers in blocks; a forecast."""
    b, d = p.n(blocks), p.n(dim)
    x = p.like(torch.empty(*p.shape(batch, high, wide), b * d))

    def f(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        z = torch.fft.rfft2(x, dim=(1, 2), norm="ortho").unflatten(-1, (b, d))
        mul = partial(torch.einsum, "byxki,kio->byxko")
        re = F.relu(mul(z.real, w[0]) - mul(z.imag, w[1]))
        im = F.relu(mul(z.imag, w[0]) + mul(z.real, w[1]))
        out = torch.stack((mul(re, v[0]) - mul(im, v[1]), mul(im, v[0]) + mul(re, v[1])), -1)
        out = torch.view_as_complex(F.softshrink(out, 0.01)).flatten(-2)
        return x + torch.fft.irfft2(out, x.shape[1:3], (1, 2), norm="ortho")

    return seen(f, x, p.randn(2, b, d, d), p.randn(2, b, d, d))


def deep_o_net(functions: int, points: int, width: int, p: Pool) -> Run:
    w = p.n(width)
    branch, trunk = mlp(p, p.n(100), w, w, act=nn.Tanh), mlp(p, 2, w, w, act=nn.Tanh)
    x, y = p.randn(functions, 100), p.randn(points, 2)
    return learnt(
        p,
        lambda: torch.einsum("fw,pw->fp", branch(x), trunk(y)).square().mean(),
        of=(branch, trunk),
    )


def round_block(batch: int, channels: int, size: int, cast: torch.dtype | None, p: Pool) -> Run:
    """A block for periodic fields: padding by the other side, groups normed."""
    c = p.n(channels)
    conv = nn.Conv2d(c, c, 3, padding=1, padding_mode="circular")
    norm = put(p, conv, nn.GroupNorm(1, c))[1]
    return learnt(
        p,
        lambda x: x + F.gelu(norm(conv(x))),
        p.leaf(batch, c, size, size),
        of=(conv, norm),
        cast=cast,
    )


def diffused(batch: int, size: int, dtype: torch.dtype, p: Pool) -> Run:
    """Gray and Scott's reaction, neighbours by rolls."""

    def f(u: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def around(x: torch.Tensor) -> torch.Tensor:
            return x.roll(1, -1) + x.roll(-1, -1) + x.roll(1, -2) + x.roll(-1, -2) - 4 * x

        react = u * v * v
        return u + 0.16 * around(u) - react + 0.06 * (1 - u), v + 0.08 * around(
            v
        ) + react - 0.122 * v

    return seen(f, *(p.randn(batch, size, size, dtype=dtype) for _ in range(2)))


def heat(batch: int, size: int, dtype: torch.dtype, p: Pool) -> Run:
    """Laplace's stencil of fourth order as a convolution, differentiated through a step."""
    side = torch.tensor([-1.0, 16.0, -30.0, 16.0, -1.0], dtype=dtype, device=p.device) / 12
    both = torch.zeros(1, 1, 5, 5, dtype=dtype, device=p.device)
    both[0, 0, 2] += side
    both[0, 0, :, 2] += side

    def f(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return x + 0.1 * k * F.conv2d(F.pad(x, (2, 2, 2, 2), "replicate"), both)

    return learnt(p, f, *(p.leaf(batch, 1, size, size, dtype=dtype) for _ in range(2)))


def waves(size: int, p: Pool) -> Run:
    """Seismic waves in a volume by slices, with a damped border."""

    def f(u: torch.Tensor, before: torch.Tensor, speed: torch.Tensor) -> torch.Tensor:
        mid = u[1:-1, 1:-1, 1:-1]
        near = u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] + u[1:-1, 2:, 1:-1] + u[1:-1, :-2, 1:-1]
        near = near + u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2] - 6 * mid
        out = torch.zeros_like(u)
        out[1:-1, 1:-1, 1:-1] = 2 * mid - before[1:-1, 1:-1, 1:-1] + speed[1:-1, 1:-1, 1:-1] * near
        return out

    return seen(f, *(p.randn(size, size, size) for _ in range(3)))


def lattice(high: int, wide: int, p: Pool) -> Run:
    """Lattice Boltzmann with nine speeds: collide, then stream by an index."""
    speed = torch.tensor([(x, y) for x in (0, 1, -1) for y in (0, 1, -1)], device=p.device)
    weight = torch.tensor([4, 1, 1] * 3, device=p.device) / 18.0
    h, w = p.n(high), p.n(wide)
    y, x = torch.arange(h, device=p.device)[:, None], torch.arange(w, device=p.device)
    from_ = torch.stack([((y - b) % h * w + (x - a) % w).flatten() for a, b in speed.tolist()])

    def f(state: torch.Tensor) -> torch.Tensor:
        rho = state.sum(0)
        u = torch.einsum("id,ihw->dhw", speed.float(), state) / rho
        along = torch.einsum("id,dhw->ihw", speed.float(), u)
        still = (
            weight[:, None, None] * rho * (1 + 3 * along + 4.5 * along**2 - 1.5 * u.square().sum(0))
        )
        return (state + (still - state) / 0.6).flatten(1).gather(1, from_).view_as(state)

    return seen(f, p.like(torch.empty(9, h, w)).abs() + 1)


def turbulence(batch: int, size: int, p: Pool) -> Run:
    """A pseudo-spectral step of vorticity."""
    n = p.n(size)
    k = torch.fft.fftfreq(n, 1 / n, device=p.device)
    kx, ky = k[:, None], k[None, : n // 2 + 1].abs()
    square = (kx**2 + ky**2).clamp(min=1)
    kept = (kx.abs() < n / 3) & (ky < n / 3)

    def f(w: torch.Tensor) -> torch.Tensor:
        there = torch.fft.rfft2(w)
        flow = there / square
        u, v = torch.fft.irfft2(1j * ky * flow, (n, n)), torch.fft.irfft2(-1j * kx * flow, (n, n))
        wx, wy = (
            torch.fft.irfft2(1j * kx * there, (n, n)),
            torch.fft.irfft2(1j * ky * there, (n, n)),
        )
        return torch.fft.irfft2(
            (there - 0.01 * torch.fft.rfft2(u * wx + v * wy)) / (1 + 1e-4 * square) * kept, (n, n)
        )

    return seen(f, p.randn(batch, n, n))


def pairs(atoms: int, near: int, dtype: torch.dtype, p: Pool) -> Run:
    """Lennard-Jones of a list of neighbours, forces by autograd, in a periodic box."""
    i = torch.arange(p.n(atoms), device=p.device).repeat_interleave(p.n(near))
    j = (i + 1 + torch.randint(400, i.shape, device=p.device)) % p.n(atoms)

    def f(x: torch.Tensor) -> torch.Tensor:
        apart = x[i] - x[j]
        apart = apart - 20 * torch.round(apart / 20)
        six = (apart.square().sum(-1) + 0.5).reciprocal().pow(3)
        return (4 * (six * six - six)).sum()

    return learnt(p, f, p.leaf(atoms, 3, dtype=dtype))


def symmetry(batch: int, atoms: int, shells: int, angles: int, p: Pool) -> Run:
    """ANI's radial and angular functions of small molecules, dense."""
    n, shift = p.n(atoms), torch.linspace(0.9, 5, shells, device=p.device)
    turn, alone = torch.linspace(0, math.pi, angles, device=p.device), torch.eye(n, device=p.device)

    def f(x: torch.Tensor) -> torch.Tensor:
        apart = x[:, :, None] - x[:, None]
        far = (apart.square().sum(-1) + alone).sqrt()
        cut = (0.5 * torch.cos(math.pi * far.clamp(max=5.2) / 5.2) + 0.5) * (1 - alone)
        radial = (torch.exp(-16 * (far[..., None] - shift) ** 2) * cut[..., None]).sum(2)
        cos = torch.einsum("bijd,bikd->bijk", apart, apart) / (far[..., None] * far[:, :, None])
        wide = (1 + torch.cos(torch.acos(0.95 * cos)[..., None] - turn)).pow(8)
        wide = (wide * (cut[..., None] * cut[:, :, None])[..., None]).sum((2, 3))
        return torch.cat((radial, wide), -1)

    return seen(f, p.randn(batch, n, 3))


def charges(atoms: int, waves: int, dtype: torch.dtype, p: Pool) -> Run:
    """Ewald's sum over reciprocal space."""
    k, charge = p.randn(waves, 3, dtype=dtype), p.randn(atoms, dtype=dtype)

    def f(x: torch.Tensor) -> torch.Tensor:
        phase, square = x @ k.T, k.square().sum(-1) + 0.1
        re, im = (charge[:, None] * phase.cos()).sum(0), (charge[:, None] * phase.sin()).sum(0)
        return ((re**2 + im**2) * torch.exp(-square / 4) / square).sum()

    return learnt(p, f, p.leaf(atoms, 3, dtype=dtype))


def electrons(walkers: int, many: int, width: int, dtype: torch.dtype, p: Pool) -> Run:
    """FermiNet: streams of one and two electrons, orbitals, determinants."""
    n, w = p.n(many), p.n(width)
    one, orbit = put(p, nn.Linear(2 * w, w), nn.Linear(w, 4 * n), dtype=dtype)
    pair = p.randn(walkers, n, n, w, dtype=dtype)

    def f(h: torch.Tensor) -> torch.Tensor:
        h = h + torch.tanh(one(torch.cat((h, pair.mean(2)), -1)))
        sign, log = torch.linalg.slogdet(orbit(h).unflatten(-1, (4, n)).movedim(-2, 1))
        top = log.amax(-1, keepdim=True).detach()
        return ((sign * (log - top).exp()).sum(-1).abs() + 1e-9).log() + top[:, 0]

    return learnt(p, f, p.leaf(walkers, n, w, dtype=dtype), of=(one, orbit))


def triangle(residues: int, width: int, hidden: int, cast: torch.dtype | None, p: Pool) -> Run:
    """AlphaFold's product of pairs along triangles."""
    w, h = p.n(width), p.n(hidden)
    norm, last, both, out = put(
        p, nn.LayerNorm(w), nn.LayerNorm(h), nn.Linear(w, 4 * h), nn.Linear(h, w)
    )

    def f(z: torch.Tensor) -> torch.Tensor:
        a, b, c, d = both(norm(z)).chunk(4, -1)
        met = torch.einsum("ikc,jkc->ijc", a * c.sigmoid(), b * d.sigmoid())
        return z + out(last(met))

    return learnt(p, f, p.leaf(residues, residues, w), of=(norm, last, both, out), cast=cast)


def outer_mean(sequences: int, residues: int, width: int, p: Pool) -> Run:
    (out,), w = put(p, nn.Linear(p.n(width) ** 2, p.n(128))), p.n(width)

    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return out((torch.einsum("sic,sjd->ijcd", a, b) / len(a)).flatten(-2))

    return learnt(p, f, *(p.leaf(sequences, residues, w) for _ in range(2)), of=(out,), cast=BF16)


def frames(residues: int, atoms: int, p: Pool) -> Run:
    """FAPE: all atoms seen from all frames, the error clamped."""
    turn, true = p.randn(residues, 3, 3), p.randn(residues, atoms, 3)

    def f(x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
        said = torch.einsum("fji,fnj->fni", rotation, x[None] - x[: len(rotation), None])
        away = torch.einsum("fji,fnj->fni", turn, true) - said
        return (away.square().sum(-1) + 1e-4).sqrt().clamp(max=10).mean() / 10

    return learnt(p, f, p.leaf(atoms, 3), p.leaf(residues, 3, 3))


def scanner(batch: int, coils: int, size: int, p: Pool) -> Run:
    """MRI: an image through coils to frequencies, masked, and back."""
    maps, said = (
        p.randn(batch, coils, size, size, dtype=C64),
        p.randn(batch, coils, size, size, dtype=C64),
    )
    kept = p.mask(1, 1, 1, size)

    def f(x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        k = torch.fft.fft2(torch.view_as_complex(x)[:, None] * maps, norm="ortho")
        back = torch.fft.ifft2((k - said) * kept, norm="ortho")
        return x - step * torch.view_as_real((back * maps.conj()).sum(1))

    n = p.n(size)
    return learnt(p, f, p.like(torch.empty(p.n(batch), n, n, 2)).requires_grad_(), p.leaf(1))


def globe(batch: int, high: int, wide: int, channels: int, degree: int, p: Pool) -> Run:
    """Spherical harmonics of weather: FFT around, Legendre along, and errors weighed by latitude."""
    h, w, n = p.n(high), p.n(wide), min(p.n(degree), p.n(wide) // 2)
    legendre, area = torch.randn(h, n, n, device=p.device), torch.rand(h, 1, device=p.device)

    def f(x: torch.Tensor) -> torch.Tensor:
        low = torch.fft.rfft(x, norm="forward")[..., :n]
        said = torch.einsum("bchm,hlm->bclm", low.real, legendre)
        back = torch.einsum("bclm,hlm->bchm", said, legendre)
        return ((torch.fft.irfft(back.to(C64), w, norm="forward") - x).square() * area).mean(
            (-1, -2)
        )

    return learnt(p, f, p.leaf(batch, channels, h, w), fast=True)


PARTS: tuple[Part, ...] = (
    (informed, (50000, 128, FP32)), (informed, (20000, 64, FP64)), (hamiltonian, (32768, 6, 200)),
    (siren, (262144, 256, None)), (siren, (65536, 128, FP16)), (fourier_features, (131072, 3, 256, True)),
    (operator, (20, 32, (64, 64), 12)), (operator, (32, 64, (8192,), 16)), (operator, (4, 20, (64, 64, 40), 8)),
    (adaptive_operator, (2, 90, 180, 8, 96)), (deep_o_net, (1000, 4096, 128)), (round_block, (16, 64, 128, None)),
    (round_block, (8, 128, 128, BF16)), (diffused, (8, 1024, FP32)), (heat, (16, 512, FP64)), (waves, (256,)),
    (lattice, (512, 1024)), (turbulence, (16, 512)), (pairs, (50000, 40, FP32)), (pairs, (4096, 64, FP64)),
    (symmetry, (256, 20, 16, 8)), (charges, (8000, 2000, FP32)), (electrons, (1024, 10, 64, FP32)),
    (triangle, (256, 128, 128, BF16)), (triangle, (128, 64, 32, None)), (outer_mean, (128, 192, 32)),
    (frames, (256, 2048)), (scanner, (2, 12, 320)), (globe, (2, 181, 360, 69, 120)),
)  # fmt: skip


def cases() -> Iterator[Case]:
    yield from listed(PARTS)
