"""PatchTST forecaster on 321 electricity meters: channel-independent patches, RevIN, OneCycle."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# 4 windows x 321 meters x 64 patches = 82176 tokens, d 576, ffn 2304, 4 layers, eager bf16 autocast, dropout 0.2.
# GEMMs: 72 d^2 = 23.9 MFLOP per token and layer, 7.9 TFLOP at ~ 540 TFLOP/s (K of 576, split-K weight gradients) = 14.5 ms.
# Attention over 64 patches, flash: 1.5 ms. Head, patches, RevIN, AdamW (16 M): 0.5 ms.
# Pointwise, dispatched op by op: fp32 LayerNorms and their casts, residuals, GELU, 13 dropouts, bias gradients, qkv stacking:
# ~ 290 d bytes per token and layer with backward = 55 GB at ~ 3.6 TB/s = 15.3 ms.
# Step ~ 32 ms: compute ~ 49 %, bandwidth ~ 49 %; about 450 launches, the host needs 6 ms and stays ahead.
TRUTH = {
    "regime": "mixed",
    "cause": "narrow GEMMs and the unfused dropout/LayerNorm/GELU/cast traffic of autocast take the same time",
    "advice": ["fuse-pointwise"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "fused-optimizer",
        "tensor-core-alignment",
        "pin-memory",
        "flash-attention",
    ],
}


class RevIN(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels, 1))
        self.shift = nn.Parameter(torch.zeros(channels, 1))

    def norm(self, x):
        self.mean = x.mean(-1, keepdim=True)
        self.std = (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        return (x - self.mean) / self.std * self.gain + self.shift

    def denorm(self, y):
        return (y - self.shift) / (self.gain + 1e-6) * self.std + self.mean


class EncoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout):
        super().__init__()
        self.n_heads = n_heads
        self.norm_attn = nn.LayerNorm(d_model)
        self.W_QKV = nn.Linear(d_model, 3 * d_model)
        self.W_O = nn.Linear(d_model, d_model)
        self.drop_attn = nn.Dropout(dropout)
        self.norm_ff = nn.LayerNorm(d_model)
        self.ff = nn.Sequential(
            nn.Linear(d_model, d_ff),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(d_ff, d_model),
        )
        self.drop_ff = nn.Dropout(dropout)

    def forward(self, x):
        n, t, d = x.shape
        qkv = self.W_QKV(self.norm_attn(x)).view(n, t, 3, self.n_heads, d // self.n_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, d)
        x = x + self.drop_attn(self.W_O(a))
        return x + self.drop_ff(self.ff(self.norm_ff(x)))


class PatchTST(nn.Module):
    def __init__(self, channels, context, horizon, patch, stride, d_model, n_heads, d_ff, layers):
        super().__init__()
        self.patch, self.stride = patch, stride
        patches = (context - patch) // stride + 2  # one more by padding the end
        self.revin = RevIN(channels)
        self.W_P = nn.Linear(patch, d_model)
        self.W_pos = nn.Parameter(0.02 * torch.randn(patches, d_model))
        self.dropout = nn.Dropout(0.2)
        self.layers = nn.ModuleList(
            EncoderLayer(d_model, n_heads, d_ff, 0.2) for _ in range(layers)
        )
        self.head = nn.Linear(patches * d_model, horizon)

    def forward(self, x):
        b, c, _ = x.shape
        z = F.pad(self.revin.norm(x), (0, self.stride), mode="replicate")
        z = z.unfold(-1, self.patch, self.stride).reshape(b * c, -1, self.patch)
        z = self.dropout(self.W_P(z) + self.W_pos)
        for layer in self.layers:
            z = layer(z)
        return self.revin.denorm(self.head(z.flatten(1)).view(b, c, -1).float())


def meters(channels, hours):
    """Load curves: daily and weekly cycles with each meter's own phase, and noise."""
    t = torch.arange(hours) * (2 * torch.pi)
    phase, level = torch.rand(2, channels, 1)
    day = torch.sin(t / 24 + 6 * phase)
    week = 0.5 * torch.sin(t / 168 + 3 * phase)
    return (0.5 + level) * (2 + day + week) + 0.2 * torch.randn(channels, hours)


def build(cfg):
    channels, windows = cfg.pick((321, 4), (5, 2))
    context, horizon, patch, stride = cfg.pick((512, 96, 16, 8), (64, 8, 16, 8))
    d_model, n_heads, d_ff, layers = cfg.pick((576, 9, 2304, 4), (32, 4, 64, 2))
    series = meters(channels, cfg.pick(26304, 512)).to(cfg.device)
    mean, std = series.mean(1, keepdim=True), series.std(1, keepdim=True)
    series = (series - mean) / std

    model = PatchTST(channels, context, horizon, patch, stride, d_model, n_heads, d_ff, layers)
    model.to(cfg.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-4, total_steps=200_000)
    span = context + horizon
    rng = random.Random(2021)

    def step(i):
        starts = [rng.randrange(series.shape[1] - span) for _ in range(windows)]
        batch = torch.stack([series[:, s : s + span] for s in starts])
        past, future = batch[..., :context], batch[..., context:]
        with cfg.amp():
            forecast = model(past)
        loss = F.mse_loss(forecast, future)
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
