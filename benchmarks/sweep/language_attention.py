"""Attention blocks of language, speech, protein and multimodal models, each as its own code has it.

A part of `language_layers.py`. h, k, d: heads, heads of keys and values, extent of a head.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from language_seated import Block
from torch import Tensor, nn
from torch.nn import functional as F

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


class RMS(nn.Module):
    """Written out, as Llama has it."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


@cache
def angles(n: int, dim: int, device: torch.device, base: float = 1e4) -> Tensor:
    """Of every position and every pair of channels: made once, read by every layer."""
    wave = base ** (-torch.arange(0, dim, 2, device=device).float() / dim)
    return torch.outer(torch.arange(n, device=device).float(), wave)


@cache
def turns(how: str, n: int, dim: int, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    turn = angles(n, dim, device)
    if how == "complex":
        return [torch.polar(torch.ones_like(turn), turn)]
    wide = torch.cat((turn, turn), -1) if how == "halves" else turn.repeat_interleave(2, -1)
    return [wide.cos().to(dtype), wide.sin().to(dtype)]


def halves(x: Tensor) -> Tensor:
    """Llama's rotation as Hugging Face has it."""
    cos, sin = turns("halves", *x.shape[-2:], x.dtype, x.device)
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def as_complex(x: Tensor) -> Tensor:
    """As Meta has it."""
    (turn,) = turns("complex", *x.shape[-2:], x.dtype, x.device)
    wide = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(wide * turn).flatten(-2).type_as(x)


def every_two(x: Tensor) -> Tensor:
    """GPT-J's."""
    cos, sin = turns("two", *x.shape[-2:], x.dtype, x.device)
    return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * sin


def written(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias
    return scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v


@cache
def before(n: int, dtype: torch.dtype, device: torch.device, last: int = 0) -> Tensor:
    """-inf where a position may not look; `last` is the width of a sliding window."""
    seen = torch.ones(n, n, dtype=torch.bool, device=device).tril()
    if last:
        seen = seen & ~seen.tril(-last)
    return torch.zeros(n, n, dtype=dtype, device=device).masked_fill(~seen, float("-inf"))


class Grouped(nn.Module):
    """Llama's kin behind the projections: rotations, keys repeated, norms of queries and keys."""

    def __init__(self, k: int, group: int, d: int, turn=halves, fate="sdpa", qk=False) -> None:
        super().__init__()
        self.group, self.d, self.turn, self.fate = group, d, turn, fate
        self.widths = (k * group * d, k * d, k * d)
        self.qn, self.kn = (nn.RMSNorm(d), nn.RMSNorm(d)) if qk else (nn.Identity(), nn.Identity())

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        (b, n, _), group = q.shape, self.group
        q, k, v = (t.view(b, n, -1, self.d).transpose(1, 2) for t in (q, k, v))
        q, k = self.turn(self.qn(q)), self.turn(self.kn(k))
        if self.fate == "gqa":
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return out.transpose(1, 2).reshape(b, n, -1)
        if group > 1:
            k, v = (t[:, :, None].expand(-1, -1, group, -1, -1).reshape(q.shape) for t in (k, v))
        if self.fate == "capped":
            scores = torch.tanh(q @ k.transpose(2, 3) * self.d**-0.5 / 50.0) * 50.0
            scores = scores + before(n, q.dtype, q.device, 512)
            out = F.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v
        elif self.fate == "window":
            mask = before(n, q.dtype, q.device, 1024)
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.transpose(1, 2).reshape(b, n, -1)


class Parallel(nn.Module):
    """GPT-NeoX, GPT-J, Falcon, Phi: attention and MLP read one norm; part of a head is turned."""

    def __init__(self, h: int, k: int, d: int, rot: int, turn, inner: int, explicit=False) -> None:
        super().__init__()
        self.h, self.k, self.d, self.rot, self.turn = h, k, d, rot, turn
        self.explicit, self.widths = explicit, h * d
        self.norm, self.qkv = nn.LayerNorm(h * d), nn.Linear(h * d, (h + 2 * k) * d)
        self.out, self.up, self.down = (
            nn.Linear(*s) for s in ((h * d, h * d), (h * d, inner), (inner, h * d))
        )

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        y = self.norm(x)
        fused = self.qkv(y).view(b, n, -1, self.d).transpose(1, 2)
        q, k, v = fused.split((self.h, self.k, self.k), 1)
        if self.rot < self.d:
            q, k = (
                torch.cat((self.turn(t[..., : self.rot]), t[..., self.rot :]), -1) for t in (q, k)
            )
        else:
            q, k = self.turn(q), self.turn(k)
        if self.explicit:
            out = written(q, k, v, before(n, q.dtype, q.device))
        else:
            k, v = (t.expand(-1, self.h, -1, -1) if self.k == 1 else t for t in (k, v))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out = self.out(out.transpose(1, 2).flatten(2))
        return x + out + self.down(F.gelu(self.up(y), approximate="tanh"))


class Alibi(nn.Module):
    """BLOOM: heads folded into the batch, baddbmm on the biases."""

    def __init__(self, h: int, d: int) -> None:
        super().__init__()
        self.h, self.d, self.widths = h, d, h * d
        self.norm, self.qkv, self.o = (
            nn.LayerNorm(h * d), nn.Linear(h * d, 3 * h * d), nn.Linear(h * d, h * d),
        )  # fmt: skip
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, self.h, 3, self.d).unbind(3)
        q, k, v = (t.transpose(1, 2).reshape(b * self.h, n, self.d) for t in (q, k, v))
        slope = 2.0 ** (-8 / self.h * torch.arange(1, self.h + 1, device=x.device))
        bias = (slope[:, None, None] * torch.arange(n, device=x.device)).repeat(b, 1, 1).to(x.dtype)
        scores = torch.baddbmm(bias, q, k.transpose(1, 2), beta=1.0, alpha=self.d**-0.5)
        scores = scores + before(n, x.dtype, x.device)
        share = self.drop(F.softmax(scores, -1, dtype=torch.float32).to(x.dtype))
        out = torch.bmm(share, v).view(b, self.h, n, self.d).permute(0, 2, 1, 3).reshape(b, n, -1)
        return x + self.o(out)


@cache
def buckets(n: int, device: torch.device) -> Tensor:
    """T5's distances on a log scale."""
    at = torch.arange(n, device=device)
    far = at[None, :] - at[:, None]
    bucket, far = (far > 0).long() * 16, far.abs()
    log = 8 + (torch.log(far.float().clamp(min=1) / 8) / math.log(16) * 8).long()
    return bucket + torch.where(far < 8, far, log.clamp(max=15))


class Bucketed(nn.Module):
    """T5: no scale, learnt biases of distances; behind the projections."""

    def __init__(self, h: int, d: int) -> None:
        super().__init__()
        self.h, self.widths, self.bias = h, h * d, nn.Embedding(32, h)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        b, n, _ = q.shape
        q, k, v = (t.view(b, n, self.h, -1).transpose(1, 2) for t in (q, k, v))
        bias = self.bias(buckets(n, q.device)).permute(2, 0, 1)[None]
        scores = torch.matmul(q, k.transpose(3, 2)) + bias
        share = F.dropout(F.softmax(scores.float(), dim=-1).type_as(scores), 0.1)
        return (share @ v).transpose(1, 2).reshape(b, n, -1)


class CosineWindows(nn.Module):
    """Swin v2: windows of 8 by 8, cosines, biases from a small net of log distances."""

    def __init__(self, h: int, d: int) -> None:
        super().__init__()
        self.h, self.widths = h, 3 * h * d
        self.net = nn.Sequential(nn.Linear(2, 512), nn.ReLU(), nn.Linear(512, h, bias=False))
        self.scale = nn.Parameter(torch.full((h, 1, 1), 2.3))
        at = torch.arange(-7, 8).float()
        self.register_buffer("far", torch.stack(torch.meshgrid(at, at, indexing="ij"), -1) / 7)
        at = torch.cartesian_prod(torch.arange(8), torch.arange(8))
        self.index = ((at[:, None] - at[None] + 7) * torch.tensor([15, 1])).sum(-1).flatten()

    def forward(self, x: Tensor) -> Tensor:
        b, side, _, c = x.shape
        y = torch.roll(x, (-4, -4), (1, 2)).view(b, side // 8, 8, side // 8, 8, c)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, c)
        q, k, v = y.reshape(len(y), 64, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        table = self.net(self.far.to(x.dtype)).view(-1, self.h)
        bias = 16 * torch.sigmoid(table[self.index].view(64, 64, -1).permute(2, 0, 1))
        y = (scores * self.scale.clamp(max=4.6).exp() + bias).softmax(-1) @ v
        y = y.transpose(1, 2).reshape(b, side // 8, side // 8, 8, 8, c // 3)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(b, side, side, c // 3)
        return torch.roll(y, (4, 4), (1, 2))


class Shifted(nn.Module):
    """Conformer and Transformer-XL: scores of positions moved into place by a padded view."""

    def __init__(self, h: int, d: int, length: int) -> None:
        super().__init__()
        self.h, self.d, self.widths = h, d, h * d
        self.place = nn.Parameter(torch.zeros(2 * length - 1, h, d))
        self.u, self.w = (nn.Parameter(torch.zeros(h, d)) for _ in range(2))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        b, n, c = q.shape
        q = q.view(b, n, self.h, self.d)
        k, v = (t.view(b, n, self.h, self.d).permute(0, 2, 1, 3) for t in (k, v))
        content = torch.matmul((q + self.u).transpose(1, 2), k.transpose(2, 3))
        place = torch.einsum("bnhd,mhd->bhnm", q + self.w, self.place)
        place = F.pad(place, (1, 0)).view(b, self.h, 2 * n, n)[:, :, 1:].view(b, self.h, n, -1)
        share = ((content + place[..., :n]) / math.sqrt(self.d)).softmax(-1)
        return F.dropout(share @ v, 0.1).transpose(1, 2).reshape(b, n, c)


class Disentangled(nn.Module):
    """DeBERTa: content to position and back, each gathered from products with distances."""

    def __init__(self, h: int, d: int, most: int) -> None:
        super().__init__()
        self.h, self.most, self.widths = h, most, h * d
        self.far_k, self.far_q = (nn.Parameter(torch.zeros(h, 2 * most, d)) for _ in range(2))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        n = q.shape[1]
        q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in (q, k, v))
        at = torch.arange(n, device=q.device)
        far = (at[:, None] - at[None] + self.most).clamp(0, 2 * self.most - 1)
        far = far.expand(len(q), self.h, n, n)
        scale = 1 / math.sqrt(3 * q.shape[-1])
        scores = torch.matmul(q, k.transpose(-1, -2) * scale)
        scores = scores + torch.gather(q @ self.far_k.transpose(1, 2), -1, far) * scale
        scores = scores + torch.gather(k @ self.far_q.transpose(1, 2), -1, far).mT * scale
        return (F.dropout(scores.softmax(-1), 0.1) @ v).transpose(1, 2).flatten(2)


class Local(nn.Module):
    """Longformer's kin: blocks that see their neighbours, by unfolding keys."""

    def __init__(self, h: int, d: int, near: int) -> None:
        super().__init__()
        self.h, self.near, self.widths = h, near, h * d
        self.qkv, self.o = nn.Linear(h * d, 3 * h * d), nn.Linear(h * d, h * d)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        q = q.unflatten(2, (-1, self.near))
        k, v = (F.pad(t, (0, 0, self.near, self.near)) for t in (k, v))
        k, v = (t.unfold(2, 3 * self.near, self.near).transpose(-1, -2) for t in (k, v))
        scores = torch.einsum("bhcqd,bhckd->bhcqk", q * q.shape[-1] ** -0.5, k)
        out = torch.einsum("bhcqk,bhckd->bhcqd", scores.softmax(-1), v)
        return x + self.o(out.flatten(2, 3).transpose(1, 2).reshape(b, n, c))


class Crossed(nn.Module):
    """Queries of one sequence, keys of another: Whisper, Q-Former, Flamingo with its gate."""

    def __init__(self, h: int, d: int, other: int, gated: bool, explicit: bool) -> None:
        super().__init__()
        self.h, self.explicit, self.widths = h, explicit, (h * d, other)
        self.nq, self.nk = nn.LayerNorm(h * d), nn.LayerNorm(other) if gated else nn.Identity()
        self.q, self.k = nn.Linear(h * d, h * d), nn.Linear(other, h * d, bias=False)
        self.v, self.o = nn.Linear(other, h * d), nn.Linear(h * d, h * d)
        self.gate = nn.Parameter(torch.ones(1)) if gated else None

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        q, y = self.q(self.nq(x)), self.nk(y)
        q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in (q, self.k(y), self.v(y)))
        out = written(q, k, v) if self.explicit else F.scaled_dot_product_attention(q, k, v)
        out = self.o(out.transpose(1, 2).flatten(2))
        return x + (out if self.gate is None else out * self.gate.tanh())


class Latent(nn.Module):
    """DeepSeek's: keys and values through a narrow latent, a turned part of all heads alike."""

    def __init__(self, h: int, d: int, rot: int, low: int, lowq: int, width: int) -> None:
        super().__init__()
        self.h, self.d, self.rot, self.low, self.widths = h, d, rot, low, width
        self.qa, self.qb = (
            nn.Linear(width, lowq, bias=False),
            nn.Linear(lowq, h * (d + rot), bias=False),
        )
        self.ka, self.kb = (
            nn.Linear(width, low + rot, bias=False),
            nn.Linear(low, 2 * h * d, bias=False),
        )
        self.nq, self.nk, self.o = (
            nn.RMSNorm(lowq),
            nn.RMSNorm(low),
            nn.Linear(h * d, width, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q = self.qb(self.nq(self.qa(x))).view(b, n, self.h, -1).transpose(1, 2)
        q, qr = q.split((self.d, self.rot), -1)
        low, kr = self.ka(x).split((self.low, self.rot), -1)
        k, v = self.kb(self.nk(low)).view(b, n, self.h, -1).transpose(1, 2).chunk(2, -1)
        q = torch.cat((q, as_complex(qr)), -1)
        k = torch.cat((k, as_complex(kr[:, None]).expand(-1, self.h, -1, -1)), -1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.o(out.transpose(1, 2).reshape(b, n, -1))


class Differential(nn.Module):
    """Two softmaxes, one taken from the other, a norm a head."""

    def __init__(self, h: int, d: int) -> None:
        super().__init__()
        self.h, self.widths, self.norm = h, 2 * h * d, nn.RMSNorm(2 * d)
        self.less = nn.Parameter(torch.full((h, 1, 1), 0.8))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        b, n, _ = q.shape
        q, k = (every_two(t.view(b, n, 2 * self.h, -1).transpose(1, 2)) for t in (q, k))
        v = v.view(b, n, self.h, -1).transpose(1, 2)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + before(n, q.dtype, q.device)
        share = F.softmax(scores, -1, dtype=torch.float32).type_as(scores).view(b, self.h, 2, n, n)
        out = self.norm((share[:, :, 0] - self.less * share[:, :, 1]) @ v) * 0.2
        return out.transpose(1, 2).reshape(b, n, -1)


class Packed(nn.Module):
    """Documents in one row: a mask of equal numbers, counted from the ends."""

    def __init__(self, h: int, d: int) -> None:
        super().__init__()
        self.h, self.widths = h, h * d
        self.qkv, self.o = nn.Linear(h * d, 3 * h * d), nn.Linear(h * d, h * d)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        document = (x[..., 0] > 2.5).cumsum(1)
        mask = (document[:, None, :, None] == document[:, None, None, :]).tril()
        q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.1)
        return self.o(out.transpose(1, 2).reshape(b, n, -1))


BLOCKS = (
    Block("llama 8b attention", lambda n: Grouped(n(8), n(4), n(128)), ((1, 4096),) * 3, BF16),
    Block("llama 1b attention", lambda n: Grouped(n(8), n(4), n(64), as_complex), ((4, 2048),) * 3, BF16, "kept"),
    Block("qwen attention", lambda n: Grouped(n(2), n(7), n(64), fate="gqa"), ((3, 3072),) * 3, BF16),
    Block("olmo attention", lambda n: Grouped(n(16), 1, n(128), qk=True), ((2, 2048),) * 3, BF16),
    Block("gemma attention", lambda n: Grouped(n(4), n(2), n(256), fate="capped"), ((1, 2048),) * 3, BF16),
    Block("mistral attention", lambda n: Grouped(n(8), n(4), n(80), fate="window"), ((1, 4096),) * 3, FP16),
    Block("neox layer", lambda n: Parallel(n(12), n(12), n(64), n(16), halves, n(3072)), ((8, 1024),), FP16),
    Block("gpt-j layer", lambda n: Parallel(n(16), n(16), n(256), n(64), every_two, n(16384), True), ((1, 1024),), FP16, "forward"),
    Block("falcon layer", lambda n: Parallel(n(71), 1, n(64), n(64), halves, n(18176)), ((1, 1024),), BF16, "frozen"),
    Block("phi layer", lambda n: Parallel(n(32), n(32), n(80), n(32), halves, n(10240)), ((2, 777),), BF16, "forward"),
    Block("bloom attention", lambda n: Alibi(n(16), n(96)), ((4, 1024),), FP16),
    Block("t5 attention", lambda n: Bucketed(n(16), n(64)), ((8, 512),) * 3, BF16),
    Block("swin 2 window", lambda n: CosineWindows(n(4), n(32)), ((16, 64, 64),), FP16, "forward"),
    Block("conformer attention", lambda n: Shifted(n(8), n(64), n(401)), ((16, 401),) * 3, FP32, "tf32"),
    Block("deberta attention", lambda n: Disentangled(n(12), n(64), n(256)), ((8, 512),) * 3, FP16),
    Block("longformer attention", lambda n: Local(n(12), n(64), n(256)), ((2, 4096),), FP32, "tf32"),
    Block("whisper cross", lambda n: Crossed(n(20), n(64), n(1280), False, True), ((4, 448), (4, 1500)), FP16, "frozen"),
    Block("q-former cross", lambda n: Crossed(n(12), n(64), n(1408), False, False), ((64, 32), (64, 257)), FP16, "autocast"),
    Block("flamingo cross", lambda n: Crossed(n(8), n(64), n(1024), True, True), ((8, 256), (8, 320)), FP32, "forward"),
    Block("deepseek latent", lambda n: Latent(n(16), n(128), n(64), n(512), n(1536), n(2048)), ((1, 4096),), BF16, "forward"),
    Block("differential", lambda n: Differential(n(8), n(64)), ((2, 1024),) * 3, BF16, "forward"),
    Block("packed documents", lambda n: Packed(n(12), n(64)), ((2, 2048),), BF16),
)  # fmt: skip
