"""Masked-residue pretraining of an ESM-like protein encoder, few tokens a step, many weights."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

TRUTH = {
    "regime": "memory",
    "cause": "AdamW with foreach=False streams 680 M fp32 weights through memory eight times",
    "advice": ["fused-optimizer"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "tensor-core-alignment",
        "pin-memory",
        "cuda-graphs",
    ],
}
# 6 layers x 12 x 3072^2 = 680 M parameters, 1024 tokens (4 x 256), bf16 autocast.
# GEMMs: 6 x 680e6 x 1024 = 4.2 TFLOP at ~550 TFLOP/s = 7.6 ms.
# AdamW for-loop: mul, lerp, mul, addcmul, sqrt, div, add, addcdiv = 80 B/param = 54 GB: 13 ms
# (fused: 28 B/param = 4.7 ms).  Clipping 2.1 ms, weight and grad casts 2 ms, pointwise 0.5 ms.
# Step ~25 ms, memory ~70 %; host: ~100 tensors x 10 launches + ~800 others ~ 11 ms, hidden.

ALPHABET = 33
MASK_ID = 32


class SelfAttention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        B, L, D = x.shape
        qkv = self.qkv(x).view(B, L, 3, self.n_heads, D // self.n_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(B, L, D))


class EncoderLayer(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.attn_norm = nn.LayerNorm(dim)
        self.attn = SelfAttention(dim, n_heads)
        self.ffn_norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))
        return x + self.fc2(F.gelu(self.fc1(self.ffn_norm(x))))


class ProteinEncoder(nn.Module):
    def __init__(self, dim, n_heads, n_layers, max_len):
        super().__init__()
        self.tokens = nn.Embedding(ALPHABET, dim)
        self.positions = nn.Parameter(0.02 * torch.randn(max_len, dim))
        self.layers = nn.ModuleList(EncoderLayer(dim, n_heads) for _ in range(n_layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, ALPHABET)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def corrupt(ids):
    """15 % of the residues become targets; of these 80 % <mask>, 10 % random."""
    draw = torch.rand(ids.shape, device=ids.device)
    targets = torch.where(draw < 0.15, ids, -100)
    noisy = torch.where(draw < 0.12, MASK_ID, ids)
    other = torch.randint_like(ids, 20)
    return torch.where((draw >= 0.12) & (draw < 0.135), other, noisy), targets


def build(cfg):
    dim, n_heads, n_layers = cfg.pick((3072, 24, 6), (32, 4, 2))
    batch, length = cfg.pick((4, 256), (2, 16))
    with cfg.device:
        model = ProteinEncoder(dim, n_heads, n_layers, length)
        residues = torch.randint(20, (64, batch, length))
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    # foreach wants a second copy of everything for its intermediates, so: one by one
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}],
        lr=1e-4,
        betas=(0.9, 0.98),
        foreach=False,
        fused=False,
    )
    warmup, total = 200, 100_000

    def schedule(k):
        if k < warmup:
            return (k + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (k - warmup) / total)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)

    def step(i):
        noisy, targets = corrupt(residues[i % 64])
        with cfg.amp():
            logits = model(noisy)
        loss = F.cross_entropy(logits.float().view(-1, ALPHABET), targets.view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
