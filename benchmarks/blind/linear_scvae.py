"""Linearly decoded VAE over single-cell expression (32768 genes, 16 factors), under torch.compile."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# 49152 cells x 32768 genes = 1.61 G entries, 3.2 GB a pass in bf16; bottleneck 64, so the GEMMs do 64 FLOP/byte (ridge ~ 200).
# Encoder fwd reads 2 B/entry, encoder wgrad 2, decoder fwd writes 2, dgrad 2, wgrad 2: 10 B = 16 GB = 4.6 ms at 3.5 TB/s.
# Compiled loss: squared error reads 4 B/entry, its backward reads 4 and writes 2: 10 B = 16 GB = 3.8 ms at 4.2 TB/s.
# Tensor cores: 5 x 2 x 64 x 1.61 G = 1.03 TFLOP, 1.6 ms if they had the data, hidden under the traffic.
# The 49152 x 64 part between and AdamW on 4.2 M parameters: 25 small kernels, 0.3 ms.
# Step ~ 8.7 ms: bandwidth ~ 95 %, nothing left to fuse.
TRUTH = {
    "regime": "memory",
    "cause": "healthy: compiled; GEMMs with a bottleneck of 64 and a fused loss stream 3.2 GB tensors",
    "advice": ["none-healthy"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "fuse-pointwise",
        "fused-optimizer",
        "tensor-core-alignment",
        "flash-attention",
    ],
}


class LDVAE(nn.Module):
    """Encoder with one hidden layer; the decoder is a plain loading matrix, to be read by people."""

    def __init__(self, genes, hidden, factors, beta):
        super().__init__()
        self.beta = beta
        self.enter = nn.Linear(genes, hidden)
        self.mu = nn.Linear(hidden, factors)
        self.logvar = nn.Linear(hidden, factors)
        self.expand = nn.Linear(factors, hidden, bias=False)
        self.loadings = nn.Linear(hidden, genes, bias=False)
        nn.init.normal_(self.loadings.weight, std=hidden**-0.5)

    def forward(self, x):
        h = F.silu(self.enter(x))
        mu, logvar = self.mu(h).float(), self.logvar(h).float().clamp(-8, 8)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        recon = self.loadings(self.expand(z))
        mse = F.mse_loss(recon.float(), x.float())
        kl = 0.5 * (mu.square() + logvar.exp() - 1 - logvar).sum(1).mean()
        return mse + self.beta * kl


def expression(cells, genes, device, chunk=4096):
    """Log-normalised counts of a few programmes, as bf16, made where they stay."""
    out = torch.empty(cells, genes, dtype=torch.bfloat16, device=device)
    programmes = torch.rand(16, genes, device=device).pow_(4)
    for rows in out.split(chunk):
        usage = torch.rand(len(rows), 16, device=device)
        rows.copy_((usage @ programmes).add_(0.1 * torch.randn(len(rows), genes, device=device)))
    return out


def build(cfg):
    cells, genes, hidden, factors = cfg.pick((49152, 32768, 64, 16), (48, 96, 8, 4))
    shards = [expression(cells, genes, cfg.device) for _ in range(2)]
    with cfg.device:
        vae = LDVAE(genes, hidden, factors, beta=1e-4)
    optimizer = torch.optim.Adam(vae.parameters(), lr=1e-3, fused=True)
    compiled = torch.compile(vae, backend="inductor" if cfg.cuda else "aot_eager", dynamic=False)

    def step(i):
        with cfg.amp():
            loss = compiled(shards[i % 2])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
