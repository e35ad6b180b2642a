"""Graph transformer with edge channels (Dwivedi & Bresson) on batched molecule-like graphs.

Attention is a segment softmax over incoming edges; per-edge scores are gated by the edge
state, which has its own residual stream and FFN. Written op by op, in eager fp32/TF32.
"""

# H200 (~4.1 TB/s in practice), u = one (400k edges, 128) fp32 tensor = 205 MB, four layers:
#   fwd ~43u a layer: gathers q, k, v 6u, products and scale 8u, alpha*v + scatter 4u, residuals 6u, ReLU 4u,
#   LayerNorm 4u, five thin GEMMs ~11u; bwd ~2x -> ~130u = 27 GB = 6.5 ms a layer, 26 ms in all
#   of these ~55u are plain elementwise (products, scale, alpha*v, residual sums, ReLU): 11 ms, half removable
#   GEMMs 400k x 128 x (128 | 256): 0.23 TFLOP a layer in TF32, but their bytes bound them (K = 128)
#   nodes (50k) and optimizer ~1.5 ms; ~650 launches ~4.5 ms of host, hidden -> memory > 85 %

import math

import torch
from harness import main
from torch import Tensor, nn

TRUTH = {
    "regime": "memory",
    "cause": "chains of unfused elementwise products, scales and residuals on (edges, d) tensors",
    "advice": ["fuse-pointwise"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "fused-optimizer",
        "bigger-batch",
        "channels-last",
    ],
}


def segment_softmax(score: Tensor, seg: Tensor, n: int) -> Tensor:
    index = seg[:, None].expand_as(score)
    top = score.detach().new_full((n, score.size(1)), -torch.inf)
    top.scatter_reduce_(0, index, score.detach(), "amax", include_self=True)
    weight = torch.exp(score - top[seg])
    total = weight.new_zeros(n, score.size(1)).scatter_add_(0, index, weight)
    return weight / (total[seg] + 1e-12)


class FFN(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.up = nn.Linear(d, 2 * d)
        self.down = nn.Linear(2 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))


class Layer(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.d, self.heads = d, heads
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.proj_e = nn.Linear(d, d, bias=False)
        self.out_h, self.out_e = nn.Linear(d, d), nn.Linear(d, d)
        self.ffn_h, self.ffn_e = FFN(d), FFN(d)
        self.norm_h1, self.norm_h2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.norm_e1, self.norm_e2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, h: Tensor, e: Tensor, src: Tensor, dst: Tensor):
        n, d = h.shape
        q, k, v = (t.contiguous() for t in self.qkv(h).chunk(3, dim=-1))
        w = q[dst] * k[src]
        w = w / math.sqrt(d // self.heads)
        w = w * self.proj_e(e)
        alpha = segment_softmax(w.view(-1, self.heads, d // self.heads).sum(-1), dst, n)
        m = v[src].view(-1, self.heads, d // self.heads) * alpha[..., None]
        m = m.view(-1, d)
        agg = torch.zeros_like(h).scatter_add_(0, dst[:, None].expand_as(m), m)

        h = self.norm_h1(h + self.out_h(agg))
        e = self.norm_e1(e + self.out_e(w))
        h = self.norm_h2(h + self.ffn_h(h))
        e = self.norm_e2(e + self.ffn_e(e))
        return h, e


class GraphTransformer(nn.Module):
    def __init__(self, d: int, heads: int, layers: int, atom_dim: int, bond_dim: int, pe_dim: int):
        super().__init__()
        self.atoms = nn.Linear(atom_dim, d)
        self.bonds = nn.Linear(bond_dim, d)
        self.pe = nn.Linear(pe_dim, d)
        self.layers = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.readout = nn.Sequential(nn.Linear(d, d // 2), nn.ReLU(), nn.Linear(d // 2, 1))

    def forward(self, g: dict) -> Tensor:
        # Laplacian eigenvectors have no sign of their own: flip them at random
        flip = torch.randint(0, 2, (1, g["pe"].size(1)), device=g["pe"].device) * 2 - 1
        h = self.atoms(g["x"]) + self.pe(g["pe"] * flip)
        dst, order = torch.sort(g["dst"])  # neighbours of a node beside each other
        src = g["src"][order]
        e = self.bonds(g["bond"][order])
        for layer in self.layers:
            h, e = layer(h, e, src, dst)
        pooled = h.new_zeros(g["sizes"].numel(), h.size(1)).index_add_(0, g["graph"], h)
        return self.readout(pooled / g["sizes"][:, None]).squeeze(-1)


def random_batch(graphs: int, atoms: int, edges: int, atom_dim: int, bond_dim: int, pe_dim: int):
    """graphs molecules of `atoms` nodes; edges run within a molecule."""
    n = graphs * atoms
    graph = torch.arange(graphs).repeat_interleave(atoms)
    src = torch.randint(n, (edges,))
    dst = torch.div(src, atoms, rounding_mode="floor") * atoms + torch.randint(atoms, (edges,))
    return {
        "x": torch.randn(n, atom_dim),
        "pe": torch.randn(n, pe_dim),
        "bond": torch.randn(edges, bond_dim),
        "src": src,
        "dst": dst,
        "graph": graph,
        "sizes": torch.full((graphs,), float(atoms)),
        "y": torch.randn(graphs),
    }


def build(cfg):
    torch.set_float32_matmul_precision("high")
    d, heads, layers = cfg.pick((128, 8, 4), (16, 2, 2))
    graphs, atoms, edges = cfg.pick((2000, 25, 400_000), (6, 5, 60))
    with cfg.device:
        model = GraphTransformer(d, heads, layers, 32, 16, 8)
        batches = [random_batch(graphs, atoms, edges, 32, 16, 8) for _ in range(4)]
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-2, fused=cfg.cuda)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-3, total_steps=1_000_000)

    def step(i: int) -> Tensor:
        g = batches[i % len(batches)]
        loss = nn.functional.l1_loss(model(g), g["y"])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
