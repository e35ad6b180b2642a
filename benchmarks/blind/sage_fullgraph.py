"""Full-graph GraphSAGE (mean) node classification on a 4M-edge co-purchase graph, TF32."""

# H200, u = one (edges, 128) fp32 tensor = 2.05 GB, three layers:
#   fwd per layer: h[src] 2u (1.0 ms) + scatter_add_ 1u read and 512M coalesced fp32 atomics (2-3 ms)
#   bwd per layer: gather of the output gradient 2u (1.0-1.5 ms) + index_put accumulate over sorted
#   rows ~1.2u (1.5-2.5 ms; not in layer 1; its 4M-key sort ~0.2 ms) -> three layers ~18 ms
#   (nodes, 128) = 154 MB: linear, layer norm, relu, dropout and gradients ~25 passes x 3 = 5 ms
#   GEMMs 0.15 TFLOP in TF32, ~0.6 ms; ~170 launches (1.5 ms of host) hide behind ~24 ms -> memory ~95 %

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

TRUTH = {
    "regime": "memory",
    "cause": "healthy: gathers and scatter-adds of 2 GB edge messages, nothing planted",
    "advice": [],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "cuda-graphs",
        "sync-point",
        "enable-tf32-or-amp",
        "fused-optimizer",
        "flash-attention",
        "bigger-batch",
    ],
}


def scatter_sum(values, index, rows):
    """torch_scatter's way without torch_scatter."""
    out = values.new_zeros(rows, values.size(1))
    return out.scatter_add_(0, index.unsqueeze(-1).expand_as(values), values)


class SAGEConv(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.own = nn.Linear(d_in, d_out)
        self.neighbours = nn.Linear(d_in, d_out, bias=False)

    def forward(self, h, src, dst, inv_degree):
        mean = scatter_sum(h[src], dst, h.size(0)) * inv_degree
        return self.own(h) + self.neighbours(mean)


class SAGE(nn.Module):
    def __init__(self, d_in, hidden, classes, layers=3, dropout=0.3):
        super().__init__()
        sizes = [d_in] + [hidden] * layers
        self.convs = nn.ModuleList(SAGEConv(a, b) for a, b in itertools.pairwise(sizes))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(layers))
        self.classify = nn.Linear(hidden, classes)
        self.dropout = dropout

    def forward(self, h, src, dst, inv_degree):
        for conv, norm in zip(self.convs, self.norms):
            h = F.relu(norm(conv(h, src, dst, inv_degree)))
            h = F.dropout(h, self.dropout, self.training)
        return self.classify(h)


def random_graph(nodes, edges, device):
    """Undirected: both directions of edges/2 pairs; degrees mildly skewed (some hundreds at most)."""
    a = (torch.rand(edges // 2, device=device) ** 1.25 * nodes).long().clamp_(max=nodes - 1)
    b = torch.randint(nodes, (edges // 2,), device=device)
    src, dst = torch.cat([a, b]), torch.cat([b, a])
    order = torch.randperm(edges // 2 * 2, device=device)
    return src[order], dst[order]


def build(cfg):
    torch.backends.cuda.matmul.allow_tf32 = True
    nodes, edges, d, classes = cfg.pick((300_000, 4_000_000, 128, 47), (200, 1200, 16, 5))
    dev = cfg.device

    src, dst = random_graph(nodes, edges, dev)
    degree = torch.bincount(dst, minlength=nodes).clamp_(min=1)
    inv_degree = degree.float().reciprocal().unsqueeze(-1)
    features = torch.randn(nodes, d, device=dev)
    labels = torch.randint(classes, (nodes,), device=dev)
    train_nodes = torch.randperm(nodes, device=dev)[: nodes // 5]
    train_labels = labels[train_nodes]

    model = SAGE(d, d, classes).to(dev)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=5e-4, fused=cfg.cuda)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=500)
    hits = torch.zeros((), device=dev)

    def epoch(i):
        model.train()
        logits = model(features, src, dst, inv_degree)[train_nodes]
        loss = F.cross_entropy(logits, train_labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():  # running accuracy, read only when somebody asks
            hits.lerp_((logits.argmax(-1) == train_labels).float().mean(), 0.1)
        return loss.detach()

    return epoch


if __name__ == "__main__":
    main(__file__, TRUTH, build)
