"""Aerial photo -> street map: conditional GAN, ResNet generator, two-scale PatchGAN, LSGAN + feature matching."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# H200, bf16 autocast, batch 16, 256x256, ngf 32. GPU work: generator 25 GFLOP an image x 16 x 3 = 1.2 TFLOP = 4.5 ms,
# its norms/ReLUs/dropouts ~11 GB = 2.8 ms; discriminators (three passes) ~0.3 TFLOP + norms = 2.5 ms; Adam etc. 0.5 ms: ~10.5 ms.
# torch.cuda.empty_cache() after each of the two updates gives all cached segments back: ~30 after D, ~130 after G
# (a generator activation is 17-67 MB, one segment each). Each costs ~0.12 ms of cudaMalloc in the next
# forward and ~0.12 ms of cudaFree: 160 x 0.24 = 38 ms with next to nothing queued on the GPU.
# Step ~48 ms: overhead ~76 %. Were both calls twice as cheap: 30 ms, overhead ~64 %.
TRUTH = {
    "regime": "overhead",
    "cause": "allocator: torch.cuda.empty_cache() after each update, so every forward goes through cudaMalloc again",
    "advice": ["allocation-churn"],
    "not_advice": [
        "dataloader-stall",
        "pin-memory",
        "enable-tf32-or-amp",
        "channels-last",
        "flash-attention",
        "fuse-pointwise",
        "fused-optimizer",
        "tensor-core-alignment",
    ],
}


class ResnetBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(dim, dim, 3, padding=1, bias=False),
            nn.BatchNorm2d(dim),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Conv2d(dim, dim, 3, padding=1, bias=False),
            nn.BatchNorm2d(dim),
        )

    def forward(self, x):
        return x + self.body(x)


class Generator(nn.Module):
    def __init__(self, ngf, blocks):
        super().__init__()
        net = [nn.Conv2d(3, ngf, 7, padding=3, bias=False), nn.BatchNorm2d(ngf), nn.ReLU()]
        for m in (1, 2):
            net += [
                nn.Conv2d(ngf * m, ngf * m * 2, 3, 2, 1, bias=False),
                nn.BatchNorm2d(ngf * m * 2),
                nn.ReLU(),
            ]
        net += [ResnetBlock(ngf * 4) for _ in range(blocks)]
        for m in (4, 2):
            net += [
                nn.ConvTranspose2d(ngf * m, ngf * m // 2, 3, 2, 1, output_padding=1, bias=False),
                nn.BatchNorm2d(ngf * m // 2),
                nn.ReLU(),
            ]
        net += [nn.Conv2d(ngf, 3, 7, padding=3), nn.Tanh()]
        self.net = nn.Sequential(*net)

    def forward(self, x):
        return self.net(x)


class PatchD(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        stages = [nn.Sequential(nn.Conv2d(6, ndf, 4, 2, 1), nn.LeakyReLU(0.2))]
        for m, stride in ((1, 2), (2, 2), (4, 1)):
            stages.append(
                nn.Sequential(
                    nn.Conv2d(ndf * m, ndf * m * 2, 4, stride, 1, bias=False),
                    nn.BatchNorm2d(ndf * m * 2),
                    nn.LeakyReLU(0.2),
                )
            )
        stages.append(nn.Conv2d(ndf * 8, 1, 4, 1, 1))
        self.stages = nn.ModuleList(stages)

    def forward(self, x):
        feats = []
        for s in self.stages:
            x = s(x)
            feats.append(x)
        return feats


class MultiscaleD(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        self.fine, self.coarse = PatchD(ndf), PatchD(ndf)

    def forward(self, photo, street):
        x = torch.cat([photo, street], 1)
        return [self.fine(x), self.coarse(F.avg_pool2d(x, 3, 2, 1))]


def lsgan(outputs, real):
    goal = 1.0 if real else 0.0
    return sum(((o[-1].float() - goal) ** 2).mean() for o in outputs)


def build(cfg):
    batch, side, ngf, blocks = cfg.pick((16, 256, 32, 9), (2, 64, 4, 2))
    dev = cfg.device
    net_g = Generator(ngf, blocks).to(dev, memory_format=torch.channels_last)
    net_d = MultiscaleD(ngf).to(dev, memory_format=torch.channels_last)
    for net in (net_g, net_d):
        for m in net.modules():
            if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.normal_(m.weight, 0.0, 0.02)
    opt_g = torch.optim.Adam(net_g.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=cfg.cuda)
    opt_d = torch.optim.Adam(net_d.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=cfg.cuda)
    cl = torch.channels_last
    data = [
        tuple(
            torch.rand(batch, 3, side, side, device=dev).mul_(2).sub_(1).to(memory_format=cl)
            for _ in range(2)
        )
        for _ in range(4)
    ]

    def free():
        # the 1080 Ti used to run out of memory in the second epoch
        torch.cuda.empty_cache()

    def step(i):
        photo, street = data[i % 4]
        with cfg.amp():
            fake = net_g(photo)

        net_d.requires_grad_(True)
        with cfg.amp():
            on_fake = net_d(photo, fake.detach())
            on_real = net_d(photo, street)
        loss_d = 0.5 * (lsgan(on_fake, False) + lsgan(on_real, True))
        opt_d.zero_grad(set_to_none=True)
        loss_d.backward()
        opt_d.step()
        real_feats = [[f.detach() for f in o[:-1]] for o in on_real]
        del on_fake, on_real
        free()

        net_d.requires_grad_(False)
        with cfg.amp():
            judged = net_d(photo, fake)
        match = sum(
            F.l1_loss(f, r) for o, rs in zip(judged, real_feats) for f, r in zip(o[:-1], rs)
        )
        loss_g = lsgan(judged, True) + 2.5 * match + 10.0 * F.l1_loss(fake.float(), street)
        opt_g.zero_grad(set_to_none=True)
        loss_g.backward()
        opt_g.step()
        total = (loss_g + loss_d).detach()
        del fake, judged, match, loss_g, loss_d, real_feats
        free()
        return total

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
