"""Decoder with rotary positions, SwiGLU of int(8 / 3 * d) and GPT-2's vocabulary of 50257, pure bf16."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# 8x1024 tokens, d 1024, 6 layers. Head 50257x1024: 6*51.5e6*8192 = 2.5 TFLOP, rows of logits 50257 long
# (2-byte aligned): ~200 TFLOP/s instead of 600 = 13 ms. SwiGLU 2730 (rows of 5460 B, 4-byte aligned):
# 8.4e6*6*6*8192 = 2.5 TFLOP at ~300 = 8 ms. Aligned attention Linears 1.2 TFLOP 2 ms, SDPA 1.2 ms.
# Cross-entropy on 412 M logits in fp32 ~12 GB 3 ms, pointwise ~10 GB 2.5 ms, fused AdamW 0.7 ms.
# Compute ~24 of ~30 ms (79 %); ~450 launches, 4 ms of host, hidden. Memory ~11 GB.
TRUTH = {
    "regime": "compute",
    "cause": "bf16 products with row lengths 50257 and 2730: not 16-byte aligned, slow tensor-core kernels",
    "advice": ["tensor-core-alignment"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "channels-last",
        "flash-attention",
        "pin-memory",
        "fused-optimizer",
    ],
}


def rotary_table(length, dim, base=10000.0):
    freq = base ** (-torch.arange(0, dim, 2).float() / dim)
    angle = torch.outer(torch.arange(length).float(), freq)
    return angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class SwiGLU(nn.Module):
    def __init__(self, dim):
        super().__init__()
        hidden = int(8 / 3 * dim)
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.mlp = SwiGLU(dim)
        self.norm1 = nn.RMSNorm(dim, eps=1e-5)
        self.norm2 = nn.RMSNorm(dim, eps=1e-5)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        qkv = self.wqkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, vocab, dim, heads, layers, context):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([DecoderLayer(dim, heads) for _ in range(layers)])
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        self.output = nn.Linear(dim, vocab, bias=False)
        cos, sin = rotary_table(context, dim // heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens):
        x = self.tok(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.output(self.norm(x))


def build(cfg):
    vocab, dim, heads, layers = cfg.pick((50257, 1024, 8, 6), (257, 64, 2, 2))
    batch, context = cfg.pick((8, 1024), (2, 16))
    with cfg.device:
        model = Decoder(vocab, dim, heads, layers, context).to(torch.bfloat16)
        stream = torch.randint(vocab, (64 * batch * context + 1,))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, 100),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000),
        ],
        milestones=[100],
    )
    chunk = batch * context

    def step(i):
        at = (i % 64) * chunk
        inputs = stream[at : at + chunk].view(batch, context)
        targets = stream[at + 1 : at + chunk + 1]
        optimizer.zero_grad(set_to_none=True)
        logits = model(inputs).view(-1, vocab).float()
        loss = F.cross_entropy(logits, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
