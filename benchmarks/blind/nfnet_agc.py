"""Normaliser-free ResNet with adaptive gradient clipping written as `if` on every parameter's norms."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# 64 images of 128, bf16 autocast, channels_last: 4 blocks at 32^2 (~0.55 ms each with traffic and
# convs), 6 at 16^2 (~0.3), 4 at 8^2 (~0.2): forward and backward ~5 ms of GPU, ~6 ms of host.
# AGC: 104 parameters x 2 truth tests; each ~5 launches (6 us each), a DtoH copy and a stream wait
# (~15 us): ~90 us a parameter = 10 ms, in which the GPU runs ~10 kernels of 2-3 us a parameter.
# Two more reads for the meter. Step ~16 ms: 4 ms real work, the rest waits or is underfilled (75 %).
TRUTH = {
    "regime": "overhead",
    "cause": "sync: `if` on GPU tensors twice per parameter in the clipping, and float() for the meters",
    "advice": ["sync-point"],
    "not_advice": [
        "dataloader-stall",
        "enable-tf32-or-amp",
        "channels-last",
        "flash-attention",
        "pin-memory",
        "tensor-core-alignment",
        "activation-checkpointing",
    ],
}


class AGC:
    """Adaptive gradient clipping (Brock et al. 2021), per tensor; skips broken gradients."""

    def __init__(self, named, clipping=0.02, eps=1e-3):
        self.named = [(n, p) for n, p in named if not n.startswith("head")]
        self.clipping, self.eps = clipping, eps
        self.clipped = self.broken = 0

    @torch.no_grad()
    def __call__(self):
        for _name, p in self.named:
            if p.grad is None:
                continue
            g_norm = torch.linalg.vector_norm(p.grad)
            if not torch.isfinite(g_norm):
                p.grad.zero_()
                self.broken += 1
                continue
            limit = torch.linalg.vector_norm(p).clamp(min=self.eps) * self.clipping
            if g_norm > limit:
                p.grad.mul_(limit / g_norm)
                self.clipped += 1


class NFBlock(nn.Module):
    def __init__(self, cin, cout, stride, alpha=0.2, beta=1.0):
        super().__init__()
        mid = cout // 2
        self.alpha, self.beta = alpha, beta
        self.conv1 = nn.Conv2d(cin, mid, 1)
        self.conv2 = nn.Conv2d(mid, mid, 3, stride, 1)
        self.conv3 = nn.Conv2d(mid, cout, 1)
        self.skipinit = nn.Parameter(torch.zeros(()))
        self.shortcut = None
        if stride > 1 or cin != cout:
            self.shortcut = nn.Conv2d(cin, cout, 1)
        self.stride = stride

    def forward(self, x):
        y = F.silu(x) * (1.7868 * self.beta)
        if self.shortcut is not None:
            x = self.shortcut(F.avg_pool2d(y, 2) if self.stride > 1 else y)
        y = F.silu(self.conv1(y))
        y = F.silu(self.conv2(y))
        return x + self.alpha * self.skipinit * self.conv3(y)


class NFNet(nn.Module):
    def __init__(self, width, depths, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        blocks, cin = [], width
        for s, depth in enumerate(depths):
            for j in range(depth):
                cout = width << s
                blocks.append(
                    NFBlock(cin, cout, 2 if s and j == 0 else 1, beta=(1 + 0.2 * j) ** -0.5)
                )
                cin = cout
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(cin, classes)

    def forward(self, x):
        return self.head(F.silu(self.blocks(self.stem(x))).mean((2, 3)))


def build(cfg):
    batch, side, width, depths, classes = cfg.pick(
        (64, 128, 256, (4, 6, 4), 200), (4, 32, 8, (1, 1, 1), 10)
    )
    model = NFNet(width, depths, classes).to(cfg.device, memory_format=torch.channels_last)
    with cfg.device:
        images = torch.randn(4, batch, 3, side, side)
        labels = torch.randint(classes, (4, batch))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    clip = AGC(model.named_parameters())
    meters = {"loss": 0.0, "top1": 0.0}

    def step(i):
        x = images[i % 4].contiguous(memory_format=torch.channels_last)
        y = labels[i % 4]
        with cfg.amp():
            logits = model(x)
            loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        clip()
        optimizer.step()
        meters["loss"] += 0.02 * (float(loss.detach()) - meters["loss"])
        top1 = (logits.detach().argmax(1) == y).float().mean()
        meters["top1"] += 0.02 * (float(top1) - meters["top1"])
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
