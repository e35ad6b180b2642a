"""Long-document tagger: eager attention with ALiBi, a padding mask, fp32 softmax and dropout, in bf16."""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# 4x2048 tokens, d 1024, 16 heads, 5 layers: scores 4*16*2048^2 = 268 M elements a layer.
# Passes forward (scores, scale, +ALiBi, mask, softmax to fp32, cast, dropout, times V) ~33 bytes an
# element, backward ~41: 20 GB a layer = 5 ms at 4 TB/s, 25 ms for 5. Attention products (K = 64)
# 0.2 TFLOP a layer, ~0.5 ms. Linears 12.6e6*6*8192 = 0.62 TFLOP = 1 ms a layer. Other pointwise
# 0.3 ms. Compute ~8, memory ~27 of ~35 ms (77 %). Launches ~450 = 3 ms of host. Memory ~16 GB.
TRUTH = {
    "regime": "memory",
    "cause": "the score matrix passes through memory ~25 times a layer: bias, mask, softmax, dropout unfused",
    "advice": ["flash-attention"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "channels-last",
        "pin-memory",
        "tensor-core-alignment",
        "none-healthy",
    ],
}


@dataclass
class TaggerConfig:
    vocab_size: int = 32768
    hidden_size: int = 1024
    num_layers: int = 5
    num_heads: int = 16
    num_tags: int = 32
    attention_dropout: float = 0.1
    hidden_dropout: float = 0.1


def alibi_bias(heads, length):
    """Symmetric ALiBi: minus slope times distance, (1, heads, length, length)."""
    slopes = torch.tensor([2.0 ** (-8.0 * (h + 1) / heads) for h in range(heads)])
    place = torch.arange(length)
    distance = (place[None, :] - place[:, None]).abs().float()
    return (-slopes.view(1, heads, 1, 1) * distance).to(torch.bfloat16)


class EagerAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_heads = config.num_heads
        self.head_dim = config.hidden_size // config.num_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.attention_dropout)

    def split_heads(self, x):
        return x.view(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def forward(self, hidden, bias, padding):
        query = self.split_heads(self.query(hidden))
        key = self.split_heads(self.key(hidden))
        value = self.split_heads(self.value(hidden))
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.head_dim)
        scores = scores + bias
        scores = scores.masked_fill(padding, torch.finfo(scores.dtype).min)
        probs = F.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        context = torch.matmul(self.dropout(probs), value)
        return self.dense(context.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        d = config.hidden_size
        self.attention = EagerAttention(config)
        self.attention_norm = nn.LayerNorm(d)
        self.intermediate = nn.Linear(d, 4 * d)
        self.output = nn.Linear(4 * d, d)
        self.output_norm = nn.LayerNorm(d)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden, bias, padding):
        attended = self.dropout(self.attention(hidden, bias, padding))
        hidden = self.attention_norm(hidden + attended)
        fed = self.output(F.gelu(self.intermediate(hidden)))
        return self.output_norm(hidden + self.dropout(fed))


class Tagger(nn.Module):
    def __init__(self, config, length):
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embeddings_norm = nn.LayerNorm(config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
        self.tags = nn.Linear(config.hidden_size, config.num_tags)
        self.register_buffer("bias", alibi_bias(config.num_heads, length), persistent=False)

    def forward(self, ids, lengths):
        place = torch.arange(ids.shape[1], device=ids.device)
        padding = (place[None, :] >= lengths[:, None])[:, None, None, :]
        hidden = self.embeddings_norm(self.embeddings(ids))
        for layer in self.layers:
            hidden = layer(hidden, self.bias, padding)
        return self.tags(hidden)


def build(cfg):
    config = cfg.pick(TaggerConfig(), TaggerConfig(128, 32, 2, 4, 5))
    batch, length = cfg.pick((4, 2048), (2, 24))
    model = Tagger(config, length).to(cfg.device, torch.bfloat16)
    with cfg.device:
        ids = torch.randint(config.vocab_size, (4, batch, length))
        lengths = torch.randint(length * 3 // 4, length + 1, (4, batch))
        labels = torch.randint(config.num_tags, (4, batch, length))
        labels[torch.arange(length) >= lengths[..., None]] = -100
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 200))

    def step(i):
        k = i % 4
        logits = model(ids[k], lengths[k])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels[k].flatten(), ignore_index=-100)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
