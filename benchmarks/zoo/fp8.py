"""Matrix products in fp8 with per-tensor scaling: casts beside very fast GEMMs. bf16 where fp8 is missing."""

import torch
from harness import Setting, Step, main
from torch.nn import functional as F

TRUTH = {
    "regime": "mixed",
    "advice": [],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "flash-attention",
        "channels-last",
        "enable-tf32-or-amp",
    ],
}


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b.T in fp8."""
    if a.device.type != "cuda":
        return a @ b.T
    one = torch.ones((), device=a.device)
    return torch._scaled_mm(
        a.to(torch.float8_e4m3fn),
        b.to(torch.float8_e4m3fn).t(),
        scale_a=one,
        scale_b=one,
        out_dtype=torch.bfloat16,
    )


def build(s: Setting) -> Step:
    dim, rows, depth = s.pick(4096, 32), s.pick(16384, 32), s.pick(6, 2)
    weights = [
        torch.randn(dim, dim, device=s.device, dtype=torch.bfloat16) / dim**0.5
        for _ in range(depth)
    ]
    x = torch.randn(rows, dim, device=s.device, dtype=torch.bfloat16)

    def step(i: int) -> torch.Tensor:
        h = x
        for w in weights:
            h = F.gelu(product(h, w)) + h
        for w in reversed(weights):
            h = product(h, w.t().contiguous()) * 0.5
            w.sub_(product(h.t().contiguous(), x.t().contiguous()), alpha=1e-8)
        return h.float().square().mean()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
