"""A 3-D U-Net over a scan in fp32 with TF32 on: convolutions of volumes, channels first, instance norm."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "compute",
    "advice": ["use-bf16"],
    "not_advice": ["dataloader-stall", "sync-point", "pin-memory", "flash-attention"],
}


def twice(cin: int, cout: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for c in (cin, cout):
        layers += (nn.Conv3d(c, cout, 3, 1, 1), nn.InstanceNorm3d(cout), nn.LeakyReLU())
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, w: int) -> None:
        super().__init__()
        self.d1, self.d2, self.mid = twice(1, w), twice(w, 2 * w), twice(2 * w, 4 * w)
        self.up2 = nn.ConvTranspose3d(4 * w, 2 * w, 2, 2)
        self.up1 = nn.ConvTranspose3d(2 * w, w, 2, 2)
        self.u2, self.u1 = twice(4 * w, 2 * w), twice(2 * w, w).append(nn.Conv3d(w, 4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.d1(x)
        b = self.d2(F.max_pool3d(a, 2))
        c = self.up2(self.mid(F.max_pool3d(b, 2)))
        c = self.up1(self.u2(torch.cat((c, b), 1)))
        return self.u1(torch.cat((c, a), 1))


def build(s: Setting) -> Step:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    model = UNet(s.pick(32, 4)).to(s.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.99, nesterov=True)
    x = torch.randn(2, 1, *[s.pick(96, 8)] * 3, device=s.device)
    y = torch.randint(4, (2, *x.shape[2:]), device=s.device)

    def step(i: int) -> torch.Tensor:
        logits = model(x)
        shares = logits.softmax(1)[:, 1:]
        wanted = F.one_hot(y, 4).movedim(-1, 1)[:, 1:]
        dice = 2 * (shares * wanted).sum((2, 3, 4)) / (shares + wanted).sum((2, 3, 4))
        loss = F.cross_entropy(logits, y) - dice.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
