"""MeshGraphNet: message passing on a simulation mesh, next-step velocity, with NaN guards."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

TRUTH = {
    "regime": "overhead",
    "cause": "sync: NaN guards branch on GPU tensors (`if t.any()`), three per parameter a step",
    "advice": ["sync-point"],
    "not_advice": [
        "dataloader-stall",
        "fused-optimizer",
        "flash-attention",
        "channels-last",
        "pin-memory",
        "tensor-core-alignment",
        "checkpoint-stall",
        "enable-tf32-or-amp",
    ],
}
# 48k edges x 128 fp32 = 25 MB a tensor (~10 us a pass), 8k nodes, TF32 on.  A block: forward
# ~0.23 ms, backward ~0.5 ms: 12 blocks ~9 ms of GPU work; its ~65 launches ~0.45 ms a block
# would run ahead of it.  Guards: 12 x 16 + 22 = 214 parameters x (3 branches x ~20 us wait and
# wake-up + ~9 tiny launches x 5 us) ~ 100 us = 21 ms, GPU empty or on microscopic kernels; plus
# 24 guards in the forward.  Step ~31 ms, overhead ~70 %.

NORMAL, WALL, OUTFLOW = 0, 1, 2


def mlp(cin, hidden, cout, norm=True):
    layers = [nn.Linear(cin, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
    layers.append(nn.Linear(hidden, cout))
    return nn.Sequential(*layers, *([nn.LayerNorm(cout)] if norm else []))


def guard(h, what):
    if torch.isnan(h).any():
        raise FloatingPointError(f"NaN in {what}")
    return h


class Processor(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.edge_mlp = mlp(3 * h, h, h)
        self.node_mlp = mlp(2 * h, h, h)

    def forward(self, v, e, src, dst):
        sent = torch.cat([v.index_select(0, src), v.index_select(0, dst), e], dim=1)
        message = guard(self.edge_mlp(sent), "edges")
        total = torch.zeros_like(v).index_add_(0, dst, message)
        update = guard(self.node_mlp(torch.cat([v, total], dim=1)), "nodes")
        return v + update, e + message


class MeshGraphNet(nn.Module):
    def __init__(self, node_in, edge_in, h, blocks):
        super().__init__()
        self.node_encoder = mlp(node_in, h, h)
        self.edge_encoder = mlp(edge_in, h, h)
        self.processors = nn.ModuleList(Processor(h) for _ in range(blocks))
        self.decoder = mlp(h, h, 2, norm=False)

    def forward(self, nodes, edges, src, dst):
        v, e = self.node_encoder(nodes), self.edge_encoder(edges)
        for processor in self.processors:
            v, e = processor(v, e, src, dst)
        return self.decoder(v)


def sanitize(parameters, limit=10.0):
    """Zero non-finite gradients, tame exploding ones, count the dead ones."""
    dead = 0
    for p in parameters:
        if p.grad is None:
            continue
        g = p.grad
        bad = ~torch.isfinite(g)
        if bad.any():
            g[bad] = 0.0
        largest = g.abs().max()
        if largest > limit:
            g.mul_(limit / largest)
        if not torch.count_nonzero(g):
            dead += 1
    return dead


def build(cfg):
    torch.set_float32_matmul_precision("high")
    nodes, edges, h, blocks = cfg.pick((8000, 48000, 128, 12), (40, 120, 16, 2))
    gen = torch.Generator().manual_seed(3)
    src = torch.randint(nodes, (edges,), generator=gen)
    dst = (src + torch.randint(1, 60, (edges,), generator=gen)) % nodes
    kind = torch.randint(0, 12, (nodes,), generator=gen).clamp(max=9)
    kind = torch.where(kind < 8, NORMAL, kind - 7)
    src, dst, kind = src.to(cfg.device), dst.to(cfg.device), kind.to(cfg.device)
    with cfg.device:
        model = MeshGraphNet(2 + 3, 3, h, blocks)
        velocity = torch.randn(16, nodes, 2)
        offsets = torch.randn(edges, 2)
        edge_features = torch.cat([offsets, offsets.norm(dim=1, keepdim=True)], dim=1)
    one_hot = F.one_hot(kind, 3).float()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99999)

    def step(i):
        now, after = velocity[i % 16], velocity[(i + 1) % 16]
        noisy = now + 0.02 * torch.randn_like(now)
        predicted = model(torch.cat([noisy, one_hot], 1), edge_features, src, dst)
        target = after - noisy
        free = (kind == NORMAL) | (kind == OUTFLOW)
        loss = F.mse_loss(predicted[free], target[free])
        loss.backward()
        sanitize(model.parameters())
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
