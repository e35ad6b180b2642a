"""Encoder-decoder denoising pre-training (span infilling, BART/T5 style) in bf16."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main
from torch.utils.data import DataLoader, IterableDataset

# Encoder 4 x 48 M parameters on 16384 rows, decoder 4 x 65 M on 8192 rows, head 66 M on 8192:
# 6 x (3.2 + 2.1 + 0.5) = 35 TFLOP at ~670 TFLOP/s = 52 ms; attention 0.7 TFLOP, ~2 ms.
# Norms, residuals, gelu * gate: ~5 GB an encoder layer, ~3.5 GB a decoder layer = 34 GB, 8 ms;
# cross-entropy ~5 GB, 1.5 ms; fused AdamW on 0.52 G bf16 parameters 7 GB, 1.8 ms; clipping 0.8 ms.
# Sum ~66 ms, tensor cores ~80 %. Host ~8 ms of launches, loader ~5 ms a batch in two workers.
TRUTH = {
    "regime": "compute",
    "cause": "healthy: wide bf16 GEMMs, flash attention, fused optimizer, loader well ahead",
    "advice": ["none-healthy"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "fused-optimizer",
        "pin-memory",
        "skinny-products",
    ],
}

PAD, BOS, MASK, FIRST = 0, 1, 2, 8


class SpanInfilling(IterableDataset):
    """Zipf-like documents; about a sixth of the tokens is masked and must be reproduced."""

    def __init__(self, vocab, batch, source, target):
        self.vocab, self.batch, self.source, self.target = vocab, batch, source, target

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        rng = np.random.default_rng(17 + (info.id if info else 0))
        while True:
            u = rng.random((self.batch, self.source))
            text = (FIRST + (self.vocab - FIRST) * u**3).astype(np.int64)
            starts = rng.random(text.shape) < 0.055
            hidden = starts.copy()
            for shift in (1, 2):
                hidden[:, shift:] |= starts[:, :-shift]
            noisy = np.where(hidden, MASK, text)
            labels = np.full((self.batch, self.target), -100, dtype=np.int64)
            for row in range(self.batch):
                answer = text[row, hidden[row]][: self.target]
                rest = text[row, : self.target - len(answer)]
                labels[row] = np.concatenate([answer, rest])
            inputs = np.concatenate([np.full((self.batch, 1), BOS), labels[:, :-1]], 1)
            yield torch.from_numpy(noisy), torch.from_numpy(inputs), torch.from_numpy(labels)


class Attention(nn.Module):
    def __init__(self, dim, n_heads, cross=False, causal=False):
        super().__init__()
        self.n_heads, self.causal = n_heads, causal
        self.q = nn.Linear(dim, dim, bias=False)
        self.kv = nn.Linear(dim, 2 * dim, bias=False)
        self.o = nn.Linear(dim, dim, bias=False)

    def forward(self, x, memory=None):
        src = x if memory is None else memory
        q = self.q(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        k, v = self.kv(src).unflatten(-1, (2, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.o(y.transpose(1, 2).flatten(2))


class GatedFF(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.wi_0 = nn.Linear(dim, inner, bias=False)
        self.wi_1 = nn.Linear(dim, inner, bias=False)
        self.wo = nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        return self.wo(F.gelu(self.wi_0(x), approximate="tanh") * self.wi_1(x))


class EncoderLayer(nn.Module):
    def __init__(self, dim, n_heads, inner):
        super().__init__()
        self.norm_sa, self.norm_ff = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.sa, self.ff = Attention(dim, n_heads), GatedFF(dim, inner)

    def forward(self, x):
        x = x + self.sa(self.norm_sa(x))
        return x + self.ff(self.norm_ff(x))


class DecoderLayer(nn.Module):
    def __init__(self, dim, n_heads, inner):
        super().__init__()
        self.norm_sa, self.norm_ca, self.norm_ff = (nn.LayerNorm(dim) for _ in range(3))
        self.sa, self.ca = Attention(dim, n_heads, causal=True), Attention(dim, n_heads)
        self.ff = GatedFF(dim, inner)

    def forward(self, x, memory):
        x = x + self.sa(self.norm_sa(x))
        x = x + self.ca(self.norm_ca(x), memory)
        return x + self.ff(self.norm_ff(x))


class Denoiser(nn.Module):
    def __init__(self, vocab, dim, n_heads, inner, layers, source, target):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.pos_enc = nn.Parameter(0.02 * torch.randn(source, dim))
        self.pos_dec = nn.Parameter(0.02 * torch.randn(target, dim))
        self.encoder = nn.ModuleList(EncoderLayer(dim, n_heads, inner) for _ in range(layers))
        self.decoder = nn.ModuleList(DecoderLayer(dim, n_heads, inner) for _ in range(layers))
        self.norm_enc, self.norm_dec = nn.LayerNorm(dim), nn.LayerNorm(dim)
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, noisy, inputs):
        memory = self.embed(noisy) + self.pos_enc
        for layer in self.encoder:
            memory = layer(memory)
        memory = self.norm_enc(memory)
        x = self.embed(inputs) + self.pos_dec
        for layer in self.decoder:
            x = layer(x, memory)
        return F.linear(self.norm_dec(x), self.embed.weight)


def build(cfg):
    vocab, dim, heads, inner, layers = cfg.pick((32128, 2048, 32, 5120, 4), (256, 32, 2, 64, 1))
    batch, source, target = cfg.pick((32, 512, 256), (2, 32, 16))
    with cfg.device:
        model = Denoiser(vocab, dim, heads, inner, layers, source, target).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=2e-4, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / 1000, math.sqrt(1000 / (s + 1)))
    )
    loader = DataLoader(
        SpanInfilling(vocab, batch, source, target),
        batch_size=None,
        num_workers=2 if cfg.cuda else 0,
        pin_memory=cfg.cuda,
        prefetch_factor=4 if cfg.cuda else None,
    )
    batches = iter(loader)

    def step(i):
        noisy, inputs, labels = (t.to(cfg.device, non_blocking=True) for t in next(batches))
        logits = model(noisy, inputs)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
