"""A second-order optimizer: inverse roots of gradient statistics by batched products in double precision."""

import torch
from harness import Setting, Step, main
from torch.nn import functional as F

TRUTH = {
    "regime": "compute",
    "advice": ["double-precision"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "flash-attention",
        "channels-last",
        "enable-tf32-or-amp",
        "fused-optimizer",
    ],
}


def inverse_root(a: torch.Tensor, turns: int) -> torch.Tensor:
    """a ** -1/2 of a stack of matrices, by the coupled Newton-Schulz iteration."""
    scale = a.square().sum((-2, -1), keepdim=True).sqrt()
    one = torch.eye(a.shape[-1], device=a.device, dtype=a.dtype)
    y, z = a / scale + 1e-6 * one, one.expand_as(a)
    for _ in range(turns):
        t = 1.5 * one - 0.5 * (z @ y)
        y, z = y @ t, t @ z
    return z / scale.sqrt()


def build(s: Setting) -> Step:
    dim, depth, rows = s.pick(1024, 16), s.pick(8, 2), s.pick(16384, 32)
    weights = torch.randn(depth, dim, dim, device=s.device) / dim**0.5
    left = torch.zeros(depth, dim, dim, device=s.device, dtype=torch.float64)
    right = torch.zeros_like(left)
    x = torch.randn(rows, dim, device=s.device, dtype=torch.bfloat16)

    def step(i: int) -> torch.Tensor:
        layers = weights.bfloat16().requires_grad_()
        h = x
        for w in layers.unbind():
            h = h + torch.tanh(h @ w)
        loss = F.mse_loss(h.float(), x.float())
        (g,) = torch.autograd.grad(loss, layers)
        g = g.double()
        left.lerp_(g @ g.mT, 0.05)
        right.lerp_(g.mT @ g, 0.05)
        move = inverse_root(left, 4) @ g @ inverse_root(right, 4)
        weights.sub_(move.float(), alpha=1e-6)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
