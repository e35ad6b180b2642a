"""Gradients summed over micro-batches of a few rows, then clipped: every kernel is too small for the GPU."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "overhead",
    "advice": ["bigger-batch"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "pin-memory",
        "flash-attention",
        "channels-last",
        "fused-optimizer",
    ],
}


class Mixer(nn.Module):
    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.over = nn.Sequential(nn.Linear(tokens, 128), nn.GELU(), nn.Linear(128, tokens))
        self.along = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.over(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.n2(x))


def build(s: Setting) -> Step:
    tokens, dim, rows, parts = s.pick(64, 8), s.pick(512, 16), 2, 4
    body = (Mixer(tokens, dim), nn.LayerNorm(dim))
    model = nn.Sequential(nn.Linear(48, dim), *body, nn.Linear(dim, 10))
    model = model.to(s.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(parts, rows, tokens, 48, device=s.device, dtype=torch.bfloat16)
    y = torch.randint(10, (parts, rows), device=s.device)

    def step(i: int) -> torch.Tensor:
        total = torch.zeros((), device=s.device)
        for part in range(parts):
            loss = F.cross_entropy(model(x[part]).mean(1).float(), y[part]) / parts
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
