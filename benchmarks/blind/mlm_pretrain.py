"""Healthy BERT-like pretraining: masking in DataLoader workers, bf16 autocast, EMA of the weights."""

# Arithmetic (H200): 48 x 512 = 24576 tokens, d 1024, 4 layers: 7.4 TFLOP; head only on 77 masked places per
# row (3696 x 30528): 0.7 TFLOP: 8.1 TFLOP at 550 = 15 ms; flash attention 0.7 TFLOP 2.4 ms. LayerNorm in
# fp32 and residuals, casts, GELU: 4.5 GB a layer, 18 GB 5 ms; loss 0.8 ms; AdamW, EMA, casts of 82M fp32
# parameters 4.6 GB 1.3 ms. Sum 24.5 ms: compute 71 %, memory 29 %. Loader: 48 x 60 us = 3 ms of one of two
# workers a batch, three times faster than needed.

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import forever, main
from torch.utils.data import DataLoader, Dataset

TRUTH = {
    "regime": "compute",
    "cause": "healthy: wide bf16 GEMMs and flash attention; loader, schedule and EMA keep out of the way",
    "advice": ["none-healthy"],
    "not_advice": [
        "dataloader-stall",
        "pin-memory",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "fused-optimizer",
        "tensor-core-alignment",
    ],
}

MASK, SPECIAL = 4, 5


class MaskedText(Dataset):
    """Windows of a long token stream; 15 % of the places are masked, 80/10/10."""

    def __init__(self, vocab, length, tokens):
        self.vocab, self.length = vocab, length
        self.stream = np.random.default_rng(0).integers(SPECIAL, vocab, tokens, dtype=np.int32)
        self.n_mask = round(0.15 * length)

    def __len__(self):
        return 1 << 22

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        start = rng.integers(len(self.stream) - self.length)
        ids = self.stream[start : start + self.length].astype(np.int64)
        places = rng.permutation(self.length)[: self.n_mask]
        labels = ids[places].copy()
        kind = rng.random(self.n_mask)
        ids[places[kind < 0.8]] = MASK
        swap = places[kind > 0.9]
        ids[swap] = rng.integers(SPECIAL, self.vocab, len(swap))
        return ids, places.astype(np.int64), labels


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.attn_norm, self.mlp_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.attn_norm(x)).view(b, t, 3, self.heads, -1).transpose(1, 3).unbind(2)
        )
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.mlp_norm(x))


class Bert(nn.Module):
    def __init__(self, vocab, dim, heads, depth, length):
        super().__init__()
        self.words = nn.Embedding(vocab, dim)
        self.places = nn.Parameter(torch.zeros(length, dim))
        self.norm_in = nn.LayerNorm(dim)
        self.blocks = nn.Sequential(*(EncoderBlock(dim, heads) for _ in range(depth)))
        self.transform = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU())
        self.norm_out = nn.LayerNorm(dim)
        self.bias = nn.Parameter(torch.zeros(vocab))
        nn.init.trunc_normal_(self.words.weight, std=0.02)

    def forward(self, ids, places):
        x = self.blocks(self.norm_in(self.words(ids) + self.places))
        picked = x.gather(1, places[..., None].expand(-1, -1, x.size(-1)))
        return F.linear(self.norm_out(self.transform(picked)), self.words.weight, self.bias)


def build(cfg):
    vocab, dim, heads, depth = cfg.pick((30528, 1024, 16, 4), (256, 32, 2, 1))
    batch, length, tokens = cfg.pick((48, 512, 8_000_000), (4, 32, 4000))
    with cfg.device:
        model = Bert(vocab, dim, heads, depth, length)
    params = list(model.parameters())
    ema = [p.detach().clone() for p in params]
    groups = [
        {"params": [p for p in params if p.dim() > 1], "weight_decay": 0.01},
        {"params": [p for p in params if p.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=4e-4, betas=(0.9, 0.98), fused=True)
    warmup, total = 1000, 200_000
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / warmup, max(0.0, (total - s) / (total - warmup)))
    )
    loader = DataLoader(
        MaskedText(vocab, length, tokens),
        batch_size=batch,
        shuffle=False,
        num_workers=2,
        prefetch_factor=4,
        pin_memory=cfg.cuda,
        drop_last=True,
    )
    batches = forever(loader)
    cfg.at_exit(batches.close)
    hits = torch.zeros((), device=cfg.device)

    def step(i):
        batch = next(batches)
        ids, places, labels = (t.to(cfg.device, non_blocking=True) for t in batch)
        with cfg.amp():
            logits = model(ids, places).flatten(0, 1)
            loss = F.cross_entropy(logits, labels.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        torch._foreach_lerp_(ema, [p.detach() for p in params], 0.001)
        if i % 1000 == 999:
            hits.copy_((logits.detach().argmax(-1) == labels.flatten()).float().mean())
            print(f"masked accuracy {hits.item():.4f} lr {scheduler.get_last_lr()[0]:.2e}")
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
