"""A state-space layer whose recurrence is written with cumulative sums: scans down the sequence over a wide state."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "memory",
    "advice": ["fuse-pointwise"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "pin-memory",
        "flash-attention",
        "channels-last",
        "launch-bound-compile",
    ],
}


class StateSpace(nn.Module):
    def __init__(self, dim: int, inner: int, state: int) -> None:
        super().__init__()
        self.norm, self.enter = nn.LayerNorm(dim), nn.Linear(dim, 2 * inner)
        self.pace, self.cast = nn.Linear(inner, inner), nn.Linear(inner, 2 * state)
        self.fade = nn.Parameter(torch.linspace(-4, -1, state).repeat(inner, 1))
        self.leave = nn.Linear(inner, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u, gate = self.enter(self.norm(x)).chunk(2, -1)
        pace = F.softplus(self.pace(u) - 4)
        b, c = self.cast(u).chunk(2, -1)
        gone = torch.cumsum(-(pace.unsqueeze(-1) * self.fade.exp()), 1)
        fed = (pace * u).unsqueeze(-1) * b.unsqueeze(2)
        held = torch.cumsum(fed * torch.exp(-gone), 1) * torch.exp(gone)
        y = (held * c.unsqueeze(2)).sum(-1)
        return x + self.leave(y * F.silu(gate))


def build(s: Setting) -> Step:
    dim, inner, state = s.pick(512, 16), s.pick(1024, 16), 8
    torch.backends.cuda.matmul.allow_tf32 = True
    model = nn.Sequential(*(StateSpace(dim, inner, state) for _ in range(2))).to(s.device)
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-4, foreach=True)
    x = torch.randn(s.pick(32, 2), s.pick(256, 16), dim, device=s.device)

    def step(i: int) -> torch.Tensor:
        loss = F.huber_loss(model(x), x.roll(-1, 1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
