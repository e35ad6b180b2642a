"""Wide ResNet 16-16 on 32x32 images: fp16 autocast, GradScaler, CutMix, weight EMA."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# Batch 512. A 3x3 conv: 9*256^2*1024 = 0.6 GMAC at every stage; with the strided and the narrow ones
# 6.2 GMAC an image, 6.3 TFLOP forward and 19 TFLOP a step at ~500 (cuDNN fp16 NHWC) = 38 ms.
# BN, ReLU, adds: stage 1 is 268 MB a tensor, ~18 passes a conv = 4.8 GB; x4 convs, x(1+1/2+1/4)
# = 34 GB at 3.8 TB/s = 9 ms. SGD + EMA on 44 M floats: 0.5 ms. Step ~48 ms, 79 % compute.
TRUTH = {
    "regime": "compute",
    "cause": "healthy: wide channels-last fp16 convolutions on tensor cores fill the step",
    "advice": ["none-healthy"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "channels-last",
        "bigger-batch",
        "remove-checkpointing",
        "fused-optimizer",
    ],
}


class WideBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.short = None
        if stride != 1 or cin != cout:
            self.short = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        o = F.relu(self.bn1(x), inplace=True)
        skip = x if self.short is None else self.short(o)
        o = self.conv1(o)
        o = self.conv2(F.relu(self.bn2(o), inplace=True))
        return o + skip


class WideResNet(nn.Module):
    def __init__(self, depth, k, classes):
        super().__init__()
        n = (depth - 4) // 6
        widths = [16, 16 * k, 32 * k, 64 * k]
        self.stem = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        blocks = [
            WideBlock(
                widths[s] if j == 0 else widths[s + 1],
                widths[s + 1],
                2 if (s > 0 and j == 0) else 1,
            )
            for s in range(3)
            for j in range(n)
        ]
        self.blocks = nn.Sequential(*blocks)
        self.bn = nn.BatchNorm2d(widths[3])
        self.fc = nn.Linear(widths[3], classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = F.relu(self.bn(self.blocks(self.stem(x))), inplace=True)
        return self.fc(x.mean((2, 3)))


class DeviceCifar:
    """The whole training set as uint8 on the device; crop, flip and CutMix happen there."""

    def __init__(self, n, classes, device):
        self.x = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, device=device)
        self.y = torch.randint(classes, (n,), device=device)
        self.mean = torch.tensor([125.3, 123.0, 113.9], device=device).view(1, 3, 1, 1)
        self.std = torch.tensor([63.0, 62.1, 66.7], device=device).view(1, 3, 1, 1)
        self.grid = torch.arange(32, device=device)
        self.device = device

    def batch(self, size, rng):
        idx = torch.randint(len(self.y), (size,), device=self.device)
        x = (self.x[idx].float() - self.mean) / self.std
        # one random shift per batch and half of the images mirrored
        dy, dx = (int(v) for v in torch.randint(0, 9, (2,), generator=rng))
        x = F.pad(x, (4, 4, 4, 4), mode="reflect")[:, :, dy : dy + 32, dx : dx + 32]
        flip = torch.rand(size, 1, 1, 1, device=self.device) < 0.5
        x = torch.where(flip, x.flip(3), x)
        y = self.y[idx]
        # CutMix with the batch reversed
        lam = float(torch.rand((), generator=rng))
        side = int(32 * math.sqrt(1 - lam))
        cy, cx = (int(v) for v in torch.randint(0, 32 - side + 1, (2,), generator=rng))
        box = ((self.grid >= cy) & (self.grid < cy + side))[:, None] & (
            (self.grid >= cx) & (self.grid < cx + side)
        )
        x = torch.where(box, x.flip(0), x)
        return x.contiguous(memory_format=torch.channels_last), y, y.flip(0), 1 - side**2 / 1024


def build(cfg):
    if cfg.cuda:
        torch.backends.cudnn.benchmark = True
    classes = 100
    k, batch, n = cfg.pick((16, 512, 50000), (1, 8, 64))
    data = DeviceCifar(n, classes, cfg.device)
    rng = torch.Generator().manual_seed(1)  # host-side choices: no read-back from the device
    model = WideResNet(16, k, classes).to(cfg.device, memory_format=torch.channels_last)
    ema = copy.deepcopy(model).requires_grad_(False)
    params, ema_params = list(model.parameters()), list(ema.parameters())
    opt = torch.optim.SGD(
        params, lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True, fused=True
    )
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.2, total_steps=200_000)
    scaler = torch.amp.GradScaler(cfg.device.type, enabled=cfg.cuda)
    correct = torch.zeros((), device=cfg.device)

    def step(i):
        x, ya, yb, lam = data.batch(batch, rng)
        with cfg.amp(torch.float16 if cfg.cuda else torch.bfloat16):
            logits = model(x)
        logits = logits.float()
        loss = lam * F.cross_entropy(logits, ya) + (1 - lam) * F.cross_entropy(logits, yb)
        opt.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(opt)  # fused SGD takes the scale and found_inf as tensors
        scaler.update()
        sched.step()
        with torch.no_grad():
            torch._foreach_lerp_(ema_params, params, 1e-3)
            correct.lerp_((logits.argmax(1) == ya).float().mean(), 0.02)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
