"""Continued pre-training of a Llama-style decoder on 12k-token packed documents, everything in bf16.

Grouped-query attention, rotary embeddings, SwiGLU, RMSNorm, no biases; weights, gradients and
optimizer state are bf16, as for a quick long-context extension on one card.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from harness import main
from torch import nn

TRUTH = {
    "regime": "compute",
    "cause": "healthy: wide bf16 GEMMs and long causal flash attention fill the step",
    "advice": ["none-healthy"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "fused-optimizer",
        "bigger-batch",
        "tensor-core-alignment",
    ],
}
# N = 12288 tokens, 297 M block + 98 M head parameters, U = N*d*2 B = 75 MB.
# GEMMs 6*N*395e6 = 29 TFLOP at ~650 = 45 ms; attention 3 * 3.5 * 2*N^2*d = 9.7 TFLOP at ~400 = 24 ms.
# Pointwise (RoPE, SwiGLU 201 MB tensors, norms, residuals): ~8 GB a layer = 2 ms, x3 = 6 ms.
# fp32 cross-entropy over 32000: ~14 GB = 3.5 ms; clip 0.8 ms, fused AdamW 494 M * 14 B = 1.8 ms.
# Sum ~82 ms: compute 69 (84 %), memory 12 (15 %); ~700 launches = 5 ms of host, hidden.


@dataclass
class ModelArgs:
    vocab: int = 32000
    dim: int = 3072
    n_heads: int = 24
    n_kv_heads: int = 6
    hidden: int = 8192
    n_layers: int = 3
    max_len: int = 12288
    rope_base: float = 5e6


def rope_table(args):
    hd = args.dim // args.n_heads
    inv = args.rope_base ** (-torch.arange(0, hd, 2).float() / hd)
    angle = torch.outer(torch.arange(args.max_len).float(), inv)
    angle = torch.cat((angle, angle), dim=-1)[None, :, None, :]
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.hd = args.dim // args.n_heads
        self.wq = nn.Linear(args.dim, args.n_heads * self.hd, bias=False)
        self.wk = nn.Linear(args.dim, args.n_kv_heads * self.hd, bias=False)
        self.wv = nn.Linear(args.dim, args.n_kv_heads * self.hd, bias=False)
        self.wo = nn.Linear(args.n_heads * self.hd, args.dim, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = rotate(self.wq(x).view(b, t, -1, self.hd), cos, sin)
        k = rotate(self.wk(x).view(b, t, -1, self.hd), cos, sin)
        v = self.wv(x).view(b, t, -1, self.hd)
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
        )
        return self.wo(y.transpose(1, 2).reshape(b, t, -1))


class FeedForward(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.w1 = nn.Linear(args.dim, args.hidden, bias=False)
        self.w2 = nn.Linear(args.hidden, args.dim, bias=False)
        self.w3 = nn.Linear(args.dim, args.hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.attention_norm = nn.RMSNorm(args.dim, eps=1e-5)
        self.attention = Attention(args)
        self.ffn_norm = nn.RMSNorm(args.dim, eps=1e-5)
        self.feed_forward = FeedForward(args)

    def forward(self, x, cos, sin):
        h = x + self.attention(self.attention_norm(x), cos, sin)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.tok_embeddings = nn.Embedding(args.vocab, args.dim)
        self.layers = nn.ModuleList(TransformerBlock(args) for _ in range(args.n_layers))
        self.norm = nn.RMSNorm(args.dim, eps=1e-5)
        self.output = nn.Linear(args.dim, args.vocab, bias=False)
        cos, sin = rope_table(args)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids):
        t = ids.shape[1]
        cos, sin = self.cos[:, :t], self.sin[:, :t]
        h = self.tok_embeddings(ids)
        for layer in self.layers:
            h = layer(h, cos, sin)
        return self.output(self.norm(h))


class PackedTokens:
    """A flat uint16 token file (here: made up, Zipf-like), read in random windows."""

    def __init__(self, vocab, length, size):
        rng = np.random.default_rng(1)
        self.tokens = np.minimum(rng.zipf(1.3, size), vocab - 1).astype(np.uint16)
        self.length = length
        self.rng = rng

    def batch(self, rows):
        starts = self.rng.integers(0, len(self.tokens) - self.length - 1, rows)
        windows = np.stack([self.tokens[s : s + self.length + 1] for s in starts])
        return torch.from_numpy(windows.astype(np.int64))


def build(cfg):
    args = cfg.pick(ModelArgs(), ModelArgs(256, 64, 4, 2, 128, 2, 64))
    with cfg.device:
        model = Llama(args).to(torch.bfloat16)
    data = PackedTokens(args.vocab, args.max_len, cfg.pick(4_000_000, 10_000))
    decay = [p for p in model.parameters() if p.dim() == 2]
    rest = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=2e-5, betas=(0.9, 0.95), fused=True)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 50))

    def load():
        ids = data.batch(1)
        if cfg.cuda:
            ids = ids.pin_memory()
        return ids.to(cfg.device, non_blocking=True)

    def step(i):
        ids = load()
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warmup.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
