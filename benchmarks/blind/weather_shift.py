"""Next-step weather emulator: per-pixel MLPs and periodic shifts on a lat-lon grid (shift-MLP backbone)."""

import torch
import torch.nn.functional as F
from harness import main
from torch import nn

# H200, full size: one activation (8, 128, 192, 384) bf16 = 151 MB; 5 blocks. Counted over a step: norms, shifts,
# products, GELU, adds and bias sums 51 GB = 13 ms; 57 layout copies (every module permutes to channels-last and back,
# .contiguous()) 19.6 GB at ~2 TB/s, transposing, = 10 ms, and some pointwise work of the backward pass on transposed
# strides +2 ms: ~25 ms. Products: 128 -> 256 is 85 FLOP/B, under the ridge (206), so memory-bound too.
# Host ~450 launches = 5 ms, hidden. Channels last from stem to head: ~13 ms.
TRUTH = {
    "regime": "memory",
    "cause": "permute + contiguous around every norm and linear: ~40 % of the step is layout copies",
    "advice": ["needless-copies"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "use-bf16",
        "flash-attention",
        "pin-memory",
        "bigger-batch",
    ],
}


class LayerNorm2d(nn.LayerNorm):
    """LayerNorm over the channels of (B, C, H, W)."""

    def forward(self, x):
        x = x.permute(0, 2, 3, 1).contiguous()
        x = super().forward(x)
        return x.permute(0, 3, 1, 2).contiguous()


class Linear2d(nn.Linear):
    """Linear over the channels of (B, C, H, W)."""

    def forward(self, x):
        x = x.permute(0, 2, 3, 1).contiguous()
        x = super().forward(x)
        return x.permute(0, 3, 1, 2).contiguous()


class ShiftBlock(nn.Module):
    def __init__(self, dim, axis, shift, norm, linear):
        super().__init__()
        self.axis, self.shift = axis, shift
        self.norm1 = norm(dim)
        self.mix = linear(dim, dim)
        self.norm2 = norm(dim)
        self.up = linear(dim, 2 * dim)
        self.down = linear(2 * dim, dim)

    def forward(self, x):
        # periodic in longitude; in latitude the poles wrap, which the metric's weights hide
        x = x + self.mix(torch.roll(self.norm1(x), self.shift, self.axis))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Emulator(nn.Module):
    def __init__(
        self, fields, dim, depth, norm=LayerNorm2d, linear=Linear2d, channels_at_end=False
    ):
        super().__init__()
        lat, lon = (1, 2) if channels_at_end else (2, 3)
        self.stem = linear(fields, dim)
        self.blocks = nn.Sequential(
            *(
                ShiftBlock(dim, lon if k % 2 == 0 else lat, (1, 1, -1, -1)[k % 4], norm, linear)
                for k in range(depth)
            )
        )
        self.norm = norm(dim)
        self.head = linear(dim, fields)

    def forward(self, x):
        return x + self.head(self.norm(self.blocks(self.stem(x))))


def build(cfg, channels_at_end=False):
    fields, dim, depth = cfg.pick((32, 128, 5), (4, 8, 2))
    batch, nlat, nlon = cfg.pick((8, 192, 384), (2, 6, 12))
    layers = (nn.LayerNorm, nn.Linear, True) if channels_at_end else ()
    with cfg.device:
        model = Emulator(fields, dim, depth, *layers).to(torch.bfloat16)
        days = torch.randn(3, batch, fields, nlat, nlon, dtype=torch.bfloat16)
        days = torch.stack([days[0], 0.9 * days[0] + 0.1 * days[1], 0.9 * days[1] + 0.1 * days[2]])
        weight = torch.cos(torch.linspace(-1.55, 1.55, nlat)).to(torch.bfloat16)
        weight = (weight / weight.mean())[:, None]
    if channels_at_end:
        days = days.permute(0, 1, 3, 4, 2).contiguous()
        weight = weight[:, None]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)

    def step(i):
        now, then = days[i % 3], days[(i + 1) % 3]
        loss = (weight * (model(now) - then).square()).mean(dtype=torch.float32)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
