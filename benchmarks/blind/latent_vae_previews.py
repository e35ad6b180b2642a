"""KL autoencoder (f = 8) for latent diffusion; writes previews and histograms for a dashboard."""

import io
import json
import struct
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from harness import main
from torch import nn

# 32 images of 128^2. Full-resolution conv 64->64: 74 kFLOP a pixel x 3 = 0.12 TFLOP, and as much at
# each of the 4 levels: ~30 convs at ~350 = 11 ms; GroupNorm + SiLU ~1 GB a norm and level = 4 ms.
# GPU ~14 ms (its ~1200 launches take the host ~8 ms, alongside). Then, every step, on the host with the
# GPU empty: a PNG of 2 x 12 images (1.2 MB raw, zlib at ~40 MB/s = 30 ms), np.histogram of the 524 k
# latents and of four gradients (2.4 M values, ~7 ns each = 20 ms). Step ~66 ms, 75 % idle.
TRUTH = {
    "regime": "overhead",
    "cause": "host: every step fetches reconstructions, latents and gradients, encodes PNG and histograms",
    "advice": ["logging-stall"],
    "not_advice": [
        "dataloader-stall",
        "enable-tf32-or-amp",
        "launch-bound-compile",
        "fused-optimizer",
        "fuse-pointwise",
        "pin-memory",
        "bigger-batch",
        "none-healthy",
    ],
}


@dataclass
class Hparams:
    image: int = 128
    ch: int = 64
    mult: tuple = (1, 2, 4, 4)
    z: int = 64
    batch: int = 32
    lr: float = 2e-4
    kl_weight: float = 1e-6
    preview: int = 12


class Res(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(16, cin), nn.SiLU(), nn.Conv2d(cin, cout, 3, padding=1),
            nn.GroupNorm(16, cout), nn.SiLU(), nn.Conv2d(cout, cout, 3, padding=1),
        )  # fmt: skip
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x):
        return self.skip(x) + self.body(x)


class Autoencoder(nn.Module):
    def __init__(self, hp):
        super().__init__()
        widths = [hp.ch * m for m in hp.mult]
        enc, c = [nn.Conv2d(3, widths[0], 3, padding=1)], widths[0]
        for level, w in enumerate(widths):
            enc.append(Res(c, w))
            c = w
            if level < len(widths) - 1:
                enc.append(nn.Conv2d(c, c, 3, stride=2, padding=1))
        enc += [nn.GroupNorm(16, c), nn.SiLU(), nn.Conv2d(c, 2 * hp.z, 3, padding=1)]
        dec = [nn.Conv2d(hp.z, c, 3, padding=1)]
        for level, w in reversed(list(enumerate(widths))):
            dec += [Res(c, w), Res(w, w)]
            c = w
            if level > 0:
                dec += [nn.Upsample(scale_factor=2), nn.Conv2d(c, c, 3, padding=1)]
        dec += [nn.GroupNorm(16, c), nn.SiLU(), nn.Conv2d(c, 3, 3, padding=1)]
        self.encoder, self.decoder = nn.Sequential(*enc), nn.Sequential(*dec)

    def forward(self, x):
        mean, logvar = self.encoder(x).chunk(2, 1)
        logvar = logvar.float().clamp(-30, 20)
        z = mean + torch.exp(0.5 * logvar) * torch.randn_like(mean)
        kl = 0.5 * (mean.float() ** 2 + logvar.exp() - 1 - logvar).flatten(1).sum(1).mean()
        return self.decoder(z), z, kl


def png(pixels):
    """H x W x 3 uint8 array -> PNG bytes."""
    h, w, _ = pixels.shape
    rows = np.zeros((h, 1 + 3 * w), np.uint8)
    rows[:, 1:] = pixels.reshape(h, -1)

    def chunk(tag, data):
        return struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data))

    head = struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows.tobytes(), 6))
        + chunk(b"IEND", b"")
    )


class Dashboard:
    """A run folder: the latest preview, and an event file that starts again every 200 records."""

    def __init__(self, folder):
        self.folder = folder
        self.events = io.StringIO()
        self.records = 0

    def images(self, tag, batch):
        grid = batch.detach().float().clamp(-1, 1).cpu().numpy()
        grid = ((grid + 1) * 127.5).astype(np.uint8)
        n, c, h, w = grid.shape
        rows = grid.reshape(2, n // 2, c, h, w).transpose(0, 3, 1, 4, 2)
        with (self.folder / f"{tag}.png").open("wb") as f:
            f.write(png(rows.reshape(2 * h, n // 2 * w, c)))

    def histogram(self, tag, tensor, step):
        values = tensor.detach().float().cpu().numpy().ravel()
        counts, edges = np.histogram(values, bins=64)
        self.write({"step": step, "tag": tag, "counts": counts.tolist(), "edges": edges.tolist()})

    def scalars(self, step, **values):
        self.write({"step": step, **values})

    def write(self, record):
        self.events.write(json.dumps(record) + "\n")
        self.records += 1
        if self.records >= 200:
            with (self.folder / "events.jsonl").open("w") as f:
                f.write(self.events.getvalue())
            self.events, self.records = io.StringIO(), 0


def build(cfg):
    hp = cfg.pick(Hparams(), Hparams(image=32, ch=16, mult=(1, 1), z=4, batch=4, preview=2))
    folder = tempfile.TemporaryDirectory(prefix="vae_run_")
    cfg.at_exit(folder.cleanup)
    board = Dashboard(Path(folder.name))

    model = Autoencoder(hp).to(cfg.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=hp.lr, betas=(0.5, 0.9), fused=True)
    watched = {name: p for name, p in model.named_parameters() if name.endswith("body.5.weight")}
    watched = dict(list(watched.items())[-8:-4])
    # smooth pictures with sensor noise stand in for the crops, kept on the device
    coarse = torch.randn(4, hp.batch, 3, 8, 8, device=cfg.device)
    data = torch.stack([F.interpolate(c, size=hp.image, mode="bicubic") for c in coarse])
    data = (0.5 * data + 0.05 * torch.randn_like(data)).clamp_(-1, 1)

    def step(i):
        x = data[i % 4]
        with cfg.amp():
            recon, z, kl = model(x)
        rec = F.l1_loss(recon.float(), x)
        loss = rec + hp.kl_weight * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        board.scalars(i, **dict(zip(("rec", "kl"), torch.stack([rec, kl]).tolist())))
        board.images("recon", torch.cat([x[: hp.preview], recon[: hp.preview]]))
        board.histogram("latents", z, i)
        for name, p in watched.items():
            board.histogram(f"grad/{name}", p.grad, i)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
