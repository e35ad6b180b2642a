"""Next-chord prediction on piano rolls with a layer-normalised GRU; whole step in a CUDA graph."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

TRUTH = {
    "regime": "overhead",
    "cause": "launch: batch 2, so each of ~9,000 kernels in the graph fills a few SMs for ~2 us",
    "advice": ["bigger-batch"],
    "not_advice": [
        "cuda-graphs",
        "dataloader-stall",
        "sync-point",
        "python-overhead",
        "flash-attention",
        "channels-last",
        "pin-memory",
        "fused-optimizer",
    ],
}
# 2 layers x 128 time steps x (~10 kernels forward + ~25 backward) ~ 9,000 kernels; the largest
# GEMM of a step is 2 x 384 x 1152 (1.8 MFLOP): ~2 us each, grid 1 to ~100 blocks, < 5 % of
# any peak, + ~0.7 us between graph nodes: ~24 ms.  Real work: 128 x 2 x 2 x 3 x 1.8 MFLOP
# = 3 GFLOP (0.01 ms) and ~3 GB through L2 for weights and their gradients (~1 ms).
# Overhead (underfilled + gaps) ~90 %; a batch of 64 takes nearly the same 24 ms.


class LayerNormGRUCell(nn.Module):
    """The recurrent half; the input's projection is done for all time steps at once."""

    def __init__(self, d):
        super().__init__()
        self.hidden = nn.Linear(d, 3 * d, bias=False)
        self.norm = nn.LayerNorm(3 * d)

    def forward(self, gates_x, h):
        xr, xz, xn = gates_x.chunk(3, dim=-1)
        hr, hz, hn = self.norm(self.hidden(h)).chunk(3, dim=-1)
        r = torch.sigmoid(xr + hr)
        z = torch.sigmoid(xz + hz)
        n = torch.tanh(xn + r * hn)
        return torch.lerp(n, h, z)


class LayerNormGRU(nn.Module):
    def __init__(self, cin, d):
        super().__init__()
        self.d = d
        self.inputs = nn.Linear(cin, 3 * d)
        self.cell = LayerNormGRUCell(d)

    def forward(self, x):
        gates = self.inputs(x)
        h = gates.new_zeros(x.shape[0], self.d)
        states = []
        for g in gates.unbind(1):
            h = self.cell(g, h)
            states.append(h)
        return torch.stack(states, dim=1)


class PianoModel(nn.Module):
    def __init__(self, keys, d):
        super().__init__()
        self.embed = nn.Linear(keys, d)
        self.rnn1 = LayerNormGRU(d, d)
        self.rnn2 = LayerNormGRU(d, d)
        self.out = nn.Linear(d, keys)

    def forward(self, rolls):
        x = self.embed(rolls)
        x = x + self.rnn1(x)
        x = x + self.rnn2(x)
        return self.out(x)


def build(cfg):
    torch.set_float32_matmul_precision("high")
    batch, frames, keys, d = cfg.pick((2, 128, 88, 384), (2, 8, 12, 16))
    with cfg.device:
        model = PianoModel(keys, d)
        songs = (torch.rand(256, frames + 1, keys) < 0.06).float()
        rolls = torch.zeros(batch, frames + 1, keys)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True, capturable=cfg.cuda)

    def body():
        logits = model(rolls[:, :-1])
        loss = F.binary_cross_entropy_with_logits(logits, rolls[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    def load(i):
        first = (batch * i) % (len(songs) - batch)
        rolls.copy_(songs[first : first + batch])

    if not cfg.cuda:  # no graphs there: plain steps

        def plain(i):
            load(i)
            optimizer.zero_grad(set_to_none=True)
            return body()

        return plain

    load(0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            body()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = body()

    def step(i):
        load(i)
        graph.replay()
        return loss

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
