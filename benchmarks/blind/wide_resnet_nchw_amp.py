"""Wide bottleneck ResNet for aerial tiles: bf16 autocast, cudnn.benchmark, but tensors stay NCHW."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# Batch 96 at 224. Stage 1 (3 blocks, 128/512 channels, 301 k pixels): 1.67 MFLOP a pixel = 4 ns,
# ~53 KB a pixel (conv, BN, ReLU, add, both ways, and NCHW<->NHWC copies) = 15 ns: 17 ms for 3.
# Stage 2 (3, 256/1024, 75 k px): 15 ns products, 30 ns traffic: 10 ms. Stage 3 (2, 512/2048): 4 ms.
# Stem 1 ms. Sum ~32 ms: ~10 ms products, ~22 ms traffic (70 %), ~7 ms of it layout copies that
# channels_last removes. Host ~700 launches = 6 ms, hidden.
TRUTH = {
    "regime": "memory",
    "cause": "channels-first bf16: cuDNN converts layouts around each conv, on top of BN/ReLU traffic",
    "advice": ["channels-last"],
    "not_advice": [
        "enable-tf32-or-amp",
        "flash-attention",
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "pin-memory",
        "cudnn-benchmark",
        "none-healthy",
    ],
}


def conv_bn(cin, cout, k, stride=1, act=True, zero=False):
    bn = nn.BatchNorm2d(cout)
    if zero:
        nn.init.zeros_(bn.weight)
    layers = [nn.Conv2d(cin, cout, k, stride, k // 2, bias=False), bn]
    return nn.Sequential(*layers, nn.ReLU(inplace=True)) if act else nn.Sequential(*layers)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, cin, mid, stride=1):
        super().__init__()
        cout = mid * self.expansion
        self.body = nn.Sequential(
            conv_bn(cin, mid, 1),
            conv_bn(mid, mid, 3, stride),
            conv_bn(mid, cout, 1, act=False, zero=True),
        )
        self.down = None
        if stride != 1 or cin != cout:
            pool = [nn.AvgPool2d(2, ceil_mode=True)] if stride == 2 else []
            self.down = nn.Sequential(*pool, conv_bn(cin, cout, 1, act=False))

    def forward(self, x):
        shortcut = x if self.down is None else self.down(x)
        return F.relu(self.body(x) + shortcut)


class Net(nn.Module):
    def __init__(self, stem, mids, depths, classes):
        super().__init__()
        layers = [conv_bn(3, stem, 7, 2), nn.MaxPool2d(3, 2, 1)]
        cin = stem
        for s, (mid, depth) in enumerate(zip(mids, depths)):
            for j in range(depth):
                layers.append(Bottleneck(cin, mid, 2 if s and not j else 1))
                cin = 4 * mid
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(cin, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def build(cfg):
    torch.backends.cudnn.benchmark = True
    batch, side, stem, mids, depths, classes = cfg.pick(
        (96, 224, 64, (128, 256, 512), (3, 3, 2), 48), (4, 32, 8, (4, 8, 16), (1, 1, 1), 5)
    )
    model = Net(stem, mids, depths, classes).to(cfg.device)
    with cfg.device:
        tiles = torch.randint(0, 256, (3, batch, 3, side, side), dtype=torch.uint8)
        labels = torch.randint(classes, (3, batch))
        mean = torch.tensor([0.36, 0.38, 0.34]).view(1, 3, 1, 1)
        std = torch.tensor([0.19, 0.18, 0.18]).view(1, 3, 1, 1)
    decay, no_decay = [], []
    for p in model.parameters():
        (decay if p.ndim > 1 else no_decay).append(p)
    optimizer = torch.optim.SGD(
        [{"params": decay, "weight_decay": 5e-5}, {"params": no_decay, "weight_decay": 0.0}],
        lr=0.1, momentum=0.9, nesterov=True,
    )  # fmt: skip
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100_000)
    correct = torch.zeros((), device=cfg.device)

    def step(i):
        x = (tiles[i % 3].float().div_(255) - mean) / std
        if i % 2:
            x = x.flip(3)
        y = labels[i % 3]
        with cfg.amp():
            logits = model(x)
            loss = F.cross_entropy(logits, y, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        correct.add_((logits.detach().argmax(1) == y).sum())
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
