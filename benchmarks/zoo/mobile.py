"""Inverted bottlenecks with depthwise convolutions, channels last under bf16 autocast: many bytes, few products."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "memory",
    "advice": [],
    "not_advice": ["sync-point", "flash-attention", "channels-last", "enable-tf32-or-amp"],
}


class Inverted(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        wide = 6 * cin
        self.add = cin == cout and stride == 1
        self.body = nn.Sequential(
            nn.Conv2d(cin, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide),
            nn.ReLU6(), nn.Conv2d(wide, cout, 1, bias=False), nn.BatchNorm2d(cout),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.add else self.body(x)


def build(s: Setting) -> Step:
    width, side = s.pick(24, 8), s.pick(192, 32)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1)]
    cin = width
    for times, stride in ((1, 1), (2, 2), (2, 1), (4, 2), (4, 1)):
        layers.append(Inverted(cin, width * times, stride))
        cin = width * times
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, 1000))
    model = model.to(s.device, memory_format=torch.channels_last)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
    x = torch.randn(s.pick(128, 2), 3, side, side, device=s.device)
    x = x.to(memory_format=torch.channels_last)
    y = torch.randint(1000, (len(x),), device=s.device)

    def step(i: int) -> torch.Tensor:
        with torch.autocast(s.device.type, torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
