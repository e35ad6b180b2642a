"""Grouped-query attention, rotary places, fused RMS norm and a loss in pieces, recomputing activations with memory to spare."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

TRUTH = {
    "regime": "compute",
    "advice": ["remove-checkpointing"],
    "not_advice": ["dataloader-stall", "flash-attention", "activation-checkpointing"],
}


def turned(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, dim: int, size: int, inner: int) -> None:
        super().__init__()
        self.size, self.n1, self.n2 = size, nn.RMSNorm(dim), nn.RMSNorm(dim)
        widths = (dim, dim // 4, dim // 4, dim, inner, inner)
        self.into = nn.ModuleList(nn.Linear(dim, width, bias=False) for width in widths)
        self.down = nn.Linear(inner, dim, bias=False)

    def forward(self, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        *qkv, out, gate, up = self.into
        h = self.n1(x)
        q, k, v = (p(h).unflatten(-1, (-1, self.size)).transpose(1, 2) for p in qkv)
        heads = (turned(q, turn), turned(k, turn), v)
        y = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        x = x + out(y.transpose(1, 2).flatten(2))
        h = self.n2(x)
        return x + self.down(F.silu(gate(h)) * up(h))


def build(s: Setting) -> Step:
    dim, size, t, vocab = s.pick(2048, 32), s.pick(128, 8), s.pick(2048, 8), s.pick(32000, 50)
    layers = nn.ModuleList(Layer(dim, size, s.pick(5632, 48)) for _ in range(2))
    embed, head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab, bias=False)
    parts = nn.ModuleList((layers, embed, head)).to(s.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-4, fused=True)
    angle = torch.outer(torch.arange(t), 1e4 ** -torch.linspace(0, 1, size // 2))
    turn = torch.polar(torch.ones_like(angle), angle).to(s.device)
    ids = torch.randint(vocab, (s.pick(4, 2), t + 1), device=s.device)

    def step(i: int) -> torch.Tensor:
        h = embed(ids[:, :-1])
        for layer in layers:
            h = checkpoint(layer, h, turn, use_reentrant=False)
        rows = zip(h.flatten(0, 1).chunk(4), ids[:, 1:].flatten().chunk(4), strict=True)
        loss = sum(F.cross_entropy(head(x).float(), y) for x, y in rows) / 4
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
