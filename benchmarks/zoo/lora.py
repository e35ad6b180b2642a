"""Low-rank fine-tuning of a frozen transformer with written-out RMS norm: compute, with thin products and small kernels."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F
from transformer import Block, RMSNorm

TRUTH = {
    "regime": "compute",
    "advice": [],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "flash-attention",
        "channels-last",
        "enable-tf32-or-amp",
    ],
}


class Adapted(nn.Module):
    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Linear(base.in_features, rank, bias=False)
        self.b = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.b(self.a(x))


def build(s: Setting) -> Step:
    dim, heads, depth = s.pick(2048, 32), s.pick(16, 2), s.pick(6, 2)
    body = nn.Sequential(*(Block(dim, heads, RMSNorm) for _ in range(depth)))
    body.requires_grad_(False)
    for block in body:
        for owner, name in (
            (block.attention, "qkv"),
            (block.attention, "out"),
            (block, "up"),
            (block, "down"),
        ):
            setattr(owner, name, Adapted(getattr(owner, name), 16))
    body = body.to(s.device, torch.bfloat16)
    trained = [p for p in body.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=s.device.type == "cuda")
    x = torch.randn(s.pick(8, 1), s.pick(1024, 8), dim, device=s.device, dtype=torch.bfloat16)

    def step(i: int) -> torch.Tensor:
        loss = F.mse_loss(body(x).float(), x.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
