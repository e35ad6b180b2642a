"""Land-cover segmentation with ViTDet-style residual bottlenecks and SAM's upscaling head."""

import copy

import torch
from harness import main
from torch import nn
from torch.nn import functional as F

# H200, autocast bf16, channels_last, batch 8, 128x128 positions (131k), 256/128 channels: 67 MB / 34 MB in bf16.
# LayerNorm2d written out (mean, sub, pow [autocast: to fp32], mean, sub, div, mul, add): at 256 channels ~1.7 GB
# forward and ~3.8 GB backward = 1.4 ms; at 128 channels 0.7 ms. A block has two of 128 and one of 256: 2.8 ms;
# its fp32 GELUs, casts and residual 0.7 ms; its convs 3 x 56 GFLOP = 0.17 TFLOP at 350 = 0.5 ms.
# 7 blocks: 19.6 norms + 5 pointwise + 3.5 convs; head at 256x256x64 and 512x512x32 ~6 ms (norm + GELU); CE 1.5 ms.
# Step ~36 ms: memory ~88 %, compute ~10 %. Host ~1400 launches ~ 12 ms, hidden.
TRUTH = {
    "regime": "memory",
    "cause": "channel LayerNorm written out op by op (SAM's LayerNorm2d) on large maps, in fp32 under autocast",
    "advice": ["fused-norm"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "pin-memory",
        "channels-last",
        "flash-attention",
        "tensor-core-alignment",
        "enable-tf32-or-amp",
        "fused-optimizer",
    ],
}


class LayerNorm2d(nn.Module):
    def __init__(self, num_channels: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_channels))
        self.bias = nn.Parameter(torch.zeros(num_channels))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + self.eps)
        x = self.weight[:, None, None] * x + self.bias[:, None, None]
        return x


class ResBottleneckBlock(nn.Module):
    def __init__(self, channels: int, bottleneck: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, bottleneck, 1, bias=False)
        self.norm1 = LayerNorm2d(bottleneck)
        self.conv2 = nn.Conv2d(bottleneck, bottleneck, 3, padding=1, bias=False)
        self.norm2 = LayerNorm2d(bottleneck)
        self.conv3 = nn.Conv2d(bottleneck, channels, 1, bias=False)
        self.norm3 = LayerNorm2d(channels)
        self.act = nn.GELU()
        nn.init.zeros_(self.norm3.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.norm1(self.conv1(x)))
        y = self.act(self.norm2(self.conv2(y)))
        return x + self.norm3(self.conv3(y))


class LandCover(nn.Module):
    def __init__(self, bands: int, dim: int, depth: int, classes: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(bands, dim, 4, 4)
        self.blocks = nn.Sequential(*[ResBottleneckBlock(dim, dim // 2) for _ in range(depth)])
        self.upscale = nn.Sequential(
            nn.ConvTranspose2d(dim, dim // 4, 2, 2),
            LayerNorm2d(dim // 4),
            nn.GELU(),
            nn.ConvTranspose2d(dim // 4, dim // 8, 2, 2),
            nn.GELU(),
        )
        self.classify = nn.Conv2d(dim // 8, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classify(self.upscale(self.blocks(self.patch(x))))


class Ema:
    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy.deepcopy(model).requires_grad_(False).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        torch._foreach_lerp_(
            list(self.model.parameters()), list(model.parameters()), 1.0 - self.decay
        )


def build(cfg):
    batch, side, bands, dim, depth, classes = cfg.pick((8, 512, 4, 256, 7, 8), (2, 32, 4, 32, 2, 8))
    dev = cfg.device
    model = LandCover(bands, dim, depth, classes).to(dev, memory_format=torch.channels_last)
    ema = Ema(model, 0.999)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4, weight_decay=0.05, fused=cfg.cuda)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 500))
    tiles = [
        torch.randn(batch, bands, side, side, device=dev).to(memory_format=torch.channels_last)
        for _ in range(3)
    ]
    masks = [torch.randint(classes, (batch, side, side), device=dev) for _ in range(3)]
    correct = torch.zeros((), device=dev)

    def step(i):
        k = i % 3
        with cfg.amp():
            logits = model(tiles[k])
            loss = F.cross_entropy(logits, masks[k], label_smoothing=0.05)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        ema.update(model)
        if i % 20 == 0:  # stays on the device; read at the end of an epoch
            correct.mul_(0.9).add_(
                (logits.detach().argmax(1) == masks[k]).float().mean(), alpha=0.1
            )
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
