"""Graphormer on molecules, HOMO-LUMO gap: graphs are parsed and their shortest paths found per item."""

import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import forever, main
from torch.utils.data import DataLoader, Dataset

# Input: 80 molecules a batch, each parsed from text and searched breadth-first from its ~ 40 atoms in Python:
# 40 x 40 visits x 2.1 bonds x ~ 0.12 us + parsing, tensors, padding ~ 0.6 ms; x 80 = 48 ms, in the training process (num_workers=0).
# GPU: 80 x 48 tokens, width 768, 8 layers: 3840 x 8 x 72 d^2 = 1.3 TFLOP = 3 ms, pointwise, bias attention and AdamW (60 M) ~ 3 ms.
# Launching ~ 1100 kernels costs the host ~ 8 ms, after the loader, so nothing overlaps.
# Step ~ 57 ms: GPU busy ~ 6 to 7 ms (12 %), waiting for input ~ 80 %, launch gaps a few per cent.
TRUTH = {
    "regime": "overhead",
    "cause": "input: num_workers=0, Python shortest paths of every molecule between the steps",
    "advice": ["dataloader-stall"],
    "not_advice": [
        "fuse-pointwise",
        "enable-tf32-or-amp",
        "channels-last",
        "flash-attention",
        "tensor-core-alignment",
        "pin-memory",
        "fused-optimizer",
        "none-healthy",
    ],
}

ATOMS, BONDS, FAR = 9, 4, 20


def random_molecule(rng, low, high):
    """A tree with some rings, as one line of text: atoms | bonds | gap."""
    n = rng.randint(low, high)
    atoms = [rng.randrange(1, ATOMS) for _ in range(n)]
    bonds = [(i, max(0, i - rng.randint(1, 4)), rng.randrange(1, BONDS)) for i in range(1, n)]
    bonds += [(i, i - 5, 1) for i in range(6, n, 9)]
    gap = 4.0 + 0.1 * sum(a == 3 for a in atoms) - 0.02 * len(bonds) + 0.05 * rng.random()
    text = ",".join(f"{a}:{b}:{k}" for a, b, k in bonds)
    return f"{' '.join(map(str, atoms))}|{text}|{gap:.4f}"


class Molecules(Dataset):
    def __init__(self, count, low, high, seed=3):
        rng = random.Random(seed)
        self.lines = [random_molecule(rng, low, high) for _ in range(count)]

    def __len__(self):
        return 1 << 18

    def __getitem__(self, i):
        atoms, bonds, gap = self.lines[i % len(self.lines)].split("|")
        atoms = [int(a) for a in atoms.split()]
        n = len(atoms)
        near = [[] for _ in range(n)]
        edge = [[0] * n for _ in range(n)]
        for bond in bonds.split(","):
            a, b, kind = map(int, bond.split(":"))
            near[a].append(b)
            near[b].append(a)
            edge[a][b] = edge[b][a] = kind
        hops = []
        for source in range(n):
            row = [FAR - 1] * n
            row[source] = 0
            queue = deque([source])
            seen = {source}
            while queue:
                u = queue.popleft()
                for v in near[u]:
                    if v not in seen:
                        seen.add(v)
                        row[v] = min(row[u] + 1, FAR - 1)
                        queue.append(v)
            hops.append(row)
        degree = [len(x) for x in near]
        return (
            torch.tensor(atoms),
            torch.tensor(degree),
            torch.tensor(hops),
            torch.tensor(edge),
            float(gap),
        )


class Pad:
    """Collate to a fixed number of atoms, so that shapes stay put."""

    def __init__(self, atoms):
        self.atoms = atoms

    def __call__(self, items):
        b, n = len(items), self.atoms
        atoms = torch.zeros(b, n, dtype=torch.long)
        degree = torch.zeros(b, n, dtype=torch.long)
        hops = torch.full((b, n, n), FAR, dtype=torch.long)
        edge = torch.zeros(b, n, n, dtype=torch.long)
        for j, (a, d, h, e, _) in enumerate(items):
            k = len(a)
            atoms[j, :k], degree[j, :k] = a, d
            hops[j, :k, :k], edge[j, :k, :k] = h, e
        return atoms, degree, hops, edge, torch.tensor([x[-1] for x in items])


class GraphLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.ln2 = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, bias):
        b, n, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
        x = x + self.out(y.transpose(1, 2).reshape(b, n, d))
        return x + self.ffn(self.ln2(x))


class Graphormer(nn.Module):
    def __init__(self, dim, heads, layers):
        super().__init__()
        self.atom = nn.Embedding(ATOMS, dim, padding_idx=0)
        self.degree = nn.Embedding(16, dim, padding_idx=0)
        self.distance = nn.Embedding(FAR + 1, heads)
        self.bond = nn.Embedding(BONDS, heads, padding_idx=0)
        self.layers = nn.ModuleList(GraphLayer(dim, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 1)

    def forward(self, atoms, degree, hops, edge):
        real = atoms.ne(0)
        x = self.atom(atoms) + self.degree(degree.clamp(max=15))
        bias = (self.distance(hops) + self.bond(edge)).permute(0, 3, 1, 2)
        bias = bias.masked_fill(~real[:, None, None, :], -1e4).contiguous()
        for layer in self.layers:
            x = layer(x, bias)
        w = real.unsqueeze(-1).float()
        pooled = (self.ln(x).float() * w).sum(1) / w.sum(1)
        return self.head(pooled).squeeze(-1)


def build(cfg):
    dim, heads, layers = cfg.pick((768, 24, 8), (32, 4, 2))
    batch, low, high, atoms = cfg.pick((80, 34, 46, 48), (6, 8, 14, 16))
    loader = DataLoader(
        Molecules(cfg.pick(4096, 32), low, high),
        batch_size=batch,
        shuffle=True,
        collate_fn=Pad(atoms),
        num_workers=0,
        pin_memory=cfg.cuda,
        drop_last=True,
    )
    batches = forever(loader)
    model = Graphormer(dim, heads, layers).to(cfg.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=100_000, power=1.0)

    def step(i):
        with cfg.timed("loader_wait"):
            host = next(batches)
        atoms_, degree, hops, edge, gap = (t.to(cfg.device, non_blocking=True) for t in host)
        with cfg.amp():
            guess = model(atoms_, degree, hops, edge)
        loss = F.l1_loss(guess.float(), gap)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
