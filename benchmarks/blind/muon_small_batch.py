"""Continued pre-training on one 1024-token sequence a step, with Muon.

Nearly all of the step is the optimizer: five Newton-Schulz iterations per weight matrix,
done on stacks of equally shaped matrices in bf16.
"""

from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# H200, 4 layers of d = 3072, SwiGLU 8192. Newton-Schulz, 5 x (X X', A A, B X):
#   16 matrices 3072^2: 15 x 58 GFLOP = 0.87 TFLOP each; 12 of 3072x8192: 5 x (2 x 155 + 58) = 1.84 TFLOP each
#   -> 36 TFLOP of batched bf16 products -> 58 ms at 620 TFLOP/s; model forward and backward 3.4 TFLOP -> 5.5 ms
# Bandwidth: momentum, Nesterov, stacking, scaling, update 454 M x 54 B = 24 GB 5.8 ms; baddbmm's copies of the addend
#   14 GB 3.4 ms; autocast casts 1.3 ms; fused AdamW on 197 M (embedding, head) 1.3 ms; loss, norms 0.5 ms
# total about 76 ms: 83 % tensor cores, 16 % bandwidth. The optimizer is 90 % of the step, and is at peak.
TRUTH = {
    "regime": "compute",
    "cause": "healthy: Newton-Schulz iterations of the optimizer, large batched bf16 products",
    "advice": ["none-healthy"],
    "not_advice": [
        "fused-optimizer",
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "tensor-core-alignment",
        "activation-checkpointing",
    ],
}


@torch.no_grad()
def newton_schulz(G, steps=5, eps=1e-7):
    """Orthogonalise a stack of matrices (K, rows <= columns), quintic iteration in bf16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    X = G / (G.norm(dim=(-2, -1), keepdim=True) + eps)
    for _ in range(steps):
        A = X @ X.mT
        B = torch.baddbmm(A, A, A, beta=b, alpha=c)
        X = torch.baddbmm(X, B, X, beta=a)
    return X


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95, weight_decay=0.01):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            lr, mu = group["lr"], group["momentum"]
            shapes = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    shapes[tuple(sorted(p.shape))].append(p)
            for shape, params in shapes.items():
                updates = []
                for p in params:
                    state = self.state[p]
                    if "buf" not in state:
                        state["buf"] = torch.zeros_like(p)
                    buf = state["buf"].lerp_(p.grad, 1 - mu)
                    u = p.grad.lerp_(buf, mu).bfloat16()
                    updates.append(u.mT if u.shape[0] > u.shape[1] else u)
                ortho = newton_schulz(torch.stack(updates))
                scale = max(1.0, shape[1] / shape[0]) ** 0.5
                for p, o in zip(params, ortho):
                    o = o.mT if p.shape[0] > p.shape[1] else o
                    p.mul_(1 - lr * group["weight_decay"])
                    p.add_(o, alpha=-lr * scale)


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (
            w(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for w in (self.wq, self.wk, self.wv)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, d, inner):
        super().__init__()
        self.gate = nn.Linear(d, inner, bias=False)
        self.up = nn.Linear(d, inner, bias=False)
        self.down = nn.Linear(inner, d, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Decoder(nn.Module):
    def __init__(self, vocab, d, inner, heads, layers, context):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.where = nn.Embedding(context, d)
        self.attn = nn.ModuleList(Attention(d, heads) for _ in range(layers))
        self.ffn = nn.ModuleList(FeedForward(d, inner) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(2 * layers + 1))
        self.head = nn.Linear(d, vocab, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        nn.init.normal_(self.where.weight, std=0.02)

    def forward(self, tokens):
        x = self.embed(tokens) + self.where.weight[: tokens.shape[1]]
        for k, (attn, ffn) in enumerate(zip(self.attn, self.ffn)):
            x = x + attn(self.norms[2 * k](x))
            x = x + ffn(self.norms[2 * k + 1](x))
        return self.head(self.norms[-1](x))


def build(cfg):
    vocab, d, inner, heads, layers, context = cfg.pick(
        (32000, 3072, 8192, 24, 4, 1024), (256, 32, 64, 4, 2, 32)
    )
    with cfg.device:
        model = Decoder(vocab, d, inner, heads, layers, context)
        corpus = torch.randint(vocab, (64, 1, context + 1))
    matrices = [p for m in (model.attn, model.ffn) for p in m.parameters()]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    muon = Muon(matrices, lr=0.002)
    adamw = torch.optim.AdamW(rest, lr=3e-4, betas=(0.9, 0.95), fused=True)

    def step(i):
        tokens = corpus[i % 64]
        with cfg.amp():
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        muon.step()
        adamw.step()
        model.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
