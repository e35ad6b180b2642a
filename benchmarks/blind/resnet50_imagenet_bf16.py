"""ResNet-50 by the usual recipe: bf16 autocast, channels_last, mixup, cosine, side-stream prefetch."""

import math

import numpy as np
import torch
import torch.nn as nn
from harness import main

# H200, batch 256 at 224: 11.1 M conv outputs an image, so one pass over them all is 5.7 GB in bf16.
# Convs: 4.1 GMAC x 6 x 256 = 6.3 TFLOP, 14-18 ms, the 1x1 half of it held by bytes (6 passes, 34 GB). BatchNorm 8 passes
# (45 GB, 17-22 ms at 2-2.6 TB/s), ReLU 5 passes (28 GB, 8 ms), residual additions, max-pool, input mixing 5 ms, SGD 0.3 ms.
# Step 48-60 ms, ~70 % bandwidth. ~1,000 launches x 8 us = 8-10 ms: hidden. H2D 38 MB on a side stream: hidden.
# No plant; the gain left is fusing BatchNorm's application, ReLU and addition (about 20 %).
TRUTH = {
    "regime": "memory",
    "cause": "healthy recipe; eager BatchNorm, ReLU and residual additions stream every activation many times",
    "advice": ["fuse-pointwise"],
    "not_advice": [
        "dataloader-stall",
        "pin-memory",
        "sync-point",
        "launch-bound-compile",
        "enable-tf32-or-amp",
        "channels-last",
        "flash-attention",
        "cudnn-benchmark",
    ],
}


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inplanes, planes, stride=1, downsample=None):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, planes * 4, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * 4)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        nn.init.zeros_(self.bn3.weight)

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, layers, width=64, num_classes=1000):
        super().__init__()
        self.inplanes = width
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        self.layer1 = self._make_layer(width, layers[0], 1)
        self.layer2 = self._make_layer(width * 2, layers[1], 2)
        self.layer3 = self._make_layer(width * 4, layers[2], 2)
        self.layer4 = self._make_layer(width * 8, layers[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(width * 32, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def _make_layer(self, planes, blocks, stride):
        downsample = None
        if stride != 1 or self.inplanes != planes * 4:
            downsample = nn.Sequential(
                nn.Conv2d(self.inplanes, planes * 4, 1, stride, bias=False),
                nn.BatchNorm2d(planes * 4),
            )
        out = [Bottleneck(self.inplanes, planes, stride, downsample)]
        self.inplanes = planes * 4
        out += [Bottleneck(self.inplanes, planes) for _ in range(1, blocks)]
        return nn.Sequential(*out)

    def forward(self, x):
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x)))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Prefetcher:
    """Copies the next uint8 batch on its own stream while the current one trains."""

    def __init__(self, source, device):
        self.source, self.device = source, device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._preload()

    def _copy(self):
        images, labels = next(self.source)
        self.images = images.to(self.device, non_blocking=True)
        self.labels = labels.to(self.device, non_blocking=True)

    def _preload(self):
        if self.stream is None:
            return self._copy()
        with torch.cuda.stream(self.stream):
            self._copy()

    def next(self):
        if self.stream is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_stream(self.stream)
            self.images.record_stream(current)
            self.labels.record_stream(current)
        batch = self.images, self.labels
        self._preload()
        return batch


def host_batches(batch, size, classes, pin, held=4):
    """Decoded NHWC uint8 batches, as a cached loader hands them over."""
    ring = []
    for _ in range(held):
        images = torch.randint(0, 256, (batch, size, size, 3), dtype=torch.uint8)
        labels = torch.randint(classes, (batch,))
        ring.append((images.pin_memory(), labels.pin_memory()) if pin else (images, labels))
    k = 0
    while True:
        yield ring[k % held]
        k += 1


def param_groups(model, weight_decay):
    norm, other = [], []
    for m in model.modules():
        own = list(m.parameters(recurse=False))
        (norm if isinstance(m, nn.BatchNorm2d) else other).extend(own)
    return [{"params": other, "weight_decay": weight_decay}, {"params": norm, "weight_decay": 0.0}]


def build(cfg):
    torch.backends.cudnn.benchmark = True
    batch, size, classes = cfg.pick((256, 224, 1000), (4, 64, 10))
    layers, width = cfg.pick(([3, 4, 6, 3], 64), ([1, 1, 1, 1], 8))
    rng = np.random.default_rng(0)
    model = ResNet(layers, width, classes).to(cfg.device, memory_format=torch.channels_last)
    ema = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(param_groups(model, 2e-5), lr=0.1, momentum=0.9, nesterov=True)
    warmup, total = 500, 100_000
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: (
            (s + 1) / warmup
            if s < warmup
            else 0.5 * (1 + math.cos(math.pi * min(1.0, (s - warmup) / (total - warmup))))
        ),
    )
    mean = torch.tensor([123.675, 116.28, 103.53], device=cfg.device).view(1, 3, 1, 1)
    std = torch.tensor([58.395, 57.12, 57.375], device=cfg.device).view(1, 3, 1, 1)
    prefetcher = Prefetcher(host_batches(batch, size, classes, cfg.cuda), cfg.device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    running = torch.zeros((), device=cfg.device)

    def step(i):
        raw, labels = prefetcher.next()
        # permute of NHWC is channels_last already; half precision before mixing
        images = ((raw.permute(0, 3, 1, 2).float() - mean) / std).to(torch.bfloat16)
        lam = float(rng.beta(0.2, 0.2))
        mixed = torch.lerp(images.flip(0), images, lam)
        with cfg.amp(torch.bfloat16):
            logits = model(mixed)
        logits = logits.float()
        loss = lam * criterion(logits, labels) + (1 - lam) * criterion(logits, labels.flip(0))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if i % 32 == 31:
            torch._foreach_lerp_(ema, [p.detach() for p in model.parameters()], 0.01)
        running.lerp_(loss.detach(), 0.02)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
