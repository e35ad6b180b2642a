"""Summed bags of embeddings with sparse gradients and pairwise interactions: random rows of large tables, many times over."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "memory",
    "advice": [],
    "not_advice": [
        "dataloader-stall",
        "flash-attention",
        "channels-last",
        "pin-memory",
        "enable-tf32-or-amp",
    ],
}


def build(s: Setting) -> Step:
    torch.backends.cuda.matmul.allow_tf32 = True
    rows, dim, tables = s.pick(1_000_000, 100), s.pick(64, 8), s.pick(6, 2)
    batch, many = s.pick(65536, 8), s.pick(24, 3)
    bags = nn.ModuleList(nn.EmbeddingBag(rows, dim, mode="sum", sparse=True) for _ in range(tables))
    bags = bags.to(s.device)
    low = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, dim), nn.ReLU())
    pairs = torch.tril_indices(tables + 1, tables + 1, -1, device=s.device)
    top = nn.Sequential(nn.Linear(dim + pairs.shape[1], 256), nn.ReLU(), nn.Linear(256, 1))
    low, top = low.to(s.device), top.to(s.device)
    sparse = torch.optim.SGD(bags.parameters(), lr=0.1)
    dense = torch.optim.Adagrad([*low.parameters(), *top.parameters()], lr=0.01)
    ids = torch.randint(rows, (tables, batch, many), device=s.device)
    numbers = torch.rand(batch, 13, device=s.device)
    clicks = torch.rand(batch, 1, device=s.device).round()

    def step(i: int) -> torch.Tensor:
        x = low(torch.log1p(numbers))
        looked = torch.stack([x, *(bag(ids[t]) for t, bag in enumerate(bags))], 1)
        met = torch.bmm(looked, looked.mT)[:, pairs[0], pairs[1]]
        loss = F.binary_cross_entropy_with_logits(top(torch.cat((x, met), 1)), clicks)
        loss.backward()
        for optimizer in (sparse, dense):
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
