"""Multilingual sentence retrieval with an XLM-V-like encoder (vocabulary of 900k pieces, a short stack of layers):
in-batch contrastive fine-tuning of translation pairs with the AdamW that used to ship with transformers."""

import math

import torch
import torch.nn.functional as F
from harness import main
from torch import nn
from torch.optim import Optimizer

# Parameters: 901632 x 768 = 692M in the embedding + 6 x 7.1M = 735M, fp32. The optimizer below makes 20 passes of 4
# bytes per parameter (mul_ 2, add_ 3, mul_ 2, addcmul_ 3, sqrt 2, add_ 2, addcdiv_ 4, decay 2) = 59 GB at 4.2 TB/s = 14 ms
# (one fused pass: 28 bytes, 4.9 ms). Clipping 12 bytes: 2.1 ms. Zeroing the dense embedding gradient: 0.7 ms.
# Encoder: 8192 tokens x 42.5M x 6 = 2.1 TFLOP bf16, 4.5 ms; norms, GELU, residuals, dropout, casts: 2.5 ms. Sum ~24 ms:
# memory ~19 (80 %), compute 19 %. Host: ~75 parameters x 9 ops x 6 us = 4 ms, forward/backward 5 ms: runs ahead.
TRUTH = {
    "regime": "memory",
    "cause": "AdamW as separate per-tensor ops: 80 bytes of traffic per parameter, most of it for a 692M-parameter embedding",
    "advice": ["fused-optimizer"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "pin-memory",
        "tensor-core-alignment",
        "embedding-sort",
    ],
}


class AdamW(Optimizer):
    """Adam with decoupled weight decay, after huggingface/transformers."""

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, correct_bias=True
    ):
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "correct_bias": correct_bias,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad = p.grad
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p)
                exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
                beta1, beta2 = group["betas"]
                state["step"] += 1
                exp_avg.mul_(beta1).add_(grad, alpha=1.0 - beta1)
                exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1.0 - beta2)
                denom = exp_avg_sq.sqrt().add_(group["eps"])
                step_size = group["lr"]
                if group["correct_bias"]:
                    bias_correction1 = 1.0 - beta1 ** state["step"]
                    bias_correction2 = 1.0 - beta2 ** state["step"]
                    step_size = step_size * math.sqrt(bias_correction2) / bias_correction1
                p.addcdiv_(exp_avg, denom, value=-step_size)
                if group["weight_decay"] > 0.0:
                    p.add_(p, alpha=-group["lr"] * group["weight_decay"])


class RobertaLayer(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.attn_out = nn.Linear(hidden, hidden)
        self.attn_norm = nn.LayerNorm(hidden, eps=1e-5)
        self.intermediate = nn.Linear(hidden, 4 * hidden)
        self.output = nn.Linear(4 * hidden, hidden)
        self.out_norm = nn.LayerNorm(hidden, eps=1e-5)

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, d)
        x = self.attn_norm(x + F.dropout(self.attn_out(a), self.dropout, self.training))
        return self.out_norm(
            x + F.dropout(self.output(F.gelu(self.intermediate(x))), self.dropout, self.training)
        )


class SentenceEncoder(nn.Module):
    def __init__(self, vocab, hidden, heads, layers, positions, dropout=0.1):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab, hidden, padding_idx=1)
        self.position_embeddings = nn.Embedding(positions, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-5)
        self.layers = nn.ModuleList([RobertaLayer(hidden, heads, dropout) for _ in range(layers)])
        nn.init.normal_(self.word_embeddings.weight, std=0.02)

    def forward(self, ids):
        x = self.word_embeddings(ids) + self.position_embeddings.weight[: ids.shape[1]]
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x)
        return F.normalize(x.float().mean(1), dim=-1)


def grouped(model, weight_decay):
    no_decay = ("bias", "norm.weight")
    named = list(model.named_parameters())
    return [
        {"params": [p for n, p in named if not n.endswith(no_decay)], "weight_decay": weight_decay},
        {"params": [p for n, p in named if n.endswith(no_decay)], "weight_decay": 0.0},
    ]


def build(cfg):
    vocab, hidden, heads, layers = cfg.pick((901_632, 768, 12, 6), (500, 32, 2, 2))
    pairs, length = cfg.pick((128, 32), (4, 8))
    with cfg.device:
        model = SentenceEncoder(vocab, hidden, heads, layers, length)
        # row k of the two halves is a sentence and its translation
        corpus = torch.randint(2, vocab, (32, 2 * pairs, length))
        labels = torch.arange(pairs)
    optimizer = AdamW(grouped(model, 0.01), lr=2e-5, eps=1e-8)
    total, warmup = 50_000, 1_000
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: (s + 1) / warmup if s < warmup else max(0.0, (total - s) / (total - warmup)),
    )
    model.train()

    def step(i):
        with cfg.amp():
            vectors = model(corpus[i % 32])
        source, target = vectors.chunk(2)
        scores = 20.0 * source @ target.T
        loss = (F.cross_entropy(scores, labels) + F.cross_entropy(scores.T, labels)) / 2
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        model.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
