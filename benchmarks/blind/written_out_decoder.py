"""A Gemma-like decoder whose RMSNorm, rotary embedding and GeGLU are written out in fp32."""

# Arithmetic (H200): 6 x 2048 = 12288 tokens, d 1024, ff 4096, 3 layers. Traffic per layer, both ways:
# six RMSNorms (pow, mean, two products, casts in fp32) 7.5 GB, GeGLU (nine fp32 ops on 50M elements) 11 GB,
# rotary 3 GB: 21.5 GB, 5.7 ms, x 3 = 17 ms; loss and optimizer 2 ms. GEMMs: 3 x 2.1 ms + head 2.1 ms,
# flash attention 3 x 0.65 ms: 10 ms. Sum 29 ms: memory 65 %, compute 35 %. 1500 kernels launched in 9 ms.
# Fused norms and bf16 GeGLU/rotary: traffic per layer 5 GB: 17 ms becomes 4.5 ms, step 17 ms.

import types

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

TRUTH = {
    "regime": "memory",
    "cause": "RMSNorm, rotary embedding and GeGLU written out op by op in fp32 on large tensors",
    "advice": ["fuse-pointwise"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "enable-tf32-or-amp",
        "channels-last",
        "flash-attention",
        "pin-memory",
        "tensor-core-alignment",
        "launch-bound-compile",
    ],
}


def rms_norm(x, weight, eps=1e-6):
    x32 = x.float()
    x32 = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + eps)
    return (x32 * (1.0 + weight.float())).type_as(x)


def rotary(x, cos, sin):
    x32 = x.float()
    x1, x2 = x32.chunk(2, dim=-1)
    rotated = torch.cat((-x2, x1), dim=-1)
    return (x32 * cos + rotated * sin).type_as(x)


def geglu(gate, up):
    g = gate.float()
    inner = 0.7978845608 * (g + 0.044715 * g * g * g)
    act = 0.5 * g * (1.0 + torch.tanh(inner))
    return (act * up.float()).type_as(gate)


WRITTEN_OUT = types.SimpleNamespace(rms_norm=rms_norm, rotary=rotary, geglu=geglu)


class DecoderLayer(nn.Module):
    def __init__(self, d, heads, ff, ops):
        super().__init__()
        self.heads, self.ops = heads, ops
        self.qkv_proj = nn.Linear(d, 3 * d, bias=False)
        self.o_proj = nn.Linear(d, d, bias=False)
        self.gate_proj = nn.Linear(d, ff, bias=False)
        self.up_proj = nn.Linear(d, ff, bias=False)
        self.down_proj = nn.Linear(ff, d, bias=False)
        self.pre_attn = nn.Parameter(torch.zeros(d))
        self.post_attn = nn.Parameter(torch.zeros(d))
        self.pre_ff = nn.Parameter(torch.zeros(d))
        self.post_ff = nn.Parameter(torch.zeros(d))
        self.q_norm = nn.Parameter(torch.zeros(d // heads))
        self.k_norm = nn.Parameter(torch.zeros(d // heads))

    def forward(self, x, cos, sin):
        norm, rope = self.ops.rms_norm, self.ops.rotary
        b, t, d = x.shape
        qkv = self.qkv_proj(norm(x, self.pre_attn)).view(b, t, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        q = rope(norm(q, self.q_norm), cos, sin)
        k = rope(norm(k, self.k_norm), cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + norm(self.o_proj(y.transpose(1, 2).reshape(b, t, d)), self.post_attn)
        y = norm(x, self.pre_ff)
        y = self.down_proj(self.ops.geglu(self.gate_proj(y), self.up_proj(y)))
        return x + norm(y, self.post_ff)


class Decoder(nn.Module):
    def __init__(self, vocab, d, heads, ff, depth, context, ops):
        super().__init__()
        self.ops, self.d = ops, d
        self.embed = nn.Embedding(vocab, d)
        nn.init.normal_(self.embed.weight, std=d**-0.5)
        self.layers = nn.ModuleList(DecoderLayer(d, heads, ff, ops) for _ in range(depth))
        self.norm = nn.Parameter(torch.zeros(d))
        half = d // heads // 2
        angle = torch.arange(context)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angle.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angle.sin().repeat(1, 2), persistent=False)

    def forward(self, ids):
        x = self.embed(ids) * self.d**0.5
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.linear(self.ops.rms_norm(x, self.norm), self.embed.weight)


def build(cfg, ops=WRITTEN_OUT):
    vocab, d, heads, ff, depth = cfg.pick((16384, 1024, 16, 4096, 3), (128, 32, 2, 64, 1))
    batch, context = cfg.pick((6, 2048), (2, 16))
    with cfg.device:
        model = Decoder(vocab, d, heads, ff, depth, context, ops)
        stream = torch.randint(vocab, (4, batch, context + 1))
    for p in model.parameters():
        p.data = p.data.to(torch.bfloat16)  # the rotary tables stay in fp32
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4, betas=(0.9, 0.95), fused=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=10000)

    def step(i):
        ids = stream[i % len(stream)]
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
