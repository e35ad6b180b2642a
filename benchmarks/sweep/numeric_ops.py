"""Arithmetic written out: recurrences, kernels between points, spectra, draws."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F


def phases(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Llama's rotary embedding by complex numbers."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)


def spectral(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A Fourier neural operator's layer over its low modes."""
    low, modes = torch.fft.rfft2(x), w.shape[-1]
    out = torch.zeros_like(low)
    some = low[..., :modes, :modes]
    out[..., :modes, :modes] = torch.einsum(
        "bixy,ioxy->boxy", some, w[..., : some.shape[-2], : some.shape[-1]]
    )
    return torch.fft.irfft2(out, x.shape[-2:])


def matern(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    far = math.sqrt(5) * (x[:, None] - y[None]).pow(2).sum(-1).add(1e-6).sqrt()
    return (1 + far + far.pow(2) / 3) * torch.exp(-far)


def forces(x: torch.Tensor) -> torch.Tensor:
    """Lennard-Jones between all pairs."""
    square = (x[:, None] - x[None]).pow(2).sum(-1) + 1.0
    inverse = square.reciprocal().pow(3)
    return (4 * (inverse * inverse - inverse)).sum()


def option(x: torch.Tensor) -> torch.Tensor:
    """Black and Scholes."""
    price, root = x.abs() + 50, math.sqrt(0.5) * 0.2
    first = ((price / 55).log() + 0.02) / root
    return price * torch.special.ndtr(first) - 54 * torch.special.ndtr(first - root)


def hashed(at: torch.Tensor) -> torch.Tensor:
    at = at * 73856093 ^ at.roll(1) * 19349663
    return (at ^ (at >> 13)) % 524288


def doubling(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """h = a h + b over positions, by three doublings of a parallel scan."""
    for by in (1, 2, 4):
        b = b + a * F.pad(b, (0, 0, by, 0))[:, : b.shape[1]]
        a = a * F.pad(a, (0, 0, by, 0), value=1.0)[:, : a.shape[1]]
    return b


def one_by_one(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same as recurrences are written out, over the first positions."""
    h, out = torch.zeros_like(b[:, 0]), []
    for i in range(min(3, b.shape[1])):
        h = a[:, i].sigmoid() * h + b[:, i]
        out.append(h)
    return torch.stack(out, 1)


def decayed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A state space model's scan by sums of logarithms."""
    total = F.logsigmoid(a).cumsum(1)
    return torch.exp(total) * (b * torch.exp(-total)).cumsum(1)


def returns(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Discounted rewards of an actor's rollout, backwards."""
    last, out = torch.zeros_like(b[0]), []
    for i in reversed(range(min(4, len(b)))):
        last = b[i] + 0.99 * last * a[i].gt(-2)
        out.append(last)
    return torch.stack(out[::-1])


def nucleus(x: torch.Tensor) -> torch.Tensor:
    """A word from the likeliest ones that make 0.9 together."""
    share, order = x.float().softmax(-1).sort(-1, descending=True)
    share = share.masked_fill(share.cumsum(-1) - share > 0.9, 0.0)
    return order.gather(-1, torch.multinomial(share, 1))


def gumbel(x: torch.Tensor) -> torch.Tensor:
    return F.gumbel_softmax(x, tau=0.7, hard=True)


def wide_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of complex numbers in fp64, kept as pairs."""
    return torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(y))
