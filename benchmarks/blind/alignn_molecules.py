"""ALIGNN-style property regression: gated convolutions on the bond graph and on its line graph (angles).

Batches differ in size from step to step. After an out-of-memory error on the shared workstation a
torch.cuda.empty_cache() went into the loop and stayed.
"""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# ~384 molecules: 7.4 k atoms, ~15 k directed bonds, ~21 k angles, hidden 256 fp32: 7.5 / 15 / 21 MB a tensor, 12 gated convs.
# Saved for backward: ~7 edge and ~5 node tensors per conv -> ~110 segments (mostly one tensor each), ~2 GB.
# empty_cache() hands all of them back each step: ~110 cudaMalloc + ~110 cudaFree at 0.1-0.3 ms = 22-60 ms, GPU idle (cudaFree
#   waits for it, nothing overlaps). GPU work: ~700 kernels of 5-15 us = ~6 ms (GEMMs in TF32 ~0.7 ms of that).
# Launching ~900 ops costs ~6 ms, also without the plant. Batches 1 MB, pinned, async: nothing.
# Step ~35 ms (30 to 70), GPU busy ~6 ms: overhead; without empty_cache ~7 ms.
TRUTH = {
    "regime": "overhead",
    "cause": "allocator: torch.cuda.empty_cache() every step, so each step calls cudaMalloc/cudaFree a hundred times",
    "advice": ["allocation-churn"],
    "not_advice": [
        "dataloader-stall",
        "enable-tf32-or-amp",
        "pin-memory",
        "tensor-core-alignment",
        "fused-optimizer",
        "activation-checkpointing",
        "flash-attention",
        "none-healthy",
    ],
}


# ---------------------------------------------------------------- data


def random_molecules(rng, n, lo, hi):
    """n random trees with a few ring closures, as one disjoint graph. Returns z, src, dst."""
    sizes = rng.integers(lo, hi + 1, n)
    offset = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    mol = np.repeat(np.arange(n), sizes)
    local = np.arange(sizes.sum()) - offset[mol]
    # the parent of atom k is one of the three atoms before it
    parent = np.maximum(local - rng.integers(1, 4, local.size), 0)
    child = local > 0
    a, b = np.nonzero(child)[0], (offset[mol] + parent)[child]
    ring = np.nonzero((local >= 6) & (rng.random(local.size) < 0.06))[0]
    a, b = np.concatenate([a, ring]), np.concatenate([b, ring - 5])
    pairs = np.unique(np.stack([np.maximum(a, b), np.minimum(a, b)], 1), axis=0)
    src = np.concatenate([pairs[:, 0], pairs[:, 1]])
    dst = np.concatenate([pairs[:, 1], pairs[:, 0]])
    z = rng.choice([1, 6, 7, 8, 9, 16], size=local.size, p=[0.08, 0.66, 0.12, 0.11, 0.02, 0.01])
    return z, src, dst, mol


def line_graph(src, dst, atoms):
    """All (bond k->j, bond j->i) with k != i, as indices of directed bonds."""
    order = np.argsort(src, kind="stable")
    degree = np.bincount(src, minlength=atoms)
    first = np.concatenate([[0], np.cumsum(degree)[:-1]])
    count = degree[dst]
    incoming = np.repeat(np.arange(src.size), count)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    outgoing = order[first[dst[incoming]] + within]
    keep = src[incoming] != dst[outgoing]
    return incoming[keep], outgoing[keep]


def collate(rng, mols, lo, hi, pin):
    z, src, dst, mol = random_molecules(rng, mols, lo, hi)
    xyz = rng.normal(size=(z.size, 3)) * 2.0
    vec = xyz[dst] - xyz[src]
    dist = np.linalg.norm(vec, axis=1) + 1e-6
    lg_src, lg_dst = line_graph(src, dst, z.size)
    cos = -(vec[lg_src] * vec[lg_dst]).sum(1) / (dist[lg_src] * dist[lg_dst])
    target = np.bincount(mol, weights=np.sqrt(z), minlength=mols) / 10.0
    batch = {
        "z": torch.from_numpy(z).long(),
        "mol": torch.from_numpy(mol).long(),
        "edges": torch.from_numpy(np.stack([src, dst])).long(),
        "dist": torch.from_numpy(dist).float(),
        "angles": torch.from_numpy(np.stack([lg_src, lg_dst])).long(),
        "cos": torch.from_numpy(cos).float(),
        "y": torch.from_numpy(target).float(),
    }
    return {k: v.pin_memory() for k, v in batch.items()} if pin else batch


# ---------------------------------------------------------------- model


class RBF(nn.Module):
    def __init__(self, lo, hi, bins):
        super().__init__()
        self.register_buffer("centers", torch.linspace(lo, hi, bins))
        self.gamma = bins / (hi - lo)

    def forward(self, d):
        return torch.exp(-self.gamma * (d.unsqueeze(1) - self.centers) ** 2)


class MLPLayer(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(d_in, d_out), nn.BatchNorm1d(d_out), nn.SiLU())

    def forward(self, x):
        return self.layer(x)


class EdgeGatedGraphConv(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.src_gate, self.dst_gate, self.edge_gate = (
            nn.Linear(d, d),
            nn.Linear(d, d),
            nn.Linear(d, d),
        )
        self.src_update, self.dst_update = nn.Linear(d, d), nn.Linear(d, d)
        self.bn_nodes, self.bn_edges = nn.BatchNorm1d(d), nn.BatchNorm1d(d)

    def forward(self, index, x, e):
        src, dst = index
        m = (
            self.src_gate(x).index_select(0, src)
            + self.dst_gate(x).index_select(0, dst)
            + self.edge_gate(e)
        )
        sigma = torch.sigmoid(m)
        bh = self.dst_update(x).index_select(0, src)
        num = torch.zeros_like(x).index_add(0, dst, bh * sigma)
        den = torch.zeros_like(x).index_add(0, dst, sigma)
        h = self.src_update(x) + num / (den + 1e-6)
        return x + F.silu(self.bn_nodes(h)), e + F.silu(self.bn_edges(m))


class ALIGNN(nn.Module):
    def __init__(self, d, d_embed, n_align, n_gcn):
        super().__init__()
        self.atom = nn.Sequential(nn.Embedding(32, d_embed), MLPLayer(d_embed, d))
        self.bond = nn.Sequential(RBF(0.0, 8.0, 80), MLPLayer(80, d_embed), MLPLayer(d_embed, d))
        self.angle = nn.Sequential(RBF(-1.0, 1.0, 40), MLPLayer(40, d_embed), MLPLayer(d_embed, d))
        self.line_convs = nn.ModuleList(EdgeGatedGraphConv(d) for _ in range(n_align))
        self.bond_convs = nn.ModuleList(EdgeGatedGraphConv(d) for _ in range(n_align))
        self.gcn = nn.ModuleList(EdgeGatedGraphConv(d) for _ in range(n_gcn))
        self.out = nn.Linear(d, 1)

    def forward(self, g, n_mols):
        x, y, z = self.atom(g["z"]), self.bond(g["dist"]), self.angle(g["cos"])
        for on_bonds, on_angles in zip(self.bond_convs, self.line_convs):
            x, m = on_bonds(g["edges"], x, y)
            y, z = on_angles(g["angles"], m, z)
        for conv in self.gcn:
            x, y = conv(g["edges"], x, y)
        pooled = x.new_zeros(n_mols, x.shape[1]).index_add(0, g["mol"], x)
        atoms = x.new_zeros(n_mols).index_add(0, g["mol"], torch.ones_like(g["mol"], dtype=x.dtype))
        return self.out(pooled / atoms.unsqueeze(1)).squeeze(1)


def build(cfg):
    torch.set_float32_matmul_precision("high")
    rng = np.random.default_rng(3)
    mols, lo, hi = cfg.pick((384, 10, 28), (6, 5, 9))
    d, d_embed, n_align, n_gcn = cfg.pick((256, 64, 4, 4), (16, 8, 1, 1))
    # collated once and kept (they are small); sizes vary by a few per cent, as with a shuffled loader
    batches = [
        collate(rng, int(mols * rng.uniform(0.93, 1.0)), lo, hi, cfg.cuda)
        for _ in range(cfg.pick(24, 3))
    ]

    model = ALIGNN(d, d_embed, n_align, n_gcn).to(cfg.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-5, fused=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1e-3, total_steps=10_000_000, pct_start=0.3
    )
    mae = torch.zeros((), device=cfg.device)

    def step(i):
        host = batches[i % len(batches)]
        g = {k: v.to(cfg.device, non_blocking=True) for k, v in host.items()}
        pred = model(g, host["y"].numel())
        loss = F.l1_loss(pred, g["y"])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        mae.lerp_(loss.detach(), 0.02)
        value = loss.detach()
        del g, pred, loss
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # batch sizes vary, keep fragmentation away
        return value

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
