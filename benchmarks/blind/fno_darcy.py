"""Fourier neural operator for 2-D Darcy flow, coefficient field -> pressure.

Collocation grid and normalisers come from numpy.
"""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# H200, full size: one activation (96, 32, 128, 128) float64 = 403 MB. Counted over a step: FFTs and their copies,
# fills and scalings ~40 GB, 1x1 products 21 GB, adds 15 GB, GELU 14 GB, bias sums 4 GB: ~95 GB / 4.0 TB/s = 24 ms,
# +2-3 ms where erf in fp64 or a strided FFT falls short of the bandwidth: ~27 ms. FLOPs: products 0.08 TFLOP
# (~10 FLOP/B or less, fp64 ridge 14). Host ~600 launches = 4 ms, hidden.
# float32 halves every byte: ~13 ms.
TRUTH = {
    "regime": "memory",
    "cause": "grid and statistics from numpy are float64, so the whole operator runs in double",
    "advice": ["double-precision"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "flash-attention",
        "pin-memory",
        "bigger-batch",
        "activation-checkpointing",
        "tensor-core-alignment",
    ],
}


class SpectralConv2d(nn.Module):
    def __init__(self, width, modes, dtype):
        super().__init__()
        self.m = modes
        cdtype = torch.complex128 if dtype == torch.float64 else torch.complex64
        scale = 1 / (width * width)
        self.w1 = nn.Parameter(scale * torch.randn(width, width, modes, modes, dtype=cdtype))
        self.w2 = nn.Parameter(scale * torch.randn(width, width, modes, modes, dtype=cdtype))

    def forward(self, x):
        _b, _c, h, w = x.shape
        m = self.m
        x_ft = torch.fft.rfft2(x)
        out_ft = torch.zeros_like(x_ft)
        out_ft[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", x_ft[:, :, :m, :m], self.w1)
        out_ft[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", x_ft[:, :, -m:, :m], self.w2)
        return torch.fft.irfft2(out_ft, s=(h, w))


class Pointwise(nn.Module):
    """1x1 convolution as a batched product over the flattened grid."""

    def __init__(self, cin, cout, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cout, cin, dtype=dtype) / math.sqrt(cin))
        self.bias = nn.Parameter(torch.zeros(1, cout, 1, dtype=dtype))

    def forward(self, x):
        b, c, h, w = x.shape
        y = torch.baddbmm(self.bias, self.weight.expand(b, -1, -1), x.reshape(b, c, h * w))
        return y.view(b, -1, h, w)


class FNO2d(nn.Module):
    def __init__(self, width, modes, layers, dtype):
        super().__init__()
        self.lift = Pointwise(3, width, dtype)
        self.spectral = nn.ModuleList(SpectralConv2d(width, modes, dtype) for _ in range(layers))
        self.local = nn.ModuleList(Pointwise(width, width, dtype) for _ in range(layers))
        self.head1 = Pointwise(width, 128, dtype)
        self.head2 = Pointwise(128, 1, dtype)

    def forward(self, x):
        x = self.lift(x)
        last = len(self.local) - 1
        for k, (s, w) in enumerate(zip(self.spectral, self.local)):
            x = s(x) + w(x)
            if k < last:
                x = F.gelu(x)
        return self.head2(F.gelu(self.head1(x)))


def relative_l2(pred, target):
    n = pred.shape[0]
    diff = (pred - target).reshape(n, -1).norm(dim=1)
    return (diff / target.reshape(n, -1).norm(dim=1)).mean()


def build(cfg, np_dtype=np.float64):
    batch, size, width, modes = cfg.pick((96, 128, 32, 16), (2, 16, 8, 4))
    rng = np.random.default_rng(0)
    axis = np.linspace(0.0, 1.0, size).astype(np_dtype)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"))[None].repeat(batch, 0)
    coeff = np.where(rng.random((2, batch, 1, size, size)) > 0.5, 12.0, 3.0).astype(np_dtype)
    coeff = (coeff - coeff.mean()) / coeff.std()
    kx = np.sin(math.pi * axis)
    target = (kx[:, None] * kx[None, :]) * (1 + 0.1 * coeff)

    grid = torch.from_numpy(grid).to(cfg.device)
    coeff = torch.from_numpy(coeff).to(cfg.device)
    target = torch.from_numpy(target.astype(np_dtype)).to(cfg.device)

    # "expected scalar type Double but found Float" -> build the model in the data's dtype
    with cfg.device:
        model = FNO2d(width, modes, 4, coeff.dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=500, gamma=0.5)

    def step(i):
        a = torch.cat([coeff[i % 2], grid], dim=1)
        loss = relative_l2(model(a), target[i % 2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
