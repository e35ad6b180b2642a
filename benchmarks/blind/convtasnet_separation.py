"""Two-speaker separation with Conv-TasNet (8 kHz, 4 s mixtures), PIT + SI-SNR, plain fp32.

The global layer norm is the one that went round GitHub with the first PyTorch port:
two means, a pow and four broadcasts, all written out.
"""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# H200, batch 10, 3999 frames, hidden 512: one hidden tensor = 20.5 M floats = 82 MB. Per block and direction:
#   written-out gLN x2 + PReLU x2: ~32 passes forward, ~74 backward; depthwise and 1x1 operands: ~17 passes
#   123 passes x 82 MB = 10.1 GB -> 2.4 ms at 4.2 TB/s, of which norm + PReLU 2.1 ms
#   1x1 products (TF32, K = 128): 3 x 2 x 128 x 512 x 40 k frames x 3 = 47 GFLOP -> 0.3 ms, partly under the bytes
# 16 blocks -> 40 ms; encoder, mask, decoder and SI-SNR 2 ms, AdamW (fused, 3.5 M) 0.02 ms.
# ~1800 kernels, 23 us on average: the host (about 12 ms) stays ahead. Memory about 85 %.
TRUTH = {
    "regime": "memory",
    "cause": "global layer norm and PReLU written out: over 100 passes over each hidden tensor per block",
    "advice": ["fuse-pointwise"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "channels-last",
        "flash-attention",
        "pin-memory",
        "tensor-core-alignment",
        "fused-optimizer",
    ],
}

EPS = 1e-8


class GlobalLayerNorm(nn.Module):
    def __init__(self, channel_size):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(1, channel_size, 1))
        self.beta = nn.Parameter(torch.zeros(1, channel_size, 1))

    def forward(self, y):
        mean = y.mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
        var = (torch.pow(y - mean, 2)).mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
        return self.gamma * (y - mean) / torch.pow(var + EPS, 0.5) + self.beta


class TemporalBlock(nn.Module):
    def __init__(self, B, H, P, dilation):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(B, H, 1, bias=False),
            nn.PReLU(),
            GlobalLayerNorm(H),
            nn.Conv1d(
                H, H, P, padding=dilation * (P - 1) // 2, dilation=dilation, groups=H, bias=False
            ),
            nn.PReLU(),
            GlobalLayerNorm(H),
        )
        self.res = nn.Conv1d(H, B, 1, bias=False)
        self.skip = nn.Conv1d(H, B, 1, bias=False)

    def forward(self, x):
        y = self.net(x)
        return x + self.res(y), self.skip(y)


class ConvTasNet(nn.Module):
    def __init__(self, N, L, B, H, P, X, R, C):
        super().__init__()
        self.C, self.N = C, N
        self.encoder = nn.Conv1d(1, N, L, stride=L // 2, bias=False)
        self.norm = GlobalLayerNorm(N)
        self.bottleneck = nn.Conv1d(N, B, 1, bias=False)
        self.blocks = nn.ModuleList(
            TemporalBlock(B, H, P, 2**x) for _ in range(R) for x in range(X)
        )
        self.prelu = nn.PReLU()
        self.mask = nn.Conv1d(B, C * N, 1, bias=False)
        self.decoder = nn.ConvTranspose1d(N, 1, L, stride=L // 2, bias=False)

    def forward(self, mixture):
        w = F.relu(self.encoder(mixture.unsqueeze(1)))  # [M, N, K]
        y = self.bottleneck(self.norm(w))
        skips = 0
        for block in self.blocks:
            y, s = block(y)
            skips = skips + s
        M, _, K = w.shape
        masks = F.relu(self.mask(self.prelu(skips))).view(M, self.C, self.N, K)
        sources = (w.unsqueeze(1) * masks).view(M * self.C, self.N, K)
        return self.decoder(sources).view(M, self.C, -1)


def si_snr(est, ref):
    est = est - est.mean(-1, keepdim=True)
    ref = ref - ref.mean(-1, keepdim=True)
    proj = (est * ref).sum(-1, keepdim=True) * ref / (ref.pow(2).sum(-1, keepdim=True) + EPS)
    noise = est - proj
    return 10 * torch.log10(proj.pow(2).sum(-1) / (noise.pow(2).sum(-1) + EPS) + EPS)


def pit_loss(est, ref):
    C = est.shape[1]
    scores = si_snr(est.unsqueeze(2), ref.unsqueeze(1))  # [M, C, C]
    per_perm = [
        torch.stack([scores[:, a, b] for a, b in enumerate(perm)]).mean(0)
        for perm in itertools.permutations(range(C))
    ]
    return -torch.stack(per_perm).max(dim=0).values.mean()


def build(cfg):
    N, L, B, H, X, R = cfg.pick((512, 16, 128, 512, 8, 2), (32, 16, 16, 32, 2, 1))
    batch, samples = cfg.pick((10, 32000), (2, 1600))
    model = ConvTasNet(N, L, B, H, 3, X, R, C=2).to(cfg.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2000, 0.9)

    # "speakers": harmonics with a slow envelope, mixed on the fly at a random gain
    t = torch.arange(samples, device=cfg.device) / 8000.0
    f0 = 90 + 160 * torch.rand(64, 1, device=cfg.device)
    voices = sum(torch.sin(6.2832 * k * f0 * t) / k for k in range(1, 6))
    voices = voices * (0.5 + 0.5 * torch.sin(6.2832 * torch.rand(64, 1, device=cfg.device) * 4 * t))

    def step(i):
        pick = torch.randint(64, (batch, 2), device=cfg.device)
        gain = 0.5 + torch.rand(batch, 2, 1, device=cfg.device)
        sources = voices[pick] * gain
        mixture = sources.sum(1) + 0.01 * torch.randn(batch, samples, device=cfg.device)
        loss = pit_loss(model(mixture), sources)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
