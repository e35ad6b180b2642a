#!/usr/bin/env python
"""enwik8-style byte model, RWKV-5.0 flavour (scalar decay per head), chunked, in plain torch ops.

No custom CUDA kernel: time mixing is written out with matmuls inside chunks of 64 and one small
matmul across chunks, so nothing is sequential, but every token shift, lerp and gate is an op of
its own.
"""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

TRUTH = {
    "regime": "memory",
    "cause": "token shifts, lerps, gates and decay masks as separate eager kernels over 67 MB tensors",
    "advice": ["fuse-pointwise"],
    "not_advice": [
        "launch-bound-compile",
        "flash-attention",
        "enable-tf32-or-amp",
        "dataloader-stall",
        "sync-point",
        "fused-optimizer",
        "bigger-batch",
        "tensor-core-alignment",
    ],
}
# N = 32*2048 = 65536 bytes-tokens, d = 512, bf16: U = 67 MB, one pass = 17 us.
# Passes per layer: time mix ~80 U forward, channel mix ~39 U, backward about twice: ~370 U = 6.3 ms.
# GEMMs per layer: 13.5 d^2 = 3.5 M weights, 6*N*3.5e6 = 1.4 TFLOP at ~560 = 2.5 ms.
# Three layers: memory 19 ms, compute 7.5 ms; head (256 bytes) and loss 0.6 ms, AdamW+EMA on 11 M 0.2 ms.
# Sum ~27 ms: memory 71 %, compute 28 %; ~950 launches at 6 us = 5 ms of host, hidden.


def shift(x):
    """What the previous position saw (zeros for the first)."""
    return F.pad(x, (0, 0, 1, -1))


class TimeMix(nn.Module):
    CHUNK = 64

    def __init__(self, d, head):
        super().__init__()
        self.head, self.n = head, d // head
        self.mu_r, self.mu_k, self.mu_v, self.mu_g = (nn.Parameter(torch.rand(d)) for _ in range(4))
        self.decay = nn.Parameter(torch.linspace(-5.0, -1.5, self.n))
        self.bonus = nn.Parameter(torch.full((self.n,), 0.5))
        self.r = nn.Linear(d, d, bias=False)
        self.k = nn.Linear(d, d, bias=False)
        self.v = nn.Linear(d, d, bias=False)
        self.g = nn.Linear(d, d, bias=False)
        self.o = nn.Linear(d, d, bias=False)
        self.scale = nn.Parameter(torch.ones(d))

    def tables(self, length, chunks, device):
        """Decay inside a chunk, to its end, from its start, and from chunk to chunk."""
        log_w = -torch.exp(self.decay.float()).view(-1, 1, 1)
        i = torch.arange(length, device=device)
        gap = (i[:, None] - i[None, :] - 1).float()
        inside = torch.exp(log_w * gap.clamp(min=0)) * (gap >= 0)
        inside = inside + torch.eye(length, device=device) * self.bonus.float().view(-1, 1, 1)
        to_end = torch.exp(log_w * (length - 1 - i).float().view(1, -1, 1))
        from_start = torch.exp(log_w * i.float().view(1, -1, 1))
        c = torch.arange(chunks, device=device)
        hop = (c[:, None] - c[None, :] - 1).float()
        across = torch.exp(log_w * length * hop.clamp(min=0)) * (hop >= 0)
        return inside, to_end, from_start, across

    def forward(self, x):
        b, t, d = x.shape
        length = min(self.CHUNK, t)
        chunks = t // length
        dx = shift(x) - x
        r = self.r(x + dx * self.mu_r)
        k = self.k(x + dx * self.mu_k)
        v = self.v(x + dx * self.mu_v)
        g = F.silu(self.g(x + dx * self.mu_g))

        def split(z):  # (batch, head, chunk, position, channel)
            z = z.view(b, chunks, length, self.n, self.head)
            return z.permute(0, 3, 1, 2, 4).contiguous()

        r, k, v = split(r), split(k), split(v)
        inside, to_end, from_start, across = (
            z.to(x.dtype) for z in self.tables(length, chunks, x.device)
        )
        scores = (r @ k.transpose(-1, -2)) * inside[:, None]
        y = scores @ v
        state = (k * to_end[:, None]).transpose(-1, -2) @ v  # what each chunk adds
        past = across @ state.flatten(-2)
        y = y + (r * from_start[:, None]) @ past.view_as(state)

        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5)  # norm of each head
        y = y.permute(0, 2, 3, 1, 4).reshape(b, t, d) * self.scale
        return self.o(y * g)


class ChannelMix(nn.Module):
    def __init__(self, d):
        super().__init__()
        hidden = d * 7 // 2
        self.mu_k = nn.Parameter(torch.rand(d))
        self.mu_r = nn.Parameter(torch.rand(d))
        self.k = nn.Linear(d, hidden, bias=False)
        self.v = nn.Linear(hidden, d, bias=False)
        self.r = nn.Linear(d, d, bias=False)

    def forward(self, x):
        dx = shift(x) - x
        k = torch.relu(self.k(x + dx * self.mu_k)) ** 2
        r = torch.sigmoid(self.r(x + dx * self.mu_r))
        return r * self.v(k)


class RWKV(nn.Module):
    def __init__(self, d, head, layers):
        super().__init__()
        self.emb = nn.Embedding(256, d)
        self.ln0 = nn.LayerNorm(d)
        self.ln1 = nn.ModuleList(nn.LayerNorm(d) for _ in range(layers))
        self.ln2 = nn.ModuleList(nn.LayerNorm(d) for _ in range(layers))
        self.att = nn.ModuleList(TimeMix(d, head) for _ in range(layers))
        self.ffn = nn.ModuleList(ChannelMix(d) for _ in range(layers))
        self.ln_out = nn.LayerNorm(d)
        self.head = nn.Linear(d, 256, bias=False)

    def forward(self, idx):
        x = self.ln0(self.emb(idx))
        for ln1, att, ln2, ffn in zip(self.ln1, self.att, self.ln2, self.ffn):
            x = x + att(ln1(x))
            x = x + ffn(ln2(x))
        return self.head(self.ln_out(x))


def make_text(size):
    rng = np.random.default_rng(7)
    words = [bytes(rng.integers(97, 123, n).tolist()) for n in rng.integers(2, 9, 3000)]
    picks = np.minimum(rng.zipf(1.4, size // 4), len(words)) - 1
    return np.frombuffer(b" ".join(words[p] for p in picks)[:size], dtype=np.uint8)


def build(cfg):
    d, head, layers = cfg.pick((512, 64, 3), (32, 8, 2))
    batch, ctx = cfg.pick((32, 2048), (2, 128))
    text = make_text(cfg.pick(4_000_000, 20_000))
    rng = np.random.default_rng(0)
    with cfg.device:
        model = RWKV(d, head, layers).to(torch.bfloat16)
    ema = copy.deepcopy(model).requires_grad_(False)
    params, shadow = list(model.parameters()), list(ema.parameters())
    opt = torch.optim.AdamW(params, lr=6e-4, betas=(0.9, 0.99), fused=True)

    def get_batch():
        at = rng.integers(0, len(text) - ctx - 1, batch)
        host = torch.from_numpy(text[at[:, None] + np.arange(ctx + 1)])
        if cfg.cuda:
            host = host.pin_memory()
        return host.to(cfg.device, non_blocking=True).long()

    def step(i):
        for group in opt.param_groups:
            group["lr"] = 6e-4 * min(1.0, (i + 1) / 100)
        seq = get_batch()
        logits = model(seq[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 256).float(), seq[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        torch._foreach_lerp_(shadow, params, 0.002)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
