"""One request at a time through a small encoder with convolutions, in eager fp16: launching takes longer than computing."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "overhead",
    "advice": ["launch-bound-compile"],
    "not_advice": ["dataloader-stall", "sync-point", "flash-attention", "enable-tf32-or-amp"],
}


class Conformer(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.enter, self.leave = nn.Conv1d(dim, 2 * dim, 1), nn.Conv1d(dim, dim, 1)
        self.deep = nn.Conv1d(dim, dim, 15, padding=7, groups=dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        h = self.qkv(self.norms[0](x)).view(b, t, 3, self.heads, d // self.heads)
        y = F.scaled_dot_product_attention(*h.permute(2, 0, 3, 1, 4))
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        h = F.glu(self.enter(self.norms[1](x).transpose(1, 2)), 1)
        x = x + self.leave(F.silu(self.deep(h))).transpose(1, 2)
        return x + 0.5 * self.down(F.silu(self.up(self.norms[2](x))))


def build(s: Setting) -> Step:
    dim, t = s.pick(256, 16), s.pick(100, 10)
    kind = torch.float16 if s.device.type == "cuda" else torch.float32
    body = nn.Sequential(*(Conformer(dim, s.pick(4, 2)) for _ in range(s.pick(6, 2))))
    head = nn.Linear(dim, 500)
    body, head = body.eval().to(s.device, kind), head.to(s.device, kind)
    x = torch.randn(1, t, dim, device=s.device, dtype=kind)

    @torch.inference_mode()
    def step(i: int) -> torch.Tensor:
        best = torch.zeros((), device=s.device)
        for k in range(2):
            shares = head(body(x * (k + 1))).float().log_softmax(-1)
            best = best + shares.max(-1).values.sum()
        return best

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
