"""Weights and gradients of every step copied back whole, for histograms that the host counts and logs."""

import json
import logging
import os

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "overhead",
    "advice": ["readback-traffic"],
    "not_advice": [
        "dataloader-stall",
        "flash-attention",
        "channels-last",
        "fused-optimizer",
        "enable-tf32-or-amp",
        "tensor-core-alignment",
    ],
}


def build(s: Setting) -> Step:
    dim, rows = s.pick(2048, 16), s.pick(8192, 8)
    model = nn.Sequential()
    for _ in range(4):
        model.extend((nn.Linear(dim, dim), nn.ReLU(), nn.BatchNorm1d(dim)))
    model.to(s.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(rows, dim, device=s.device, dtype=torch.bfloat16)
    log = logging.getLogger("histograms")
    log.addHandler(logging.FileHandler(os.devnull))
    log.setLevel(logging.INFO)
    log.propagate = False

    def counted(values: torch.Tensor) -> list[float]:
        return values.flatten()[::8].float().histc(64).tolist()

    def step(i: int) -> torch.Tensor:
        loss = F.l1_loss(model(x), x)
        loss.backward()
        found = {}
        for name, p in model.named_parameters():
            if p.dim() == 2 and p.grad is not None:
                found[name] = counted(p.detach().cpu())
                found[f"{name}.grad"] = counted(p.grad.cpu())
        log.info("%s", json.dumps({"step": i, "histograms": found}))
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach().float()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
