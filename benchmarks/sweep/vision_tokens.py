"""Blocks of vision transformers and of nets that make images, as their authors have them.

A part of `vision_layers.py`. `n` cuts a width where a CPU only tries the script.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F
from vision_blocks import Cut


def parts(n: Cut, c: int, heads: int) -> int:
    """Heads of a width, also where both are cut."""
    return n(heads) if n(c) % n(heads) == 0 else 2


class Attention(nn.Module):
    """Of tokens; written out or fused, heads normed or not, what follows it in the block or not."""

    def __init__(
        self, n: Cut, c: int, heads: int, fused: bool, normed: bool = False, mlp: int = 0
    ) -> None:
        super().__init__()
        self.heads, self.fused = parts(n, c, heads), fused
        c = n(c)
        self.norm, self.qkv, self.proj = nn.LayerNorm(c), nn.Linear(c, 3 * c), nn.Linear(c, c)
        each = c // self.heads
        self.q_norm, self.k_norm = (
            nn.LayerNorm(each) if normed else nn.Identity() for _ in range(2)
        )
        self.mlp = nn.Sequential(
            nn.LayerNorm(c), nn.Linear(c, n(mlp)), nn.GELU(), nn.Linear(n(mlp), c)
        ) if mlp else None  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        qkv = self.qkv(self.norm(x)).reshape(b, t, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            share = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
            y = share.softmax(-1) @ v
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x if self.mlp is None else x + self.mlp(x)


class Windowed(nn.Module):
    """Swin's attention in shifted windows, its bias looked up a pair of places."""

    def __init__(self, n: Cut, c: int, heads: int, window: int, shift: int, sides: int) -> None:
        super().__init__()
        c, self.heads, self.shift = n(c), parts(n, c, heads), shift
        self.k = k = window if n(sides) % window == 0 else 2
        self.norm, self.qkv, self.proj = nn.LayerNorm(c), nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.table = nn.Parameter(torch.zeros((2 * k - 1) ** 2, self.heads))
        at = torch.stack(torch.meshgrid(torch.arange(k), torch.arange(k), indexing="ij")).flatten(1)
        off = (at[:, :, None] - at[:, None]).permute(1, 2, 0) + k - 1
        self.register_buffer("places", off[..., 0] * (2 * k - 1) + off[..., 1])
        many = (n(sides) // k) ** 2
        hidden = torch.rand(many, k * k, k * k).lt(0.1).float() * -100
        self.register_buffer("hidden", hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        k = self.k
        y = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        y = y.view(b, h // k, k, w // k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, k * k, c)
        qkv = self.qkv(y).reshape(-1, k * k, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k_, v = qkv.unbind(0)
        share = (q * q.shape[-1] ** -0.5) @ k_.transpose(-2, -1)
        bias = self.table[self.places.view(-1)].view(k * k, k * k, -1).permute(2, 0, 1)
        share = share + bias.contiguous().unsqueeze(0)
        many = len(self.hidden)
        share = share.view(-1, many, self.heads, k * k, k * k) + self.hidden[:, None].to(share)
        y = share.view(-1, self.heads, k * k, k * k).softmax(-1).to(v.dtype) @ v
        y = self.proj(y.transpose(1, 2).reshape(-1, k * k, c))
        y = y.view(b, h // k, w // k, k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return x + torch.roll(y, (self.shift, self.shift), (1, 2))


class Reduced(nn.Module):
    """PVT's attention: keys and values of an image made smaller."""

    def __init__(self, n: Cut, c: int, heads: int, ratio: int, side: int) -> None:
        super().__init__()
        c, self.heads = n(c), parts(n, c, heads)
        ratio = ratio if n(side) == side else 2
        self.q, self.kv, self.proj = nn.Linear(c, c), nn.Linear(c, 2 * c), nn.Linear(c, c)
        self.small, self.norm = nn.Conv2d(c, c, ratio, ratio), nn.LayerNorm(c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        x, t = x.flatten(1, 2), h * w
        q = self.q(x).reshape(b, t, self.heads, -1).transpose(1, 2)
        y = self.small(x.transpose(1, 2).reshape(b, c, h, w))
        y = self.norm(y.flatten(2).transpose(1, 2))
        k, v = self.kv(y).reshape(b, -1, 2, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class Grid(nn.Module):
    """MaxViT's attention between places far apart."""

    def __init__(self, n: Cut, c: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.proj = (
            parts(n, c, heads), nn.Linear(n(c), 3 * n(c), bias=False), nn.Linear(n(c), n(c)),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        k = 7 if h % 7 == 0 else 4
        y = x.view(b, c, k, h // k, k, w // k).permute(0, 3, 5, 2, 4, 1).flatten(0, 2).flatten(1, 2)
        q, k_, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        share = torch.einsum("bhid,bhjd->bhij", q * q.shape[-1] ** -0.5, k_).softmax(-1)
        y = torch.einsum("bhij,bhjd->bihd", share, v).flatten(2)
        y = self.proj(y).view(b, h // k, w // k, k, k, c).permute(0, 5, 3, 1, 4, 2)
        return x + y.reshape(b, c, h, w)


class Crossed(nn.Module):
    """XCiT's attention between channels."""

    def __init__(self, n: Cut, c: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv = n(heads), nn.Linear(n(c), 3 * n(c))
        self.heat = nn.Parameter(torch.ones(n(heads), 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 4, 1)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        share = ((q @ k.transpose(-2, -1)) * self.heat).softmax(-1)
        return x + (share.to(v.dtype) @ v).permute(0, 3, 1, 2).reshape(b, t, c)


class Relative(nn.Module):
    """Segment Anything's bias of rows and of columns."""

    def __init__(self, n: Cut, each: int, side: int) -> None:
        super().__init__()
        side, each = n(side), n(each)
        self.row, self.column = (nn.Parameter(torch.zeros(2 * side - 1, each)) for _ in range(2))
        at = torch.arange(side)
        self.register_buffer("off", at[:, None] - at + side - 1)
        self.side = side

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        at, s = q, self.side
        q, k, v = q.flatten(1, 2), k.flatten(1, 2), v.flatten(1, 2)
        share = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        rows = torch.einsum("bhwc,hkc->bhwk", at, self.row[self.off])
        columns = torch.einsum("bhwc,wkc->bhwk", at, self.column[self.off])
        share = share.view(-1, s, s, s, s) + rows[..., None] + columns[..., None, :]
        return share.view(-1, s * s, s * s).softmax(-1) @ v


class Embedding(nn.Module):
    """An image cut to patches, a class token, positions."""

    def __init__(self, n: Cut, c: int, k: int, stride: int, cin: int = 3) -> None:
        super().__init__()
        if n(k) < k:
            k = stride = 4
        self.cut = nn.Conv2d(cin, n(c), k, stride)
        self.token = nn.Parameter(torch.zeros(1, 1, n(c)))
        self.norm = nn.LayerNorm(n(c))

    def forward(self, x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
        x = self.cut(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1)
        short = F.interpolate(where[None].transpose(1, 2), size=x.shape[1], mode="linear")
        return self.norm(x + short.transpose(1, 2))


class Masked(nn.Module):
    """A masked autoencoder: three of four tokens left out, the decoder's put back."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        self.inner, self.token = nn.Linear(n(c), n(512)), nn.Parameter(torch.zeros(1, 1, n(512)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        order = torch.rand(b, t, device=x.device).argsort(1)
        back = order.argsort(1)
        x = self.inner(x.gather(1, order[:, : t // 4, None].expand(-1, -1, c)))
        x = torch.cat((x, self.token.to(x).expand(b, t - t // 4, -1)), 1)
        return x.gather(1, back[..., None].expand(-1, -1, x.shape[2]))


class Unet(nn.Module):
    """A residual block of a diffusion model, its step added or scaling."""

    def __init__(self, n: Cut, cin: int, cout: int, scaling: bool = False) -> None:
        super().__init__()
        self.scaling = scaling
        self.first, self.enter = (
            nn.GroupNorm(n(32), n(cin)),
            nn.Conv2d(n(cin), n(cout), 3, padding=1),
        )
        self.step = nn.Linear(n(1280), n(cout) * (1 + scaling))
        self.second, self.leave = (
            nn.GroupNorm(n(32), n(cout)), nn.Conv2d(n(cout), n(cout), 3, padding=1),
        )  # fmt: skip
        self.short = nn.Conv2d(n(cin), n(cout), 1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        y = self.enter(F.silu(self.first(x)))
        t = self.step(F.silu(t))[:, :, None, None]
        if self.scaling:
            scale, shift = t.chunk(2, 1)
            y = self.second(y) * (1 + scale) + shift
        else:
            y = self.second(y + t)
        return self.short(x) + self.leave(F.dropout(F.silu(y), 0.1))


class Text(nn.Module):
    """Stable Diffusion's attention to a text of 77 tokens, then its gated layer."""

    def __init__(self, n: Cut, c: int, heads: int, text: int) -> None:
        super().__init__()
        self.heads, c, text = n(heads), n(c), n(text)
        self.norm, self.after = nn.LayerNorm(c), nn.LayerNorm(c)
        self.q, self.k, self.v = (nn.Linear(i, c, bias=False) for i in (c, text, text))
        self.proj, self.up, self.down = nn.Linear(c, c), nn.Linear(c, 8 * c), nn.Linear(4 * c, c)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.q(self.norm(x)), self.k(text), self.v(text)
        q, k, v = (y.view(b, -1, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)
        x = x + self.proj(y)
        y, gate = self.up(self.after(x)).chunk(2, -1)
        return x + self.down(y * F.gelu(gate))


class Places(nn.Module):
    """Attention of a U-Net's pixels over one another, one head, einsum."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        self.norm, self.qkv = nn.GroupNorm(n(32), n(c)), nn.Conv1d(n(c), 3 * n(c), 1)
        self.out = nn.Conv1d(n(c), n(c), 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x).flatten(2)).chunk(3, 1)
        scale = 1 / math.sqrt(math.sqrt(q.shape[1]))
        share = torch.einsum("bct,bcs->bts", q * scale, k * scale).float().softmax(-1).type(v.dtype)
        return x + self.out(torch.einsum("bts,bcs->bct", share, v)).view_as(x)


class Grow(nn.Module):
    """A decoder's step to twice the side."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(n(c), n(c), 3, padding=1), nn.GroupNorm(n(32), n(c), 1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest")))
        return x * torch.sigmoid(x)


class Adaptive(nn.Module):
    """DiT's block, the layer after its attention: norm without weights, shifted, scaled, gated."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        c = n(c)
        self.norm, self.by = nn.LayerNorm(c, 1e-6, False), nn.Linear(c, 3 * c)
        self.up, self.down = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        shift, scale, gate = self.by(F.silu(step)).chunk(3, dim=1)
        y = self.norm(x) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)
        return x + gate.unsqueeze(1) * self.down(F.gelu(self.up(y), approximate="tanh"))


class Joint(nn.Module):
    """Stable Diffusion 3's attention of image and text, each with its own weights."""

    def __init__(self, n: Cut, c: int, heads: int) -> None:
        super().__init__()
        self.heads, c = n(heads), n(c)
        self.image, self.text = nn.Linear(c, 3 * c), nn.Linear(c, 3 * c)
        self.q, self.k = (nn.Parameter(torch.ones(c // self.heads)) for _ in range(2))

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        both = torch.cat((self.image(image), self.text(text)), 1)
        q, k, v = both.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q = q * torch.rsqrt(q.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(q.dtype) * self.q
        k = F.rms_norm(k, k.shape[-1:], self.k)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return y[:, : image.shape[1]]


class Codebook(nn.Module):
    """VQ-VAE's, its entries averages of what chose them."""

    def __init__(self, n: Cut, many: int, c: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(n(c), n(c), 1)
        self.register_buffer("codes", torch.randn(n(many), n(c)))
        self.register_buffer("chosen", torch.ones(n(many)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.enter(x).permute(0, 2, 3, 1)
        flat = z.reshape(-1, z.shape[-1])
        far = (
            flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.codes.t() + self.codes.pow(2).sum(1)
        )
        at = far.argmin(1)
        with torch.no_grad():
            one = F.one_hot(at, len(self.codes)).type(flat.dtype)
            self.chosen.mul_(0.99).add_(one.sum(0), alpha=0.01)
            self.codes.lerp_(one.t() @ flat / (self.chosen[:, None] + 1e-5), 0.01)
        out = F.embedding(at, self.codes.clone()).view_as(z)
        commit = 0.25 * F.mse_loss(z, out)
        return (z + (out - z).detach()).permute(0, 3, 1, 2) + commit


class Modulated(nn.Module):
    """StyleGAN 2's convolution: a kernel an image, all images one group each."""

    def __init__(self, n: Cut, c: int) -> None:
        super().__init__()
        self.weight, self.style = (
            nn.Parameter(torch.randn(n(c), n(c), 3, 3)),
            nn.Linear(n(512), n(c)),
        )
        self.noise = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        b, _, h, side = x.shape
        by = self.weight[None] * (self.style(w) + 1)[:, None, :, None, None]
        by = by * by.square().sum((2, 3, 4), keepdim=True).add(1e-8).rsqrt()
        y = F.conv2d(x.reshape(1, -1, h, side), by.flatten(0, 1), padding=1, groups=b)
        y = y.view(b, -1, h, side) + self.noise * torch.randn(b, 1, h, side, device=x.device).to(x)
        return F.leaky_relu(y, 0.2) * math.sqrt(2)
