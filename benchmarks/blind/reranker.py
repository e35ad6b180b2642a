"""Cross-encoder reranker: query and passage in one sequence, pairwise margin over a positive."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main
from torch.utils.checkpoint import checkpoint

TRUTH = {
    "regime": "compute",
    "cause": "every block is checkpointed and computed twice though ~125 GB of memory are free",
    "advice": ["remove-checkpointing"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "activation-checkpointing",
        "pin-memory",
        "fused-optimizer",
    ],
}
# 8 blocks x 12 x 2048^2 = 403 M, 8192 tokens (16 x 512): forward 2 x 403e6 x 8192 = 6.6 TFLOP
# + attention 0.3; x 4 with the recomputation = 27 TFLOP at ~600 = 45 ms (attention at ~350).
# Bandwidth: norms, GELU, residuals, casts ~0.3 ms a block forward, x 4 x 8 = 9 ms; AdamW
# (465 M x 28 B) 3 ms, clipping 1.5 ms.  Step ~59 ms, compute ~76 %.  Without checkpointing
# ~46 ms (-22 %) for ~7 GB more; the GPU holds ~9 GB of 141.


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.wqkv = nn.Linear(d, 3 * d, bias=False)
        self.wo = nn.Linear(d, d, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.wqkv(x).view(b, t, 3, self.heads, d // self.heads).unbind(2)
        q, k, v = (z.transpose(1, 2) for z in (q, k, v))
        return self.wo(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attention = Attention(d, heads)
        self.fc_in = nn.Linear(d, 4 * d)
        self.fc_out = nn.Linear(4 * d, d)

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.fc_out(F.gelu(self.fc_in(self.ln2(x))))


class CrossEncoder(nn.Module):
    def __init__(self, vocab, d, heads, depth, length):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.pos = nn.Embedding(length, d)
        self.seg = nn.Embedding(2, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(depth))
        self.ln = nn.LayerNorm(d)
        self.score = nn.Linear(d, 1)
        self.gradient_checkpointing = True

    def forward(self, ids, segments):
        where = torch.arange(ids.shape[1], device=ids.device)
        x = self.tok(ids) + self.pos(where) + self.seg(segments)
        for block in self.blocks:
            if self.gradient_checkpointing and self.training:
                x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x)
        return self.score(self.ln(x[:, 0])).squeeze(-1)


def build(cfg):
    vocab, d, heads, depth = cfg.pick((30_000, 2048, 16, 8), (64, 32, 4, 2))
    groups, negatives, length = cfg.pick((4, 3, 512), (2, 1, 16))
    with cfg.device:
        model = CrossEncoder(vocab, d, heads, depth, length)
        ids = torch.randint(vocab, (32, groups * (1 + negatives), length))
        segments = (torch.arange(length) >= length // 16).long().expand(ids.shape[1], length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01, fused=True)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=500)

    def step(i):
        with cfg.amp():
            scores = model(ids[i % 32], segments)
        scores = scores.float().view(groups, 1 + negatives)
        margin = F.relu(1.0 - scores[:, :1] + scores[:, 1:]).mean()
        target = torch.zeros(groups, dtype=torch.long, device=scores.device)
        loss = F.cross_entropy(scores, target) + 0.2 * margin
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
