"""Audio-text alignment without negatives: Barlow Twins between a light audio tower (cached frame features of a
frozen encoder) and a caption tower, with an 8192-wide projector on each side."""

import math

import torch
import torch.nn as nn
from harness import main

# N = 3072 pairs, D = 8192. Cross-correlation in float64: 2*D*D*N = 0.41 TFLOP forward, twice that backward:
# 1.24 TFLOP at ~57 TFLOP/s (FP64 tensor cores) = 21.7 ms; in TF32 it would be 3 ms, in bf16 1.8 ms.
# Passes over the 8192 x 8192 doubles (537 MB each), ~34: 18 GB, 4.4 ms. Towers, bf16: 86k tokens x 6.3M params x 6 =
# 3.2 TFLOP, 7 ms, and 14 GB of norms/GELU/residuals, 3.3 ms. Projectors 2.6 TFLOP, 5 ms. AdamW of 163M params: 1.2 ms.
# About 43 ms: compute 34 (79 %), of which float64 21.7 (50 %); memory 9 (21 %); ~600 launches, 6 ms of host, hidden.
TRUTH = {
    "regime": "compute",
    "cause": "the embeddings are made float64 before the 8192 x 8192 cross-correlation, so its products run as FP64 GEMMs",
    "advice": ["double-precision"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "flash-attention",
        "pin-memory",
        "channels-last",
        "fused-optimizer",
        "tensor-core-alignment",
    ],
}


def transformer(dim, heads, layers):
    layer = nn.TransformerEncoderLayer(
        dim, heads, 4 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(dim), enable_nested_tensor=False)


class AudioTower(nn.Module):
    def __init__(self, features, frames, dim, heads, layers):
        super().__init__()
        self.stem = nn.Linear(features, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(frames, dim))
        self.body = transformer(dim, heads, layers)

    def forward(self, feats):
        return self.body(self.stem(feats) + self.pos).mean(1)


class CaptionTower(nn.Module):
    def __init__(self, vocab, length, dim, heads, layers):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(length, dim))
        self.body = transformer(dim, heads, layers)

    def forward(self, ids):
        return self.body(self.tok(ids) + self.pos).mean(1)


def projector(dim, width):
    return nn.Sequential(
        nn.Linear(dim, width, bias=False),
        nn.BatchNorm1d(width),
        nn.ReLU(inplace=True),
        nn.Linear(width, width, bias=False),
    )


def off_diagonal(c):
    n = c.shape[0]
    return c.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()


class BarlowLoss(nn.Module):
    def __init__(self, lambd):
        super().__init__()
        self.lambd = lambd

    def forward(self, za, zb):
        # 67 million squared terms are summed below: keep all of it in double, bf16 lost the small ones
        za, zb = za.double(), zb.double()
        za = (za - za.mean(0)) / (za.std(0) + 1e-6)
        zb = (zb - zb.mean(0)) / (zb.std(0) + 1e-6)
        c = (za.T @ zb) / za.shape[0]
        on = (torch.diagonal(c) - 1).pow(2).sum()
        off = off_diagonal(c).pow(2).sum()
        return on + self.lambd * off


class Model(nn.Module):
    def __init__(self, audio, caption, dim, width, lambd):
        super().__init__()
        self.audio, self.caption = audio, caption
        self.audio_proj, self.caption_proj = projector(dim, width), projector(dim, width)
        self.criterion = BarlowLoss(lambd)

    def forward(self, feats, ids):
        za = self.audio_proj(self.audio(feats))
        zb = self.caption_proj(self.caption(ids))
        return self.criterion(za, zb)


def build(cfg):
    pairs, width, dim, heads, layers = cfg.pick((3072, 8192, 512, 8, 2), (8, 32, 16, 2, 1))
    features, frames, vocab, length = cfg.pick((768, 16, 16384, 12), (12, 6, 50, 5))
    with cfg.device:
        model = Model(
            AudioTower(features, frames, dim, heads, layers),
            CaptionTower(vocab, length, dim, heads, layers),
            dim,
            width,
            lambd=0.0051,
        )
        # the feature bank of the training clips stays on the device
        bank = torch.randn(4 * pairs, frames, features, dtype=torch.bfloat16)
        captions = torch.randint(vocab, (4 * pairs, length))
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}],
        lr=2e-4,
        fused=cfg.cuda,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: min((s + 1) / 200, 0.5 * (1 + math.cos(math.pi * min(s, 20000) / 20000))),
    )

    def step(i):
        pick = torch.randint(bank.shape[0], (pairs,), device=cfg.device)
        with cfg.amp():
            loss = model(bank[pick], captions[pick])
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
