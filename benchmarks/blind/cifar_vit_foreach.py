"""A deep, thin ViT on 32x32 images held on the GPU: mixup, default (foreach) AdamW, clipping."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# 64 images x 17 tokens, d 128, 20 layers: 4 M weights, 6*4e6*1088 = 26 GFLOP: ~1.3 ms even at
# 20 TFLOP/s; tensors of 0.5-2 MB stay in L2, most grids have fewer blocks than SMs.
# ~240 kernels forward, ~500 backward, ~100 in foreach AdamW/clip/EMA: ~840 x ~3 us = 2.5 ms on the GPU.
# Host: 20 x (~13 ops x 8 us) + backward ~4.4 ms + clip/AdamW over 200 tensors ~2 ms = ~8.5 ms a step.
# So the GPU idles ~70 % and the rest is underfilled: overhead ~97 %.
TRUTH = {
    "regime": "overhead",
    "cause": "launch: ~840 kernels of about 3 us a step, the host cannot issue them fast enough",
    "advice": ["launch-bound-compile"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "pin-memory",
        "tensor-core-alignment",
        "channels-last",
        "activation-checkpointing",
    ],
}


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (t.reshape(b, n, self.heads, d // self.heads).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(out.transpose(1, 2).reshape(b, n, d))


def feed_forward(dim):
    return nn.Sequential(
        nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)
    )


class SmallViT(nn.Module):
    def __init__(self, dim, depth, heads, patch=8, side=32, classes=10):
        super().__init__()
        self.patch = patch
        self.to_tokens = nn.Linear(3 * patch * patch, dim)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2 + 1, dim))
        self.layers = nn.ModuleList(
            nn.ModuleList([Attention(dim, heads), feed_forward(dim)]) for _ in range(depth)
        )
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, classes))

    def forward(self, img):
        b, c, h, w = img.shape
        p = self.patch
        x = img.reshape(b, c, h // p, p, w // p, p).permute(0, 2, 4, 3, 5, 1)
        x = self.to_tokens(x.reshape(b, -1, p * p * c))
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        for attn, ff in self.layers:
            x = x + attn(x)
            x = x + ff(x)
        return self.head(x[:, 0])


def build(cfg):
    batch, dim, depth, heads = cfg.pick((64, 128, 20, 4), (4, 16, 2, 2))
    stored = cfg.pick(4096, 32)
    with cfg.device:
        model = SmallViT(dim, depth, heads)
        pictures = torch.rand(stored, 3, 32, 32)
        classes = torch.randint(10, (stored,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, 500)
    params = list(model.parameters())
    shadow = [p.detach().clone() for p in params]

    def step(i):
        rows = torch.randint(stored, (batch,), device=cfg.device)
        x, y = pictures[rows], F.one_hot(classes[rows], 10).float()
        # mixup with one coefficient per picture
        lam = torch.rand(batch, 1, device=cfg.device)
        x = lam[:, :, None, None] * x + (1 - lam[:, :, None, None]) * x.flip(0)
        y = lam * y + (1 - lam) * y.flip(0)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        warm.step()
        torch._foreach_lerp_(shadow, [p.detach() for p in params], 0.01)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
