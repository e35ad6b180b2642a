"""FT-Transformer on tabular credit records (one token a column), "careful" with GPU memory."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

TRUTH = {
    "regime": "overhead",
    "cause": "allocator: empty_cache() twice a step, so every activation is cudaMalloc'ed anew",
    "advice": ["allocation-churn"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "flash-attention",
        "enable-tf32-or-amp",
        "bigger-batch",
        "activation-checkpointing",
        "pin-memory",
        "tensor-core-alignment",
    ],
}
# 1024 rows x 48 tokens x 192, 12 layers: bf16 tensors of 19 MB, fp32 37 MB, FFN 75 MB; each
# over 10 MB, hence a cudaMalloc segment of its own: ~18 a layer, ~210 a step.
# cudaMalloc + cudaFree of such a segment ~0.1-0.3 ms: 21-60 ms a step, GPU idle meanwhile.
# GPU work: ~1.1 GB forward a layer, twice that backward: ~0.9 ms; GEMMs ~0.2 ms: 12 x 1.1 =
# 13 ms (host launches ~9 ms, hidden without the plant).  Overhead 60-80 % of a 35-75 ms step.


class FeatureTokenizer(nn.Module):
    def __init__(self, n_num, cardinalities, d):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_num, d) / d**0.5)
        self.bias = nn.Parameter(torch.zeros(n_num, d))
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.table = nn.Embedding(sum(cardinalities), d)
        ends = torch.tensor(cardinalities).cumsum(0)
        self.register_buffer("offsets", ends - torch.tensor(cardinalities))

    def forward(self, x_num, x_cat):
        num = x_num.unsqueeze(-1) * self.weight + self.bias
        cat = self.table(x_cat + self.offsets)
        return torch.cat([self.cls.expand(len(x_num), -1, -1), num, cat], dim=1)


class Block(nn.Module):
    def __init__(self, d, heads, p):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(d)
        self.to_qkv = nn.Linear(d, 3 * d)
        self.to_out = nn.Linear(d, d)
        self.norm2 = nn.LayerNorm(d)
        self.ffn = nn.Sequential(
            nn.Linear(d, 4 * d), nn.GELU(), nn.Dropout(p), nn.Linear(4 * d, d), nn.Dropout(p)
        )
        self.drop = nn.Dropout(p)

    def forward(self, x):
        b, t, d = x.shape
        qkv = self.to_qkv(self.norm1(x)).view(b, t, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.drop(self.to_out(a))
        return x + self.ffn(self.norm2(x))


class FTTransformer(nn.Module):
    def __init__(self, n_num, cardinalities, d, heads, depth, p=0.1):
        super().__init__()
        self.tokenizer = FeatureTokenizer(n_num, cardinalities, d)
        self.blocks = nn.Sequential(*(Block(d, heads, p) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(d), nn.ReLU(), nn.Linear(d, 1))

    def forward(self, x_num, x_cat):
        return self.head(self.blocks(self.tokenizer(x_num, x_cat))[:, 0]).squeeze(-1)


def build(cfg):
    n_num, n_cat = cfg.pick((31, 16), (3, 2))
    d, heads, depth = cfg.pick((192, 6, 12), (16, 2, 2))
    batch, rows = cfg.pick((1024, 200_000), (8, 64))
    cards = [10 + 37 * k for k in range(n_cat)]
    model = FTTransformer(n_num, cards, d, heads, depth).to(cfg.device)
    with cfg.device:  # the whole table fits on the GPU
        x_num = torch.randn(rows, n_num)
        x_cat = torch.stack([torch.randint(c, (rows,)) for c in cards], 1)
        y = (torch.rand(rows) < 0.3).float()
        weight = torch.tensor(2.3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-5, fused=True)

    def step(i):
        pick = torch.randint(rows, (batch,), device=cfg.device)
        with cfg.amp():
            logits = model(x_num[pick], x_cat[pick])
        loss = F.binary_cross_entropy_with_logits(logits.float(), y[pick], pos_weight=weight)
        torch.cuda.empty_cache()  # others share this card
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss = loss.detach()
        del logits
        torch.cuda.empty_cache()
        return loss

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
