"""Building blocks the language scripts share: attention, feed-forward, RMS norm."""

import torch
from torch import nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    """Written out, as many repositories do: seven kernels in eager mode."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (x.float() * scale).to(x.dtype) * self.weight


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, norm: type[nn.Module] = nn.LayerNorm) -> None:
        super().__init__()
        self.n1, self.n2 = norm(dim), norm(dim)
        self.attention = Attention(dim, heads)
        self.up, self.gate = (
            nn.Linear(dim, 3 * dim, bias=False),
            nn.Linear(dim, 3 * dim, bias=False),
        )
        self.down = nn.Linear(3 * dim, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.n1(x))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))
