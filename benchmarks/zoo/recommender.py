"""A two-tower recommender: large embedding tables, small products, sparse lookups."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "memory",
    "advice": [],
    "not_advice": ["dataloader-stall", "sync-point", "flash-attention", "channels-last"],
}


def build(s: Setting) -> Step:
    rows, dim, tables, batch = s.pick(2_000_000, 1000), 128, s.pick(12, 2), s.pick(32768, 16)
    bags = nn.ModuleList(nn.Embedding(rows, dim) for _ in range(tables)).to(s.device)
    tower = nn.Sequential(
        nn.Linear(dim * tables, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 1)
    ).to(s.device)
    optimizer = torch.optim.SGD([*bags.parameters(), *tower.parameters()], lr=0.01, foreach=True)
    ids = torch.randint(rows, (4, tables, batch), device=s.device)
    clicks = torch.rand(batch, device=s.device).round()

    def step(i: int) -> torch.Tensor:
        looked = torch.cat([bag(ids[i % 4, t]) for t, bag in enumerate(bags)], 1)
        loss = F.binary_cross_entropy_with_logits(tower(looked).squeeze(1), clicks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
