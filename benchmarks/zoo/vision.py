"""A residual network in bf16, channels last: healthy convolutions beside batch norm."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "compute",
    "advice": [],
    "not_advice": ["dataloader-stall", "sync-point", "pin-memory", "channels-last"],
}


class Block(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.na = nn.BatchNorm2d(cout)
        self.b = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.nb = nn.BatchNorm2d(cout)
        self.skip = (
            nn.Identity() if cin == cout and stride == 1 else nn.Conv2d(cin, cout, 1, stride)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.na(self.a(x)))
        return F.relu(self.nb(self.b(y)) + self.skip(x))


def build(s: Setting) -> Step:
    width, batch, side = s.pick(128, 8), s.pick(128, 2), s.pick(128, 32)
    stages = [(1, 1), (1, 1), (2, 2), (2, 1), (4, 2), (4, 1)]
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3)]
    cin = width
    for times, stride in stages:
        layers.append(Block(cin, width * times, stride))
        cin = width * times
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, 1000))
    model = model.to(s.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
    x = torch.randn(batch, 3, side, side, device=s.device).to(memory_format=torch.channels_last)
    y = torch.randint(1000, (batch,), device=s.device)

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
