"""Layers of models of series: forecasts, filters, spectra of seasons, convolutions back in time."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from cases import Case, Pool, Run
from science_parts import BF16, FP16, FP32, FP64, Part, learnt, listed, mlp, put, seen
from torch import nn
from torch.nn import functional as F


def n_beats(batch: int, back: int, ahead: int, width: int, p: Pool) -> Run:
    """A seasonal block: four layers, coefficients, waves."""
    b, a, w = p.n(back), p.n(ahead), p.n(width)
    net, waves = mlp(p, b, w, w, 2 * 8), torch.randn(8, b + a, device=p.device)
    y = p.randn(batch, ahead)

    def f(x: torch.Tensor) -> torch.Tensor:
        there, here = net(x).chunk(2, -1)
        rest = x - there @ waves[:, :b]
        said = here @ waves[:, b:]
        return (
            200 * ((said - y).abs() / (said.abs() + y.abs() + 1e-6).detach()).mean() + rest.mean()
        )

    return learnt(p, f, p.leaf(batch, back), of=(net,))


def tcn(batch: int, channels: int, length: int, dilation: int, dtype: torch.dtype, p: Pool) -> Run:
    """Causal, with weights normed; what lies ahead is cut off."""
    c = p.n(channels)
    conv = nn.utils.parametrizations.weight_norm(
        nn.Conv1d(c, c, 3, padding=2 * dilation, dilation=dilation)
    )
    put(p, conv, dtype=dtype)

    def f(x: torch.Tensor) -> torch.Tensor:
        y = conv(x)[..., : -2 * dilation].contiguous()
        return F.relu(x + F.dropout(F.relu(y), 0.2))

    return learnt(p, f, p.leaf(batch, channels, length, dtype=dtype), of=(conv,))


def wave_net(
    batch: int, channels: int, length: int, dilation: int, cast: torch.dtype | None, p: Pool
) -> Run:
    c = p.n(channels)
    conv, out = put(p, nn.Conv1d(c, 2 * c, 2, dilation=dilation), nn.Conv1d(c, 2 * c, 1))
    beside = p.like(torch.empty(p.n(batch), 2 * c, p.n(length)))

    def f(x: torch.Tensor) -> torch.Tensor:
        a, b = (conv(F.pad(x, (dilation, 0))) + beside).chunk(2, 1)
        rest, skip = out(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
        return (x + rest) * math.sqrt(0.5) + skip

    return learnt(p, f, p.leaf(batch, channels, length), of=(conv, out), cast=cast)


def deep_ar(batch: int, length: int, width: int, p: Pool) -> Run:
    """Likelihood of Student's t at every step of an LSTM's states."""
    (head,), y = put(p, nn.Linear(p.n(width), 3)), p.randn(batch, length)

    def f(h: torch.Tensor) -> torch.Tensor:
        at, scale, df = head(h).unbind(-1)
        scale, df = F.softplus(scale) + 1e-4, 2 + F.softplus(df)
        off = ((y - at) / scale).square()
        said = torch.lgamma((df + 1) / 2) - torch.lgamma(df / 2) - 0.5 * (df * math.pi).log()
        return -(said - scale.log() - (df + 1) / 2 * torch.log1p(off / df)).mean()

    return learnt(p, f, p.leaf(batch, length, width), of=(head,))


def gated_lstm(batch: int, length: int, width: int, dtype: torch.dtype, p: Pool) -> Run:
    """A few steps of the temporal fusion transformer's LSTM and its gate."""
    w = p.n(width)
    lstm, gate, norm = put(
        p, nn.LSTM(w, w, batch_first=True), nn.Linear(w, 2 * w), nn.LayerNorm(w), dtype=dtype
    )

    def f(x: torch.Tensor) -> torch.Tensor:
        return norm(x + F.glu(gate(lstm(x)[0]), -1))

    return learnt(p, f, p.leaf(batch, length, width, dtype=dtype), of=(lstm, gate, norm))


def chosen(batch: int, length: int, variables: int, width: int, p: Pool) -> Run:
    """The temporal fusion transformer's choice of variables."""
    n, w = p.n(variables), p.n(width)
    pick, norm = mlp(p, n * w, w, n, act=nn.ELU), put(p, nn.LayerNorm(w))[0]
    weight = p.like(torch.empty(n, w, w)).requires_grad_()

    def f(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        share = pick(x.flatten(-2)).softmax(-1)
        return norm((F.elu(torch.einsum("btnd,nde->btne", x, weight)) * share[..., None]).sum(-2))

    return learnt(
        p,
        f,
        p.like(torch.empty(*p.shape(batch, length), n, w)).requires_grad_(),
        weight,
        of=(pick, norm),
    )


def informer(batch: int, heads: int, length: int, dim: int, sampled: int, p: Pool) -> Run:
    """Sparse attention: queries that stand out by sampled keys; the others get the mean."""
    u = min(sampled, p.n(length))
    at = p.index(length, length, u)

    def f(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        near = (q.unsqueeze(-2) @ k[:, :, at].transpose(-2, -1)).squeeze(-2)
        top = (
            (near.amax(-1) - near.mean(-1))
            .topk(u, -1)
            .indices[..., None]
            .expand(-1, -1, -1, q.shape[-1])
        )
        share = (q.gather(2, top) @ k.transpose(-2, -1) / math.sqrt(dim)).softmax(-1)
        return v.mean(2, keepdim=True).expand_as(v).scatter(2, top, share @ v)

    return learnt(p, f, *(p.leaf(batch, heads, length, dim) for _ in range(3)))


def patches(
    batch: int,
    channels: int,
    length: int,
    patch: int,
    width: int,
    cast: torch.dtype | None,
    p: Pool,
) -> Run:
    """PatchTST: series of their own, in patches that overlap, one block with norms over the batch."""
    w, k = p.n(width), p.n(patch)
    embed, norm, three, out = put(
        p, nn.Linear(k, w), nn.BatchNorm1d(w), nn.Linear(w, 3 * w), nn.Linear(w, w)
    )

    def f(x: torch.Tensor) -> torch.Tensor:
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        x = F.pad(x, (0, k // 2), "replicate").unfold(-1, k, k // 2)
        h = embed(x).flatten(0, 1)
        q, k_, v = three(h).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        h = h + out(F.scaled_dot_product_attention(q, k_, v).transpose(1, 2).flatten(2))
        return norm(h.transpose(1, 2)).transpose(1, 2)

    return learnt(p, f, p.randn(batch, channels, length), of=(embed, norm, three, out), cast=cast)


def d_linear(batch: int, length: int, channels: int, ahead: int, p: Pool) -> Run:
    """A moving mean and the rest, a linear layer each over time."""
    slow, fast = put(p, nn.Linear(p.n(length), p.n(ahead)), nn.Linear(p.n(length), p.n(ahead)))

    def f(x: torch.Tensor) -> torch.Tensor:
        ends = torch.cat((x[:, :1].repeat(1, 12, 1), x, x[:, -1:].repeat(1, 12, 1)), 1)
        mean = F.avg_pool1d(ends.transpose(1, 2), 25, 1)
        return (slow(mean) + fast(x.transpose(1, 2) - mean)).transpose(1, 2)

    return learnt(p, f, p.leaf(batch, length, channels), of=(slow, fast))


def autoformer(batch: int, length: int, width: int, p: Pool) -> Run:
    """Correlation with oneself by FFT, the best delays, values rolled by them."""

    def f(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        near = torch.fft.irfft(
            torch.fft.rfft(q, dim=1) * torch.fft.rfft(k, dim=1).conj(), q.shape[1], 1
        ).mean(-1)
        value, delay = near.topk(3, -1)
        at = (torch.arange(q.shape[1], device=q.device)[None, :, None] + delay[:, None]) % q.shape[
            1
        ]
        taken = v.gather(1, at.flatten(1)[..., None].expand(-1, -1, v.shape[-1]))
        return (taken.unflatten(1, (q.shape[1], 3)) * value.softmax(-1)[:, None, :, None]).sum(2)

    return learnt(p, f, *(p.leaf(batch, length, width) for _ in range(3)))


def modes(batch: int, heads: int, dim: int, length: int, kept: int, p: Pool) -> Run:
    """FEDformer's product of low frequencies, a matrix each."""
    n = min(p.n(kept), p.n(length) // 2)
    w = torch.randn(
        *p.shape(heads, dim, dim), n, dtype=torch.complex64, device=p.device
    ).requires_grad_()

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        low = torch.fft.rfft(x)[..., :n]
        return torch.fft.irfft(torch.einsum("bhim,hiom->bhom", low, w), x.shape[-1])

    return learnt(p, f, p.leaf(batch, heads, dim, length), w)


def times_net(
    batch: int, length: int, period: int, width: int, cast: torch.dtype | None, p: Pool
) -> Run:
    """Folded by a period into an image, convolved, unfolded."""
    w, k = p.n(width), min(period, p.n(length) // 2)
    convs = put(p, *(nn.Conv2d(w, w, size, padding=size // 2) for size in (1, 3, 5)))

    def f(x: torch.Tensor) -> torch.Tensor:
        rows = -(-x.shape[1] // k)
        y = (
            F.pad(x, (0, 0, 0, rows * k - x.shape[1]))
            .view(len(x), rows, k, -1)
            .permute(0, 3, 1, 2)
            .contiguous()
        )
        y = F.gelu(torch.stack([conv(y) for conv in convs], -1).mean(-1))
        return x + y.permute(0, 2, 3, 1).flatten(1, 2)[:, : x.shape[1]]

    return learnt(p, f, p.leaf(batch, length, width), of=convs, cast=cast)


def inverted(
    batch: int, length: int, variables: int, width: int, cast: torch.dtype | None, p: Pool
) -> Run:
    """iTransformer: a token a variable."""
    w = p.n(width)
    embed, norm = put(p, nn.Linear(p.n(length), w), nn.LayerNorm(w))
    (attention,) = put(p, nn.MultiheadAttention(w, 8, batch_first=True))

    def f(x: torch.Tensor) -> torch.Tensor:
        h = embed(x.transpose(1, 2))
        return norm(h + attention(h, h, h, need_weights=False)[0])

    return learnt(p, f, p.randn(batch, length, variables), of=(embed, attention, norm), cast=cast)


def s4(batch: int, width: int, length: int, states: int, p: Pool) -> Run:
    """Diagonal states: the kernel by Vandermonde, the convolution by FFT."""
    w, n, t = p.n(width), p.n(states), p.n(length)

    def f(x: torch.Tensor, a: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        turn = math.pi * torch.arange(n, device=x.device).expand(w, n)
        rate = torch.complex(-a.exp(), turn) * 0.01
        power = torch.exp(rate[..., None] * torch.arange(t, device=x.device))
        weight = torch.view_as_complex(c) * (rate.exp() - 1) / rate
        kernel = 2 * torch.einsum("hn,hnl->hl", weight, power).real
        y = torch.fft.rfft(x, 2 * t) * torch.fft.rfft(kernel, 2 * t)
        return F.gelu(torch.fft.irfft(y, 2 * t)[..., :t] + x * d[:, None])

    a, c = p.randn(w, n), p.leaf(w, n, 2)
    return learnt(p, f, p.leaf(batch, w, t), a, c, p.leaf(w))


def kalman(batch: int, states: int, seen_: int, steps: int, dtype: torch.dtype, p: Pool) -> Run:
    """Predict and correct small Gaussians, a few steps."""
    n, m = p.n(states), p.n(seen_)
    one, back = (
        torch.eye(n, dtype=dtype, device=p.device),
        0.1 * torch.eye(m, dtype=dtype, device=p.device),
    )
    h, y = p.randn(m, n, dtype=dtype), p.randn(batch, steps, m, 1, dtype=dtype)

    def f(x: torch.Tensor, move: torch.Tensor) -> torch.Tensor:
        a, var = one + 0.05 * move, one.expand(len(x), n, n)
        for i in range(y.shape[1]):
            x, var = a @ x, a @ var @ a.T + 0.01 * one
            gain = torch.linalg.solve_ex(h @ var @ h.T + back, h @ var)[0].mT
            x, var = x + gain @ (y[:, i] - h @ x), (one - gain @ h) @ var
        return x

    return seen(f, p.randn(batch, n, 1, dtype=dtype), p.randn(n, n, dtype=dtype))


def runge_kutta(batch: int, width: int, p: Pool) -> Run:
    """A step of a neural ODE, two of its four slopes."""
    w = p.n(width)
    net = mlp(p, w, w, w, act=nn.Tanh)

    def f(x: torch.Tensor) -> torch.Tensor:
        half = net(x)
        return x + 0.1 * net(x + 0.05 * half)

    return learnt(p, f, p.leaf(batch, width), of=(net,))


def rocket(batch: int, length: int, kernels: int, p: Pool) -> Run:
    """Random convolutions: their maxima and how often they are positive."""
    (conv,) = put(p, nn.Conv1d(1, kernels, 9, padding=16, dilation=4))

    def f(x: torch.Tensor) -> torch.Tensor:
        y = conv(x)
        return torch.cat((y.amax(-1), (y > 0).float().mean(-1)), -1)

    return seen(f, p.randn(batch, 1, length))


def inception_time(batch: int, channels: int, length: int, p: Pool) -> Run:
    c = p.n(channels)
    narrow, last = put(p, nn.Conv1d(c, 32, 1, bias=False), nn.Conv1d(c, 32, 1, bias=False))
    wide = put(p, *(nn.Conv1d(32, 32, k, padding=k // 2, bias=False) for k in (9, 39)))
    (norm,) = put(p, nn.BatchNorm1d(96))

    def f(x: torch.Tensor) -> torch.Tensor:
        y = narrow(x)
        return F.relu(
            norm(torch.cat((*(conv(y) for conv in wide), last(F.max_pool1d(x, 3, 1, 1))), 1))
        )

    return learnt(p, f, p.leaf(batch, channels, length), of=(narrow, last, *wide, norm), fast=True)


def forward_states(batch: int, states: int, steps: int, p: Pool) -> Run:
    """A hidden Markov model's likelihood in logarithms, a few steps."""
    said = p.randn(steps, batch, states)

    def f(move: torch.Tensor) -> torch.Tensor:
        move, a = move.log_softmax(-1), said[0]
        for one in said[1:]:
            a = torch.logsumexp(a[:, :, None] + move, 1) + one
        return a.logsumexp(-1)

    return learnt(p, f, p.leaf(states, states))


def min_gru(batch: int, length: int, width: int, cast: torch.dtype | None, p: Pool) -> Run:
    """All steps at once by running sums of exponentials."""
    w = p.n(width)
    (layer,) = put(p, nn.Linear(w, 2 * w))

    def f(x: torch.Tensor) -> torch.Tensor:
        fresh, gate = layer(x).float().chunk(2, -1)
        kept = -F.softplus(gate).cumsum(1)
        value = torch.where(fresh >= 0, (F.relu(fresh) + 0.5).log(), -F.softplus(-fresh))
        return (kept + torch.logcumsumexp(value - F.softplus(-gate) - kept, 1)).exp()

    return learnt(p, f, p.leaf(batch, length, width), of=(layer,), cast=cast)


def mixer(batch: int, length: int, channels: int, p: Pool) -> Run:
    """TSMixer with what is reversible about it."""
    t, c = p.n(length), p.n(channels)
    over, up, down, norm = put(
        p, nn.Linear(t, t), nn.Linear(c, 2 * c), nn.Linear(2 * c, c), nn.BatchNorm2d(1)
    )

    def f(x: torch.Tensor) -> torch.Tensor:
        mean, scale = (
            x.mean(1, keepdim=True).detach(),
            (x.var(1, keepdim=True) + 1e-5).sqrt().detach(),
        )
        x = (x - mean) / scale
        x = x + F.relu(over(norm(x[:, None])[:, 0].transpose(1, 2))).transpose(1, 2)
        return (x + down(F.relu(up(x)))) * scale + mean

    return learnt(p, f, p.leaf(batch, length, channels), of=(over, up, down, norm))


def nearest(windows: int, length: int, p: Pool) -> Run:
    """A matrix profile: windows normed and their products, their nearest but themselves."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.unfold(0, p.n(length), 1)
        y = (y - y.mean(-1, keepdim=True)) / y.std(-1, keepdim=True)
        near, at = y @ y.T, torch.arange(len(y), device=x.device)
        return near.masked_fill_((at[:, None] - at).abs() < length // 2, -1e4).max(-1)[0]

    return seen(f, p.randn(windows + length))


PARTS: tuple[Part, ...] = (
    (n_beats, (1024, 120, 24, 512)), (tcn, (64, 150, 1000, 4, FP32)), (tcn, (32, 512, 512, 8, FP16)),
    (wave_net, (8, 64, 16000, 64, None)), (wave_net, (16, 128, 8192, 512, BF16)), (deep_ar, (4096, 96, 40)),
    (gated_lstm, (1024, 6, 160, FP32)), (chosen, (128, 168, 8, 160)), (informer, (8, 8, 720, 64, 35)),
    (patches, (32, 321, 512, 16, 128, BF16)), (patches, (128, 7, 336, 16, 16, None)), (d_linear, (32, 720, 862, 336)),
    (autoformer, (32, 192, 512)), (modes, (32, 8, 64, 720, 64)), (times_net, (32, 288, 24, 64, None)),
    (inverted, (16, 96, 862, 512, BF16)), (s4, (16, 256, 4096, 32)), (kalman, (50000, 4, 2, 2, FP32)),
    (kalman, (8192, 8, 4, 1, FP64)), (runge_kutta, (16384, 256)), (rocket, (256, 1024, 512)),
    (inception_time, (64, 128, 1024)), (forward_states, (256, 64, 5)), (min_gru, (16, 2048, 512, BF16)),
    (mixer, (64, 512, 321)), (nearest, (8192, 128)),
)  # fmt: skip


def cases() -> Iterator[Case]:
    yield from listed(PARTS)
