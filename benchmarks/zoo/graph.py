"""Message passing on a random graph: gather, scatter-add and thin products."""

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
    nodes, edges, dim = s.pick(400_000, 50), s.pick(4_000_000, 200), 64
    source = torch.randint(nodes, (edges,), device=s.device)
    target = torch.randint(nodes, (edges,), device=s.device)
    layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(3)).to(s.device)
    head = nn.Linear(dim, 16).to(s.device)
    optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=1e-3, foreach=True)
    x = torch.randn(nodes, dim, device=s.device)
    y = torch.randint(16, (nodes,), device=s.device)

    def step(i: int) -> torch.Tensor:
        h = x
        for layer in layers:
            summed = torch.zeros_like(h).index_add_(0, target, h[source])
            h = F.relu(layer(summed)) + h
        loss = F.cross_entropy(head(h), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
