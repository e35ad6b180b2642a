"""Around the layers of language and speech models: embeddings, heads with losses, adapters, weights
kept in few bits, decoding steps.

A part of `language_layers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import language_updates
import torch
from cases import Case, Pool, Run, both
from language_seated import small
from torch import Tensor
from torch.nn import functional as F

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def weight(p: Pool, *extents: int, dtype: torch.dtype = BF16) -> Tensor:
    return small(p).leaf(*extents, dtype=dtype)


def frozen(p: Pool, *extents: int, dtype: torch.dtype = BF16) -> Tensor:
    return small(p).randn(*extents, dtype=dtype)


def embedded(words: int, width: int, batch: int, length: int, kind: str, p: Pool) -> Run:
    """Ids to vectors and back to the gradient of the whole table."""
    dtype = BF16 if kind in ("images", "codes") else FP32
    table, ids = weight(p, words, width, dtype=dtype), p.index(words, batch, length, hot=True)
    place, norm = weight(p, length, width, dtype=dtype), p.leaf(width, dtype=dtype)
    patches = p.randn(batch, length, width, dtype=dtype)
    tables = [weight(p, words, width, dtype=dtype) for _ in range(3)]
    kinds = p.index(2, batch, length)
    image = (torch.arange(ids.shape[1], device=p.device) % 4 < 2).expand_as(ids)[..., None]

    def gpt(table: Tensor, place: Tensor) -> Tensor:
        at = torch.arange(ids.shape[1], device=ids.device)
        return F.dropout(F.embedding(ids, table) + F.embedding(at, place), 0.1)

    def bert(table: Tensor, place: Tensor, norm: Tensor) -> Tensor:
        x = F.embedding(ids, table, 0) + place + F.embedding(kinds, place[:2])
        return F.layer_norm(x, norm.shape, norm, None, 1e-12)

    def images(table: Tensor) -> Tensor:
        return F.embedding(ids, table).masked_scatter(image, patches)

    def codes(table: Tensor, *others: Tensor) -> Tensor:
        return sum(F.embedding(ids, t) for t in (table, *others))

    if kind == "bag":
        return both(p, lambda t: F.embedding_bag(ids, t, mode="mean"), table)
    given = {"gpt": (gpt, table, place), "bert": (bert, table, place, norm),
             "images": (images, table), "codes": (codes, table, *tables)}  # fmt: skip
    return both(p, *given[kind])


def headed(rows: int, width: int, words: int, dtype: torch.dtype, kind: str, p: Pool) -> Run:
    """The last states, a head over the words, a loss; forward and backward."""
    x, table = p.leaf(rows, width, dtype=dtype), weight(p, words, width, dtype=dtype)
    y, bias, norm = p.index(words, rows), p.leaf(words, dtype=dtype), p.leaf(width, dtype=dtype)
    reward, old = p.randn(rows), p.randn(rows)
    taken = torch.arange(0, x.shape[0], 2, device=p.device)

    def chunked(x: Tensor, table: Tensor) -> Tensor:
        pairs = zip(x.chunk(2), y.chunk(2), strict=True)
        return sum(
            F.cross_entropy(F.linear(a, table).float(), b, reduction="sum") for a, b in pairs
        )

    def cast(x: Tensor, table: Tensor) -> Tensor:
        with torch.autocast(x.device.type, FP16):
            return F.cross_entropy(F.linear(x, table), y)

    def masked(x: Tensor, table: Tensor, bias: Tensor, norm: Tensor) -> Tensor:
        x = F.layer_norm(F.gelu(x.index_select(0, taken)), norm.shape, norm)
        return F.cross_entropy(F.linear(x, table, bias).float(), y[taken])

    def smoothed(x: Tensor, table: Tensor) -> Tensor:
        share = F.log_softmax(F.linear(x, table), -1, dtype=torch.float32)
        nll, smooth = -share.gather(-1, y[:, None]), -share.sum(-1, keepdim=True)
        return (0.9 * nll + 0.1 / table.shape[0] * smooth).masked_fill(y[:, None] == 1, 0.0).sum()

    def capped(x: Tensor, table: Tensor) -> Tensor:
        scores = 30 * torch.tanh(F.linear(x, table) / 30)
        return F.cross_entropy(scores, y) + 1e-4 * scores.logsumexp(-1).square().mean()

    def policy(x: Tensor, table: Tensor) -> Tensor:
        share = F.linear(x, table).float().log_softmax(-1)
        ratio = (share.gather(-1, y[:, None])[:, 0] - old).exp()
        loss = torch.max(-reward * ratio, -reward * ratio.clamp(0.8, 1.2)).mean()
        return loss + 0.01 * (share.exp() * share).sum(-1).mean()

    def grouped(x: Tensor, table: Tensor) -> Tensor:
        scores = F.linear(x, table)
        own = scores.gather(-1, y[:, None])[:, 0] - scores.logsumexp(-1)
        far = old - own
        return -(torch.exp(own - own.detach()) * reward - 0.04 * (far.exp() - far - 1)).mean()

    def preferred(x: Tensor, table: Tensor) -> Tensor:
        own = F.linear(x, table).log_softmax(-1).gather(-1, y[:, None])[:, 0]
        chosen, other = own.view(2, -1).float().unflatten(-1, (-1, 4)).sum(-1)
        return -F.logsigmoid(0.1 * (chosen - other)).mean()

    f = {"chunked": chunked, "cast": cast, "smoothed": smoothed, "capped": capped, "policy": policy,
         "grouped": grouped, "preferred": preferred}  # fmt: skip
    if kind == "masked":
        return both(p, masked, x, table, bias, norm)
    return both(p, f[kind], x, table)


def contrasted(rows: int, width: int, kind: str, dtype: torch.dtype, p: Pool) -> Run:
    x, y, scale = p.leaf(rows, width, dtype=dtype), p.leaf(rows, width, dtype=dtype), p.leaf(1)
    at = torch.arange(x.shape[0], device=p.device)

    def clip(x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
        x, y = (t / t.norm(dim=-1, keepdim=True) for t in (x, y))
        scores = (scale.exp() * (x @ y.t())).float()
        return (F.cross_entropy(scores, at) + F.cross_entropy(scores.t(), at)) / 2

    def siglip(x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
        scores = F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).t() * scale.exp() - 10
        sign = 2 * torch.eye(len(x), device=x.device) - 1
        return -F.logsigmoid(sign * scores).sum() / len(x)

    def late(x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
        x, y = x.unflatten(0, (-1, 8)), y.unflatten(0, (-1, 8))
        scores = torch.einsum("qid,cjd->qcij", x, y).amax(-1).sum(-1)
        return F.cross_entropy(scores.float() * scale, at[: len(x)])

    return both(p, {"clip": clip, "siglip": siglip, "late": late}[kind], x, y, scale)


def transduced(batch: int, time: int, labels: int, width: int, words: int, p: Pool) -> Run:
    """RNN-T's joint net up to the shares of blank and label."""
    x, y = p.leaf(batch, time, width, dtype=FP16), p.leaf(batch, labels, width, dtype=FP16)
    table, at = weight(p, words, width, dtype=FP16), p.index(words, batch, 1, labels, 1)

    def joint(x: Tensor, y: Tensor, table: Tensor) -> Tensor:
        share = F.linear(torch.tanh(x[:, :, None] + y[:, None]), table).float().log_softmax(-1)
        own = share.gather(-1, at.expand(-1, share.shape[1], -1, -1))
        return torch.cat((share[..., :1], own), -1)

    return both(p, joint, x, y, table)


def ctc(batch: int, length: int, width: int, words: int, target: int, p: Pool) -> Run:
    x, table = p.leaf(length, batch, width), weight(p, words, width, dtype=FP32)
    target = min(target, len(x) // 2)
    y = 1 + torch.randint(table.shape[0] - 1, (x.shape[1], target), device=p.device)
    lengths = [(n,) * x.shape[1] for n in (len(x), target)]
    return both(
        p,
        lambda x, w: F.ctc_loss(F.linear(x, w).log_softmax(-1), y, *lengths, zero_infinity=True),
        x,
        table,
    )


def quantised(rows: int, width: int, codes: int, p: Pool) -> Run:
    """A residual vector quantiser's stage: the nearest code, its loss, the straight way past it."""
    x, table = p.leaf(rows, width), weight(p, codes, width, dtype=FP32)

    def stage(x: Tensor, table: Tensor) -> Tensor:
        far = x.pow(2).sum(1, keepdim=True) - 2 * x @ table.t() + table.pow(2).sum(1)
        y = F.embedding(far.argmin(1), table)
        return x + (y - x).detach() + F.mse_loss(y, x.detach()) + 0.25 * F.mse_loss(x, y.detach())

    return both(p, stage, x, table)


def adapted(rows: int, width: int, rank: int, kind: str, dtype: torch.dtype, p: Pool) -> Run:
    """A frozen layer and what is learnt beside it."""
    x, w = p.leaf(rows, width, dtype=dtype), frozen(p, width, width, dtype=dtype)
    down, up = weight(p, rank, width, dtype=dtype), weight(p, width, rank, dtype=dtype)
    scale = p.leaf(width, dtype=dtype)

    def lora(x: Tensor, down: Tensor, up: Tensor) -> Tensor:
        return F.linear(x, w) + F.linear(F.linear(F.dropout(x, 0.05), down), up) * 2.0

    def dora(x: Tensor, down: Tensor, up: Tensor, scale: Tensor) -> Tensor:
        full = w + up @ down
        return F.linear(x, full * (scale / full.detach().norm(dim=1))[:, None])

    def houlsby(x: Tensor, down: Tensor, up: Tensor) -> Tensor:
        return x + F.linear(F.gelu(F.linear(F.linear(x, w), down)), up)

    f = {"lora": lora, "dora": dora, "houlsby": houlsby}[kind]
    return both(p, f, x, down, up, *([scale] if kind == "dora" else []))


def prefixed(batch: int, heads: int, length: int, prefix: int, d: int, p: Pool) -> Run:
    q, k, v = (p.leaf(batch, heads, length, d, dtype=BF16) for _ in range(3))
    pk, pv = (weight(p, heads, prefix, d) for _ in range(2))

    def f(q: Tensor, k: Tensor, v: Tensor, pk: Tensor, pv: Tensor) -> Tensor:
        k, v = (torch.cat((a.expand(len(q), -1, -1, -1), b), 2) for a, b in ((pk, k), (pv, v)))
        return F.scaled_dot_product_attention(q, k, v)

    return both(p, f, q, k, v, pk, pv)


def few_bits(rows: int, fin: int, fout: int, kind: str, p: Pool) -> Run:
    """A weight of 4 or 8 bits made wide, its product and the gradient of the input."""
    x, fin, fout = p.leaf(rows, fin, dtype=BF16), p.n(fin), p.n(fout)
    group = min(64, fin)
    code = torch.randint(0, 255, (fout, fin // 2), dtype=torch.uint8, device=p.device)
    wide = torch.randint(-127, 127, (fout, fin), dtype=torch.int8, device=p.device)
    scale, table = p.randn(fout, fin // group, 1, dtype=BF16), p.randn(16, dtype=BF16)
    table = table.repeat(2) if p.tiny else table
    float8 = frozen(p, fout, fin).to(torch.float8_e4m3fn) if kind == "float8" else None
    learnt = weight(p, fout, fin)

    def nf4() -> Tensor:
        both_halves = torch.stack((code >> 4, code & 15), -1).view(fout, fin)
        return (table[both_halves.int()].view(fout, -1, group) * scale).view(fout, fin)

    def int4() -> Tensor:
        low = torch.cat((code & 15, code >> 4), 1).to(BF16) - 8
        return (low.view(fout, -1, group) * scale).flatten(1)

    def ternary(x: Tensor, w: Tensor) -> Tensor:
        mean = w.abs().mean().clamp(min=1e-5)
        y = x * (127 / x.abs().amax(-1, keepdim=True))
        return F.linear(
            x + (y.round() - x).detach(), w + ((w / mean).round().clamp(-1, 1) * mean - w).detach()
        )

    if kind == "ternary":
        return both(p, ternary, x, learnt)
    made = {"nf4": nf4, "int4": int4, "int8": lambda: wide.to(BF16) * scale[:, 0],
            "float8": lambda: float8.to(BF16) * 0.1}[kind]  # fmt: skip
    return both(p, lambda x: F.linear(x, made()), x)


def decoded(batch: int, heads: int, group: int, length: int, d: int, kind: str, p: Pool) -> Run:
    """A new position's attention to the cache."""
    (b, k, n, d), group = p.shape(batch, heads, length, d), p.n(group)
    q = p.like(torch.empty(b, k * group, 1, d, dtype=FP16, device="meta"))
    new = p.randn(b, k, 1, d, dtype=FP16)
    cache = [p.own(b, k, n, d, dtype=FP16) for _ in range(2)]
    at, order = torch.full((1,), n // 2, device=p.device), p.index(b, b)
    seen = torch.arange(n, device=p.device) <= at
    pages = p.index(b * n // 4, b, n // 4)

    def step() -> Tensor:
        if kind == "static":
            for held in cache:
                held.index_copy_(2, at, new)
            return F.scaled_dot_product_attention(
                q, *cache, attn_mask=seen[None, None, None], enable_gqa=True
            )
        if kind == "grown":
            k_, v_ = (torch.cat((held, new), 2).repeat_interleave(group, 1) for held in cache)
            share = (q @ k_.transpose(2, 3) * d**-0.5).softmax(-1, dtype=torch.float32)
            return share.to(FP16) @ v_
        if kind == "beams":
            k_, v_ = (held.index_select(0, order) for held in cache)
        else:
            k_, v_ = (held.view(-1, 4, k, d)[pages].flatten(1, 2).transpose(1, 2) for held in cache)
        return torch.matmul((q.view(b, k, group, d) @ k_.transpose(2, 3)).softmax(-1), v_)

    return step


def chosen(batch: int, words: int, kind: str, p: Pool) -> Run:
    scores, past = p.randn(batch, words), p.index(words, batch, 200)
    total, draft = p.randn(batch), p.randn(batch, words).softmax(-1)

    def step() -> object:
        if kind == "penalised":
            own = scores.gather(1, past)
            x = scores.scatter(1, past, torch.where(own < 0, own * 1.2, own / 1.2)) / 0.7
            x, at = x.sort(descending=True)
            x = x.masked_fill(x.softmax(-1).cumsum(-1) > 0.95, -torch.inf).index_fill(
                1, at[0, :1] * 0, 1.0
            )
            return at.gather(1, torch.multinomial(x.softmax(-1), 1))
        if kind == "beams":
            x = (scores.log_softmax(-1) + total[:, None]).view(-1, 4 * scores.shape[1])
            best, at = x.topk(8, -1)
            return best, at // scores.shape[1], at % scores.shape[1]
        share = scores.softmax(-1)
        kept = torch.rand_like(total) < (share / draft).gather(1, past[:, :1])[:, 0]
        rest = (share - draft).clamp(min=1e-8)
        return kept.cumprod(0), torch.multinomial(rest / rest.sum(-1, keepdim=True), 1)

    return step


TABLE = (
    *((embedded, given) for given in (
        (50257, 768, 16, 1024, "gpt"), (30522, 768, 64, 384, "bert"), (32000, 4096, 2, 1500, "images"),
        (2049, 1536, 16, 500, "codes"), (250002, 256, 4096, 24, "bag"),
    )),
    *((headed, given) for given in (
        (1024, 2048, 128256, BF16, "chunked"), (2048, 768, 50257, FP32, "cast"), (6000, 768, 30522, BF16, "masked"),
        (3584, 1024, 37000, FP16, "smoothed"), (768, 1152, 262144, BF16, "capped"), (1024, 1024, 50304, FP16, "policy"),
        (1500, 1536, 151936, BF16, "grouped"), (2048, 4096, 32000, BF16, "preferred"),
    )),
    *((contrasted, given) for given in (
        (8192, 512, "clip", FP16), (4096, 1152, "siglip", BF16), (4096, 128, "late", FP32), (256, 768, "clip", FP32),
    )),
    (transduced, (4, 250, 60, 640, 1024)), (ctc, (16, 800, 512, 5000, 60)),
    (quantised, (12000, 128, 1024)),
    *((adapted, given) for given in (
        (4096, 4096, 16, "lora", BF16), (2048, 2048, 64, "dora", FP32), (8192, 1024, 64, "houlsby", FP16),
    )),
    (prefixed, (8, 16, 512, 30, 64)),
    *((few_bits, given) for given in (
        (2048, 4096, 4096, "nf4"), (1024, 4096, 14336, "int8"), (16, 5120, 5120, "int4"), (4096, 2560, 2560, "ternary"),
        (8192, 3072, 3072, "float8"),
    )),
    *((decoded, given) for given in (
        (4, 8, 4, 4096, 128, "static"), (8, 12, 1, 1023, 64, "grown"), (20, 16, 1, 448, 64, "beams"), (32, 8, 8, 2048, 128, "paged"),
    )),
    (chosen, (32, 128256, "penalised")), (chosen, (64, 51865, "beams")), (chosen, (8, 32000, "drafted")),
)  # fmt: skip


def cases() -> Iterator[Case]:
    for f, given in (*TABLE, *language_updates.TABLE):
        yield Case(f"{f.__name__} {given}", partial(f, *given))
