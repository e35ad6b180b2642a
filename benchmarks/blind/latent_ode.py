"""Neural ODE on irregular trajectories: fixed-step RK4 through a small field, plain autograd."""

import itertools

import torch
from harness import main
from torch import nn

# H200, full size: 24 intervals x 4 stages = 96 field evaluations of ~10 kernels (clock column, cat,
# 3 addmm, 2 tanh, 2 axpy) + ~8 RK4 ops per interval = ~1150 kernels forward, ~2400 backward (addmm wgrad,
# dgrad, bias sum, grad accumulation), each 2-4 us of device time = ~11 ms busy, tiny (1024 x 128 x 128).
# Host: 1150 x 6 us + 2400 x 8 us = ~26 ms per step; so the GPU idles or runs underfilled all the time.
# Captured in a CUDA graph: ~3600 x 3.3 us = 12 ms, i.e. more than half of the step goes.
TRUTH = {
    "regime": "overhead",
    "cause": "launch: thousands of microscopic kernels of an unrolled RK4 solver, launched one by one",
    "advice": ["launch-bound-compile"],
    "not_advice": [
        "dataloader-stall",
        "pin-memory",
        "enable-tf32-or-amp",
        "use-bf16",
        "flash-attention",
        "activation-checkpointing",
        "none-healthy",
        "channels-last",
    ],
}


class Field(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.l1 = nn.Linear(dim + 1, hidden)
        self.l2 = nn.Linear(hidden, hidden)
        self.l3 = nn.Linear(hidden, dim)

    def forward(self, t, y):
        clock = torch.ones_like(y[:, :1]) * t
        h = torch.tanh(self.l1(torch.cat([y, clock], dim=1)))
        h = torch.tanh(self.l2(h))
        return self.l3(h)


def rk4(f, y, times):
    """Solution at every time (the first is y itself); times: Python floats."""
    out = [y]
    for t0, t1 in itertools.pairwise(times):
        h = t1 - t0
        k1 = f(t0, y)
        k2 = f(t0 + h / 2, y + h / 2 * k1)
        k3 = f(t0 + h / 2, y + h / 2 * k2)
        k4 = f(t1, y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        out.append(y)
    return torch.stack(out)


class LatentODE(nn.Module):
    def __init__(self, observed, latent, hidden):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(8 * observed, hidden), nn.ELU(), nn.Linear(hidden, latent)
        )
        self.field = Field(latent, hidden)
        self.decoder = nn.Linear(latent, observed)

    def forward(self, series, times):
        z0 = self.encoder(series[:8].transpose(0, 1).flatten(1))
        return self.decoder(rk4(self.field, z0, times))


def setup(cfg):
    batch, latent, hidden, points = cfg.pick((1024, 32, 128, 25), (8, 4, 8, 10))
    times = [3.0 * (k / (points - 1)) ** 1.2 for k in range(points)]
    with cfg.device:
        model = LatentODE(2, latent, hidden)
        t = torch.tensor(times)[:, None, None]
        phase = 6.28 * torch.rand(4, 1, batch, 1)
        radius = 1 + 0.2 * t
        series = torch.cat([radius * torch.cos(t + phase), radius * torch.sin(t + phase)], -1)
        series = series + 0.02 * torch.randn_like(series)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    return model, optimizer, series, times


def build(cfg):
    model, optimizer, series, times = setup(cfg)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9999)

    def step(i):
        batch = series[i % 4]
        loss = (model(batch, times) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
