"""Attention in shifted windows of an image: rolls, permutes and a bias a head, in bf16 autocast."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "memory",
    "advice": ["needless-copies"],
    "not_advice": ["dataloader-stall", "sync-point", "flash-attention", "enable-tf32-or-amp"],
}


class Window(nn.Module):
    def __init__(self, dim: int, heads: int, size: int, shift: int) -> None:
        super().__init__()
        self.heads, self.size, self.shift = heads, size, shift
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.bias = nn.Parameter(torch.zeros(1, heads, size * size, size * size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, d = x.shape
        z, n = self.size, self.size**2
        y = torch.roll(self.n1(x), (-self.shift, -self.shift), (1, 2))
        y = y.view(b, h // z, z, w // z, z, d).transpose(2, 3).reshape(-1, n, d)
        q, k, v = self.qkv(y).view(-1, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, self.bias.to(q.dtype))
        y = self.out(y.transpose(1, 2).reshape(-1, n, d))
        y = y.view(b, h // z, w // z, z, z, d).transpose(2, 3).reshape(b, h, w, d)
        x = x + torch.roll(y, (self.shift, self.shift), (1, 2))
        return x + self.mlp(self.n2(x))


def build(s: Setting) -> Step:
    dim, side, heads = s.pick(192, 16), s.pick(56, 16), s.pick(6, 2)
    size = s.pick(8, 4)
    layers = [Window(dim, heads, size, shift) for shift in (0, size // 2, 0)]
    model = nn.Sequential(*layers).to(s.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(s.pick(64, 1), side, side, dim, device=s.device)

    def step(i: int) -> torch.Tensor:
        with torch.autocast(s.device.type, torch.bfloat16):
            loss = F.smooth_l1_loss(model(x), x.flip(1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
