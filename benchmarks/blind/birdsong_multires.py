"""Bird-call tagging: three mel spectrograms of different resolution as channels, a small ResNet on top."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# H200. Clips come as float64 (soundfile's default) and the whole GPU front end stays double: batch 128 x 160 000
# samples; hop 256 -> 626 frames; n_fft 1024+2048+4096: frames 4.6 GB, spectra 4.6 GB, |.| 2.3 GB, |.|^2 2.3 GB.
# Traffic: window 4.6w, FFT 4.6r+4.6w, abs 4.6r+2.3w, square 2.3r+2.3w, mel 2.3r = 27.6 GB / 4.0 TB/s = 6.9 ms;
# wave augmentation (gather, mix, noise, pads) ~3 GB + double randn = 1.2 ms; DGEMM 37 GFLOP / 40 = 0.9 ms;
# backbone bf16 channels_last on 128x3x64x626: 0.57 TFLOP = 1.9 ms + BN/ReLU 1.8 ms (memory). Step ~12.7 ms:
# memory ~76 %, compute ~22 %. float32 would halve the 9 ms front end. Host ~450 launches = ~5 ms, hidden.
TRUTH = {
    "regime": "memory",
    "cause": "float64 waveforms keep STFT, magnitude and mel on the GPU in double: twice the traffic needed",
    "advice": ["double-precision"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "pin-memory",
        "flash-attention",
        "channels-last",
        "fused-optimizer",
        "tensor-core-alignment",
        "bigger-batch",
    ],
}

SR = 32000


def mel_filters(n_fft, n_mels, fmin=50.0, fmax=14000.0):
    hz2mel = lambda f: 2595.0 * np.log10(1.0 + f / 700.0)
    mel2hz = lambda m: 700.0 * (10.0 ** (m / 2595.0) - 1.0)
    edges = mel2hz(np.linspace(hz2mel(fmin), hz2mel(fmax), n_mels + 2))
    freqs = np.linspace(0, SR / 2, n_fft // 2 + 1)
    up = (freqs[:, None] - edges[None, :-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[None, 2:] - freqs[:, None]) / (edges[2:] - edges[1:-1])
    return np.maximum(0.0, np.minimum(up, down))


class MultiResMel(nn.Module):
    """[batch, samples] -> [batch, 3, mels, frames], standardised per clip."""

    def __init__(self, sizes, hop, n_mels):
        super().__init__()
        self.sizes, self.hop = sizes, hop
        for n in sizes:
            self.register_buffer(f"window{n}", torch.from_numpy(np.hanning(n + 1)[:-1].copy()))
            self.register_buffer(f"fb{n}", torch.from_numpy(mel_filters(n, n_mels)))

    @torch.no_grad()
    def forward(self, wave):
        planes = []
        for n in self.sizes:
            spec = torch.stft(
                wave,
                n,
                self.hop,
                window=getattr(self, f"window{n}"),
                center=True,
                return_complex=True,
            )
            power = spec.abs().pow(2.0)
            mel = power.transpose(1, 2) @ getattr(self, f"fb{n}")
            db = 10.0 * torch.log10(mel.clamp(min=1e-10))
            planes.append(torch.maximum(db, db.amax((1, 2), keepdim=True) - 80.0))
        x = torch.stack(planes, 1).transpose(2, 3)
        mean, std = x.mean((2, 3), keepdim=True), x.std((2, 3), keepdim=True)
        return (x - mean) / (std + 1e-6)


class Bottle(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.a = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.na = nn.BatchNorm2d(cout)
        self.b = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.nb = nn.BatchNorm2d(cout)
        self.s = (
            nn.Conv2d(cin, cout, 1, stride, bias=False)
            if stride > 1 or cin != cout
            else nn.Identity()
        )

    def forward(self, x):
        y = F.relu(self.na(self.a(x)), inplace=True)
        return F.relu(self.nb(self.b(y)) + self.s(x), inplace=True)


class Tagger(nn.Module):
    def __init__(self, width, species):
        super().__init__()
        w = width
        self.stem = nn.Sequential(
            nn.Conv2d(3, w, 7, (2, 4), 3, bias=False), nn.BatchNorm2d(w), nn.ReLU(True)
        )
        self.body = nn.Sequential(
            Bottle(w, w, 1), Bottle(w, 2 * w, 2), Bottle(2 * w, 4 * w, 2), Bottle(4 * w, 8 * w, 2)
        )
        self.att = nn.Linear(8 * w, species)
        self.cla = nn.Linear(8 * w, species)

    def forward(self, x):
        x = self.body(self.stem(x)).mean(2).transpose(1, 2)  # frames of features
        weight = torch.softmax(torch.tanh(self.att(x)).float(), 1)
        return (weight * self.cla(x).float()).sum(1)


def recordings(n, samples):
    """What `soundfile.read` gives: float64 in [-1, 1]."""
    rng = np.random.default_rng(7)
    t = np.arange(samples) / SR
    noise = rng.standard_normal(samples)
    out = np.empty((n, samples))
    for k in range(n):
        f0 = 600.0 + 40.0 * k
        out[k] = 0.3 * np.sin(2 * math.pi * f0 * t) + 0.05 * np.roll(noise, 997 * k)
    return out


def build(cfg):
    batch, seconds, clips, species, width = cfg.pick((128, 5, 192, 264, 48), (4, 0.5, 8, 10, 8))
    sizes = cfg.pick((1024, 2048, 4096), (256, 512, 1024))
    samples = int(SR * seconds)
    bank = torch.from_numpy(recordings(clips, samples)).to(cfg.device)
    labels = (torch.rand(clips, species, device=cfg.device) < 0.02).float()

    frontend = MultiResMel(sizes, 256, 64).to(cfg.device)
    net = Tagger(width, species).to(cfg.device, memory_format=torch.channels_last)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-2, fused=cfg.cuda)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=50_000)
    host_rng = np.random.default_rng(0)

    def augment(wave, target):
        lam = float(host_rng.beta(0.4, 0.4))
        perm = torch.randperm(len(wave), device=wave.device)
        wave = lam * wave + (1 - lam) * wave[perm]
        target = torch.maximum(target, target[perm])
        level = 0.01 * torch.rand(len(wave), 1, device=wave.device, dtype=wave.dtype)
        return wave + level * torch.randn_like(wave), target

    def step(i):
        pick = torch.randint(clips, (batch,), device=cfg.device)
        wave, target = augment(bank[pick], labels[pick])
        x = frontend(wave).float().contiguous(memory_format=torch.channels_last)
        with cfg.amp():
            logits = net(x)
        loss = F.binary_cross_entropy_with_logits(logits.float(), target)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        sched.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
