"""Turbine health from 48 sensors: a dict of ordinary CPU tensors, each moved with non_blocking=True."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# A batch is 48 float32 blocks of 4096x512 (8.4 MB each, 403 MB) and 96 small ones (offset, alive).
# Pageable memory: non_blocking does nothing; the driver stages at 5-12 GB/s: 35-80 ms a step, all exposed.
# The net: encoders 48 x (4096x512 @ 512x128) forward + weight gradient 52 GFLOP, cast and standardise
# 403 MB (~3 GB of traffic) 0.8 ms; mixer MLP 6144->2048->2048 on 4096 rows 0.4 TFLOP 0.8 ms;
# ~150 launches. Work ~3 ms of GPU, host launch ~3 ms.
# So more than 85 % of the step is copies that nothing hides; pinned they would take ~8 ms.
TRUTH = {
    "regime": "overhead",
    "cause": "exposed_copy: 144 copies a step from pageable memory; non_blocking=True cannot help them",
    "advice": ["pin-memory"],
    "not_advice": [
        "launch-bound-compile",
        "fuse-pointwise",
        "channels-last",
        "flash-attention",
        "tensor-core-alignment",
        "fused-optimizer",
        "enable-tf32-or-amp",
        "none-healthy",
    ],
}


def fake_history(sensors, rows, length, faults):
    """One shard as np.load would give it: every channel an array of its own."""
    shard = {}
    base = torch.rand(rows, length)
    for s in range(sensors):
        shard[f"vib{s:02d}/signal"] = base.roll(s, 1).mul(1 + 0.05 * s)
        shard[f"vib{s:02d}/offset"] = torch.full((rows,), 0.05 * s)
        shard[f"vib{s:02d}/alive"] = torch.rand(rows) > 0.05
    shard["fault"] = torch.randint(faults, (rows,))
    shard["hours_left"] = torch.rand(rows)
    return shard


class SensorNet(nn.Module):
    def __init__(self, sensors, length, width, hidden, faults):
        super().__init__()
        self.encoder = nn.Parameter(length**-0.5 * torch.randn(sensors, length, width))
        self.bias = nn.Parameter(torch.zeros(sensors, 1, width))
        self.trunk = nn.Sequential(
            nn.Linear(sensors * width, hidden),
            nn.LayerNorm(hidden),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(hidden, hidden),
            nn.GELU(),
        )
        self.fault = nn.Linear(hidden, faults)
        self.hours = nn.Linear(hidden, 1)

    def forward(self, signals, offsets, alive):
        x = signals - offsets.unsqueeze(-1)
        h = F.gelu(torch.baddbmm(self.bias.to(x.dtype), x, self.encoder.to(x.dtype)))
        h = h * alive.unsqueeze(-1)
        z = self.trunk(h.transpose(0, 1).flatten(1))
        return self.fault(z), self.hours(z).squeeze(-1)


def build(cfg):
    sensors, rows, length = cfg.pick((48, 4096, 512), (4, 16, 32))
    width, hidden, faults = cfg.pick((128, 2048, 24), (8, 32, 4))
    device = cfg.device
    shards = [fake_history(sensors, rows, length, faults) for _ in range(2)]
    model = SensorNet(sensors, length, width, hidden, faults).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99995)
    names = [f"vib{s:02d}" for s in range(sensors)]

    def to_device(shard):
        return {key: value.to(device, non_blocking=True) for key, value in shard.items()}

    def gather(batch, what):
        return torch.stack([batch[f"{n}/{what}"] for n in names])

    def step(i):
        batch = to_device(shards[i % len(shards)])
        with cfg.amp():
            signals = gather(batch, "signal").bfloat16()
            offsets = gather(batch, "offset").bfloat16()
            fault, hours = model(signals, offsets, gather(batch, "alive"))
            loss = F.cross_entropy(fault.float(), batch["fault"])
            loss = loss + 0.5 * F.smooth_l1_loss(hours.float(), batch["hours_left"])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
