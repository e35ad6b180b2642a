"""Protein pair representation: triangle multiplications and transitions, compiled per block."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# 2 x 512 x 512 pairs x 128 channels: bf16 tensor 134 MB, the 512-wide hidden ones 537 MB. Per block,
# fused: triangle multiplication ~2.9 GB x 2, transition ~2.7 GB forward, ~2.2 x that backward:
# ~27 GB at ~3.6 TB/s = 7.5 ms; three blocks 22 ms, distogram head + loss ~1.5 GB.
# Linears with K = 128 (64 FLOP a byte, ridge ~205) are bound by bandwidth too; only the 512-cubed
# batched products (0.4 TFLOP a block in all, ~0.9 ms) use tensor cores for real: ~12 %.
# Memory ~75 %, compute ~20 %; ~150 launches a step, host ~3 ms, hidden.
TRUTH = {
    "regime": "memory",
    "cause": "healthy: narrow (128-channel) pair tensors, pointwise work already fused by the compiler",
    "advice": ["none-healthy"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "fused-optimizer",
        "pin-memory",
        "recompilation",
    ],
}


class TriangleMultiplication(nn.Module):
    """Algorithms 11 and 12 of AlphaFold 2, with the four input projections in one."""

    def __init__(self, c: int, outgoing: bool):
        super().__init__()
        self.outgoing = outgoing
        self.norm_in = nn.LayerNorm(c)
        self.proj = nn.Linear(c, 4 * c)
        self.gate = nn.Linear(c, c)
        self.norm_out = nn.LayerNorm(c)
        self.out = nn.Linear(c, c)

    def forward(self, z):
        x = self.norm_in(z)
        a, b, ga, gb = self.proj(x).chunk(4, dim=-1)
        a = a * torch.sigmoid(ga)
        b = b * torch.sigmoid(gb)
        n = z.shape[1]
        if self.outgoing:
            u = torch.einsum("bikc,bjkc->bijc", a, b)
        else:
            u = torch.einsum("bkic,bkjc->bijc", a, b)
        return torch.sigmoid(self.gate(x)) * self.out(self.norm_out(u * n**-0.5))


class Transition(nn.Module):
    def __init__(self, c: int, factor: int = 4):
        super().__init__()
        self.norm = nn.LayerNorm(c)
        self.up = nn.Linear(c, factor * c)
        self.down = nn.Linear(factor * c, c)

    def forward(self, z):
        return self.down(F.relu(self.up(self.norm(z))))


class PairBlock(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.tri_out = TriangleMultiplication(c, outgoing=True)
        self.tri_in = TriangleMultiplication(c, outgoing=False)
        self.transition = Transition(c)

    def forward(self, z):
        z = z + self.tri_out(z)
        z = z + self.tri_in(z)
        return z + self.transition(z)


class PairStack(nn.Module):
    def __init__(self, c: int, blocks: int, bins: int, relpos: int = 32):
        super().__init__()
        self.relpos = relpos
        self.left = nn.Embedding(21, c)
        self.right = nn.Embedding(21, c)
        self.offset = nn.Embedding(2 * relpos + 1, c)
        self.blocks = nn.ModuleList(PairBlock(c) for _ in range(blocks))
        self.distogram = nn.Linear(c, bins)

    def forward(self, sequence):
        n = sequence.shape[1]
        index = torch.arange(n, device=sequence.device)
        offset = (index[:, None] - index[None, :]).clamp(-self.relpos, self.relpos) + self.relpos
        # One-hot product: the table has 65 rows, its gradient is a plain matrix product.
        table = F.one_hot(offset, 2 * self.relpos + 1).to(self.offset.weight.dtype)
        relative = table @ self.offset.weight
        z = self.left(sequence)[:, :, None] + self.right(sequence)[:, None, :] + relative
        for block in self.blocks:
            z = block(z)
        return self.distogram(z)


def build(cfg):
    batch, n, c, blocks, bins = cfg.pick((2, 512, 128, 3, 64), (1, 12, 16, 2, 8))
    with cfg.device:
        model = PairStack(c, blocks, bins).to(torch.bfloat16)
        sequences = torch.randint(21, (4, batch, n))
        coords = torch.cumsum(torch.randn(4, batch, n, 3), dim=2)
        edges = torch.linspace(2.0, 40.0, bins - 1)
        distances = torch.cdist(coords.flatten(0, 1), coords.flatten(0, 1))
        targets = torch.bucketize(distances, edges).view(4, batch, n, n)
    backend = "inductor" if cfg.cuda else "aot_eager"
    for block in model.blocks:  # one compilation serves every block
        block.compile(backend=backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-4, fused=True)

    def step(i):
        logits = model(sequences[i % 4])
        loss = F.cross_entropy(logits.reshape(-1, bins), targets[i % 4].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
