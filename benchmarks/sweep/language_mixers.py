"""MLPs, experts, state-space and recurrent layers.

A part of `language_layers.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from language_attention import RMS
from language_seated import Block
from torch import Tensor, nn
from torch.nn import functional as F

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def new_gelu(x: Tensor) -> Tensor:
    """GPT-2's, written out."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3))))


def erf_gelu(x: Tensor) -> Tensor:
    """ESM's, written out."""
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class MLP(nn.Module):
    """Norm, two layers, what is between them and behind them."""

    def __init__(self, width: int, inner: int, act: Callable[[Tensor], Tensor], norm=nn.LayerNorm,
                 drop: float = 0.0, alpha: float = 1.0, post: bool = False) -> None:  # fmt: skip
        super().__init__()
        self.widths, self.act, self.alpha, self.post = width, act, alpha, post
        self.norm, self.drop = norm(width), nn.Dropout(drop)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(self.drop(self.act(self.up(x if self.post else self.norm(x)))))
        y = self.drop(y) + x * self.alpha
        return self.norm(y) if self.post else y


class Gated(nn.Module):
    """SwiGLU and GeGLU, in one weight or in two; a norm before and, as Gemma has it, behind."""

    def __init__(self, width: int, inner: int, act=F.silu, fused=False, sandwich=False) -> None:
        super().__init__()
        self.widths, self.act, self.fused = width, act, fused
        self.norm, self.post = (
            RMS(width) if fused else nn.RMSNorm(width),
            nn.RMSNorm(width) if sandwich else nn.Identity(),
        )
        self.up = nn.Linear(width, 2 * inner if fused else inner, bias=False)
        self.gate = None if fused else nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        up, gate = self.up(y).chunk(2, -1) if self.gate is None else (self.up(y), self.gate(y))
        return x + self.post(self.down(self.act(gate) * up))


class Experts(nn.Module):
    """Mixtral's kin without a wait: `how` rows reach their experts.

    padded: places counted by cumsum, index_add into slots; einsum: Switch's one-hot dispatch;
    choice: experts take their top rows; sorted: an equal cut of rows in the experts' order.
    """

    def __init__(self, width: int, inner: int, many: int, top: int, how: str) -> None:
        super().__init__()
        self.widths, self.many, self.top, self.how = width, many, min(top, many), how
        self.gate = nn.Linear(width, many, bias=False)
        self.up = nn.Parameter(torch.empty(many, width, inner))
        self.down = nn.Parameter(torch.empty(many, inner, width))

    def through(self, x: Tensor) -> Tensor:
        return torch.bmm(F.silu(torch.bmm(x, self.up)), self.down)

    def forward(self, x: Tensor) -> Tensor:
        rows, e = x.flatten(0, -2), self.many
        share = self.gate(rows).softmax(-1, dtype=torch.float32)
        room = max(1, len(rows) * self.top // e)
        if self.how == "choice":
            weight, at = share.t().topk(room, -1)
            out = self.through(rows[at]) * weight[..., None].to(x.dtype)
            return torch.zeros_like(rows).index_add(0, at.flatten(), out.flatten(0, 1)).view_as(x)
        weight, chosen = share.topk(self.top, -1)
        weight = (weight / weight.sum(-1, keepdim=True)).to(x.dtype)
        if self.how == "einsum":
            hot = F.one_hot(chosen[:, 0], e)
            place = ((hot.cumsum(0) - 1) * hot).sum(-1)
            slot = F.one_hot(place.clamp(max=room), room + 1)[:, :room].to(x.dtype)
            send = hot.to(x.dtype)[:, :, None] * slot[:, None]
            out = self.through(torch.einsum("tec,td->ecd", send, rows))
            return (torch.einsum("tec,ecd->td", send, out) * weight[:, :1]).view_as(x)
        if self.how == "sorted":
            order = chosen.flatten().argsort(stable=True)[: e * room]
            out = self.through(rows[order // self.top].view(e, room, -1)).flatten(0, 1)
            out = out * weight.flatten()[order, None]
            return torch.zeros_like(rows).index_add_(0, order // self.top, out).view_as(x)
        flat = chosen.flatten()
        place = F.one_hot(flat, e).cumsum(0).gather(1, flat[:, None])[:, 0] - 1
        slot = torch.where(place < room, flat * room + place, e * room)
        held = rows.new_zeros(e * room + 1, x.shape[-1])
        held = held.index_add(0, slot, rows.repeat_interleave(self.top, 0))
        out = self.through(held[:-1].view(e, room, -1)).flatten(0, 1)
        out = torch.cat((out, out.new_zeros(1, x.shape[-1])))[slot].view(len(rows), self.top, -1)
        return (out * weight[..., None]).sum(1).view_as(x)


class Spatial(nn.Module):
    """gMLP: one half gates the other along positions."""

    def __init__(self, width: int, inner: int, length: int) -> None:
        super().__init__()
        self.widths, self.norm, self.inner = width, nn.LayerNorm(width), nn.LayerNorm(inner)
        self.up, self.down = nn.Linear(width, 2 * inner), nn.Linear(inner, width)
        self.along = nn.Conv1d(length, length, 1)

    def forward(self, x: Tensor) -> Tensor:
        u, v = F.gelu(self.up(self.norm(x))).chunk(2, -1)
        return x + self.down(u * self.along(self.inner(v)))


class Mixed(nn.Module):
    """FNet: two Fourier transforms, their real part."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.widths, self.norm = width, nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real)


class Selective(nn.Module):
    """Mamba 2: a causal convolution, decays summed within chunks, a gated norm."""

    def __init__(self, h: int, d: int, state: int, width: int, chunk: int) -> None:
        super().__init__()
        self.h, self.state, self.chunk, self.widths = h, state, chunk, width
        self.sides = (h * d, h * d + 2 * state, h)
        self.into, self.out = nn.Linear(width, sum(self.sides), bias=False), nn.Linear(h * d, width)
        self.conv = nn.Conv1d(self.sides[1], self.sides[1], 4, groups=self.sides[1], padding=3)
        self.a, self.skip, self.norm = (
            nn.Parameter(torch.zeros(h)),
            nn.Parameter(torch.ones(h)),
            nn.RMSNorm(h * d),
        )

    def forward(self, u: Tensor) -> Tensor:
        n = u.shape[1]
        z, xbc, dt = self.into(u).split(self.sides, -1)
        xbc = F.silu(self.conv(xbc.transpose(1, 2))[..., :n].transpose(1, 2))
        x, b, c = xbc.split((self.sides[0], self.state, self.state), -1)
        dt = F.softplus(dt.float())
        decay = (-self.a.exp() * dt).unflatten(1, (-1, self.chunk)).permute(0, 3, 1, 2).cumsum(-1)
        x = x.unflatten(-1, (self.h, -1)) * dt[..., None].to(u.dtype)
        x, b, c = (t.unflatten(1, (-1, self.chunk)) for t in (x, b, c))
        seen = torch.ones(self.chunk, self.chunk, dtype=torch.bool, device=u.device).tril()
        within = (decay[..., :, None] - decay[..., None, :]).masked_fill(~seen, -torch.inf).exp()
        scores = torch.einsum("bcln,bcsn->bcls", c, b)[:, None] * within.to(u.dtype)
        y = torch.einsum("bhcls,bcshp->bclhp", scores, x)
        left = (decay[..., -1:] - decay).exp().to(u.dtype)
        states = torch.einsum("bcln,bhcl,bclhp->bchpn", b, left, x).cumsum(1)
        y = y + torch.einsum("bcln,bchpn,bhcl->bclhp", c, states, decay.exp().to(u.dtype))
        y = (y + x * self.skip[:, None]).flatten(1, 2).flatten(2)
        return u + self.out(self.norm(y * F.silu(z)))


class Retained(nn.Module):
    """RetNet and mLSTM by their parallel forms: decays in a matrix, a norm a head, a gate."""

    def __init__(self, h: int, d: int, learnt: bool) -> None:
        super().__init__()
        self.h, self.learnt, self.norm = h, learnt, nn.GroupNorm(h, h * d)
        self.widths = (*[h * d] * 4, h)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, rate: Tensor) -> Tensor:
        b, n, c = q.shape
        q, k, v = (t.view(b, n, self.h, -1).transpose(1, 2) for t in (q, k, v))
        at = torch.arange(n, device=q.device)
        if self.learnt:
            rate = F.logsigmoid(rate.float()).transpose(1, 2).cumsum(-1)
            far = (rate[..., :, None] - rate[..., None, :]).masked_fill(at[:, None] < at, -1e9)
        else:
            rate = torch.log(1 - 2.0 ** (-5 - torch.arange(self.h, device=q.device)))
            far = ((at[:, None] - at) * rate[:, None, None]).masked_fill(at[:, None] < at, -1e9)
        y = ((q @ k.transpose(-1, -2)) * far.exp().to(q.dtype)) @ v
        y = self.norm(y.transpose(1, 2).reshape(b * n, c)).view(b, n, c)
        return F.silu(g) * y


class TimeMix(nn.Module):
    """RWKV's shift: each of three mixes of a position and the one before it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.widths, self.shift = width, nn.ZeroPad2d((0, 0, 1, -1))
        self.mix, self.k = (
            nn.Parameter(torch.zeros(3, 1, 1, width)),
            nn.Linear(width, width, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        k, v, r = torch.lerp(self.shift(x), x, self.mix).unbind(0)
        return self.k(F.relu(k).square()) * torch.sigmoid(r) + v


class Wkv(nn.Module):
    """RWKV's sum of exponentials along the sequence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.widths = width

    def forward(self, k: Tensor, v: Tensor, r: Tensor) -> Tensor:
        k = k.float().clamp(max=20).exp()
        return (torch.sigmoid(r) * (k * v).cumsum(1) / k.cumsum(1)).to(r.dtype)


class Scan(nn.Module):
    """Mamba's states of a chunk of steps, as its reference has them."""

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.widths, self.a = (width, width, state, state), nn.Parameter(torch.zeros(width, state))

    def forward(self, u: Tensor, dt: Tensor, b: Tensor, c: Tensor) -> Tensor:
        dt = F.softplus(dt)
        decay = torch.einsum("bld,dn->bldn", dt, -self.a.exp()).cumsum(1)
        x = torch.einsum("bld,bln,bld->bldn", dt, b, u)
        state = (x * (-decay).clamp(max=30).exp()).cumsum(1) * decay.exp()
        return torch.einsum("bldn,bln->bld", state, c)


class Delta(nn.Module):
    """DeltaNet's chunks: keys of norm one, a triangular system a chunk, states carried on."""

    def __init__(self, h: int, d: int, chunk: int) -> None:
        super().__init__()
        self.h, self.chunk, self.widths = h, chunk, h * d
        self.qkv, self.beta = nn.Linear(h * d, 3 * h * d), nn.Linear(h * d, h)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2).unflatten(2, (-1, self.chunk)).float()
                   for t in F.silu(self.qkv(x)).chunk(3, -1))  # fmt: skip
        k, beta = F.normalize(k, dim=-1), self.beta(x).sigmoid().float().transpose(1, 2)
        beta = beta.unflatten(2, (-1, self.chunk))[..., None]
        eye = torch.eye(self.chunk, device=x.device)
        low = (beta * k @ k.transpose(-1, -2)).tril(-1) + eye
        u = torch.linalg.solve_triangular(
            low, beta * torch.cat((v, k), -1), upper=False, unitriangular=True
        )
        u, w = u.chunk(2, -1)
        state = (k.transpose(-1, -2) @ u).cumsum(2)
        out = q @ state + (q @ k.transpose(-1, -2)).tril() @ (u - w @ state)
        return out.flatten(2, 3).transpose(1, 2).flatten(2).to(x.dtype)


class LongConv(nn.Module):
    """Hyena, S4D: a filter as long as the sequence, by FFT of twice its length."""

    def __init__(self, width: int, states: int) -> None:
        super().__init__()
        self.widths, self.into, self.out = (
            width,
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.short = nn.Conv1d(3 * width, 3 * width, 3, groups=3 * width, padding=2)
        self.c, self.rate = (
            nn.Parameter(torch.zeros(width, states)),
            nn.Parameter(torch.zeros(width, states)),
        )

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        a, b, v = self.short(self.into(x).transpose(1, 2))[..., :n].chunk(3, 1)
        at = torch.arange(n, device=x.device) / n
        filt = torch.einsum(
            "ws,wsn->wn", self.c.float(), torch.exp(-self.rate.exp().float()[..., None] * at)
        )
        spectrum = torch.fft.rfft((v * b).float(), n=2 * n) * torch.fft.rfft(filt, n=2 * n)
        y = torch.fft.irfft(spectrum, n=2 * n)[..., :n].to(x.dtype) * F.gelu(a)
        return self.out(y.transpose(1, 2))


class Recurrent(nn.Module):
    """A layer of cuDNN, a norm or a dropout before it, both directions or a projection."""

    def __init__(self, kind: type[nn.RNNBase], width: int, hidden: int, **options: object) -> None:
        super().__init__()
        self.widths, self.norm = width, nn.LayerNorm(width)
        self.rnn = kind(width, hidden, batch_first=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.rnn(F.dropout(self.norm(x), 0.1))[0]
        return out


def squared(x: Tensor) -> Tensor:
    return F.relu(x).square()


def quick(x: Tensor) -> Tensor:
    """CLIP's."""
    return x * torch.sigmoid(1.702 * x)


BLOCKS = (
    Block("gpt-2 mlp", lambda n: MLP(n(1600), n(6400), new_gelu, drop=0.1), ((4, 1024),), FP32, "tf32"),
    Block("esm mlp", lambda n: MLP(n(1280), n(5120), erf_gelu), ((4, 1022),), FP16),
    Block("clip text mlp", lambda n: MLP(n(512), n(2048), quick), ((512, 77),), FP16, "autocast"),
    Block("nemotron mlp", lambda n: MLP(n(3072), n(9216), squared), ((2, 2048),), BF16),
    Block("bert mlp", lambda n: MLP(n(768), n(3072), F.gelu, drop=0.1, post=True), ((32, 384),), FP16, "autocast"),
    Block("deepnorm mlp", lambda n: MLP(n(1024), n(4096), F.relu, drop=0.1, alpha=2.45, post=True), ((16, 200),), BF16),
    Block("siglip mlp", lambda n: MLP(n(1152), n(4304), nn.GELU("tanh")), ((8, 729),), BF16, "kept"),
    Block("llama mlp", lambda n: Gated(n(4096), n(14336)), ((1, 2048),), BF16, "frozen"),
    Block("tinyllama mlp", lambda n: Gated(n(2048), n(5632), fused=True), ((2, 2048),), FP32, "tf32"),
    Block("gemma mlp", lambda n: Gated(n(2304), n(9216), nn.GELU("tanh"), sandwich=True), ((1, 3000),), BF16, "forward"),
    Block("t5 gated mlp", lambda n: Gated(n(768), n(2048), new_gelu), ((16, 512),), BF16),
    Block("mixtral", lambda n: Experts(n(1024), n(3584), n(8), 2, "padded"), ((4, 2048),), BF16, "frozen"),
    Block("switch", lambda n: Experts(n(768), n(2048), n(32), 1, "einsum"), ((8, 512),), FP32, "tf32"),
    Block("expert choice", lambda n: Experts(n(1024), n(4096), n(16), 2, "choice"), ((8, 1024),), FP16, "kept"),
    Block("olmoe", lambda n: Experts(n(2048), n(1024), n(64), 8, "sorted"), ((1, 2048),), BF16, "forward"),
    Block("gmlp", lambda n: Spatial(n(512), n(1536), n(512)), ((32, 512),), FP16, "autocast"),
    Block("fnet", lambda n: Mixed(n(768)), ((32, 512),), FP32),
    Block("mamba 2", lambda n: Selective(n(24), n(64), n(128), n(768), n(256)), ((4, 2048),), BF16, "forward"),
    Block("mamba scan", lambda n: Scan(n(1536), n(16)), ((4, 256),) * 4, FP32),
    Block("retnet", lambda n: Retained(n(8), n(128), False), ((4, 1024),) * 5, FP16, "forward"),
    Block("xlstm", lambda n: Retained(n(4), n(192), True), ((4, 1024),) * 5, BF16),
    Block("rwkv shift", lambda n: TimeMix(n(1024)), ((8, 1024),), BF16),
    Block("rwkv sums", lambda n: Wkv(n(2048)), ((4, 1024),) * 3, BF16),
    Block("deltanet", lambda n: Delta(n(8), n(128), n(64)), ((4, 2048),), BF16, "forward"),
    Block("hyena", lambda n: LongConv(n(768), n(16)), ((8, 2048),), FP16, "forward"),
    Block("s4d", lambda n: LongConv(n(256), n(64)), ((16, 1000),), FP32),
    Block("awd lstm", lambda n: Recurrent(nn.LSTM, n(400), n(1150)), ((80, 10),), FP32, "tf32"),
    Block("deep speech gru", lambda n: Recurrent(nn.GRU, n(800), n(800), bidirectional=True), ((32, 8),), FP16, "autocast"),
    Block("char gru", lambda n: Recurrent(nn.GRU, n(64), n(1024)), ((128, 8),), BF16),
)  # fmt: skip
