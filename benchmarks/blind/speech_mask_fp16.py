"""Speech enhancement: a residual MLP estimates a mask for each STFT frame (n_fft 8192: 4097 bins), fp16 AMP."""

import torch
import torch.nn.functional as F
from harness import main
from torch import nn

# n_fft // 2 + 1 = 4097 bins everywhere: rows of 8194 bytes, only 2-byte aligned, so the fp16 GEMMs fall to align1 kernels.
# 12288 frames x 4 layers of 4097 x 4097: 4 x 0.41 TFLOP x 3 = 4.95 TFLOP (the learned input scale wants the first dgrad too).
# Aligned (4096): 8 ms at 640 TFLOP/s. Misaligned at 150 to 220 TFLOP/s: 22 to 33 ms.
# Pointwise on 12288 x 4097 (100 MB fp16): norms, GELU, residuals, casts, fp32 loss ~ 11 GB = 3 ms; AdamW on 67 M fp32 1.9 GB = 0.5 ms.
# Step ~ 31 ms: compute ~ 88 %. GradScaler with a fused AdamW takes found_inf on the device: no wait.
TRUTH = {
    "regime": "compute",
    "cause": "4097 STFT bins as layer width: fp16 rows are not 16-byte aligned, GEMMs run at a third of their rate",
    "advice": ["tensor-core-alignment"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "fused-optimizer",
        "pin-memory",
        "none-healthy",
    ],
}

HOP = 4  # hop = n_fft / HOP


class MaskBlock(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.norm = nn.LayerNorm(bins)
        self.fc = nn.Linear(bins, bins)

    def forward(self, x):
        return x + F.gelu(self.fc(self.norm(x)))


class MaskNet(nn.Module):
    def __init__(self, bins, blocks):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(bins))
        self.shift = nn.Parameter(torch.zeros(bins))
        self.fc_in = nn.Linear(bins, bins)
        self.blocks = nn.Sequential(*(MaskBlock(bins) for _ in range(blocks)))
        self.fc_out = nn.Linear(bins, bins)

    def forward(self, mag):
        x = torch.log1p(mag) * self.scale + self.shift
        x = self.blocks(F.gelu(self.fc_in(x)))
        return torch.sigmoid(self.fc_out(x))


@torch.no_grad()
def spectrogram(wave, n_fft):
    window = torch.hann_window(n_fft, device=wave.device)
    spec = torch.stft(wave, n_fft, n_fft // HOP, window=window, center=False, return_complex=True)
    return spec.abs().transpose(-1, -2).flatten(0, -2).contiguous()  # (frames, bins)


def make_pairs(n_fft, frames, device):
    """Clean harmonic signals and the same with noise, as magnitudes on the device."""
    samples = n_fft + (frames - 1) * (n_fft // HOP)
    t = torch.arange(samples, device=device) / 48000.0
    pairs = []
    for k in range(2):
        pitch = 110.0 + 40.0 * k + 15.0 * torch.sin(2 * torch.pi * 0.7 * t)
        phase = torch.cumsum(2 * torch.pi * pitch / 48000.0, 0)
        clean = sum(torch.sin(h * phase) / h for h in range(1, 9))
        noisy = clean + 0.5 * torch.randn(samples, device=device)
        pairs.append((spectrogram(noisy[None], n_fft), spectrogram(clean[None], n_fft)))
    return pairs


def build(cfg):
    n_fft, frames, blocks = cfg.pick((8192, 12288, 2), (64, 24, 2))
    pairs = make_pairs(n_fft, frames, cfg.device)
    net = MaskNet(n_fft // 2 + 1, blocks).to(cfg.device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=1e-5, fused=True)
    scaler = torch.amp.GradScaler(cfg.device.type, enabled=cfg.cuda)
    half = torch.float16 if cfg.cuda else torch.bfloat16

    def step(i):
        noisy, clean = pairs[i % 2]
        with cfg.amp(half):
            mask = net(noisy)
        loss = F.mse_loss(mask.float() * noisy, clean)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
