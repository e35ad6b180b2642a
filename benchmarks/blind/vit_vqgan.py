"""ViT-VQGAN at 256x256: transformer encoder/decoder, 8192 unit-length codes, patch discriminator, bf16."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# H200, 12 images, 1,024 tokens each (patch 8), width 1280, 6 + 6 layers of 19.7 M parameters.
# GEMMs 236 M x 6 x 12,288 = 17.4 TFLOP, 27-30 ms at 580-640 TFLOP/s; flash attention 2.7 TFLOP, 6-7 ms; PatchGAN (6.3
# GFLOP an image, ~8 passes) 2-3 ms, part of it bandwidth. Bytes: LayerNorm with its autocast casts, GELU, residuals
# ~270 us a layer forward x 3 x 12 = 10 ms; distances 12,288 x 8,192 fp32 (0.4 GB, ~6 passes) 0.6 ms; fused AdamW of
# 240 M fp32 weights 2 ms; autocast's weight casts 0.5 ms. Step 48-53 ms: ~70 % compute, ~27 % bandwidth.
# Host ~1,500 launches x 8 us = 12-15 ms: hidden. No plant.
TRUTH = {
    "regime": "compute",
    "cause": "healthy: wide bf16 GEMMs and flash attention; codebook search and discriminator are small beside them",
    "advice": ["none-healthy"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "pin-memory",
        "fused-optimizer",
        "tensor-core-alignment",
    ],
}


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.to_qkv(x).view(b, n, 3, self.heads, -1).transpose(1, 3).unbind(2)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(out.transpose(1, 2).reshape(b, n, d))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.ff(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, side, patch, dim, depth, heads, code_dim):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(3 * patch * patch, dim)
        self.pos = nn.Parameter(0.02 * torch.randn((side // patch) ** 2, dim))
        self.layers = nn.Sequential(*(Layer(dim, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.to_code = nn.Linear(dim, code_dim)

    def forward(self, img):
        x = F.pixel_unshuffle(img, self.patch).flatten(2).transpose(1, 2)
        x = self.embed(x)
        x = self.layers(x + self.pos.to(x.dtype))
        return self.to_code(self.norm(x))


class Decoder(nn.Module):
    def __init__(self, side, patch, dim, depth, heads, code_dim):
        super().__init__()
        self.patch, self.grid = patch, side // patch
        self.from_code = nn.Linear(code_dim, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(self.grid**2, dim))
        self.layers = nn.Sequential(*(Layer(dim, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.to_pixel = nn.Linear(dim, 3 * patch * patch)

    def forward(self, z):
        x = self.from_code(z)
        x = self.to_pixel(self.norm(self.layers(x + self.pos.to(x.dtype))))
        x = x.transpose(1, 2).unflatten(2, (self.grid, self.grid))
        return F.pixel_shuffle(x, self.patch)


class Codebook(nn.Module):
    """Nearest unit-length code, straight-through gradient, usage kept as a running mean."""

    def __init__(self, codes, dim, beta=0.25):
        super().__init__()
        self.beta = beta
        self.weight = nn.Parameter(torch.randn(codes, dim) / math.sqrt(dim))
        self.register_buffer("usage", torch.full((codes,), 1.0 / codes))

    def forward(self, z):
        with torch.autocast(z.device.type, enabled=False):
            z = F.normalize(z.float(), dim=-1)
            codes = F.normalize(self.weight, dim=-1)
            with torch.no_grad():
                flat = z.flatten(0, 1)
                distance = (
                    flat.pow(2).sum(1, keepdim=True) + codes.pow(2).sum(1) - 2 * flat @ codes.t()
                )
                index = distance.argmin(1)
                hits = torch.zeros_like(self.usage)
                hits.scatter_add_(0, index, torch.ones_like(index, dtype=hits.dtype))
                self.usage.lerp_(hits / index.numel(), 0.01)
            picked = F.embedding(index, codes).view_as(z)
            loss = F.mse_loss(picked, z.detach()) + self.beta * F.mse_loss(z, picked.detach())
            return z + (picked - z).detach(), loss


def discriminator(ndf):
    def block(i, o, stride):
        conv = nn.Conv2d(i, o, 4, stride, 1, bias=False)
        return [conv, nn.BatchNorm2d(o), nn.LeakyReLU(0.2, inplace=True)]

    return nn.Sequential(
        nn.Conv2d(3, ndf, 4, 2, 1),
        nn.LeakyReLU(0.2, inplace=True),
        *block(ndf, 2 * ndf, 2),
        *block(2 * ndf, 4 * ndf, 2),
        *block(4 * ndf, 8 * ndf, 1),
        nn.Conv2d(8 * ndf, 1, 4, 1, 1),
    )


def build(cfg):
    batch, side, patch = cfg.pick((12, 256, 8), (2, 64, 8))
    dim, depth, heads = cfg.pick((1280, 6, 20), (32, 1, 2))
    codes, code_dim, ndf = cfg.pick((8192, 32, 64), (64, 8, 8))
    with cfg.device:
        enc = Encoder(side, patch, dim, depth, heads, code_dim)
        dec = Decoder(side, patch, dim, depth, heads, code_dim)
        book = Codebook(codes, code_dim)
        disc = discriminator(ndf)
        images = [torch.rand(batch, 3, side, side) * 2 - 1 for _ in range(4)]
    disc = disc.to(memory_format=torch.channels_last)
    gen_params = [*enc.parameters(), *dec.parameters(), *book.parameters()]
    opt_g = torch.optim.AdamW(gen_params, lr=1e-4, betas=(0.9, 0.99), weight_decay=1e-4, fused=True)
    opt_d = torch.optim.AdamW(disc.parameters(), lr=1e-4, betas=(0.9, 0.99), fused=True)
    ramp = lambda s: min(1.0, (s + 1) / 1000)
    sched_g = torch.optim.lr_scheduler.LambdaLR(opt_g, ramp)
    sched_d = torch.optim.lr_scheduler.LambdaLR(opt_d, ramp)
    last = dec.to_pixel.weight
    log = {k: torch.zeros((), device=cfg.device) for k in ("rec", "vq", "gan", "disc", "weight")}

    def generator_update(real):
        disc.requires_grad_(False)
        with cfg.amp():
            z, vq_loss = book(enc(real))
            fake = dec(z)
            score = disc(fake.contiguous(memory_format=torch.channels_last))
        fake32 = fake.float()
        rec_loss = F.l1_loss(fake32, real) + F.mse_loss(fake32, real)
        gan_loss = -score.float().mean()
        # VQGAN's adaptive weight: ratio of the gradients at the decoder's last layer
        g_rec = torch.autograd.grad(rec_loss, last, retain_graph=True)[0].norm()
        g_gan = torch.autograd.grad(gan_loss, last, retain_graph=True)[0].norm()
        weight = (g_rec / (g_gan + 1e-4)).clamp(0, 1e4).detach() * 0.1
        loss = rec_loss + vq_loss + weight * gan_loss
        loss.backward()
        nn.utils.clip_grad_norm_(gen_params, 1.0)
        opt_g.step()
        opt_g.zero_grad(set_to_none=True)
        for k, v in (("rec", rec_loss), ("vq", vq_loss), ("gan", gan_loss), ("weight", weight)):
            log[k].lerp_(v.detach(), 0.02)
        return fake.detach(), loss.detach()

    def discriminator_update(real, fake):
        disc.requires_grad_(True)
        with cfg.amp():
            on_real = disc(real.contiguous(memory_format=torch.channels_last))
            on_fake = disc(fake.contiguous(memory_format=torch.channels_last))
        loss = 0.5 * (F.relu(1 - on_real.float()).mean() + F.relu(1 + on_fake.float()).mean())
        loss.backward()
        opt_d.step()
        opt_d.zero_grad(set_to_none=True)
        log["disc"].lerp_(loss.detach(), 0.02)

    def step(i):
        real = images[i % len(images)]
        fake, loss = generator_update(real)
        discriminator_update(real, fake)
        sched_g.step()
        sched_d.step()
        return loss

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
