"""Deep kernel learning: an MLP feature extractor under an exact GP, marginal likelihood.

`set_default_dtype(float64)` as every GP tutorial says, so that the Cholesky does not fail.
The extractor inherits it.
"""

import numpy as np
import torch
import torch.nn as nn
from harness import main

# H200: fp64 tensor 67 TFLOP/s (~55 in DGEMM), against 495 in TF32.
# extractor, 4096 points: 3 layers 4096x4096 + 256x4096: (3 x 137 + 9) x 3 = 1.26 TFLOP -> 23 ms
# kernel matrix 4096^2 doubles = 134 MB, ~24 passes forward and backward -> 1.5 ms; AdamW fused on 52 M doubles 0.7 ms
# potrf 23 GFLOP at ~8 -> 3 ms (thin panels: half of it underfilled); vector solves 1.5 ms; backward of the Cholesky:
#   one product 137 GFLOP 2.5 ms + two triangular solves of 69 GFLOP each 4.6 ms.   Total about 37 ms, 83 % compute.
# Only potrf and the solves need doubles: the extractor in fp32/TF32 takes ~4 ms, the step halves.
TRUTH = {
    "regime": "compute",
    "cause": "the feature extractor's products run in fp64, which only the Cholesky needs",
    "advice": ["double-precision"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",  # neither touches fp64 tensors
        "flash-attention",
        "tensor-core-alignment",
        "fused-optimizer",
        "none-healthy",
    ],
}


def make_table(rows, columns, seed=3):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, columns))
    y = np.sin(x[:, 0]) * x[:, 1] + 0.3 * np.abs(x[:, 2]) + 0.05 * rng.standard_normal(rows)
    return x, (y - y.mean()) / y.std()


class DeepKernelGP(nn.Module):
    def __init__(self, columns, width, latent):
        super().__init__()
        self.features = nn.Sequential(
            nn.Linear(columns, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, latent),
        )
        self.raw_lengthscale = nn.Parameter(torch.zeros(latent))
        self.raw_outputscale = nn.Parameter(torch.tensor(0.5))
        self.raw_noise = nn.Parameter(torch.tensor(-2.0))
        self.mean = nn.Parameter(torch.tensor(0.0))

    def covariance(self, z):
        z = z / nn.functional.softplus(self.raw_lengthscale)
        sq = z.square().sum(-1)
        d2 = (sq[:, None] + sq[None, :] - 2.0 * (z @ z.mT)).clamp_min(0.0)
        return nn.functional.softplus(self.raw_outputscale) * torch.exp(-0.5 * d2)

    def forward(self, x, y):
        """Negative log marginal likelihood per point."""
        n = len(x)
        k = self.covariance(self.features(x))
        noise = nn.functional.softplus(self.raw_noise) + 1e-6
        k = k + noise * torch.eye(n, device=x.device)
        chol = torch.linalg.cholesky(k)
        white = torch.linalg.solve_triangular(chol, (y - self.mean)[:, None], upper=False)
        fit = 0.5 * white.square().sum()
        complexity = chol.diagonal().log().sum()
        return (fit + complexity) / n + 0.9189385332046727


def build(cfg):
    torch.set_default_dtype(torch.float64)
    rows, points, columns, width, latent = cfg.pick(
        (16384, 4096, 256, 4096, 32), (256, 48, 8, 32, 4)
    )
    x, y = make_table(rows, columns)
    x = torch.from_numpy(x).to(cfg.device)
    y = torch.from_numpy(y).to(cfg.device)
    gp = DeepKernelGP(columns, width, latent).to(cfg.device)
    hyper = [p for name, p in gp.named_parameters() if not name.startswith("features")]
    optimizer = torch.optim.AdamW(
        [
            {"params": gp.features.parameters(), "lr": 1e-4, "weight_decay": 1e-4},
            {"params": hyper, "lr": 1e-2, "weight_decay": 0.0},
        ],
        fused=True,
    )

    def step(i):
        subset = torch.randperm(rows, device=cfg.device)[:points]
        nll = gp(x[subset], y[subset])
        optimizer.zero_grad()
        nll.backward()
        optimizer.step()
        return nll.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
