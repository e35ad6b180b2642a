"""Autoregressive model over neural-codec tokens (four codebooks, delay pattern)."""

import math

import torch
import torch.nn.functional as F
from harness import main
from torch import nn

# 65536 rows x 512, bf16 tensor 67 MB (fp32 134), hidden 268 MB (537); per layer, at ~4.1 TB/s:
# .float() / .to(bf16) round norm, rope, residual, gelu: 4.4 GB forward + 4.4 back = 2.1 ms;
# fp32 LayerNorm, rope, residual adds, GELU, gradient sums: ~11 GB = 2.7 ms;
# GEMMs 1.24 TFLOP = 2.2 ms, flash attention 0.24 TFLOP = 0.7 ms. Six layers: ~46 ms.
# Heads + cross-entropy ~6 GB 1.5 ms and 0.8 TFLOP 1.3 ms. Memory ~62 %, compute ~37 %, casts ~27 %.
# All bf16 with fused kernels' own fp32 accumulation: casts gone, pointwise halved: -35 % or more.
TRUTH = {
    "regime": "memory",
    "cause": "every norm, rope, activation and residual goes bf16 -> fp32 -> bf16 by separate casts",
    "advice": ["cast-churn"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "fused-optimizer",
        "pin-memory",
        "cuda-graphs",
    ],
}


class StableNorm(nn.Module):
    """LayerNorm in single precision whatever the model runs in."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        y = F.layer_norm(x.float(), x.shape[-1:], self.weight.float(), self.bias.float(), eps=1e-5)
        return y.to(x.dtype)


class StableGELU(nn.Module):
    def forward(self, x):
        return F.gelu(x.float()).to(x.dtype)


def stable_add(x, y):
    return (x.float() + y.float()).to(x.dtype)


def apply_rope(x, cos, sin):
    z = x.float()
    a, b = z.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


class CodecBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attn_norm = StableNorm(width)
        self.to_qkv = nn.Linear(width, 3 * width, bias=False)
        self.to_out = nn.Linear(width, width, bias=False)
        self.ff_norm = StableNorm(width)
        self.ff = nn.Sequential(
            nn.Linear(width, 4 * width), StableGELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, cos, sin):
        B, T, W = x.shape
        qkv = self.to_qkv(self.attn_norm(x)).view(B, T, 3, self.heads, W // self.heads)
        q, k, v = (t.transpose(1, 2) for t in qkv.unbind(2))
        q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = stable_add(x, self.to_out(y.transpose(1, 2).reshape(B, T, W)))
        return stable_add(x, self.ff(self.ff_norm(x)))


class CodecLM(nn.Module):
    def __init__(self, books, codes, width, heads, depth, frames):
        super().__init__()
        self.books, self.codes = books, codes
        self.tables = nn.ModuleList(nn.Embedding(codes + 1, width) for _ in range(books))
        self.blocks = nn.ModuleList(CodecBlock(width, heads) for _ in range(depth))
        self.norm = StableNorm(width)
        self.heads = nn.Linear(width, books * codes, bias=False)
        half = width // heads // 2
        freq = 10000.0 ** (-torch.arange(half) / half)
        angle = torch.arange(frames)[:, None] * freq
        self.register_buffer("angle", angle, persistent=False)

    def forward(self, tokens):
        x = sum(table(tokens[:, b]) for b, table in enumerate(self.tables))
        angle = self.angle.float()
        cos, sin = angle.cos(), angle.sin()
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.heads(self.norm(x)).unflatten(-1, (self.books, self.codes))


def delayed(codes, start):
    """Book b is shifted by b frames, as in MusicGen."""
    out = torch.full_like(codes, start)
    for b in range(codes.shape[1]):
        out[:, b, b + 1 :] = codes[:, b, : codes.shape[2] - b - 1]
    return out


def build(cfg):
    books, codes = cfg.pick((4, 1024), (2, 32))
    width, heads, depth = cfg.pick((512, 8, 6), (32, 2, 1))
    batch, frames = cfg.pick((64, 1024), (2, 24))
    with cfg.device:
        model = CodecLM(books, codes, width, heads, depth, frames).to(torch.bfloat16)
        clips = torch.randint(codes, (3, batch, books, frames))
        inputs = torch.stack([delayed(c, codes) for c in clips])
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
        lr=3e-4,
        fused=True,
    )

    def lr_at(i):
        return (
            3e-4 * min(1.0, (i + 1) / 200) * 0.5 * (1 + math.cos(math.pi * min(i, 20000) / 20000))
        )

    def step(i):
        for group in optimizer.param_groups:
            group["lr"] = lr_at(i)
        logits = model(inputs[i % 3])
        target = clips[i % 3].transpose(1, 2)
        loss = F.cross_entropy(logits.reshape(-1, codes).float(), target.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
