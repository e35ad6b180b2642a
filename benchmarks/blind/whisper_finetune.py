"""Whisper-like speech-to-text fine-tune as the Transformers examples do it: bf16 autocast over fp32 weights."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import forever, main
from torch.utils.data import DataLoader, Dataset

# H200, batch 12 x 1500 frames (18000) and 224 text tokens each, d 1280, 6+6 layers, 0.34 G parameters:
# encoder layer: GEMMs 2.1 TF at 600 = 3.5 ms, attention 0.49 TF at 300 = 1.6 ms, norms/casts/GELU/adds 5.4 GB = 1.5 ms; x6 = 31 + 9 ms
# decoder: 6 x (0.72 TF, 1.5 ms; 2 GB, 0.5 ms) = 9 + 3 ms; head 1.1 TF = 2 ms; convolutions 0.6 TF = 2.5 ms; cross entropy 1 ms
# fused AdamW 9.5 GB, clipping, weight casts: 4.5 ms. Sum about 62 ms: compute 72 %, memory 27 %, host ~25 ms, hidden.
TRUTH = {
    "regime": "compute",
    "cause": "healthy: wide GEMMs and flash attention fill seven tenths of the step",
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


def sinusoids(length, channels, max_timescale=10000):
    inc = math.log(max_timescale) / (channels // 2 - 1)
    inv = torch.exp(-inc * torch.arange(channels // 2))
    t = torch.arange(length)[:, None] * inv[None, :]
    return torch.cat([t.sin(), t.cos()], dim=1)


class WhisperAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(d, d)
        self.k_proj = nn.Linear(d, d, bias=False)
        self.v_proj = nn.Linear(d, d)
        self.out_proj = nn.Linear(d, d)

    def shape(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, hidden, key_value=None, is_causal=False):
        source = hidden if key_value is None else key_value
        q, k, v = (
            self.shape(self.q_proj(hidden)),
            self.shape(self.k_proj(source)),
            self.shape(self.v_proj(source)),
        )
        out = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        return self.out_proj(out.transpose(1, 2).flatten(2))


class WhisperLayer(nn.Module):
    def __init__(self, d, heads, cross):
        super().__init__()
        self.self_attn = WhisperAttention(d, heads)
        self.self_attn_layer_norm = nn.LayerNorm(d)
        self.cross = cross
        if cross:
            self.encoder_attn = WhisperAttention(d, heads)
            self.encoder_attn_layer_norm = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, 4 * d)
        self.fc2 = nn.Linear(4 * d, d)
        self.final_layer_norm = nn.LayerNorm(d)

    def forward(self, hidden, encoded=None):
        hidden = hidden + self.self_attn(self.self_attn_layer_norm(hidden), is_causal=self.cross)
        if self.cross:
            hidden = hidden + self.encoder_attn(self.encoder_attn_layer_norm(hidden), encoded)
        return hidden + self.fc2(F.gelu(self.fc1(self.final_layer_norm(hidden))))


class Whisper(nn.Module):
    def __init__(self, mels, frames, vocab, d, heads, layers, text):
        super().__init__()
        self.conv1 = nn.Conv1d(mels, d, 3, padding=1)
        self.conv2 = nn.Conv1d(d, d, 3, stride=2, padding=1)
        self.register_buffer("positions", sinusoids(frames // 2, d))
        self.encoder = nn.ModuleList(WhisperLayer(d, heads, False) for _ in range(layers))
        self.encoder_norm = nn.LayerNorm(d)
        self.embed_tokens = nn.Embedding(vocab, d)
        self.embed_positions = nn.Parameter(torch.zeros(text, d))
        self.decoder = nn.ModuleList(WhisperLayer(d, heads, True) for _ in range(layers))
        self.decoder_norm = nn.LayerNorm(d)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)

    def forward(self, input_features, decoder_input_ids):
        x = F.gelu(self.conv1(input_features))
        x = F.gelu(self.conv2(x)).permute(0, 2, 1) + self.positions
        for layer in self.encoder:
            x = layer(x)
        encoded = self.encoder_norm(x)
        y = (
            self.embed_tokens(decoder_input_ids)
            + self.embed_positions[: decoder_input_ids.shape[1]]
        )
        for layer in self.decoder:
            y = layer(y, encoded)
        return F.linear(self.decoder_norm(y), self.embed_tokens.weight)


class CommonVoice(Dataset):
    """Pre-computed log-mel features (a memory map in real life) and label ids padded to one length."""

    def __init__(self, mels, frames, vocab, text):
        rng = np.random.default_rng(0)
        self.bank = rng.standard_normal((16, mels, frames), dtype=np.float32)
        self.vocab, self.text = vocab, text

    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        labels = rng.integers(3, self.vocab, self.text)
        labels[rng.integers(self.text // 2, self.text) :] = -100
        return {
            "input_features": torch.from_numpy(self.bank[i % 16]),
            "labels": torch.from_numpy(labels),
        }


def build(cfg):
    d, heads, layers = cfg.pick((1280, 20, 6), (64, 4, 2))
    mels, frames, vocab, text = cfg.pick((80, 3000, 51872, 224), (16, 64, 128, 12))
    batch = cfg.pick(12, 2)
    with cfg.device:
        model = Whisper(mels, frames, vocab, d, heads, layers, text)
    loader = DataLoader(
        CommonVoice(mels, frames, vocab, text),
        batch_size=batch,
        shuffle=True,
        num_workers=cfg.pick(4, 0),
        pin_memory=cfg.cuda,
        persistent_workers=not cfg.tiny,
        drop_last=True,
    )
    batches = iter(forever(loader))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 500))
    bos = 1

    def step(i):
        sample = next(batches)
        features = sample["input_features"].to(cfg.device, non_blocking=True)
        labels = sample["labels"].to(cfg.device, non_blocking=True)
        inputs = labels.roll(1, dims=1)
        inputs[:, 0] = bos
        inputs = inputs.clamp(min=0)
        with cfg.amp():
            logits = model(features, inputs)
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
