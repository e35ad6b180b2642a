"""Product-graph node classification: two-hop fixed fan-out SAGE with gated (softmax) aggregation.

Everything is sampled on the GPU. Weights and activations are bf16; the "sensitive" operations are done
in fp32 (LayerNorm32, SiLU32, softmax), after a NaN in an early fp16 run.
"""

import torch
import torch.nn.functional as F
from harness import main
from torch import nn

# 2048 seeds x 15 x 10 = 307 k second-hop rows x 512 ch: one bf16 tensor 315 MB, one fp32 tensor 629 MB.
# Bytes per element there, forward: GEMM 3+4, LN32 20, SiLU32 20, dropout 5, LN32 20, add 6, softmax32 20, mul+sum 8 = ~106,
#   of which 48 are casts; backward ~190, again 48 casts. 157 M elements x ~296 B = 46 GB -> ~12 ms at 3.9 TB/s;
#   casts 15 GB -> ~3.9 ms (30 %), and they make the islands run on 4-byte tensors (another ~2.5 ms).
# GEMMs ~0.6 TFLOP bf16 ~1.1 ms (partly in the bytes above). Hop-1 rows add a tenth.
# Host ~250 ops x ~7 us = 2 ms, hidden. Step ~14 ms, memory.
TRUTH = {
    "regime": "memory",
    "cause": "bf16 activations are cast to fp32 and back around every norm, activation and softmax",
    "advice": ["cast-churn"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "tensor-core-alignment",
        "pin-memory",
        "channels-last",
        "flash-attention",
    ],
}


class LayerNorm32(nn.LayerNorm):
    def forward(self, x):
        y = F.layer_norm(
            x.float(), self.normalized_shape, self.weight.float(), self.bias.float(), self.eps
        )
        return y.to(x.dtype)


class SiLU32(nn.Module):
    def forward(self, x):
        return F.silu(x.float()).to(x.dtype)


class GatedSage(nn.Module):
    """h_v = W_s h_v + sum_u softmax_u(leaky(m_u + q_v)) * m_u, with per-channel gates."""

    def __init__(self, d):
        super().__init__()
        self.msg = nn.Linear(d, d)
        self.query = nn.Linear(d, d)
        self.self_loop = nn.Linear(d, d)
        self.norm_msg = LayerNorm32(d)

    def forward(self, h_dst, h_nbr):
        m = self.norm_msg(self.msg(h_nbr))  # [B, fanout, d]
        scores = m + self.query(h_dst).unsqueeze(1)
        gate = torch.softmax(scores.float(), dim=1).to(m.dtype)
        return self.self_loop(h_dst) + (gate * m).sum(dim=1)


class Net(nn.Module):
    def __init__(self, d_in, d, classes, p_drop):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Linear(d_in, d), LayerNorm32(d), SiLU32(), nn.Dropout(p_drop)
        )
        self.conv1, self.conv2 = GatedSage(d), GatedSage(d)
        self.post = nn.Sequential(LayerNorm32(d), SiLU32())
        self.head = nn.Linear(d, classes)

    def forward(self, x0, x1, x2):
        h0, h1, h2 = self.encode(x0), self.encode(x1), self.encode(x2)
        b, f1, d = h1.shape
        g1 = self.post(self.conv1(h1.reshape(b * f1, d), h2))
        g0 = self.post(self.conv1(h0, h1))
        return self.head(self.conv2(g0, g1.view(b, f1, d)))


class Graph:
    def __init__(self, nodes, max_deg, d_in, classes, device):
        self.adj = torch.randint(nodes, (nodes, max_deg), device=device, dtype=torch.int32)
        self.x = torch.randn(nodes, d_in, device=device, dtype=torch.bfloat16)
        self.y = torch.randint(classes, (nodes,), device=device)
        self.nodes, self.max_deg = nodes, max_deg

    def neighbours(self, ids, fanout):
        pick = torch.randint(self.max_deg, (*ids.shape, fanout), device=ids.device)
        return self.adj[ids.unsqueeze(-1), pick].long()

    def sample(self, batch, fanouts):
        seeds = torch.randint(self.nodes, (batch,), device=self.x.device)
        hop1 = self.neighbours(seeds, fanouts[0])
        hop2 = self.neighbours(hop1.flatten(), fanouts[1])
        return self.x[seeds], self.x[hop1], self.x[hop2], self.y[seeds]


def build(cfg):
    nodes, max_deg, d_in, d, classes = cfg.pick((1_200_000, 32, 128, 512, 48), (500, 8, 16, 16, 8))
    batch, fanouts = cfg.pick((2048, (15, 10)), (16, (4, 3)))
    graph = Graph(nodes, max_deg, d_in, classes, cfg.device)
    net = Net(d_in, d, classes, p_drop=0.3).to(cfg.device, torch.bfloat16)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-4, fused=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=5000)
    correct = torch.zeros((), device=cfg.device)

    def step(i):
        x0, x1, x2, y = graph.sample(batch, fanouts)
        logits = net(x0, x1, x2).float()
        loss = F.cross_entropy(logits, y, label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        sched.step()
        correct.add_((logits.detach().argmax(-1) == y).sum())
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
