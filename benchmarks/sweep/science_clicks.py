"""Layers of recommenders: embeddings and how they meet, sequences of clicks, losses of rankings."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from cases import Case, Pool, Run
from gathers import spread
from science_parts import BF16, FP16, FP32, Part, Size, learnt, listed, mlp, put, seen
from torch import nn
from torch.nn import functional as F


def dots(batch: int, fields: int, width: int, cast: torch.dtype | None, p: Pool) -> Run:
    """DLRM's interaction between its two MLPs."""
    n = p.n(fields)
    i, j = torch.tril_indices(n + 1, n + 1, -1, device=p.device)
    top = mlp(p, len(i) + p.n(width), 512, 1)
    y = p.mask(batch).float()

    def f(low: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        every = torch.cat((low[:, None], rows), 1)
        met = torch.bmm(every, every.transpose(1, 2))[:, i, j]
        said = top(torch.cat((low, met), 1))[:, 0]
        return F.binary_cross_entropy_with_logits(said.float(), y)

    return learnt(p, f, p.leaf(batch, width), p.leaf(batch, fields, width), of=(top,), cast=cast)


def tables(rows: Size, width: int, batch: int, dtype: torch.dtype, p: Pool) -> Run:
    """Several tables of unlike sizes, a lookup each, with dense gradients."""
    held = [p.leaf(n, width, dtype=dtype) for n in rows]
    at = [spread("hashed" if n > 1000 else "uniform", n, batch, p) for n in rows]

    def f(*held: torch.Tensor) -> torch.Tensor:
        return torch.cat([F.embedding(i, w) for i, w in zip(at, held, strict=True)], 1)

    return learnt(p, f, *held)


def bags(rows: int, width: int, batch: int, longest: int, mode: str, weighed: bool, p: Pool) -> Run:
    """Bags of unlike lengths, as lists of clicks are; weighed ones by a share of each click."""
    at, many = spread("zipf", rows, batch * longest // 2, p), p.n(batch)
    cuts = torch.rand(many - 1, device=p.device).sort().values * len(at)
    offsets = F.pad(cuts.long(), (1, 0))
    share = p.like(torch.empty(len(at))).requires_grad_(weighed)

    def f(x: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        each = share if weighed else None
        return F.embedding_bag(at, x, offsets, mode=mode, per_sample_weights=each)

    return learnt(p, f, p.leaf(rows, width), share)


def adagrad_of_rows(rows: int, width: int, batch: int, p: Pool) -> Run:
    """A sparse gradient and what FBGEMM calls row-wise Adagrad, written out."""
    at, grad = spread("hashed", rows, batch, p), p.randn(batch, width)
    w, seen_so_far = p.own(rows, width), p.own(rows).abs()

    def run() -> object:
        sums = torch.sparse_coo_tensor(at[None], grad, w.shape, check_invariants=False).coalesce()
        i, g = sums.indices()[0], sums.values()
        seen_so_far.index_add_(0, i, g.square().mean(1))
        return w.index_add_(0, i, g * (1e-6 / (seen_so_far[i].sqrt() + 1e-10))[:, None], alpha=-1)

    return run


def crossed(batch: int, width: int, rank: int, cast: torch.dtype | None, p: Pool) -> Run:
    """DCN's second form of low rank; its first one of rank 0."""
    w, r = p.n(width), p.n(rank)
    parts = [nn.Linear(w, 1)] if not rank else [nn.Linear(w, r, bias=False), nn.Linear(r, w)]
    layers = nn.Sequential(*parts).to(p.device)

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * layers(x) + x
        return x * layers(y) + y

    return learnt(p, f, p.leaf(batch, width), of=(layers,), cast=cast)


def factorized(batch: int, fields: int, rows: int, width: int, p: Pool) -> Run:
    """DeepFM: pairs by the square of a sum, beside an MLP."""
    n, w = p.n(fields), p.n(width)
    at, first, second = p.index(rows, batch, fields), p.leaf(rows, 1), p.leaf(rows, width)
    deep, y = mlp(p, n * w, 256, 1), p.mask(batch).float()

    def f(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        e = F.embedding(at, second)
        pairs = 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(1)
        said = F.embedding(at, first).sum((1, 2)) + pairs + deep(e.flatten(1))[:, 0]
        return F.binary_cross_entropy_with_logits(said, y)

    return learnt(p, f, first, second, of=(deep,))


def compressed(batch: int, fields: int, width: int, maps: int, p: Pool) -> Run:
    """xDeepFM's."""
    n, m = p.n(fields), p.n(maps)
    (conv,) = put(p, nn.Conv1d(n * n, m, 1))

    def f(x: torch.Tensor) -> torch.Tensor:
        z = torch.einsum("bhd,bmd->bhmd", x, x).flatten(1, 2)
        return F.relu(conv(z)).sum(-1)

    return learnt(p, f, p.leaf(batch, fields, width), of=(conv,), fast=True)


def towers(batch: int, width: int, cast: torch.dtype | None, p: Pool) -> Run:
    """Softmax over the batch, corrected by how frequent an item is."""
    w = p.n(width)
    user, item = mlp(p, w, 128), mlp(p, w, 128)
    often, who = p.randn(batch).abs(), p.index(batch, batch)

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a, b = F.normalize(user(x), dim=-1), F.normalize(item(y), dim=-1)
        score = a @ b.T / 0.05 - often
        same = (who[:, None] == who) & ~torch.eye(len(x), dtype=torch.bool, device=x.device)
        return F.cross_entropy(
            score.masked_fill(same, -1e4).float(), torch.arange(len(x), device=x.device)
        )

    return learnt(p, f, p.leaf(batch, width), p.leaf(batch, width), of=(user, item), cast=cast)


class Block(nn.Module):
    """SASRec's: norms before attention and after it, point-wise convolutions."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.up, self.down = nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)
        self.register_buffer("later", torch.ones(length, length, dtype=torch.bool).triu(1))

    def forward(self, x: torch.Tensor, here: torch.Tensor) -> torch.Tensor:
        q = self.norm(x)
        x = self.last(q + self.attention(q, x, x, attn_mask=self.later, need_weights=False)[0])
        h = F.dropout(F.relu(self.up(x.transpose(1, 2))), 0.2)
        return (x + self.down(h).transpose(1, 2)) * here[..., None]


def sequence(batch: int, length: int, width: int, items: int, p: Pool) -> Run:
    """SASRec with a true and a drawn item a position."""
    n, w = p.n(length), p.n(width)
    (block,) = put(p, Block(w, 1, n))
    x, here = p.leaf(batch, n, w), p.mask(batch, n)
    table, at, drawn = (
        p.leaf(items, w),
        p.index(items, batch, n, hot=True),
        p.index(items, batch, n),
    )

    def f(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        h = block(x, here)
        yes, no = (h * F.embedding(at, table)).sum(-1), (h * F.embedding(drawn, table)).sum(-1)
        return -((F.logsigmoid(yes) + F.logsigmoid(-no)) * here).sum() / here.sum()

    return learnt(p, f, x, table, of=(block,))


def masked_items(batch: int, length: int, masked: int, width: int, items: int, p: Pool) -> Run:
    """BERT4Rec's head: hidden items gathered, all items scored by the table itself."""
    w, m = p.n(width), p.n(masked)
    at, y = p.index(length, batch, m).sort(1).values, p.index(items, batch, m)
    net, (norm,) = mlp(p, w, w, act=nn.GELU), put(p, nn.LayerNorm(w))

    def f(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        h = x.gather(1, at[..., None].expand(-1, -1, x.shape[-1]))
        score = norm(F.gelu(net(h))) @ table.T
        return F.cross_entropy(score.flatten(0, 1).float(), y.flatten(), ignore_index=0)

    return learnt(p, f, p.leaf(batch, length, w), p.leaf(items, w), of=(net, norm), cast=FP16)


def target_attention(batch: int, length: int, width: int, p: Pool) -> Run:
    """DIN's, by an MLP of what was clicked and what is shown."""
    w = p.n(width)
    net, here = mlp(p, 4 * w, 80, 40, 1, act=nn.Sigmoid), p.mask(batch, length)

    def f(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        q = q[:, None].expand_as(x)
        score = net(torch.cat((q, x, q - x, q * x), -1))[..., 0]
        score = torch.where(here, score, torch.full_like(score, -4294967295.0))
        return (score.softmax(-1)[:, None] @ x)[:, 0]

    return learnt(p, f, p.leaf(batch, length, width), p.leaf(batch, width), of=(net,))


def experts(batch: int, width: int, many: int, tasks: int, p: Pool) -> Run:
    """MMoE by einsum."""
    w, gates = p.leaf(many, width, 256), p.leaf(tasks, width, many)

    def f(x: torch.Tensor, w: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
        h = F.relu(torch.einsum("bd,edh->beh", x, w))
        share = torch.einsum("bd,tde->tbe", x, gates).softmax(-1)
        return torch.einsum("beh,tbe->tbh", h, share)

    return learnt(p, f, p.leaf(batch, width), w, gates, fast=True)


def hashed_pairs(batch: int, fields: int, rows: int, p: Pool) -> Run:
    """Wide and deep: pairs of fields hashed on the way."""
    ids, n = p.index(1 << 30, batch, fields), p.n(rows)
    i, j = torch.triu_indices(ids.shape[1], ids.shape[1], 1, device=p.device)

    def f(w: torch.Tensor) -> torch.Tensor:
        at = (ids[:, i] * 2654435761 + ids[:, j]) % n
        return F.embedding_bag(at, w, mode="sum").squeeze(-1).sigmoid()

    return learnt(p, f, p.leaf(rows, 1))


def solved_users(users: int, width: int, each: int, p: Pool) -> Run:
    """Alternating least squares: a small system a user."""
    table, at, near = (
        p.randn(100000, width),
        p.index(100000, users, each),
        p.randn(users, each).abs(),
    )
    one = torch.eye(p.n(width), device=p.device)

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x[at]
        a = torch.einsum("une,un,unf->uef", y, near, y) + 10 * one
        return torch.cholesky_solve(
            (y * (1 + near[..., None])).sum(1)[..., None], torch.linalg.cholesky_ex(a)[0]
        )

    return seen(f, table)


def liked(batch: int, items: int, width: int, p: Pool) -> Run:
    """Multi-VAE's head: multinomial likelihood of all items and the distance to the prior."""
    (out,), x = put(p, nn.Linear(p.n(width), p.n(items))), p.mask(batch, items).float()

    def f(mean: torch.Tensor, log: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(mean + torch.randn_like(mean) * (0.1 * log).exp())
        loss = -(F.log_softmax(out(h), -1) * x).sum(-1).mean()
        return loss - 0.1 * (1 + log - mean.square() - log.exp()).sum(-1).mean()

    return learnt(p, f, p.leaf(batch, width), p.leaf(batch, width), of=(out,), fast=True)


def ranks(queries: int, shown: int, p: Pool) -> Run:
    """LambdaRank over all pairs of what a query showed."""
    gain = p.index(5, queries, shown).float()

    def f(x: torch.Tensor) -> torch.Tensor:
        place = x.detach().argsort(1, descending=True).argsort(1)
        worth = (2**gain - 1)[:, :, None] - (2**gain - 1)[:, None]
        off = 1 / torch.log2(place + 2.0)
        change = (worth * (off[:, :, None] - off[:, None])).abs()
        loss = F.softplus(x[:, None] - x[:, :, None]) * (gain[:, :, None] > gain[:, None])
        return (loss * change).sum((1, 2))

    return learnt(p, f, p.leaf(queries, shown))


def skip_gram(rows: int, width: int, batch: int, others: int, p: Pool) -> Run:
    """Words or nodes of a walk and others drawn by how frequent they are."""
    often, k = torch.rand(p.n(rows), device=p.device).pow(8) + 1e-6, p.n(others)
    at, near = spread("zipf", rows, batch, p), spread("zipf", rows, batch, p)

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        drawn = torch.multinomial(often, len(at) * k, replacement=True).view(-1, k)
        h = F.embedding(at, x)
        yes = (h * F.embedding(near, y)).sum(-1)
        no = torch.bmm(F.embedding(drawn, y), h[..., None])[..., 0]
        return -(F.logsigmoid(yes) + F.logsigmoid(-no).sum(-1)).mean()

    return learnt(p, f, p.leaf(rows, width), p.leaf(rows, width))


def next_click(batch: int, width: int, items: int, p: Pool) -> Run:
    """GRU4Rec: a cell, scores of the batch's items and of drawn ones, the BPR-max loss."""
    w = p.n(width)
    (cell,), at, state = (
        put(p, nn.GRUCell(w, w)),
        p.index(items, batch + 2048, hot=True),
        p.randn(batch, w),
    )

    def f(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        score = cell(x, state) @ F.embedding(at, table).T
        share, yes = score.softmax(-1), score.diagonal()[:, None]
        return (
            -((yes - score[:, : len(yes)]).sigmoid() * share[:, : len(yes)])
            .sum(-1)
            .add(1e-9)
            .log()
            .mean()
        )

    return learnt(p, f, p.leaf(batch, w), p.leaf(items, w), of=(cell,))


PARTS: tuple[Part, ...] = (
    (dots, (16384, 26, 64, BF16)), (dots, (8192, 26, 128, None)),
    (tables, ((1000000, 93145, 12517), 64, 16384, FP32)), (tables, ((300000, 24), 128, 65536, BF16)),
    (bags, (500000, 64, 8192, 40, "sum", True)), (bags, (1000000, 32, 32768, 20, "mean", False)),
    (adagrad_of_rows, (200000, 64, 65536)), (crossed, (65536, 845, 0, None)), (crossed, (16384, 3456, 512, BF16)),
    (factorized, (8192, 39, 1000000, 10)), (compressed, (4096, 26, 16, 128)), (towers, (8192, 512, None)),
    (towers, (4096, 384, FP16)), (sequence, (2048, 50, 64, 200000)),
    (masked_items, (128, 200, 40, 256, 26744)), (target_attention, (4096, 100, 36)), (experts, (16384, 512, 8, 3)),
    (hashed_pairs, (8192, 20, 10000000)), (solved_users, (8192, 64, 50)), (liked, (500, 20108, 600)),
    (ranks, (256, 160)), (next_click, (512, 224, 300000)),
    (skip_gram, (200000, 128, 16384, 5)),
)  # fmt: skip


def cases() -> Iterator[Case]:
    yield from listed(PARTS)
