"""Two towers and the products of all with all: a loss over logits far larger than the towers, both ways."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "memory",
    "advice": [],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "pin-memory",
        "flash-attention",
        "channels-last",
        "enable-tf32-or-amp",
    ],
}


def tower(cin: int, wide: int, cout: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(cin, wide), nn.GELU(), nn.LayerNorm(wide), nn.Linear(wide, cout))


def build(s: Setting) -> Step:
    batch, dim, pool = s.pick(16384, 16), s.pick(256, 8), s.pick(200_000, 50)
    sights = tower(s.pick(768, 16), s.pick(1024, 16), dim).to(s.device)
    words = tower(s.pick(512, 16), s.pick(1024, 16), dim).to(s.device)
    warmth = nn.Parameter(torch.tensor(2.6, device=s.device))
    optimizer = torch.optim.AdamW(
        [*sights.parameters(), *words.parameters(), warmth], lr=1e-4, fused=True
    )
    seen = torch.randn(pool, s.pick(768, 16), device=s.device)
    read = torch.randn(pool, s.pick(512, 16), device=s.device)
    same = torch.arange(batch, device=s.device)

    def step(i: int) -> torch.Tensor:
        rows = torch.randint(pool, (batch,), device=s.device)
        with torch.autocast(s.device.type, torch.bfloat16):
            a = F.normalize(sights(seen[rows]), dim=-1)
            b = F.normalize(words(read[rows]), dim=-1)
            logits = warmth.exp() * (a @ b.T)
            loss = (F.cross_entropy(logits, same) + F.cross_entropy(logits.T, same)) / 2
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
