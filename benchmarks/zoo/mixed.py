"""A transformer step, an unfused pointwise chain and a pause on the host, a third of the time each."""

import time

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F
from transformer import Block

TRUTH = {
    "regime": "mixed",
    "advice": ["fuse-pointwise"],
    "not_advice": ["dataloader-stall", "flash-attention", "channels-last", "enable-tf32-or-amp"],
}
PAUSE_S = 0.012


def build(s: Setting) -> Step:
    dim, depth = s.pick(2048, 32), s.pick(2, 1)
    body = nn.Sequential(*(Block(dim, s.pick(16, 2)) for _ in range(depth))).to(
        s.device, torch.bfloat16
    )
    optimizer = torch.optim.AdamW(body.parameters(), lr=1e-4, fused=s.device.type == "cuda")
    x = torch.randn(s.pick(8, 1), s.pick(1024, 8), dim, device=s.device, dtype=torch.bfloat16)
    field = torch.randn(s.pick(1 << 27, 1 << 10), device=s.device, dtype=torch.bfloat16)

    def step(i: int) -> torch.Tensor:
        loss = F.mse_loss(body(x).float(), x.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        f = field
        for _ in range(24):
            f = f * 1.01
            f = f + 0.1
            f = -f
        if s.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        time.sleep(PAUSE_S)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
