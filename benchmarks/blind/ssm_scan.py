"""A small selective state-space language model whose recurrence is a Python loop over time."""

# Arithmetic (H200): state 8x8x64x16 fp32 = 0.26 MB: a kernel is 2 to 3 us. Per time step and layer 5
# kernels forward, about 12 backward: 17 x 128 x 3 = 6500 kernels; GPU 6500 x 2.3 us = 15 ms, plus 2 ms
# for the rest. Host: forward 1920 ops x 8 us = 15 ms, backward 4600 x 5.5 us = 25 ms: step about 42 ms.
# GPU idle 60 %, and what runs is underfilled. All products together are 0.06 TFLOP.

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

TRUTH = {
    "regime": "overhead",
    "cause": "launch: a Python loop over 128 time steps launches thousands of microscopic kernels",
    "advice": ["launch-bound-compile"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "enable-tf32-or-amp",
        "channels-last",
        "flash-attention",
        "pin-memory",
        "tensor-core-alignment",
        "fuse-pointwise",
    ],
}


def scan_loop(x, log_a, B, C):
    """h_t = a_t h_{t-1} + x_t B_t ; y_t = h_t C_t.  x: b t h p, log_a: b t h, B, C: b t n"""
    b, _t, h, p = x.shape
    state = x.new_zeros(b, h, p, B.size(-1))
    ys = []
    for x_t, a_t, B_t, C_t in zip(x.unbind(1), log_a.exp().unbind(1), B.unbind(1), C.unbind(1)):
        state = state * a_t[:, :, None, None] + x_t[..., None] * B_t[:, None, None, :]
        ys.append((state * C_t[:, None, None, :]).sum(-1))
    return torch.stack(ys, 1)


class SelectiveSSM(nn.Module):
    def __init__(self, d, heads, n, scan):
        super().__init__()
        self.heads, self.n, self.scan = heads, n, scan
        self.norm = nn.LayerNorm(d)
        self.in_proj = nn.Linear(d, 2 * d + 2 * n + heads)
        self.conv = nn.Conv1d(d, d, 4, groups=d, padding=3)
        self.A_log = nn.Parameter(torch.linspace(0.0, 2.0, heads))
        self.D = nn.Parameter(torch.ones(heads))
        self.out_proj = nn.Linear(d, d)

    def forward(self, u):
        b, t, d = u.shape
        z, x, B, C, dt = self.in_proj(self.norm(u)).split((d, d, self.n, self.n, self.heads), -1)
        x = F.silu(self.conv(x.transpose(1, 2))[..., :t].transpose(1, 2))
        x = x.reshape(b, t, self.heads, -1)
        dt = F.softplus(dt - 2.0)
        y = self.scan(x * dt[..., None], -dt * self.A_log.exp(), B, C)
        y = y + x * self.D[:, None]
        return u + self.out_proj(y.flatten(2) * F.silu(z))


def build(cfg, scan=scan_loop):
    vocab, d, heads, n, layers = cfg.pick((4096, 512, 8, 16, 3), (64, 16, 2, 4, 1))
    batch, context = cfg.pick((8, 128), (2, 12))
    with cfg.device:
        embed = nn.Embedding(vocab, d)
        body = nn.Sequential(*(SelectiveSSM(d, heads, n, scan) for _ in range(layers)))
        head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, vocab))
        corpus = torch.randint(vocab, (8, batch, context + 1))
    model = nn.Sequential(embed, body, head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    torch.set_float32_matmul_precision("high")

    def step(i):
        chunk = corpus[i % 8]
        logits = model(chunk[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), chunk[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
