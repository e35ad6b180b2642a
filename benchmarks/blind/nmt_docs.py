"""Document-level translation: encoder-decoder Transformer, attention written out with masks."""

# Arithmetic (H200): scores 8x16x1024x1024 = 134M elements; per attention forward: matmul out, scale,
# masked_fill (bf16), softmax and dropout in fp32 (autocast), cast back = 5.2 GB, backward 9 GB: 14 GB,
# 3.7 ms at 3.8 TB/s; nine attentions 33 ms. Linear GEMMs 5.1 TFLOP 9 ms, attention GEMMs 0.9 TFLOP 4 ms,
# LayerNorm/GELU/dropout/residual 8 ms, loss 1.5 ms, Adam 1 ms. Sum 57 ms: memory 75 %, compute 23 %.
# With fused attention the nine cost some 8 ms: step about 28 ms.

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

TRUTH = {
    "regime": "memory",
    "cause": "attention written out: the score matrices pass through memory many times per layer",
    "advice": ["flash-attention"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "channels-last",
        "pin-memory",
        "tensor-core-alignment",
        "host-stall",
    ],
}

PAD = 0


def written_out(q, k, v, mask, causal, p):
    """Softmax(q k^T / sqrt(d)) v; mask is true where a key may be seen."""
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    if causal:
        t = q.size(-2)
        mask = mask & torch.ones(t, t, dtype=torch.bool, device=q.device).tril()
    scores = scores.masked_fill(~mask, -1e4)
    attn = F.dropout(F.softmax(scores, dim=-1), p)
    return torch.matmul(attn, v)


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_head, dropout, core):
        super().__init__()
        self.n_head, self.dropout, self.core = n_head, dropout, core
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def split(self, x):
        b, t, d = x.shape
        return x.view(b, t, self.n_head, d // self.n_head).transpose(1, 2)

    def forward(self, x, memory, mask, causal=False):
        q, k, v = (
            self.split(self.w_q(x)),
            self.split(self.w_k(memory)),
            self.split(self.w_v(memory)),
        )
        y = self.core(q, k, v, mask, causal, self.dropout)
        return self.w_o(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Sequential):
    def __init__(self, d, dropout):
        super().__init__(nn.Linear(d, 4 * d), nn.ReLU(), nn.Dropout(dropout), nn.Linear(4 * d, d))


class EncoderLayer(nn.Module):
    def __init__(self, d, h, p, core):
        super().__init__()
        self.attn, self.ff = MultiHeadAttention(d, h, p, core), FeedForward(d, p)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, x, mask):
        y = self.n1(x)
        x = x + self.attn(y, y, mask)
        return x + self.ff(self.n2(x))


class DecoderLayer(nn.Module):
    def __init__(self, d, h, p, core):
        super().__init__()
        self.self_attn = MultiHeadAttention(d, h, p, core)
        self.cross = MultiHeadAttention(d, h, p, core)
        self.ff = FeedForward(d, p)
        self.n1, self.n2, self.n3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, y, memory, src_mask, tgt_mask):
        z = self.n1(y)
        y = y + self.self_attn(z, z, tgt_mask, causal=True)
        y = y + self.cross(self.n2(y), memory, src_mask)
        return y + self.ff(self.n3(y))


class Translator(nn.Module):
    def __init__(self, vocab, d, heads, layers, longest, core, p=0.1):
        super().__init__()
        self.d = d
        self.embed = nn.Embedding(vocab, d, padding_idx=PAD)
        nn.init.normal_(self.embed.weight, std=d**-0.5)
        self.encoder = nn.ModuleList(EncoderLayer(d, heads, p, core) for _ in range(layers))
        self.decoder = nn.ModuleList(DecoderLayer(d, heads, p, core) for _ in range(layers))
        self.enc_norm, self.dec_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        pos = torch.arange(longest)[:, None]
        freq = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
        table = torch.stack((torch.sin(pos * freq), torch.cos(pos * freq)), -1).flatten(1)
        self.register_buffer("position", table)

    def lookup(self, ids):
        return self.embed(ids) * math.sqrt(self.d) + self.position[: ids.size(1)]

    def forward(self, src, tgt):
        src_mask = (src != PAD)[:, None, None, :]
        tgt_mask = (tgt != PAD)[:, None, None, :]
        x = self.lookup(src)
        for layer in self.encoder:
            x = layer(x, src_mask)
        memory = self.enc_norm(x)
        y = self.lookup(tgt)
        for layer in self.decoder:
            y = layer(y, memory, src_mask, tgt_mask)
        return F.linear(self.dec_norm(y), self.embed.weight)


def build(cfg, core=written_out):
    vocab, d, heads, layers = cfg.pick((16000, 1024, 16, 3), (96, 32, 4, 1))
    batch, longest = cfg.pick((8, 1024), (2, 16))
    with cfg.device:
        model = Translator(vocab, d, heads, layers, longest, core)

    def document():
        ids = torch.randint(4, vocab, (batch, longest + 1))
        for row, n in enumerate(torch.randint(3 * longest // 4, longest + 1, (batch,)).tolist()):
            ids[row, n + 1 :] = PAD
        return ids

    data = [(document()[:, :longest].to(cfg.device), document().to(cfg.device)) for _ in range(4)]
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    noam = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: d**-0.5 * min((s + 1) ** -0.5, (s + 1) * 4000**-1.5)
    )

    def step(i):
        src, tgt = data[i % len(data)]
        with cfg.amp():
            logits = model(src, tgt[:, :-1])
            loss = F.cross_entropy(
                logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=PAD, label_smoothing=0.1
            )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        noam.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
