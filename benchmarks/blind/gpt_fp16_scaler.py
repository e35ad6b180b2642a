"""nanoGPT-style trainer: fp16 autocast, GradScaler, gradient accumulation, heads of 64, padded vocabulary. Healthy."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# 2 micro-batches of 8x1024 tokens, d 1536, 8 layers, tied 50304 head: 303 M weights in products.
# GEMMs 6*303e6*16384 = 29.8 TFLOP at ~600 TFLOP/s = 50 ms; causal flash attention 1.24 TFLOP = 5 ms.
# Cross-entropy over 16384x50304 fp32 (~23 GB) 6 ms; norms, GELU, residuals, casts (~37 GB) 9 ms;
# unscale + clip + fused AdamW + weight casts over 304 M fp32 weights (~18 GB) 4.5 ms.
# Compute 55 of ~75 ms (73 %). Host: ~1500 launches = 12 ms, hidden. Fused AdamW takes found_inf on
# the device, so GradScaler reads nothing back. Memory ~15 GB.
TRUTH = {
    "regime": "compute",
    "cause": "healthy: fp16 tensor-core GEMMs and flash attention with heads of 64",
    "advice": ["none-healthy"],
    "not_advice": [
        "enable-tf32-or-amp",
        "flash-attention",
        "tensor-core-alignment",
        "sync-point",
        "launch-bound-compile",
        "fused-optimizer",
        "dataloader-stall",
        "pin-memory",
    ],
}


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (z.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention(n_embd, n_head)
        self.ln_2 = nn.LayerNorm(n_embd)
        self.c_fc = nn.Linear(n_embd, 4 * n_embd)
        self.c_proj = nn.Linear(4 * n_embd, n_embd)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocab_size, block_size, n_layer, n_head, n_embd):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList([Block(n_embd, n_head) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                scale = 1 / math.sqrt(2 * n_layer) if name.endswith("c_proj.weight") else 1.0
                nn.init.normal_(p, std=0.02 * scale)

    def forward(self, idx, targets):
        pos = torch.arange(idx.size(1), device=idx.device)
        x = self.wte(idx) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)  # tied
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


def build(cfg):
    vocab, block, layers, heads, width = cfg.pick((50304, 1024, 8, 24, 1536), (512, 32, 2, 2, 128))
    batch = cfg.pick(8, 2)
    accumulate, max_lr, warmup, decay = 2, 3e-4, 100, 5000

    rng = np.random.default_rng(0)
    corpus = np.minimum(rng.zipf(1.2, 2_000_000), vocab - 1).astype(np.uint16)

    def get_batch():
        at = rng.integers(0, len(corpus) - block - 1, batch)
        rows = torch.from_numpy(np.stack([corpus[j : j + block + 1] for j in at]).astype(np.int64))
        if cfg.cuda:
            rows = rows.pin_memory().to(cfg.device, non_blocking=True)
        return rows[:, :-1], rows[:, 1:]

    with cfg.device:
        model = GPT(vocab, block, layers, heads, width)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
        lr=max_lr, betas=(0.9, 0.95), fused=True,
    )  # fmt: skip
    scaler = torch.amp.GradScaler(cfg.device.type, enabled=cfg.cuda)
    half = torch.float16 if cfg.cuda else torch.bfloat16

    def lr_at(it):
        if it < warmup:
            return max_lr * (it + 1) / warmup
        ratio = min(1.0, (it - warmup) / decay)
        return 0.1 * max_lr + 0.45 * max_lr * (1 + math.cos(math.pi * ratio))

    def step(i):
        for group in optimizer.param_groups:
            group["lr"] = lr_at(i)
        total = torch.zeros((), device=cfg.device)
        for _ in range(accumulate):
            x, y = get_batch()
            with cfg.amp(half):
                loss = model(x, y) / accumulate
            scaler.scale(loss).backward()
            total += loss.detach()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return total

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
