"""Networks whose public code is no package, written as it writes them: nanoGPT, DCGAN, DDPM's U-Net, a
plain U-Net, EDSR, DQN, DLRM, and MNIST's CNN, the VAE and the language models of pytorch/examples."""

from __future__ import annotations

import itertools
import math

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """nanoGPT's CausalSelfAttention."""

    def __init__(self, heads: int, width: int, block: int, dropout: float, flash: bool) -> None:
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width, bias=False)
        self.c_proj = nn.Linear(width, width, bias=False)
        self.attn_dropout, self.resid_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        self.heads, self.dropout, self.flash = heads, dropout, flash
        if not flash:
            self.register_buffer("mask", torch.tril(torch.ones(block, block))[None, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (y.view(B, T, self.heads, C // self.heads).transpose(1, 2) for y in (q, k, v))
        if self.flash:
            dropout = self.dropout if self.training else 0
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
            y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class Block(nn.Module):
    def __init__(self, heads: int, width: int, block: int, dropout: float, flash: bool) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.attn = Attention(heads, width, block, dropout, flash)
        self.c_fc = nn.Linear(width, 4 * width, bias=False)
        self.c_proj = nn.Linear(4 * width, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.dropout(self.c_proj(F.gelu(self.c_fc(self.ln_2(x)))))


class NanoGPT(nn.Module):
    def __init__(
        self,
        layers: int,
        heads: int,
        width: int,
        block: int,
        vocab: int,
        dropout: float,
        flash: bool,
    ) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(block, width)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList(Block(heads, width, block, dropout, flash) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width, bias=False)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.wte(tokens) + self.wpe(places))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class RNNModel(nn.Module):
    """word_language_model's LSTM."""

    def __init__(self, vocab: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder, self.decoder = nn.Embedding(vocab, width), nn.Linear(width, vocab)
        self.rnn = nn.LSTM(width, width, layers, dropout=dropout)

    def forward(self, x, hidden):  # type: ignore[no-untyped-def]
        output, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        decoded = self.decoder(self.drop(output))
        return F.log_softmax(decoded.view(-1, decoded.size(-1)), dim=1), hidden


class WordTransformer(nn.Module):
    """word_language_model's Transformer."""

    def __init__(self, vocab: int, width: int, heads: int, layers: int, dropout: float) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, width, dropout)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.embed, self.decoder = nn.Embedding(vocab, width), nn.Linear(width, vocab)
        self.drop, self.width = nn.Dropout(dropout), width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.log(torch.tril(torch.ones(len(x), len(x), device=x.device)))
        y = self.drop(self.embed(x) * math.sqrt(self.width))
        return F.log_softmax(self.decoder(self.encoder(y, mask=mask)), dim=-1)


class MNIST(nn.Module):
    """The CNN of pytorch/examples/mnist."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = self.dropout2(F.relu(self.fc1(torch.flatten(self.dropout1(x), 1))))
        return F.log_softmax(self.fc2(x), dim=1)


class ResBlock(nn.Module):
    def __init__(self, inside: int, outside: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, inside), nn.GroupNorm(32, outside)
        self.conv1 = nn.Conv2d(inside, outside, 3, padding=1)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1)
        self.time = nn.Linear(time, outside)
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(F.dropout(F.silu(self.norm2(h)), 0.1, self.training))


class SpatialAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, c, h * w).unbind(1)
        weights = torch.softmax(torch.einsum("bcq,bck->bqk", q, k) / math.sqrt(c), -1)
        return x + self.out(torch.einsum("bqk,bck->bcq", weights, v).reshape(b, c, h, w))


class UNet(nn.Module):
    """The U-Net of DDPM: residual blocks with time embeddings, attention at 16 × 16."""

    def __init__(
        self, width: int, multiples: tuple[int, ...] = (1, 2, 2, 2), side: int = 64
    ) -> None:
        super().__init__()
        time = 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        widths, now = [width], width
        for level, multiple in enumerate(multiples):
            for _ in range(2):
                attends = SpatialAttention(width * multiple) if side == 16 else nn.Identity()
                self.downs.append(nn.ModuleList([ResBlock(now, width * multiple, time), attends]))
                now = width * multiple
                widths.append(now)
            if level < len(multiples) - 1:
                self.downs.append(nn.ModuleList([nn.Conv2d(now, now, 3, 2, 1)]))
                widths.append(now)
                side //= 2
        self.middle = ResBlock(now, now, time)
        for level, multiple in reversed(list(enumerate(multiples))):
            for _ in range(3):
                attends = SpatialAttention(width * multiple) if side == 16 else nn.Identity()
                block = ResBlock(now + widths.pop(), width * multiple, time)
                self.ups.append(nn.ModuleList([block, attends]))
                now = width * multiple
            if level:
                self.ups.append(nn.ModuleList([nn.Conv2d(now, now, 3, padding=1)]))
                side *= 2
        self.last = nn.Sequential(nn.GroupNorm(32, now), nn.SiLU(), nn.Conv2d(now, 3, 3, padding=1))

    def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        half = self.width // 2
        places = torch.exp(torch.arange(half, device=x.device) * -(math.log(10_000) / half))
        angles = steps[:, None].float() * places[None]
        t = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        kept = [x := self.first(x)]
        for layer in self.downs:
            x = layer[0](x) if len(layer) == 1 else layer[1](layer[0](x, t))
            kept.append(x)
        x = self.middle(x, t)
        for layer in self.ups:
            if len(layer) == 1:
                x = layer[0](F.interpolate(x, scale_factor=2, mode="nearest"))
            else:
                x = layer[1](layer[0](torch.cat([x, kept.pop()], 1), t))
        return self.last(x)


class DLRM(nn.Module):
    """Facebook's DLRM: tables of embeddings, two MLPs, pairwise products between."""

    def __init__(self, tables: int, rows: int, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = mlp(13, 512, 256, width)
        pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("pairs", pairs)
        self.top = mlp(width + pairs.shape[1], 512, 256, 1)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        rows = [table(at[:, None]) for table, at in zip(self.tables, sparse, strict=True)]
        T = torch.stack([x, *rows], 1)
        products = torch.bmm(T, T.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, products], 1)).squeeze(1)


def mlp(*widths: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inside, outside in itertools.pairwise(widths):
        layers += [nn.Linear(inside, outside), act()]
    return nn.Sequential(*layers[:-1])


def generator(noise: int = 100, width: int = 64) -> nn.Sequential:
    """DCGAN's, of pytorch/examples."""
    layers: list[nn.Module] = []
    shape = [(noise, 8 * width, 1, 0), (8 * width, 4 * width, 2, 1), (4 * width, 2 * width, 2, 1)]
    for inside, outside, stride, padding in [*shape, (2 * width, width, 2, 1)]:
        layers += [nn.ConvTranspose2d(inside, outside, 4, stride, padding, bias=False)]
        layers += [nn.BatchNorm2d(outside), nn.ReLU(True)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())


def discriminator(width: int = 64) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True)]
    for at in (1, 2, 4):
        layers += [nn.Conv2d(at * width, 2 * at * width, 4, 2, 1, bias=False)]
        layers += [nn.BatchNorm2d(2 * at * width), nn.LeakyReLU(0.2, True)]
    return nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4, 1, 0, bias=False))


def twice_convolved(inside: int, outside: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for first in (inside, outside):
        layers += [nn.Conv2d(first, outside, 3, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(outside), nn.ReLU(True)]
    return nn.Sequential(*layers)


class PlainUNet(nn.Module):
    """milesial/Pytorch-UNet."""

    def __init__(self, width: int, classes: int = 2) -> None:
        super().__init__()
        widths = [width << level for level in range(5)]
        self.first = twice_convolved(3, width)
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        for fine, coarse in itertools.pairwise(widths):
            self.downs.append(nn.Sequential(nn.MaxPool2d(2), twice_convolved(fine, coarse)))
            up = nn.ConvTranspose2d(coarse, fine, 2, 2)
            self.ups.insert(0, nn.ModuleList([up, twice_convolved(coarse, fine)]))
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = [self.first(x)]
        for down in self.downs:
            kept.append(down(kept[-1]))
        x = kept.pop()
        for up, convolved in self.ups:
            x = convolved(torch.cat([kept.pop(), up(x)], 1))
        return self.last(x)


class Residual(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


class EDSR(nn.Sequential):
    """EDSR's baseline: residual blocks without norms, one between both ends, pixels shuffled at last."""

    def __init__(self, width: int, blocks: int, scale: int = 2) -> None:
        def convolved(inside: int = width, outside: int = width) -> nn.Conv2d:
            return nn.Conv2d(inside, outside, 3, padding=1)

        body = [Residual(convolved(), nn.ReLU(True), convolved()) for _ in range(blocks)]
        super().__init__(
            convolved(3), Residual(*body, convolved()), convolved(width, scale * scale * width),
            nn.PixelShuffle(scale), convolved(width, 3),
        )  # fmt: skip


class VAE(nn.Module):
    """pytorch/examples/vae."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
        self.decoder = mlp(20, 400, 784)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        h = F.relu(self.fc1(x))
        mean, spread = self.fc21(h), self.fc22(h)
        return self.decoder(mean + torch.randn_like(mean) * (0.5 * spread).exp()), mean, spread
