"""DLRM-style click-through ranking: ten id features, 13 counters, pairwise interaction, SGD."""

import itertools

import torch
import torch.nn.functional as F
from harness import main
from torch import nn

# H200, full size: tables 10.2 M rows x 128 fp32 = 5.2 GB. Their gradient is dense: zeros 5.2 GB / 4 TB/s =
# 1.4 ms, SGD reads p, g and writes p: 15.7 GB / 4.2 TB/s = 3.7 ms; together 5.1 ms of a ~6.5 ms step.
# The rest: MLPs 16384 x ~0.6 M weights x 6 = 60 GFLOP in bf16 ~0.3 ms with casts, interaction 0.3 ms,
# ten sorts/scatters of 16384 ids ~0.6 ms. Host: ~330 launches = ~3 ms, hidden behind the fills.
# Only 164 k rows (84 MB) are touched a step: with sparse gradients the 5.1 ms fall to ~0.3 (then ~3-4 ms, host).
TRUTH = {
    "regime": "memory",
    "cause": "dense embedding gradients: 5 GB zeroed, filled and applied for 0.08 GB of touched rows",
    "advice": ["zero-grad-fill"],
    "not_advice": [
        "dataloader-stall",
        "pin-memory",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "launch-bound-compile",
        "activation-checkpointing",
        "none-healthy",
    ],
}

ROWS = [
    4_000_000,
    2_500_000,
    1_500_000,
    1_000_000,
    600_000,
    300_000,
    200_000,
    80_000,
    20_000,
    1_000,
]


def mlp(sizes, last=nn.ReLU):
    layers = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    layers[-1] = last()
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    def __init__(self, rows, dim, bottom, top, sparse):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(r, dim, sparse=sparse) for r in rows)
        for t in self.tables:
            nn.init.uniform_(t.weight, -(t.num_embeddings**-0.5), t.num_embeddings**-0.5)
        self.bottom = mlp([13, *bottom, dim])
        n = len(rows) + 1
        self.top = mlp([dim + n * (n - 1) // 2, *top, 1], nn.Identity)
        low, high = torch.tril_indices(n, n, -1)
        self.register_buffer("pairs", low * n + high, persistent=False)

    def forward(self, counters, ids):
        x = self.bottom(counters)
        vectors = [t(ids[:, k]) for k, t in enumerate(self.tables)]
        z = torch.stack([x, *(v.to(x.dtype) for v in vectors)], dim=1)
        dots = torch.bmm(z, z.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([x, dots.index_select(1, self.pairs)], dim=1)).squeeze(1)


def build(cfg, sparse=False):
    rows = cfg.pick(ROWS, [50, 20, 10])
    dim, batch, bottom, top = cfg.pick(
        (128, 16384, (512, 256), (512, 512, 256)), (8, 32, (16,), (16,))
    )
    with cfg.device:
        model = DLRM(rows, dim, bottom, top, sparse)
        counters = torch.log1p(torch.randint(0, 1000, (4, batch, 13)).float())
        # popular ids come first, as in any log
        ids = torch.stack([(torch.rand(4, batch) ** 3 * r).long() for r in rows], dim=-1)
        clicks = (torch.rand(4, batch) < 0.25).float()
        positives = torch.zeros(())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, (k + 1) / 2000))

    def step(i):
        with cfg.amp():
            logits = model(counters[i % 4], ids[i % 4])
        loss = F.binary_cross_entropy_with_logits(logits.float(), clicks[i % 4])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        positives.mul_(0.99).add_(logits.detach().sigmoid().float().mean(), alpha=0.01)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
