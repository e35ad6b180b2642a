"""Physics-informed network for a 2-D reaction-diffusion equation, u_t = D (u_xx + u_yy) + u (1 - u^2).

Second derivatives by double backward, so that one optimiser step differentiates three times.
"""

import copy
import math

import torch
from harness import main
from torch import Tensor, nn
from torch.autograd import grad

# H200, full size: 16384 points, width 1024: one product is 34 GFLOP = 0.65 ms at ~53 TFLOP/s (fp32 without
# TF32). Four hidden layers: 4 forward, 4 for du, 2 x 8 for u_xx and u_yy = 24, and two for each of those in
# the backward pass = ~70 products = 46 ms. Pointwise: ~400 passes over 67 MB tensors, 53 GB = 12 ms.
# Compute ~80 % of ~58 ms; ~700 launches = ~7 ms of host, hidden.
# With TF32 a product takes ~0.11 ms: 8 + 12 = ~20 ms, a gain of two thirds.
TRUTH = {
    "regime": "compute",
    "cause": "fp32 matrix products on the CUDA cores: TF32 was never allowed",
    "advice": ["enable-tf32-or-amp"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "flash-attention",
        "pin-memory",
        "channels-last",
        "bigger-batch",
        "none-healthy",
    ],
}


class FourierFeatures(nn.Module):
    def __init__(self, inputs: int, features: int, sigma: float = 1.0):
        super().__init__()
        self.register_buffer("B", sigma * torch.randn(inputs, features // 2))

    def forward(self, x: Tensor) -> Tensor:
        p = 2 * math.pi * x @ self.B
        return torch.cat([p.sin(), p.cos()], dim=-1)


def network(features: int, width: int, depth: int) -> nn.Sequential:
    layers: list[nn.Module] = [FourierFeatures(3, features), nn.Linear(features, width), nn.Tanh()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.Tanh()]
    layers.append(nn.Linear(width, 1))
    for m in layers:
        if isinstance(m, nn.Linear):
            nn.init.xavier_normal_(m.weight)
            nn.init.zeros_(m.bias)
    return nn.Sequential(*layers)


def residual(net: nn.Module, txy: Tensor, diffusion: float) -> Tensor:
    txy = txy.detach().requires_grad_(True)
    u = net(txy)
    du = grad(u.sum(), txy, create_graph=True)[0]
    u_xx = grad(du[:, 1].sum(), txy, create_graph=True)[0][:, 1:2]
    u_yy = grad(du[:, 2].sum(), txy, create_graph=True)[0][:, 2:3]
    return du[:, 0:1] - diffusion * (u_xx + u_yy) - u * (1 - u.square())


def build(cfg):
    points, border, width, features, depth = cfg.pick(
        (16384, 2048, 1024, 128, 4), (32, 8, 16, 8, 2)
    )
    net = network(features, width, depth).to(cfg.device)
    averaged = copy.deepcopy(net).requires_grad_(False)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20_000)
    weights = {"pde": 1.0, "initial": 100.0}

    def initial_condition(xy: Tensor) -> Tensor:
        return torch.sin(math.pi * xy[:, :1]) * torch.sin(math.pi * xy[:, 1:])

    def step(i: int) -> Tensor:
        txy = torch.rand(points, 3, device=cfg.device)
        start = torch.rand(border, 3, device=cfg.device)
        start[:, 0] = 0
        loss_pde = residual(net, txy, 0.01).square().mean()
        loss_ic = (net(start) - initial_condition(start[:, 1:])).square().mean()
        loss = weights["pde"] * loss_pde + weights["initial"] * loss_ic
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(averaged.parameters()), list(net.parameters()), 0.001)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
