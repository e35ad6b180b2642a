"""Text-to-image fine-tune of a Stable-Diffusion-like UNet on cached latents, with an EMA copy offloaded to the host."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# H200, 16 latents of 4 x 32 x 32, channels 96/192/384, text 77 x 768, 60 M fp32 parameters, bf16 autocast:
# UNet 3 x 0.3 TF in small convolutions/GEMMs at 150 = 6 ms, GroupNorm/SiLU/adds/casts 5 ms, AdamW 0.5 ms: 12 ms of kernels;
# 3000 launches keep the host busy for 20 ms, and nothing is queued at the start of a step, so about 20 ms.
# EMA: 626 blocking copies of pageable memory, 240 MB at about 5 GB/s = 48 ms, lerp on the host 0.7 GB = 20 ms; the GPU computes nothing.
# Sum about 90 ms: overhead 80 %, most of it exposed copies.
TRUTH = {
    "regime": "overhead",
    "cause": "exposed_copy: every weight is copied to pageable host memory in every step for the offloaded EMA",
    "advice": ["readback-traffic"],
    "not_advice": [
        "dataloader-stall",
        "enable-tf32-or-amp",
        "flash-attention",
        "tensor-core-alignment",
        "fuse-pointwise",
        "fused-optimizer",
        "activation-checkpointing",
        "channels-last",
    ],
}


def timestep_embedding(t, dim):
    freqs = torch.exp(-math.log(10000) * torch.arange(dim // 2, device=t.device) / (dim // 2))
    args = t[:, None].float() * freqs[None]
    return torch.cat([args.cos(), args.sin()], dim=-1)


class ResnetBlock2D(nn.Module):
    def __init__(self, cin, cout, temb, groups):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(groups, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.time_emb_proj = nn.Linear(temb, cout)
        self.norm2, self.conv2 = nn.GroupNorm(groups, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time_emb_proj(F.silu(temb))[:, :, None, None]
        return self.conv_shortcut(x) + self.conv2(F.silu(self.norm2(h)))


class Attention(nn.Module):
    def __init__(self, d, context, heads):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v = (
            nn.Linear(d, d, bias=False),
            nn.Linear(context, d, bias=False),
            nn.Linear(context, d, bias=False),
        )
        self.to_out = nn.Linear(d, d)

    def forward(self, x, context):
        q, k, v = (
            y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for y in (self.to_q(x), self.to_k(context), self.to_v(context))
        )
        return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Transformer2D(nn.Module):
    def __init__(self, d, context, heads, groups):
        super().__init__()
        self.norm, self.proj_in, self.proj_out = (
            nn.GroupNorm(groups, d),
            nn.Conv2d(d, d, 1),
            nn.Conv2d(d, d, 1),
        )
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn1, self.attn2 = Attention(d, d, heads), Attention(d, context, heads)
        self.geglu, self.ff = nn.Linear(d, 8 * d), nn.Linear(4 * d, d)

    def forward(self, x, context):
        b, c, h, w = x.shape
        y = self.proj_in(self.norm(x)).flatten(2).transpose(1, 2)
        n = self.norm1(y)
        y = y + self.attn1(n, n)
        y = y + self.attn2(self.norm2(y), context)
        a, gate = self.geglu(self.norm3(y)).chunk(2, dim=-1)
        y = y + self.ff(a * F.gelu(gate))
        return x + self.proj_out(y.transpose(1, 2).reshape(b, c, h, w))


class UNet2DCondition(nn.Module):
    def __init__(self, channels, context, heads, groups):
        super().__init__()
        temb = 4 * channels[0]
        self.base = channels[0]
        self.time_embedding = nn.Sequential(
            nn.Linear(channels[0], temb), nn.SiLU(), nn.Linear(temb, temb)
        )
        self.conv_in = nn.Conv2d(4, channels[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        skips, c = [channels[0]], channels[0]
        for level, w in enumerate(channels):
            for _ in range(2):
                self.down.append(
                    nn.ModuleList(
                        [
                            ResnetBlock2D(c, w, temb, groups),
                            Transformer2D(w, context, heads, groups),
                        ]
                    )
                )
                c = w
                skips.append(c)
            if level + 1 < len(channels):
                self.down.append(nn.ModuleList([nn.Conv2d(c, c, 3, stride=2, padding=1)]))
                skips.append(c)
        self.mid = nn.ModuleList(
            [
                ResnetBlock2D(c, c, temb, groups),
                Transformer2D(c, context, heads, groups),
                ResnetBlock2D(c, c, temb, groups),
            ]
        )
        for level, w in reversed(list(enumerate(channels))):
            for _ in range(3):
                self.up.append(
                    nn.ModuleList(
                        [
                            ResnetBlock2D(c + skips.pop(), w, temb, groups),
                            Transformer2D(w, context, heads, groups),
                        ]
                    )
                )
                c = w
            if level:
                self.up.append(nn.ModuleList([nn.Conv2d(c, c, 3, padding=1)]))
        self.norm_out, self.conv_out = nn.GroupNorm(groups, c), nn.Conv2d(c, 4, 3, padding=1)

    def forward(self, sample, timestep, context):
        temb = self.time_embedding(timestep_embedding(timestep, self.base))
        x = self.conv_in(sample)
        skips = [x]
        for block in self.down:
            x = block[1](block[0](x, temb), context) if len(block) == 2 else block[0](x)
            skips.append(x)
        x = self.mid[2](self.mid[1](self.mid[0](x, temb), context), temb)
        for block in self.up:
            if len(block) == 2:
                x = block[1](block[0](torch.cat([x, skips.pop()], dim=1), temb), context)
            else:
                x = block[0](F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.conv_out(F.silu(self.norm_out(x)))


class EMAModel:
    """Exponential moving average of the weights; --offload_ema keeps the shadow weights in host memory."""

    def __init__(self, parameters, decay=0.9999):
        self.shadow_params = [p.detach().cpu().clone() for p in parameters]
        self.decay, self.optimization_step = decay, 0

    @torch.no_grad()
    def step(self, parameters):
        self.optimization_step += 1
        decay = min(self.decay, (1 + self.optimization_step) / (10 + self.optimization_step))
        for s_param, param in zip(self.shadow_params, parameters):
            s_param.lerp_(param.detach().to(s_param.device), 1 - decay)


def build(cfg):
    channels, heads, groups = cfg.pick(((96, 192, 384), 6, 32), ((16, 32), 2, 8))
    batch, side, words, context = cfg.pick((16, 32, 77, 768), (2, 8, 5, 24))
    with cfg.device:
        unet = UNet2DCondition(channels, context, heads, groups)
        latents = torch.randn(4, batch, 4, side, side)
        captions = torch.randn(4, batch, words, context)
        betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2
    alphas = torch.cumprod(1 - betas, 0)
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-5, weight_decay=1e-2, fused=True)
    lr_scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    ema = EMAModel(unet.parameters())

    def step(i):
        x, text = latents[i % 4] * 0.18215, captions[i % 4]
        noise = torch.randn_like(x)
        timesteps = torch.randint(0, 1000, (len(x),), device=x.device)
        a = alphas[timesteps].view(-1, 1, 1, 1)
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        with cfg.amp():
            pred = unet(noisy, timesteps, text)
        snr = (a / (1 - a)).flatten()
        weight = snr.clamp(max=5.0) / snr
        loss = (
            F.mse_loss(pred.float(), noise, reduction="none").mean(dim=(1, 2, 3)) * weight
        ).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
        optimizer.step()
        lr_scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        ema.step(unet.parameters())
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
