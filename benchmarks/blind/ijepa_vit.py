"""I-JEPA pretraining: a ViT predicts, in feature space, blocks of an image that it was not shown."""

import copy
import math
import random

import torch
import torch.nn.functional as F
from harness import main
from torch import nn

# bf16 weights; 112 images of 256 patches; width 1536, 8 layers; GEMM FLOPs per token and layer 24 d^2 forward, 72 d^2 with backward.
# Target encoder (no grad) 28672 tokens: 13 TF; context encoder 28672 embedded, 112 of 256 kept, 12544 tokens: 17 TF;
# predictor 112 x 4 x 148 = 66304 tokens, 3 layers of width 768: 8.6 TF. Sum 38.9 TF at ~ 610 TFLOP/s = 64 ms; flash attention 3 ms.
# GELU, LayerNorm, residuals, bias gradients, qkv stacking, gathers: 57 GB; AdamW and EMA on 250 M bf16 parameters 4.5 GB: 16 ms at 3.9 TB/s.
# Step ~ 83 ms: compute ~ 80 %, bandwidth ~ 19 %.
# About 600 launches of 130 us on average: the host (10 ms) runs ahead.
TRUTH = {
    "regime": "compute",
    "cause": "healthy: wide bf16 GEMMs of three transformers over 12k to 66k tokens",
    "advice": ["none-healthy"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "fused-optimizer",
        "tensor-core-alignment",
        "pin-memory",
    ],
}


class Layer(nn.Module):
    def __init__(self, dim, head_dim=64):
        super().__init__()
        self.head_dim = head_dim
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(B, N, 3, -1, self.head_dim).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(a.transpose(1, 2).reshape(B, N, C))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


def sincos(dim, side):
    """The usual fixed 2-d positions, (side * side, dim)."""
    omega = 1.0 / 10000 ** (torch.arange(dim // 4) / (dim // 4))
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    parts = [f(c.flatten()[:, None] * omega) for c in (x, y) for f in (torch.sin, torch.cos)]
    return torch.cat(parts, 1)


def pick_tokens(x, idx):
    return torch.gather(x, 1, idx.unsqueeze(-1).expand(-1, -1, x.size(-1)))


class Encoder(nn.Module):
    def __init__(self, side, patch, dim, depth):
        super().__init__()
        self.patch = patch
        self.patchify = nn.Linear(3 * patch * patch, dim)
        self.register_buffer("pos", sincos(dim, side))
        self.layers = nn.ModuleList(Layer(dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, eps=1e-6)

    def forward(self, images, keep=None):
        B, p = len(images), self.patch
        side = images.size(-1) // p
        x = (
            images.reshape(B, 3, side, p, side, p)
            .permute(0, 2, 4, 1, 3, 5)
            .flatten(3)
            .flatten(1, 2)
        )
        x = self.patchify(x) + self.pos
        if keep is not None:
            x = pick_tokens(x, keep)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Predictor(nn.Module):
    def __init__(self, side, dim_in, dim, depth):
        super().__init__()
        self.enter = nn.Linear(dim_in, dim)
        self.mask_token = nn.Parameter(0.02 * torch.randn(dim))
        self.register_buffer("pos", sincos(dim, side))
        self.layers = nn.ModuleList(Layer(dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.leave = nn.Linear(dim, dim_in)

    def forward(self, context, keep, blocks):
        # context (B, K, D); keep (B, K); blocks (M, B, P): one sequence per target block
        M, B, P = blocks.shape
        x = self.enter(context) + self.pos[keep]
        x = x.repeat(M, 1, 1)
        queries = self.mask_token + self.pos[blocks.reshape(M * B, P)]
        x = torch.cat([x, queries], 1)
        for layer in self.layers:
            x = layer(x)
        return self.leave(self.norm(x[:, -P:]))


class BlockMasks:
    """Four square target blocks an image; the context is what is left, cut to a fixed length."""

    def __init__(self, side, block, blocks, keep, seed=0):
        self.side, self.block, self.blocks, self.keep = side, block, blocks, keep
        self.rng = random.Random(seed)

    def one(self):
        side, b = self.side, self.block
        targets = []
        for _ in range(self.blocks):
            r, c = self.rng.randint(0, side - b), self.rng.randint(0, side - b)
            targets.append([(r + dr) * side + c + dc for dr in range(b) for dc in range(b)])
        left = sorted(set(range(side * side)).difference(*targets))
        return sorted(self.rng.sample(left, self.keep)), targets

    def batch(self, n):
        keeps, targets = zip(*(self.one() for _ in range(n)))
        return torch.tensor(keeps), torch.tensor(targets).transpose(0, 1).contiguous()


def build(cfg):
    side, patch, block, keep = cfg.pick((16, 16, 6, 112), (6, 4, 2, 20))
    dim, depth, pdim, pdepth = cfg.pick((1536, 8, 768, 3), (128, 2, 64, 1))
    batch = cfg.pick(112, 3)

    torch.manual_seed(1)
    with cfg.device:
        encoder = Encoder(side, patch, dim, depth)
        predictor = Predictor(side, dim, pdim, pdepth)
        images = torch.randn(2, batch, 3, side * patch, side * patch).to(torch.bfloat16)
    encoder.to(cfg.device, torch.bfloat16)  # sincos() was made wherever; settle it here
    predictor.to(cfg.device, torch.bfloat16)
    teacher = copy.deepcopy(encoder).requires_grad_(False).eval()

    # A pool of masks, drawn once as a collator's workers would have done ahead of time.
    masks = BlockMasks(side, block, 4, keep)
    pool = [[t.to(cfg.device) for t in masks.batch(batch)] for _ in range(8)]

    params = [*encoder.parameters(), *predictor.parameters()]
    decay = [p for p in params if p.ndim > 1]
    rest = [p for p in params if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}],
        lr=1e-4,
        fused=True,
    )
    student_w, teacher_w = list(encoder.parameters()), list(teacher.parameters())

    def lr_at(i, warm=500, total=50000, top=1e-4):
        if i < warm:
            return top * (i + 1) / warm
        return 0.5 * top * (1 + math.cos(math.pi * (i - warm) / (total - warm)))

    def step(i):
        for group in optimizer.param_groups:
            group["lr"] = lr_at(i)
        x = images[i % 2]
        kept, blocks = pool[i % len(pool)]
        with torch.no_grad():
            h = teacher(x)
            h = F.layer_norm(h, (h.size(-1),))
            goal = torch.cat([pick_tokens(h, b) for b in blocks])
        guess = predictor(encoder(x, kept), kept, blocks)
        loss = F.smooth_l1_loss(guess.float(), goal.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_lerp_(teacher_w, student_w, 1 - min(0.9999, 0.996 + 1e-7 * i))
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
