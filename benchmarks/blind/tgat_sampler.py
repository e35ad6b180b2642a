"""TGAT: temporal graph attention for link prediction over a stream of interactions.

Plant: temporal neighbours are looked up in numpy, node by node, inside the collate
function of a DataLoader without workers.
"""

# H200, batch 80 interactions -> 240 roots, 20 neighbours, two hops:
#   host sampling: 240 + 4800 lookups, each searchsorted + randint + sort + four slices ~9-11 us -> 45-55 ms
#   GPU: 101k (node, edge, time) rows of 128 fp32 = 52 MB a tensor, ~40 passes fwd + bwd = 2.1 GB, ~0.6 ms,
#   plus thin TF32 GEMMs 101k x 384 x 256 ~0.3 ms; with small kernels ~2 ms busy
#   ~350 launches: 3 ms of host after the batch is there
#   step ~55 ms, GPU busy ~2 ms -> overhead > 95 %, nearly all of it waiting for the next batch

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from _common import forever, main
from torch.utils.data import DataLoader

TRUTH = {
    "regime": "overhead",
    "cause": "input: temporal neighbours sampled in numpy by the collate function, no workers",
    "advice": ["dataloader-stall"],
    "not_advice": [
        "launch-bound-compile",
        "cuda-graphs",
        "sync-point",
        "enable-tf32-or-amp",
        "pin-memory",
        "fused-optimizer",
        "bigger-batch",
        "none-healthy",
    ],
}


class NeighborFinder:
    """Past interactions of every node in order of time; uniform sampling before a cut."""

    def __init__(self, src, dst, ts, n_nodes, seed=0):
        eid = np.arange(len(src))
        node = np.concatenate([src, dst])
        other = np.concatenate([dst, src])
        when = np.concatenate([ts, ts])
        edge = np.concatenate([eid, eid])
        order = np.lexsort((when, node))
        cuts = np.searchsorted(node[order], np.arange(1, n_nodes))
        self.other = np.split(other[order], cuts)
        self.edge = np.split(edge[order], cuts)
        self.when = np.split(when[order], cuts)
        self.rng = np.random.default_rng(seed)

    def get(self, nodes, cut_times, k):
        n = len(nodes)
        out_node = np.zeros((n, k), dtype=np.int64)
        out_edge = np.zeros((n, k), dtype=np.int64)
        out_time = np.zeros((n, k), dtype=np.float32)
        out_mask = np.zeros((n, k), dtype=bool)
        for row, (v, t) in enumerate(zip(nodes, cut_times)):
            end = np.searchsorted(self.when[v], t)
            if end == 0:
                continue
            pick = np.sort(self.rng.integers(0, end, k))
            out_node[row] = self.other[v][pick]
            out_edge[row] = self.edge[v][pick]
            out_time[row] = self.when[v][pick]
            out_mask[row] = True
        return out_node, out_edge, out_time, out_mask


class Collate:
    def __init__(self, src, dst, ts, n_nodes, k):
        self.src, self.dst, self.ts = src, dst, ts
        self.n_nodes, self.k = n_nodes, k
        self.finder = NeighborFinder(src, dst, ts, n_nodes)
        self.rng = np.random.default_rng(7)

    def __call__(self, rows):
        rows = np.asarray(rows)
        bad = self.rng.integers(0, self.n_nodes, len(rows))
        roots = np.concatenate([self.src[rows], self.dst[rows], bad])
        times = np.tile(self.ts[rows], 3)
        hop1 = self.finder.get(roots, times, self.k)
        hop2 = self.finder.get(hop1[0].ravel(), hop1[2].ravel(), self.k)
        arrays = (roots, times, *hop1, *hop2)
        return [torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]


class TimeEncode(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.freq = nn.Parameter(torch.from_numpy(1 / 10 ** np.linspace(0, 5, d)).float())
        self.phase = nn.Parameter(torch.zeros(d))

    def forward(self, dt):
        return torch.cos(dt.unsqueeze(-1) * self.freq + self.phase)


class TemporalAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(2 * d, d)
        self.kv = nn.Linear(3 * d, 2 * d)
        self.merge = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, d))
        self.norm = nn.LayerNorm(d)

    def forward(self, h, t0, nbr, edge, dt, mask):
        n, k, d = nbr.shape
        q = self.q(torch.cat([h, t0], -1)).view(n, 1, self.heads, -1).transpose(1, 2)
        kv = self.kv(torch.cat([nbr, edge, dt], -1)).view(n, k, 2, self.heads, -1)
        key, value = kv.permute(2, 0, 3, 1, 4)
        score = (q * key).sum(-1) * key.shape[-1] ** -0.5  # n, heads, k
        score = score.masked_fill(~mask.unsqueeze(1), -1e9)
        pooled = (score.softmax(-1).unsqueeze(-1) * value).sum(2).reshape(n, d)
        return self.norm(h + self.merge(torch.cat([h, pooled], -1)))


class TGAT(nn.Module):
    def __init__(self, n_nodes, n_edges, d, heads):
        super().__init__()
        self.register_buffer("node_feat", torch.randn(n_nodes, d))
        self.register_buffer("edge_feat", torch.randn(n_edges, d))
        self.time = TimeEncode(d)
        self.inner = TemporalAttention(d, heads)
        self.outer = TemporalAttention(d, heads)
        self.affinity = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, 1))

    def forward(self, roots, times, n1, e1, t1, m1, n2, e2, t2, m2):
        r, k = n1.shape
        zero = self.time(torch.zeros(1, device=times.device))

        def layer(att, h, nbr, edge, t_now, t_then, mask):
            dt = self.time(t_now.unsqueeze(-1) - t_then)
            return att(h, zero.expand(len(h), -1), nbr, self.edge_feat[edge], dt, mask)

        h1 = self.node_feat[n1.reshape(-1)]
        h1 = layer(self.inner, h1, self.node_feat[n2], e2, t1.reshape(-1), t2, m2)
        h0 = layer(self.inner, self.node_feat[roots], self.node_feat[n1], e1, times, t1, m1)
        h = layer(self.outer, h0, h1.view(r, k, -1), e1, times, t1, m1)
        src, dst, bad = h.chunk(3)
        good = self.affinity(torch.cat([src, dst], -1)).squeeze(-1)
        return good, self.affinity(torch.cat([src, bad], -1)).squeeze(-1)


def build(cfg):
    torch.backends.cuda.matmul.allow_tf32 = True
    n_nodes, n_events, d, heads = cfg.pick((8000, 250_000, 128, 2), (40, 400, 16, 2))
    batch, k = cfg.pick((80, 20), (8, 4))

    rng = np.random.default_rng(0)
    src = (rng.random(n_events) ** 2 * n_nodes).astype(np.int64)
    dst = rng.integers(0, n_nodes, n_events)
    ts = np.sort(rng.random(n_events) * 1e5).astype(np.float32)

    collate = Collate(src, dst, ts, n_nodes, k)
    train_part = range(n_events // 2, n_events)  # the first half only serves as history
    loader = DataLoader(
        train_part,
        batch_size=batch,
        shuffle=False,
        drop_last=True,
        collate_fn=collate,
        num_workers=0,
        pin_memory=cfg.cuda,
    )
    batches = forever(loader)

    model = TGAT(n_nodes, n_events, d, heads).to(cfg.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=cfg.cuda)

    def step(i):
        with cfg.timed("input"):
            host = next(batches)
        data = [t.to(cfg.device, non_blocking=True) for t in host]
        good, bad = model(*data)
        loss = F.binary_cross_entropy_with_logits(good, torch.ones_like(good))
        loss = loss + F.binary_cross_entropy_with_logits(bad, torch.zeros_like(bad))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
