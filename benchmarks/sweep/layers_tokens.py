"""Layers over tokens in bf16 and fp16: attention, feed-forward, experts, heads with their losses.

A part of `layers_half.py`. Each is drawn over sizes as plain half layers and under autocast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from cases import Case, Pool, Run, both
from language_seated import small
from torch import Tensor
from torch.nn import functional as F

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
MODES = ((BF16, True), (FP16, False), (BF16, False), (FP16, True), (BF16, False))
"""Dtype, and whether weights are fp32 and cast by autocast."""
Size = tuple[int, ...]
Layer = Callable[[Tensor], Tensor]


class Kit:
    """Where a layer has its weights from; sizes are cut already."""

    def __init__(self, p: Pool, dtype: torch.dtype, auto: bool) -> None:
        self.p, self.dtype, self.auto = p, dtype, auto
        self.kept = FP32 if auto else dtype
        self.held: list[Tensor] = []

    def w(self, *shape: int) -> Tensor:
        form = torch.empty(shape, dtype=self.kept, device="meta")
        self.held.append(small(self.p).like(form).requires_grad_())
        return self.held[-1]

    def x(self, *shape: int) -> Tensor:
        form = torch.empty(shape, dtype=self.kept, device="meta")
        return self.p.like(form).requires_grad_()

    def linear(self, fin: int, fout: int, bias: bool = True) -> Layer:
        w, b = self.w(fout, fin), self.w(fout) if bias else None
        return lambda x: F.linear(x, w, b)

    def norm(self, width: int, rms: bool) -> Layer:
        """LayerNorm; or RMSNorm, written out as Llama has it or in one op."""
        w = self.w(width)
        if not rms:
            b = self.w(width)
            return lambda x: F.layer_norm(x, (width,), w, b)

        if not self.auto:
            return lambda x: F.rms_norm(x, (width,), w)

        def f(x: Tensor) -> Tensor:
            wide = x.float()
            return w * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

        return f


Made = tuple[Callable[[Tensor], Tensor], Tensor]


def layer(
    make: Callable[..., Made], how: str, size: Size, dtype: torch.dtype, auto: bool, p: Pool
) -> Run:
    k = Kit(p, dtype, auto)
    f, x = make(k, how, *p.shape(*size))

    def call(x: Tensor, *held: Tensor) -> Tensor:
        with torch.autocast(p.device.type, dtype, enabled=auto):
            return f(x)

    return both(p, call, x, *k.held)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def flash(q: Tensor, k: Tensor, v: Tensor, **options: object) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, **options)


def soft(scores: Tensor, v: Tensor) -> Tensor:
    return scores.softmax(-1, dtype=FP32).to(v.dtype) @ v


def weigh(how: str, k: Kit, b: int, n: int, h: int, kv: int, d: int) -> Callable[..., Tensor]:
    """What stands between the projections: queries, keys and values are (batch, heads, n, d)."""
    p, scale, many = k.p, d**-0.5, h // kv
    at = torch.arange(n, device=p.device)
    later = at > at[:, None]
    least = torch.finfo(k.dtype).min
    wave = torch.outer(at.float(), 1e4 ** (-torch.arange(0, d, 2, device=p.device) / d))
    cos, sin = (f(torch.cat((wave, wave), -1)).to(k.dtype) for f in (torch.cos, torch.sin))
    short = at < torch.full((b, 1, 1, 1), max(n * 3 // 4, 1), device=p.device)
    added = torch.where(short, 0.0, least).to(k.dtype).expand(b, 1, n, n)
    slope = 2.0 ** -torch.arange(1, h + 1, device=p.device, dtype=FP32)[:, None, None]

    def shared(q: Tensor, x: Tensor, v: Tensor) -> Tensor:
        q, x = turned(q, cos, sin), turned(x, cos, sin)
        return flash(q, x.repeat_interleave(many, 1), v.repeat_interleave(many, 1), is_causal=True)

    def expanded(q: Tensor, x: Tensor, v: Tensor) -> Tensor:
        q, x = turned(q, cos, sin), turned(x, cos, sin)
        x, v = (t[:, :, None].expand(b, kv, many, n, d).reshape(b, h, n, d) for t in (x, v))
        scores = q @ x.mT * scale
        scores = scores + torch.where(later, least, 0.0).to(scores.dtype)
        return F.dropout(scores.softmax(-1, dtype=FP32).to(q.dtype), 0.1) @ v

    def einsum(q: Tensor, x: Tensor, v: Tensor) -> Tensor:
        scores = torch.einsum("bhnd,bhmd->bhnm", q, x) / d**0.5
        share = scores.masked_fill(~short, float("-inf")).softmax(-1)
        return torch.einsum("bhnm,bhmd->bhnd", F.dropout(share, 0.1), v)

    def alibi(q: Tensor, x: Tensor, v: Tensor) -> Tensor:
        bias = (slope * (at - at[:, None])).to(q.dtype).expand(b, h, n, n).reshape(b * h, n, n)
        scores = torch.baddbmm(bias, q.reshape(b * h, n, d), x.reshape(b * h, n, d).mT, alpha=scale)
        share = scores.float().masked_fill(later, -1e9).softmax(-1).to(q.dtype)
        return (share @ v.reshape(b * h, n, d)).view(b, h, n, d)

    def capped(q: Tensor, x: Tensor, v: Tensor) -> Tensor:
        x, v = (t.repeat_interleave(many, 1) for t in (x, v))
        scores = 50.0 * torch.tanh((q * scale) @ x.mT / 50.0)
        return soft(torch.where(later, least, scores), v)

    def normed(q: Tensor, x: Tensor, v: Tensor) -> Tensor:
        q, x = (F.rms_norm(t, (d,)) for t in (q, x))
        q, x = turned(q, cos, sin), turned(x, cos, sin)
        return flash(q, x, v, is_causal=True, enable_gqa=many > 1)

    def linear(q: Tensor, x: Tensor, v: Tensor) -> Tensor:
        q, x = F.elu(q) + 1, F.elu(x) + 1
        return (q @ (x.mT @ v)) / (q @ x.sum(-2)[..., None] + 1e-4)

    def local(q: Tensor, x: Tensor, v: Tensor) -> Tensor:
        """Blocks of 128 and the one before each."""
        w, end = p.n(128), -n % p.n(128)
        q, x, v = (F.pad(t, (0, 0, 0, end)).unflatten(2, (-1, w)) for t in (q, x, v))
        x, v = (torch.cat((F.pad(t[:, :, :-1], (0, 0, 0, 0, 1, 0)), t), 3) for t in (x, v))
        return soft(q @ x.mT * scale, v).flatten(2, 3)[:, :, :n]

    table = k.w(2 * n, h) if how == "biased" else None
    apart = at - at[:, None] + n - 1

    def biased(q: Tensor, x: Tensor, v: Tensor) -> Tensor:
        assert table is not None
        bias = table[apart.flatten()].view(n, n, h).permute(2, 0, 1)
        return (q * scale @ x.mT + bias).softmax(-1).to(v.dtype) @ v

    ways: dict[str, Callable[..., Tensor]] = {
        "sdpa": flash,
        "causal": partial(flash, is_causal=True),
        "padded": lambda q, x, v: flash(q, x, v, attn_mask=added.to(q.dtype)),
        "dropped": partial(flash, dropout_p=0.1),
        "written": lambda q, x, v: soft((q @ x.mT * scale).masked_fill(later, least), v),
        "plain": lambda q, x, v: ((q * scale) @ x.mT).softmax(-1).to(v.dtype) @ v,
        "shared": shared, "expanded": expanded, "einsum": einsum, "alibi": alibi,
        "capped": capped, "normed": normed, "linear": linear, "local": local, "biased": biased,
    }  # fmt: skip
    return ways[how]


RMS = ("shared", "expanded", "capped", "normed", "local")


def attention(k: Kit, how: str, b: int, n: int, h: int, kv: int, d: int) -> Made:
    """Norm, one projection for all three or each its own, and the residual."""
    width, wide, bias = h * d, kv * d, how not in RMS
    norm, out = k.norm(width, how in RMS), k.linear(width, width, bias)
    inner = weigh(how, k, b, n, h, kv, d)
    if h == kv and how != "normed":
        into = k.linear(width, 3 * width, bias)

        def split(y: Tensor) -> tuple[Tensor, ...]:
            return into(y).view(b, n, 3, h, d).permute(2, 0, 3, 1, 4).unbind(0)
    else:
        each = [k.linear(width, m, bias) for m in (width, wide, wide)]

        def split(y: Tensor) -> tuple[Tensor, ...]:
            return tuple(one(y).view(b, n, -1, d).transpose(1, 2) for one in each)

    def f(x: Tensor) -> Tensor:
        y = inner(*split(norm(x))).transpose(1, 2).reshape(b, n, width)
        return x + F.dropout(out(y), 0.1) if bias else x + out(y)

    return f, k.x(b, n, width)


def feed(k: Kit, how: str, b: int, n: int, width: int, inner: int) -> Made:
    gated = how in ("swiglu", "geglu", "one swiglu", "bilinear", "reglu")
    norm, down = k.norm(width, gated), k.linear(inner, width, not gated)
    one = how in ("one swiglu", "geglu")
    up = k.linear(width, 2 * inner if one else inner, not gated)
    gate = k.linear(width, inner, False) if gated and not one else None
    scale = k.w(width) if how == "scaled" else None
    acts: dict[str, Layer] = {
        "gelu": F.gelu, "tanh": partial(F.gelu, approximate="tanh"), "relu": F.relu,
        "dropped": lambda x: F.dropout(F.gelu(x), 0.1), "squared": lambda x: F.relu(x).square(),
        "quick": lambda x: x * torch.sigmoid(1.702 * x), "scaled": F.gelu,
        "old": lambda x: 0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.044715 * x.pow(3)))),
        "swiglu": F.silu, "one swiglu": F.silu, "geglu": F.gelu, "reglu": F.relu,
        "bilinear": lambda x: x,
    }  # fmt: skip
    act = acts[how]

    def f(x: Tensor) -> Tensor:
        seen = norm(x)
        y = up(seen)
        if one:
            left, right = y.chunk(2, -1)
            y = act(left) * right
        elif gate is not None:
            y = act(gate(seen)) * y
        else:
            y = act(y)
        y = down(y)
        if scale is not None:
            y = y * scale
        return x + F.dropout(y, 0.1) if how == "dropped" else x + y

    return f, k.x(b, n, width)


def experts(k: Kit, how: str, rows: int, width: int, inner: int, many: int) -> Made:
    """Routed layers with fixed capacities: no size is read back from the GPU."""
    route = k.linear(width, many, False)
    up, down = k.w(many, width, inner), k.w(many, inner, width)
    each = max(2 * rows // many, 1)

    def run(y: Tensor) -> Tensor:
        return torch.bmm(F.silu(torch.bmm(y, up.to(y.dtype))), down.to(y.dtype))

    def chosen(x: Tensor) -> Tensor:
        """Experts choose their tokens."""
        share, at = route(x).float().softmax(-1).t().topk(min(each, rows), -1)
        y = run(x[at]) * share[..., None].to(x.dtype)
        return x.index_add(0, at.flatten(), y.flatten(0, 1).to(x.dtype))

    def switched(x: Tensor) -> Tensor:
        """One expert a token, one-hot matrices that send and combine."""
        share, at = route(x).float().softmax(-1).max(-1)
        seat = F.one_hot(at, many)
        place = ((seat.cumsum(0) - 1) * seat).sum(-1)
        size = max(rows // many, 1)
        sent = seat[..., None] * F.one_hot(place.clamp(max=size), size + 1)[:, None, :size]
        sent = sent.to(x.dtype)
        y = run(torch.einsum("tec,td->ecd", sent, x))
        return x + torch.einsum("tec,ecd->td", sent * share[:, None, None].to(x.dtype), y)

    def sorted_(x: Tensor) -> Tensor:
        """Two experts a token, rows brought into the order of experts and cut evenly."""
        share, at = route(x).float().softmax(-1).topk(min(2, many), -1)
        share = share / share.sum(-1, keepdim=True)
        order = at.flatten().argsort(stable=True)
        cut = order[: order.numel() // many * many]
        y = run(x[cut // at.shape[1]].view(many, -1, x.shape[1])).flatten(0, 1)
        y = y * share.flatten()[cut, None].to(y.dtype)
        return torch.zeros_like(x).index_add_(0, cut // at.shape[1], y.to(x.dtype)) + x

    def soft(x: Tensor) -> Tensor:
        scores = route(x)
        slots = torch.einsum("te,td->ed", scores.softmax(0).to(x.dtype), x)
        y = run(slots[:, None])[:, 0]
        return x + scores.softmax(1).to(y.dtype) @ y

    ways = {"chosen": chosen, "switched": switched, "sorted": sorted_, "soft": soft}
    return ways[how], k.x(rows, width)


def head(k: Kit, how: str, rows: int, width: int, words: int) -> Made:
    """The last norm, logits of a vocabulary and what is asked of them."""
    norm, table = k.norm(width, how != "masked"), k.w(words, width)
    y = k.p.index(words, rows)
    ignored = torch.where(k.p.mask(rows), y, -100)
    bias = k.w(words) if how == "masked" else None

    def chunks(x: Tensor) -> Tensor:
        parts = zip(norm(x).chunk(4), y.chunk(4), strict=True)
        return sum(
            F.cross_entropy(F.linear(a, table).float(), b, reduction="sum") for a, b in parts
        )  # type: ignore[return-value]

    def z(x: Tensor) -> Tensor:
        logits = F.linear(norm(x), table).float()
        norms = logits.logsumexp(-1)
        return (norms - logits.gather(-1, y[:, None])[:, 0] + 1e-4 * norms.square()).mean()

    def distilled(x: Tensor) -> Tensor:
        logits = F.linear(norm(x), table)
        return F.kl_div(
            logits.log_softmax(-1), logits.detach().roll(1, 0).softmax(-1), reduction="batchmean"
        )

    def policy(x: Tensor) -> Tensor:
        """A chosen word's log-probability and the entropy of all."""
        logits = F.linear(norm(x), table) / 0.7
        logs = logits.log_softmax(-1)
        return logs.gather(-1, y[:, None]).mean() + (logs.exp() * logs).sum(-1).mean()

    ways: dict[str, Layer] = {
        "plain": lambda x: F.cross_entropy(F.linear(norm(x), table), y),
        "float": lambda x: F.cross_entropy(F.linear(norm(x), table).float(), y),
        "shifted": lambda x: F.cross_entropy(F.linear(norm(x), table)[:-1].contiguous().float(), ignored[1:]),
        "smooth": lambda x: F.cross_entropy(F.linear(norm(x), table), y, label_smoothing=0.1),
        "masked": lambda x: F.cross_entropy(F.linear(F.gelu(norm(x)), table, bias), ignored),
        "capped": lambda x: F.cross_entropy((F.linear(norm(x), table) / 30).tanh() * 30, y),
        "tied": lambda x: F.cross_entropy(F.linear(norm(x + F.embedding(y, table)), table).float(), y),
        "chunks": chunks, "z": z, "distilled": distilled, "policy": policy,
    }  # fmt: skip
    return ways[how], k.x(rows, width)


def embedded(k: Kit, how: str, b: int, n: int, width: int, words: int) -> Made:
    """Words, positions and kinds before the first layer, in the dtype of the weights."""
    table, places, kinds = k.w(words, width), k.w(n, width), k.w(2, width)
    y, norm = k.p.index(words, b, n, hot=True), k.norm(width, False)
    kind = k.p.index(2, b, n)

    def f(x: Tensor) -> Tensor:
        out = F.embedding(y, table) + places
        if how == "three":
            out = norm(out + F.embedding(kind, kinds))
        return F.dropout(out + x, 0.1)

    return f, k.x(b, n, width)


ATTENTION = (
    ("sdpa", (256, 197, 6, 6, 64)), ("sdpa", (8, 1025, 16, 16, 80)),
    ("sdpa", (4, 4096, 8, 8, 32)), ("causal", (2, 2048, 32, 32, 128)),
    ("causal", (16, 512, 8, 8, 32)), ("causal", (1, 1024, 64, 64, 128)),
    ("padded", (8, 512, 16, 16, 128)), ("dropped", (8, 1500, 12, 12, 64)),
    ("written", (8, 1024, 12, 12, 64)), ("written", (2, 2048, 16, 16, 128)),
    ("plain", (64, 197, 12, 12, 64)),
    ("shared", (2, 2048, 32, 8, 128)), ("expanded", (2, 1024, 32, 4, 64)),
    ("einsum", (32, 128, 12, 12, 64)),
    ("alibi", (2, 512, 32, 32, 128)), ("capped", (2, 1024, 8, 4, 128)), ("normed", (4, 1024, 24, 24, 64)),
    ("linear", (8, 4096, 8, 8, 32)), ("local", (8, 1500, 8, 8, 80)),
    ("biased", (8, 512, 12, 12, 64)),
)  # fmt: skip
"""Batch, tokens, heads, heads of keys and values, extent of a head."""
FEED = (
    ("gelu", (256, 197, 384, 1536)), ("tanh", (8, 1024, 1024, 4096)),
    ("relu", (4, 128, 2560, 10240)),
    ("dropped", (32, 512, 256, 1024)), ("squared", (4, 1024, 2048, 8192)),
    ("quick", (16, 577, 1024, 4096)), ("scaled", (32, 257, 1280, 5120)),
    ("old", (2, 512, 1600, 6400)), ("swiglu", (1, 2048, 4096, 14336)),
    ("swiglu", (1, 1024, 8192, 22016)),
    ("one swiglu", (4, 2048, 2048, 5632)), ("one swiglu", (64, 1024, 256, 688)),
    ("geglu", (2, 4096, 320, 1280)), ("reglu", (64, 300, 192, 256)),
    ("bilinear", (8, 512, 768, 2048)),
)  # fmt: skip
EXPERTS = (
    ("chosen", (8192, 1024, 2048, 16)), ("chosen", (2048, 2048, 4096, 8)),
    ("switched", (1024, 1024, 2048, 32)),
    ("sorted", (8192, 768, 2048, 8)), ("soft", (4096, 768, 1536, 64)),
)  # fmt: skip
HEADS = (
    ("plain", (8192, 512, 8192)), ("float", (1024, 2048, 128256)),
    ("shifted", (512, 2560, 152064)),
    ("smooth", (2048, 1024, 37000)), ("masked", (4096, 768, 30522)), ("capped", (512, 2304, 100352)),
    ("tied", (1024, 1024, 49152)), ("chunks", (4096, 2048, 32000)),
    ("z", (2048, 1280, 32128)), ("distilled", (1024, 896, 51865)), ("policy", (512, 4096, 32768)),
)  # fmt: skip
EMBEDDED = (
    ("two", (16, 1024, 768, 50257)), ("three", (32, 512, 1024, 30522)), ("three", (64, 128, 256, 8192)),
    ("two", (4, 577, 2048, 65024)),
)  # fmt: skip


def cases() -> Iterator[Case]:
    tables = (
        (attention, ATTENTION),
        (feed, FEED),
        (experts, EXPERTS),
        (head, HEADS),
        (embedded, EMBEDDED),
    )
    i = 0
    for make, table in tables:
        for how, size in table:
            i += 1
            dtype, auto = MODES[i % len(MODES)]
            # Their fp32 weights, casts and gradients together would be several GB.
            auto = auto and size[-1] < 100000 and size[-2] < 8192
            name = f"{make.__name__} {how} {size} {dtype} {auto}"
            yield Case(name, partial(layer, make, how, size, dtype, auto))
