"""Image-text contrastive pre-training: a wide ViT and a text transformer, bf16 weights, sigmoid loss."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# H200. Image tower d=1536, 12 layers (340 M weights), 64 x 196 = 12544 tokens: 340 M x 6 x 12544 = 25.6 TFLOP = 41 ms at 620 T/s;
#   text tower d=1024, 8 layers (101 M), 4096 tokens: 2.5 TFLOP = 5 ms; attention 1.3 TFLOP, flash, 4 ms.
# Pointwise (LN, GELU, residuals, about 52 passes of d per token and layer, bf16): 24 GB + 3.5 GB = 7 ms; fused AdamW bf16
#   440 M x 14 B = 6 GB = 1.5 ms, clipping 1 ms; uint8 images pinned: 10 MB = 0.2 ms.
# Step about 60 ms, 83 % compute.
TRUTH = {
    "regime": "compute",
    "cause": "healthy: wide bf16 GEMMs and flash attention",
    "advice": ["none-healthy"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "pin-memory",
        "fused-optimizer",
        "channels-last",
    ],
}


class Mlp(nn.Sequential):
    def __init__(self, d):
        super().__init__(nn.Linear(d, 4 * d), nn.GELU(approximate="tanh"), nn.Linear(4 * d, d))


class ResidualAttention(nn.Module):
    def __init__(self, d, head_dim, causal):
        super().__init__()
        self.head_dim, self.causal = head_dim, causal
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.in_proj, self.out_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = Mlp(d)

    def forward(self, x):
        q, k, v = (
            t.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for t in self.in_proj(self.ln_1(x)).chunk(3, dim=-1)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out_proj(a.transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln_2(x))


class VisionTower(nn.Module):
    def __init__(self, size, patch, d, layers, head_dim, out):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(3 * patch * patch, d)
        self.pos = nn.Parameter(0.02 * torch.randn((size // patch) ** 2, d))
        self.layers = nn.Sequential(*[ResidualAttention(d, head_dim, False) for _ in range(layers)])
        self.ln = nn.LayerNorm(d)
        self.proj = nn.Linear(d, out, bias=False)

    def forward(self, images):
        B, C, H, W = images.shape
        p = self.patch
        x = images.view(B, C, H // p, p, W // p, p).permute(0, 2, 4, 1, 3, 5)
        x = self.embed(x.reshape(B, (H // p) * (W // p), C * p * p)) + self.pos
        return self.proj(self.ln(self.layers(x)).mean(1))


class TextTower(nn.Module):
    def __init__(self, vocab, length, d, layers, head_dim, out):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.pos = nn.Parameter(0.02 * torch.randn(length, d))
        self.layers = nn.Sequential(*[ResidualAttention(d, head_dim, True) for _ in range(layers)])
        self.ln = nn.LayerNorm(d)
        self.proj = nn.Linear(d, out, bias=False)

    def forward(self, tokens):
        x = self.layers(self.embed(tokens) + self.pos)
        return self.proj(self.ln(x[:, -1]))  # the last token is the end of the text


class SigLip(nn.Module):
    def __init__(self, vision, text):
        super().__init__()
        self.vision, self.text = vision, text
        self.scale = nn.Parameter(torch.tensor(math.log(10.0)))
        self.bias = nn.Parameter(torch.tensor(-10.0))

    def forward(self, images, tokens):
        a = F.normalize(self.vision(images).float(), dim=-1)
        b = F.normalize(self.text(tokens).float(), dim=-1)
        logits = a @ b.T * self.scale.float().exp() + self.bias.float()
        sign = 2 * torch.eye(len(a), device=a.device) - 1
        return -F.logsigmoid(sign * logits).sum() / len(a)


def build(cfg):
    batch, size, vocab, length = cfg.pick((64, 224, 32768, 64), (4, 32, 100, 8))
    vision = cfg.pick((16, 1536, 12, 128, 1024), (8, 32, 2, 16, 32))
    text = cfg.pick((1024, 8, 64, 1024), (32, 2, 16, 32))
    with cfg.device:
        model = SigLip(VisionTower(size, *vision), TextTower(vocab, length, *text))
    model = model.to(torch.bfloat16)
    pool = []
    for _ in range(3):  # what a loader with pinned memory hands over
        images = torch.randint(256, (batch, 3, size, size), dtype=torch.uint8)
        tokens = torch.randint(vocab, (batch, length))
        pool.append((images.pin_memory(), tokens.pin_memory()) if cfg.cuda else (images, tokens))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, total_iters=500)

    def step(i):
        images, tokens = (t.to(cfg.device, non_blocking=True) for t in pool[i % 3])
        images = images.to(torch.bfloat16).div_(127.5).sub_(1)
        loss = model(images, tokens)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
