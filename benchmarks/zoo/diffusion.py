"""A U-Net denoiser with group norm and SiLU in eager bf16: strided norms and layout changes are bound by instructions."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "compute",
    "advice": ["fuse-pointwise"],
    "not_advice": ["dataloader-stall", "sync-point", "pin-memory"],
}


class Res(nn.Module):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.n1, self.n2 = nn.GroupNorm(8, cin), nn.GroupNorm(8, cout)
        self.c1, self.c2 = nn.Conv2d(cin, cout, 3, 1, 1), nn.Conv2d(cout, cout, 3, 1, 1)
        self.skip = nn.Identity() if cin == cout else nn.Conv2d(cin, cout, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.c1(F.silu(self.n1(x)))
        return self.c2(F.silu(self.n2(y))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, 1, 1)
        self.d1, self.d2, self.mid = (
            Res(width, width),
            Res(width, 2 * width),
            Res(2 * width, 2 * width),
        )
        self.u2, self.u1 = Res(4 * width, width), Res(2 * width, width)
        self.leave = nn.Conv2d(width, 3, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.d1(self.enter(x))
        b = self.d2(F.avg_pool2d(a, 2))
        c = self.mid(F.avg_pool2d(b, 2))
        c = self.u2(torch.cat((F.interpolate(c, scale_factor=2), b), 1))
        return self.leave(self.u1(torch.cat((F.interpolate(c, scale_factor=2), a), 1)))


def build(s: Setting) -> Step:
    model = UNet(s.pick(64, 8)).to(s.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=s.device.type == "cuda")
    x = torch.randn(s.pick(32, 1), 3, s.pick(128, 16), s.pick(128, 16), device=s.device)

    def step(i: int) -> torch.Tensor:
        noise = torch.randn_like(x)
        with torch.autocast(s.device.type, torch.bfloat16):
            loss = F.mse_loss(model(x + noise), noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
