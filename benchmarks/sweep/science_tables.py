"""Layers of models of tables: numbers embedded, attention over columns, soft and boosted trees."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce

import torch
from cases import Case, Pool, Run
from gathers import spread
from science_parts import BF16, FP16, FP32, Part, learnt, listed, mlp, put, seen
from torch import nn
from torch.nn import functional as F


def of_fields(batch: int, fields: int, width: int, heads: int, samples: bool, p: Pool) -> Run:
    """AutoInt's attention over fields; SAINT's over the samples of a batch."""
    w, n = p.n(width), p.n(fields)
    norm, layer = put(
        p, nn.LayerNorm(w), nn.TransformerEncoderLayer(w, heads, 2 * w, 0.0, batch_first=True)
    )

    def f(x: torch.Tensor) -> torch.Tensor:
        x = norm(x)
        return layer(x.transpose(0, 1)).transpose(0, 1) if samples else layer(x)

    x = p.leaf(batch, n, w)
    return learnt(p, f, x, of=(norm, layer), cast=BF16 if samples else None)


def sparsemax(x: torch.Tensor) -> torch.Tensor:
    y = x.sort(-1, descending=True).values
    k = torch.arange(1, x.shape[-1] + 1, device=x.device)
    sums = y.cumsum(-1) - 1
    many = (y * k > sums).sum(-1, keepdim=True)
    return (x - sums.gather(-1, many - 1) / many).clamp(min=0)


def tab_net(batch: int, width: int, virtual: int, p: Pool) -> Run:
    """A step: which features, by sparsemax, and a gated layer with norms of parts of the batch."""
    w = p.n(width)
    choose, gated = put(p, nn.Linear(w, w, bias=False), nn.Linear(w, 2 * w, bias=False))

    def ghost(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([F.batch_norm(y, None, None, training=True) for y in x.chunk(virtual)])

    def f(x: torch.Tensor, prior: torch.Tensor) -> torch.Tensor:
        kept = sparsemax(ghost(choose(x)) * prior)
        said = F.glu(ghost(gated(kept * x)), -1) * math.sqrt(0.5)
        return said - (kept * (kept + 1e-10).log()).mean()

    return learnt(p, f, p.leaf(batch, width), p.randn(batch, width), of=(choose, gated))


def soft_trees(batch: int, features: int, trees: int, depth: int, p: Pool) -> Run:
    """NODE's oblivious trees: each level one choice of features, leaves by a product of sides."""
    t, d = p.n(trees), depth
    codes = (
        torch.arange(2**d, device=p.device)[:, None].bitwise_right_shift(
            torch.arange(d, device=p.device)
        )
        & 1
    )
    sides = torch.stack((codes, 1 - codes)).float()

    def f(
        x: torch.Tensor, choice: torch.Tensor, cut: torch.Tensor, leaf: torch.Tensor
    ) -> torch.Tensor:
        value = torch.einsum("bf,ftd->btd", x, choice.softmax(0))
        right = (value - cut).mul(0.5).add(0.5).clamp(0, 1)
        way = torch.einsum("btds,scd->btdc", torch.stack((right, 1 - right), -1), sides)
        return torch.einsum("btc,tc->bt", reduce(torch.mul, way.unbind(2)), leaf)

    inputs = p.leaf(features, t, d), p.leaf(t, d), p.like(torch.empty(t, 2**d)).requires_grad_()
    return learnt(p, f, p.randn(batch, features), *inputs)


def boosted(batch: int, features: int, trees: int, p: Pool) -> Run:
    """Three levels of all trees of a boosted forest at once."""
    n = p.n(trees)
    which = torch.randint(p.n(features), (n, 15), device=p.device)
    cut, tree = p.like(torch.empty(n, 15)), torch.arange(n, device=p.device)

    def f(x: torch.Tensor) -> torch.Tensor:
        node = torch.zeros(len(x), n, dtype=torch.long, device=x.device)
        for _ in range(3):
            node = 2 * node + 1 + (x.gather(1, which[tree, node]) > cut[tree, node])
        return cut[tree, node].sum(1)

    return seen(f, p.randn(batch, features))


def histograms(rows: int, features: int, bins: int, p: Pool) -> Run:
    """A boosted tree's sums of gradients a feature and bin, and the best split."""
    x = torch.randint(bins, p.shape(rows, features), dtype=torch.uint8, device=p.device)
    n = x.shape[1]

    def f(g: torch.Tensor, h: torch.Tensor) -> object:
        at = (x.long() + torch.arange(n, device=x.device) * bins).flatten()
        each = torch.stack((g, h), -1)[:, None].expand(-1, n, -1).reshape(-1, 2)
        left = (
            torch.zeros(n * bins, 2, device=x.device)
            .index_add_(0, at, each)
            .view(n, bins, 2)
            .cumsum(1)
        )
        right = left[:, -1:] - left
        gain = sum(side[..., 0].square() / (side[..., 1].abs() + 1) for side in (left, right))
        return torch.as_tensor(gain).flatten().argmax()

    return seen(f, p.randn(rows), p.randn(rows).abs())


def periodic(batch: int, features: int, waves: int, width: int, p: Pool) -> Run:
    """Numbers embedded by sines, a linear layer a feature (PLR), then a first hidden layer."""
    n, w = p.n(features), p.n(width)
    inner = mlp(p, n * w, 512)

    def f(x: torch.Tensor, wave: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        angle = 2 * math.pi * wave * x[..., None]
        e = torch.einsum("bnk,nkd->bnd", torch.cat((angle.cos(), angle.sin()), -1), weight).relu()
        return inner(e.flatten(1)).relu()

    k = p.n(waves)
    weight = p.like(torch.empty(n, 2 * k, w)).requires_grad_()
    return learnt(p, f, p.randn(batch, n), p.leaf(n, k), weight, of=(inner,), fast=True)


def feature_tokens(
    batch: int, features: int, width: int, heads: int, cast: torch.dtype | None, p: Pool
) -> Run:
    """FT-Transformer: a token a number, a first block with ReGLU."""
    n, w, h = p.n(features), p.n(width), p.n(heads)
    three, norm = put(p, nn.Linear(w, 3 * w), nn.LayerNorm(w))
    up, down = put(p, nn.Linear(w, 2 * w), nn.Linear(w, w))

    def f(x: torch.Tensor, weight: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        x = torch.cat((first.expand(len(x), 1, -1), x[..., None] * weight), 1)
        q, k, v = three(x).view(len(x), n + 1, 3, h, w // h).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        a, b = up(norm(x)).chunk(2, -1)
        return (x + down(F.dropout(a * F.relu(b), 0.1)))[:, 0]

    inputs = p.randn(batch, n), p.leaf(n, w), p.leaf(1, w)
    return learnt(p, f, *inputs, of=(three, norm, up, down), cast=cast)


def residual(batch: int, width: int, dtype: torch.dtype, p: Pool) -> Run:
    """A block of the tabular ResNet."""
    w = p.n(width)
    norm, up, down = put(
        p, nn.BatchNorm1d(w), nn.Linear(w, 2 * w), nn.Linear(2 * w, w), dtype=dtype
    )

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + F.dropout(down(F.dropout(F.relu(up(norm(x))), 0.2)), 0.1)

    return learnt(p, f, p.leaf(batch, width, dtype=dtype), of=(norm, up, down))


def encoded(rows: int, kinds: int, p: Pool) -> Run:
    """Means of the target by category, borders of quantiles, times since the last event."""
    at, edges = spread("zipf", kinds, rows, p), torch.linspace(-3, 3, 254, device=p.device)
    n = p.n(kinds)

    def f(x: torch.Tensor, y: torch.Tensor) -> object:
        sums = torch.zeros(n, device=x.device).index_add(0, at, y)
        many = torch.zeros(n, device=x.device).index_add(0, at, torch.ones_like(y))
        mean = ((sums + 10 * y.mean()) / (many + 10))[at]
        order = at.argsort(stable=True)
        return mean, torch.bucketize(x, edges), x[order].diff()

    return seen(f, p.randn(rows), p.randn(rows))


PARTS: tuple[Part, ...] = (
    (of_fields, (8192, 24, 32, 2, False)), (of_fields, (256, 16, 32, 8, True)), (tab_net, (16384, 54, 2)),
    (soft_trees, (1024, 54, 256, 6)), (boosted, (16384, 200, 128)), (histograms, (100000, 28, 256)),
    (periodic, (8192, 100, 48, 24)), (feature_tokens, (1024, 51, 192, 8, None)),
    (feature_tokens, (4096, 28, 192, 8, FP16)), (residual, (8192, 467, FP32)), (residual, (1024, 256, BF16)),
    (encoded, (2000000, 50000)),
)  # fmt: skip


def cases() -> Iterator[Case]:
    yield from listed(PARTS)
