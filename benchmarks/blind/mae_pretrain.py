"""Masked-autoencoder pre-training of a ViT-B (75 % masked, light decoder), in default fp32."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# H200, batch 64: encoder 64 x 50 tokens x 85 M weights x 6 = 1.6 TFLOP; decoder 64 x 197 x 25.2 M x 6 = 1.9 TFLOP; embeddings/head
# and attention products 0.15 -> 3.7 TFLOP. fp32 on CUDA cores (torch's default matmul precision) at about 52 T/s: 70 ms.
# Layer norm, GELU, residuals, fp32: encoder 6 GB + decoder 10 GB = 4 ms; AdamW on 112 M weights 3 GB = 0.8 ms; attention fp32 2 ms.
# Step about 76 ms, 93 % compute. With TF32 at about 280 T/s: 13 ms of GEMM, step about 20 ms (74 % less).
TRUTH = {
    "regime": "compute",
    "cause": "fp32 GEMMs on the CUDA cores: neither TF32 nor autocast is on",
    "advice": ["enable-tf32-or-amp"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "channels-last",
        "pin-memory",
        "fused-optimizer",
        "tensor-core-alignment",
        "none-healthy",
    ],
}


class Block(nn.Module):
    def __init__(self, dim, heads, mlp_ratio=4):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.fc1 = nn.Linear(dim, mlp_ratio * dim)
        self.fc2 = nn.Linear(mlp_ratio * dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(B, N, 3, self.heads, C // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(a.transpose(1, 2).reshape(B, N, C))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class MaskedAutoencoder(nn.Module):
    def __init__(self, size, patch, dim, depth, heads, ddim, ddepth, dheads, mask_ratio=0.75):
        super().__init__()
        self.patch, self.mask_ratio = patch, mask_ratio
        n = (size // patch) ** 2
        self.embed = nn.Linear(3 * patch * patch, dim)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, n, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.to_decoder = nn.Linear(dim, ddim)
        self.mask_token = nn.Parameter(0.02 * torch.randn(1, 1, ddim))
        self.dpos = nn.Parameter(0.02 * torch.randn(1, n + 1, ddim))
        self.dblocks = nn.ModuleList(Block(ddim, dheads) for _ in range(ddepth))
        self.dnorm = nn.LayerNorm(ddim)
        self.pred = nn.Linear(ddim, 3 * patch * patch)

    def patchify(self, img):
        B, _, H, W = img.shape
        p = self.patch
        x = img.reshape(B, 3, H // p, p, W // p, p)
        return x.permute(0, 2, 4, 3, 5, 1).reshape(B, (H // p) * (W // p), p * p * 3)

    def forward(self, img):
        patches = self.patchify(img)
        B, N, _ = patches.shape
        keep = int(N * (1 - self.mask_ratio))
        shuffle = torch.rand(B, N, device=img.device).argsort(1)
        restore = shuffle.argsort(1)
        x = self.embed(patches) + self.pos
        D = x.shape[-1]
        x = x.gather(1, shuffle[:, :keep, None].expand(-1, -1, D))
        x = torch.cat([self.cls.expand(B, -1, -1), x], 1)
        for blk in self.blocks:
            x = blk(x)
        x = self.to_decoder(self.norm(x))
        E = x.shape[-1]
        full = torch.cat([x[:, 1:], self.mask_token.expand(B, N - keep, -1)], 1)
        full = full.gather(1, restore[..., None].expand(-1, -1, E))
        x = torch.cat([x[:, :1], full], 1) + self.dpos
        for blk in self.dblocks:
            x = blk(x)
        pred = self.pred(self.dnorm(x))[:, 1:]
        var, mean = torch.var_mean(patches, -1, keepdim=True)
        target = (patches - mean) / (var + 1e-6).sqrt()
        mask = (restore >= keep).to(pred.dtype)
        return (((pred - target) ** 2).mean(-1) * mask).sum() / mask.sum()


def build(cfg, precision="highest"):
    torch.set_float32_matmul_precision(precision)
    batch, size = cfg.pick((64, 224), (2, 32))
    sizes = cfg.pick((16, 768, 12, 12, 512, 8, 16), (8, 32, 2, 4, 16, 1, 2))
    with cfg.device:
        model = MaskedAutoencoder(size, *sizes)
        images = torch.randn(2, batch, 3, size, size)
    decay = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}],
        lr=1.5e-4,
        betas=(0.9, 0.95),
        fused=True,
    )
    warm, total = 40, 100000
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: min((s + 1) / warm, 0.5 * (1 + math.cos(math.pi * min(s, total) / total))),
    )

    def step(i):
        loss = model(images[i % 2])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
