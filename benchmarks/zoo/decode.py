"""One token at a time, as in the generation phase of reinforcement learning: products of a few rows read every weight."""

import torch
from harness import Setting, Step, main
from torch import nn

TRUTH = {
    "regime": "memory",
    "advice": [],
    "not_advice": [
        "dataloader-stall",
        "flash-attention",
        "channels-last",
        "enable-tf32-or-amp",
        "tensor-core-alignment",
    ],
}


def build(s: Setting) -> Step:
    dim, depth, batch = s.pick(8192, 32), s.pick(8, 2), 8
    layers = nn.ModuleList(
        nn.ModuleList((nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)))
        for _ in range(depth)
    ).to(s.device, torch.bfloat16)
    x = torch.randn(batch, dim, device=s.device, dtype=torch.bfloat16)

    @torch.no_grad()
    def step(i: int) -> torch.Tensor:
        h = x
        for _ in range(4):
            for up, down in layers:
                h = h + down(torch.relu(up(h)))
            h = h / h.norm(dim=-1, keepdim=True)
        return h.float().mean()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
