"""Electricity-load forecasting with a TSMixer, in the layout-juggling style of an early port."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

TRUTH = {
    "regime": "memory",
    "cause": "every sublayer permutes to (B, C, T) and back with .contiguous(), and clones",
    "advice": ["needless-copies"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "pin-memory",
        "fused-optimizer",
        "tensor-core-alignment",
    ],
}
# (512, 512, 128) bf16 = 67 MB a tensor; a straight pass (r+w) ~33 us, a transposing copy
# ~60-100 us.  A block forward: 6 transposing copies ~0.48 ms, 3 clones 0.13 ms; two norms,
# GELUs, dropouts, residuals ~0.35 ms; GEMMs 34 + 34 GFLOP ~0.17 ms (half of it bandwidth).
# Backward ~1.5 ms: GEMMs 0.35, strided pointwise 0.9, permuted gradients made dense 0.25.
# 8 x ~2.6 ms = ~21 ms: copies ~33 %, other bandwidth ~50 %, tensor cores ~15 %.  Memory.


class RevIN(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        var, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
        self.mean, self.std = mean.detach(), (var + 1e-5).sqrt().detach()
        return (x - self.mean) / self.std * self.gain + self.shift

    def inverse(self, y):
        return (y - self.shift) / self.gain * self.std + self.mean


class TimeMixing(nn.Module):
    def __init__(self, length, channels, p):
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.fc = nn.Linear(length, length)
        self.drop = nn.Dropout(p)

    def forward(self, x):  # (B, T, C)
        residual = x.clone()
        y = self.norm(x)
        y = y.permute(0, 2, 1).contiguous()  # (B, C, T)
        y = self.drop(F.gelu(self.fc(y)))
        y = y.permute(0, 2, 1).contiguous()  # back to (B, T, C)
        return (residual + y).clone()


class FeatureMixing(nn.Module):
    """Keeps (B, C, T) inside, as the convolutional version did."""

    def __init__(self, channels, hidden, p):
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.up = nn.Linear(channels, hidden)
        self.down = nn.Linear(hidden, channels)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        residual = x.permute(0, 2, 1).contiguous()  # (B, C, T), what conv1d took
        y = self.norm(residual.permute(0, 2, 1).contiguous())
        y = F.gelu(self.up(y)).clone()
        y = self.drop(self.down(y)).permute(0, 2, 1).contiguous()
        return (residual + y).permute(0, 2, 1).contiguous()


class Mixer(nn.Module):
    def __init__(self, length, channels, hidden, blocks, horizon, p):
        super().__init__()
        self.revin = RevIN(channels)
        self.blocks = nn.Sequential()
        for _ in range(blocks):
            self.blocks.append(TimeMixing(length, channels, p))
            self.blocks.append(FeatureMixing(channels, hidden, p))
        self.head = nn.Linear(length, horizon)

    def forward(self, x):
        x = self.blocks(self.revin(x))
        y = self.head(x.permute(0, 2, 1).contiguous()).permute(0, 2, 1).contiguous()
        return self.revin.inverse(y)


def build(cfg):
    batch, length, channels, hidden = cfg.pick((512, 512, 128, 256), (4, 16, 8, 16))
    blocks, horizon = cfg.pick((8, 96), (2, 4))
    with cfg.device:
        model = Mixer(length, channels, hidden, blocks, horizon, 0.1).to(torch.bfloat16)
        series = torch.randn(length + horizon + 4 * batch, channels).cumsum(0) / 20
        starts = torch.arange(batch) * 2
        window = torch.arange(length + horizon)
    series = series.to(torch.bfloat16)
    ema = {k: v.detach().clone() for k, v in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-4, fused=True)

    def step(i):
        rows = series[(starts + i % batch).unsqueeze(1) + window]
        past, future = rows[:, :length], rows[:, length:]
        loss = F.smooth_l1_loss(model(past).float(), future.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_lerp_(list(ema.values()), list(model.parameters()), 0.01)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
