"""U-Net for cell segmentation: bf16 autocast, cross-entropy + soft Dice, SGD with a poly schedule."""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# H200, 16 x 512^2 = 4.2 Mpx, widths 32/64/96/128/128. One conv-BN-ReLU at full width-32 resolution, bf16 (64 B/px):
#   layout transposes around fprop, dgrad and wgrad about 11 passes, conv 6, BN+ReLU 13 -> 30 x 64 B x 4.2 M = 8 GB = 2.0 ms;
#   5 such layers = 10 ms, level 1 half of it = 5 ms, the rest 3 ms, concat/transposed conv/loss 3 ms -> 21 ms of traffic.
#   FLOPs: 14 x 0.23 T = 3.3 TFLOP = 8 ms at 400 T/s, mostly under the convolutions' own traffic (144 FLOP/B, ridge 206).
#   Step about 26 ms, memory about 70 %. channels_last drops the transposes: about 6 ms (22 %).
TRUTH = {
    "regime": "memory",
    "cause": "NCHW activations: cuDNN transposes to NHWC and back around every bf16 convolution",
    "advice": ["channels-last"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "pin-memory",
        "fused-optimizer",
        "bigger-batch",
    ],
}


class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, in_channels, classes, widths):
        super().__init__()
        self.inc = DoubleConv(in_channels, widths[0])
        self.down = nn.ModuleList(DoubleConv(a, b) for a, b in itertools.pairwise(widths))
        self.pool = nn.MaxPool2d(2)
        rev = widths[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in itertools.pairwise(rev))
        self.dec = nn.ModuleList(DoubleConv(2 * b, b) for b in rev[1:])
        self.outc = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        skips = [self.inc(x)]
        for block in self.down:
            skips.append(block(self.pool(skips[-1])))
        x = skips.pop()
        for up, dec in zip(self.up, self.dec):
            x = dec(torch.cat([skips.pop(), up(x)], dim=1))
        return self.outc(x)


def dice_loss(logits, target, classes, eps=1.0):
    p = logits.softmax(1)
    t = F.one_hot(target, classes).permute(0, 3, 1, 2).to(p.dtype)
    inter = (p * t).sum((0, 2, 3))
    return 1 - ((2 * inter + eps) / (p.sum((0, 2, 3)) + t.sum((0, 2, 3)) + eps)).mean()


def build(cfg, memory_format=torch.contiguous_format):
    torch.backends.cudnn.benchmark = True
    batch, side = cfg.pick((16, 512), (2, 32))
    widths = cfg.pick([32, 64, 96, 128, 128], [8, 8, 16])
    classes = 4
    model = UNet(3, classes, widths).to(cfg.device, memory_format=memory_format).train()
    images = torch.rand(2, batch, 3, side, side, device=cfg.device)
    masks = torch.randint(classes, (2, batch, side, side), device=cfg.device)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=3e-5, fused=True
    )
    total = 20000
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda it: (1 - min(it, total - 1) / total) ** 0.9
    )

    def step(i):
        x = images[i % 2].contiguous(memory_format=memory_format)
        y = masks[i % 2]
        optimizer.zero_grad(set_to_none=True)
        with cfg.amp():
            logits = model(x)
        logits = logits.float()
        loss = F.cross_entropy(logits, y) + dice_loss(logits, y, classes)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
