"""Small-scale recipe run: QK-normed GQA decoder, fp32 weights, bf16 autocast, torch.compile."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

TRUTH = {
    "regime": "compute",
    "cause": "healthy: compiled decoder, large autocast GEMMs, fused norms and loss",
    "advice": ["none-healthy"],
    "not_advice": [
        "launch-bound-compile",
        "recompilation",
        "graph-breaks",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "fused-optimizer",
        "dataloader-stall",
    ],
}
# N = 8*2048 = 16384 tokens; 3 blocks * 63 M + head 50 M = 239 M matmul weights, vocabulary 24576.
# GEMMs 6*N*239e6 = 23.5 TFLOP at ~640 = 37 ms; attention 1.4 TFLOP at ~380 = 3.8 ms.
# Fused pointwise ~3.5 GB a block (268 MB SwiGLU tensors, fp32 residual) = 0.9 ms, x3 = 2.7 ms;
# fused cross-entropy on 0.8 GB logits ~4 passes = 0.9 ms; weight and gradient casts 3 GB = 0.8 ms.
# clip 1 ms + fused AdamW 289 M * 28 B = 2.1 ms.  Sum ~48 ms: compute 41 (84 %), memory 7.5 (15 %).
# Host: 3 dozen extern calls a pass, ~3 ms a step, hidden.

VOCAB, WIDTH, HEADS, KV, FFN, DEPTH = 24576, 2048, 16, 8, 8192, 3


class Layer(nn.Module):
    def __init__(self, d, heads, kv, ffn):
        super().__init__()
        self.heads, self.kv, self.hd = heads, kv, d // heads
        self.in_norm = nn.RMSNorm(d)
        self.qkv = nn.Linear(d, (heads + 2 * kv) * self.hd, bias=False)
        self.q_norm = nn.RMSNorm(self.hd)
        self.k_norm = nn.RMSNorm(self.hd)
        self.out = nn.Linear(d, d, bias=False)
        self.mid_norm = nn.RMSNorm(d)
        self.gate_up = nn.Linear(d, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, d, bias=False)

    def attend(self, x, cos, sin):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(x)
            .view(b, t, self.heads + 2 * self.kv, self.hd)
            .transpose(1, 2)
            .split((self.heads, self.kv, self.kv), dim=1)
        )
        q = turn(self.q_norm(q.float()), cos, sin).to(v.dtype)
        k = turn(self.k_norm(k.float()), cos, sin).to(v.dtype)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))

    def forward(self, x, cos, sin):
        x = x + self.attend(self.in_norm(x), cos, sin)
        gate, up = self.gate_up(self.mid_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def turn(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Decoder(nn.Module):
    def __init__(self, vocab, d, heads, kv, ffn, depth, context):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(Layer(d, heads, kv, ffn) for _ in range(depth))
        self.norm = nn.RMSNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        hd = d // heads
        freq = 10000.0 ** (-torch.arange(0, hd, 2, dtype=torch.float32) / hd)
        angle = torch.arange(context, dtype=torch.float32)[:, None] * freq
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                std = 0.02 / math.sqrt(2 * depth) if "down" in name or "out" in name else 0.02
                nn.init.normal_(p, std=std)

    def forward(self, ids, labels):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.reshape(-1))


def build(cfg):
    size = cfg.pick((VOCAB, WIDTH, HEADS, KV, FFN, DEPTH), (128, 64, 4, 2, 128, 2))
    batch, context = cfg.pick((8, 2048), (2, 32))
    with cfg.device:
        model = Decoder(*size, context)
        corpus = torch.randint(size[0], (cfg.pick(2_000_000, 4000),))
        window = torch.arange(context + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10_000)
    # inductor needs a C++ compiler on a CPU: aot_eager is the stand-in for the tiny run
    net = torch.compile(model, backend="inductor" if cfg.cuda else "aot_eager")

    def step(i):
        start = torch.randint(len(corpus) - context - 1, (batch, 1), device=cfg.device)
        tokens = corpus[start + window]
        with cfg.amp():
            loss = net(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
