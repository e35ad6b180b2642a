"""N-BEATS (generic, wide), two bagged members trained at once as stacked weights, bf16 autocast.

Windows are cut out of a panel that lives on the GPU; each member draws its own.
"""

import itertools
import math

import torch
from harness import main
from torch import nn

# H200. Multiply-adds per window and block: 512x4096 + 3x4096^2 + 4096x(512+96) = 54.9 M -> 329 MFLOP with backward
#   x 2 members x 16384 windows x 4 blocks = 43 TFLOP -> 70 ms at ~620 TFLOP/s (batched products of 16384x4096x4096)
#   hidden tensor 268 MB bf16; bias copy, ReLU, its backward, bias sum: ~8 passes x 16 layers = 34 GB -> 8.2 ms
#   439 M fp32 parameters: fused AdamW 28 B each 2.9 ms, bf16 weight and gradient casts 1.2 ms; windows, loss 0.5 ms
# total about 83 ms: 85 % tensor cores, 15 % bandwidth; ~300 launches, no read-back.
TRUTH = {
    "regime": "compute",
    "cause": "healthy: batched bf16 products over a big batch",
    "advice": ["none-healthy"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "tensor-core-alignment",
        "fused-optimizer",
        "bigger-batch",
        "pin-memory",
    ],
}


class StackedLinear(nn.Module):
    """One linear layer per ensemble member: (E, B, in) -> (E, B, out)."""

    def __init__(self, members, n_in, n_out, gain=2.0**0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(members, n_in, n_out) * gain / math.sqrt(n_in))
        self.bias = nn.Parameter(torch.zeros(members, 1, n_out))

    def forward(self, x):
        return torch.baddbmm(self.bias, x, self.weight)


class Block(nn.Module):
    def __init__(self, members, lookback, horizon, width, depth=4):
        super().__init__()
        dims = [lookback] + [width] * depth
        self.hidden = nn.ModuleList(
            StackedLinear(members, a, b) for a, b in itertools.pairwise(dims)
        )
        self.backcast = StackedLinear(members, width, lookback, gain=0.1)
        self.forecast = StackedLinear(members, width, horizon, gain=0.1)

    def forward(self, x):
        for layer in self.hidden:
            x = layer(x).relu_()
        return self.backcast(x), self.forecast(x)


class NBeats(nn.Module):
    def __init__(self, members, lookback, horizon, width, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(Block(members, lookback, horizon, width) for _ in range(blocks))

    def forward(self, window):
        residual, forecast = window, 0.0
        for block in self.blocks:
            back, fore = block(residual)
            residual = residual - back
            forecast = forecast + fore
        return forecast


class Panel:
    """Random windows from a panel of series on the device, scaled by the window's own level."""

    def __init__(self, series, length, lookback, horizon, device):
        t = torch.arange(length, device=device)
        phase = 6.2832 * torch.rand(series, 1, device=device)
        trend = torch.randn(series, 1, device=device) * t / length
        self.values = (
            10
            + 3 * torch.sin(6.2832 * t / 24 + phase)
            + 2 * torch.sin(6.2832 * t / 168 + phase)
            + trend
        )
        self.values += 0.3 * torch.randn(series, length, device=device)
        self.span = torch.arange(lookback + horizon, device=device)
        self.lookback, self.device = lookback, device

    def draw(self, *shape):
        series, length = self.values.shape
        row = torch.randint(series, (*shape, 1), device=self.device)
        first = torch.randint(length - len(self.span), (*shape, 1), device=self.device)
        window = self.values[row, first + self.span]
        past, future = window.split([self.lookback, len(self.span) - self.lookback], dim=-1)
        level = past.mean(-1, keepdim=True)
        return past / level - 1, future / level - 1


def build(cfg):
    members, batch, width, blocks = cfg.pick((2, 16384, 4096, 4), (2, 16, 32, 2))
    lookback, horizon = cfg.pick((512, 96), (48, 8))
    with cfg.device:
        model = NBeats(members, lookback, horizon, width, blocks)
    panel = Panel(*cfg.pick((2000, 8760), (8, 400)), lookback, horizon, cfg.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=1e-4, fused=True)
    warm = 500
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min(1.0, (n + 1) / warm) / math.sqrt(1 + n / 10_000)
    )
    running = torch.zeros((), device=cfg.device)

    def step(i):
        past, future = panel.draw(members, batch)
        with cfg.amp():
            forecast = model(past)
        error = (forecast.float() - future).abs()
        loss = error.mean(dim=(1, 2)).sum()  # members are independent
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        running.lerp_(loss.detach() / members, 0.01)
        return running

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
