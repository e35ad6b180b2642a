"""Organ segmentation in CT with a 3-D ViT over 8x8x8 patches (UNETR's encoder, a linear voxel head)."""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main
from torch.utils.checkpoint import checkpoint

# H200, bf16 autocast, batch 8, 96^3 crops -> 1728 tokens, width 1024, 12 blocks: 13 824 tokens.
# A block forward: 2 x 12.6 M x 13 824 = 348 GFLOP of GEMM (0.56 ms at 620) + attention 98 GFLOP (0.22 ms at 450) and
# ~0.8 GB of LN/GELU/residual/casts (0.2 ms). Forward + recomputed forward + backward(x2, attention x2.5) = 4 units:
# GEMM 12 x 4 x 0.56 = 27 ms, attention 12 x 0.22 x 4.5 = 12 ms, pointwise 12 x 0.2 x 4 = 9.6 ms; head + loss 2.5 ms;
# AdamW on 155 M parameters (28 B each) 1.2 ms. Step ~53 ms: compute ~74 %, memory ~25 %; the recompute is ~12 ms of it.
# Memory: ~4 GB used; without checkpoints ~12 GB of 141. Host ~1500 launches + checkpoint Python ~22 ms, hidden.
TRUTH = {
    "regime": "compute",
    "cause": "every block is checkpointed though a tenth of the memory would hold all activations: a second forward",
    "advice": ["remove-checkpointing"],
    "not_advice": [
        "activation-checkpointing",
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "tensor-core-alignment",
        "pin-memory",
    ],
}


@dataclass
class Args:
    crop: int = 96
    patch: int = 8
    dim: int = 1024
    heads: int = 16
    depth: int = 12
    classes: int = 4
    batch: int = 8
    lr: float = 2e-4
    warmup: int = 200
    total: int = 60_000
    grad_checkpointing: bool = True  # needed on the 24 GB cards


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (
            self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        )
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = SelfAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT3d(nn.Module):
    def __init__(self, a: Args):
        super().__init__()
        self.a = a
        self.grid = a.crop // a.patch
        self.embed = nn.Linear(a.patch**3, a.dim)
        self.pos = nn.Parameter(0.02 * torch.randn(1, self.grid**3, a.dim))
        self.blocks = nn.ModuleList(EncoderBlock(a.dim, a.heads) for _ in range(a.depth))
        self.norm = nn.LayerNorm(a.dim)
        self.head = nn.Linear(a.dim, a.classes * a.patch**3)

    def patches(self, v):
        """[b, z, y, x] -> [b, tokens, patch voxels]"""
        b, g, p = len(v), self.grid, self.a.patch
        return v.view(b, g, p, g, p, g, p).permute(0, 1, 3, 5, 2, 4, 6).reshape(b, g**3, p**3)

    def forward(self, volume):
        x = self.embed(self.patches(volume)) + self.pos
        for block in self.blocks:
            if self.a.grad_checkpointing and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        logits = self.head(self.norm(x))
        return logits.view(len(volume), -1, self.a.patch**3, self.a.classes)


def dice_ce(logits, target, classes):
    logp = logits.flatten(0, 2).float().log_softmax(-1)
    onehot = torch.zeros_like(logp).scatter_(1, target.reshape(-1, 1), 1.0)
    ce = -(logp * onehot).sum(-1).mean()
    prob = logp.exp()
    overlap = (prob * onehot).sum(0)
    dice = 1 - (2 * overlap + 1) / (prob.sum(0) + onehot.sum(0) + 1)
    return ce + dice[1:].mean()


def build(cfg):
    a = Args() if not cfg.tiny else Args(crop=16, dim=64, heads=4, depth=2, batch=2)
    with cfg.device:
        model = ViT3d(a)
        volumes = torch.randn(3, a.batch, a.crop, a.crop, a.crop).clamp_(-2.5, 2.5)
        organs = torch.randint(a.classes, (3, a.batch, a.crop, a.crop, a.crop))
    decay = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}],
        lr=a.lr,
        betas=(0.9, 0.95),
        fused=cfg.cuda,
    )

    def set_lr(i):
        warm = min(1.0, (i + 1) / a.warmup)
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, i / a.total)))
        for g in optimizer.param_groups:
            g["lr"] = a.lr * warm * cosine

    def step(i):
        set_lr(i)
        volume, organ = volumes[i % 3], organs[i % 3]
        if i % 2:
            volume, organ = volume.flip(-1), organ.flip(-1)
        model.train()
        with cfg.amp():
            logits = model(volume)
        loss = dice_ce(logits, model.patches(organ), a.classes)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
