"""Sparse autoencoder on the residual stream of an 8B language model (4096 wide, 8x dictionary).

ReLU encoder, L1 weighted by decoder norms, linear warm-ups of the rate and of the sparsity term.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# Batch 24576, d 4096, dictionary 32768; bf16 autocast over fp32 weights (2 x 134 M parameters).
# GEMMs: encoder fwd + wgrad, decoder fwd + dgrad + wgrad = 5 x 6.6 TFLOP = 33 TFLOP / 640 TFLOP/s = 52 ms.
# Passes over the 24576 x 32768 latents (1.6 GB bf16): relu, L1 sum, their backward, bias grad ~ 20 B/latent = 16 GB = 4 ms.
# Parameters: fused AdamW 7.5 GB, clipping 3.2, casts of weights and gradients 3.5, decoder norms 6 = 20 GB = 5 ms; errors and draw 7 GB = 2 ms.
# Step ~ 63 ms: compute 82 %, bandwidth 17 %, about 90 launches: the host is far ahead.
TRUTH = {
    "regime": "compute",
    "cause": "healthy: five 24576x32768x4096 tensor-core GEMMs are four fifths of the step",
    "advice": ["none-healthy"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "fused-optimizer",
        "tensor-core-alignment",
        "underfilled-kernels",
    ],
}


class SparseAutoencoder(nn.Module):
    def __init__(self, d_in, d_sae):
        super().__init__()
        w = torch.randn(d_sae, d_in)
        w = 0.1 * w / w.norm(dim=1, keepdim=True)
        self.W_dec = nn.Parameter(w)
        self.W_enc = nn.Parameter(w.t().contiguous().clone())
        self.b_enc = nn.Parameter(torch.zeros(d_sae))
        self.b_dec = nn.Parameter(torch.zeros(d_in))

    def encode(self, x):
        return F.relu(torch.addmm(self.b_enc, x, self.W_enc))

    def decode(self, f):
        return torch.addmm(self.b_dec, f, self.W_dec)


class ActivationBuffer:
    """Harvested activations, kept on the device; a batch is a random draw of rows."""

    def __init__(self, rows, d, device):
        self.rows, self.device = rows, device
        self.data = torch.empty(rows, d, dtype=torch.bfloat16, device=device)
        directions = F.normalize(torch.randn(512, d, device=device), dim=1)
        for part in self.data.split(8192):
            codes = torch.rand(len(part), 512, device=device)
            codes = torch.where(codes > 0.95, codes, torch.zeros_like(codes))
            part.copy_(codes @ directions + 0.02 * torch.randn(len(part), d, device=device))
        # mean squared norm sqrt(d), the usual normalisation
        self.data *= d**0.5 / self.data[:1024].float().norm(dim=1).mean()

    def draw(self, n):
        return self.data[torch.randint(self.rows, (n,), device=self.device)]


def build(cfg):
    d, d_sae, batch, rows = cfg.pick((4096, 32768, 24576, 65536), (32, 128, 64, 256))
    with cfg.device:
        sae = SparseAutoencoder(d, d_sae)
    buffer = ActivationBuffer(rows, d, cfg.device)
    optimizer = torch.optim.AdamW(
        sae.parameters(), lr=2e-4, betas=(0.9, 0.999), weight_decay=0.0, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 200))
    fired = torch.zeros(d_sae, dtype=torch.bool, device=cfg.device)

    def step(i):
        x = buffer.draw(batch)
        sparsity = 5.0 * min(1.0, i / 1000)
        with cfg.amp():
            f = sae.encode(x)
            recon = sae.decode(f)
        error = (recon.float() - x.float()).pow(2).sum(1).mean()
        # sum_i f_i |d_i|, averaged over the batch: summed over rows first
        usage = f.sum(0, dtype=torch.float32) / batch
        l1 = (usage * torch.linalg.vector_norm(sae.W_dec, dim=1)).sum()
        loss = error + sparsity * l1
        loss.backward()
        torch.nn.utils.clip_grad_norm_(sae.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if i % 100 == 0:
            fired.logical_or_((f.detach() > 0).any(0))
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
