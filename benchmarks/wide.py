"""A residual network in bf16, channels last: a step that keeps the GPU busy with wide kernels."""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.na = nn.BatchNorm2d(cout)
        self.b = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.nb = nn.BatchNorm2d(cout)
        same = cin == cout and stride == 1
        self.skip = nn.Identity() if same else nn.Conv2d(cin, cout, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.na(self.a(x)))
        return F.relu(self.nb(self.b(y)) + self.skip(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--device", default="cuda")
    args, _ = parser.parse_known_args()
    cuda = args.device == "cuda"
    width, batch, side = (128, 128, 128) if cuda else (8, 2, 32)
    stages = [(1, 1), (1, 1), (2, 2), (2, 1), (4, 2), (4, 1)]
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3)]
    cin = width
    for times, stride in stages:
        layers.append(Block(cin, width * times, stride))
        cin = width * times
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, 1000))
    model = model.to(args.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
    x = torch.randn(batch, 3, side, side, device=args.device)
    x = x.to(memory_format=torch.channels_last)
    y = torch.randint(1000, (batch,), device=args.device)
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        with torch.autocast(args.device, torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
