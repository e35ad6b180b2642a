"""A StyleGAN2-like generator and residual discriminator at 256 px, trained in turns under bf16."""

import copy
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# Batch 16. Convolutions 0.23 TFLOP forward in each network; G(z), D real, D fake (3x each), then G 3x
# and D 2x: 2.8 TFLOP at ~300 = 9 ms; elementwise (scales, noise, leaky ReLU; 67 MB a tensor at 256 px)
# ~28 GB = 8 ms. GPU ~17 ms; ~2000 launches, ~12 ms of host. Each of three phases ends in empty_cache:
# ~35 + 40 + 75 segments of 10-134 MB freed and mapped anew, cudaFree + cudaMalloc 0.2-0.5 ms a pair,
# every cudaFree after the GPU has drained: 30-75 ms of host time. Step ~60 ms (42 at the least),
# GPU busy for ~17 of it: overhead 60-78 %.
TRUTH = {
    "regime": "overhead",
    "cause": "allocator: empty_cache() after each of three phases, every segment mapped anew",
    "advice": ["allocation-churn"],
    "not_advice": [
        "dataloader-stall",
        "enable-tf32-or-amp",
        "launch-bound-compile",
        "fused-optimizer",
        "pin-memory",
        "flash-attention",
        "activation-checkpointing",
        "none-healthy",
    ],
}


def free_memory():
    """Give everything back between the two networks' turns so that both fit."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class EqualLinear(nn.Module):
    def __init__(self, cin, cout, bias=0.0, lr_mul=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cout, cin) / lr_mul)
        self.bias = nn.Parameter(torch.full((cout,), float(bias)))
        self.scale, self.lr_mul = lr_mul / cin**0.5, lr_mul

    def forward(self, x):
        return F.linear(x, self.weight * self.scale, self.bias * self.lr_mul)


class ModConv(nn.Module):
    """Weight modulation done on the activations: scale, convolve, demodulate."""

    def __init__(self, cin, cout, k, w_dim, demod=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cout, cin, k, k))
        self.gain = 1 / (cin * k * k) ** 0.5
        self.style = EqualLinear(w_dim, cin, bias=1.0)
        self.demod, self.pad = demod, k // 2

    def forward(self, x, w):
        s = self.style(w)
        weight = self.weight * self.gain
        y = F.conv2d(x * s[:, :, None, None].to(x.dtype), weight, padding=self.pad)
        if self.demod:
            norm = weight.square().sum((2, 3))  # out x in
            d = torch.rsqrt(s.float().square() @ norm.t() + 1e-8)
            y = y * d[:, :, None, None].to(y.dtype)
        return y


class StyledLayer(nn.Module):
    def __init__(self, cin, cout, w_dim):
        super().__init__()
        self.conv = ModConv(cin, cout, 3, w_dim)
        self.noise = nn.Parameter(torch.zeros(()))
        self.bias = nn.Parameter(torch.zeros(cout, 1, 1))

    def forward(self, x, w):
        x = self.conv(x, w)
        noise = torch.randn(x.shape[0], 1, *x.shape[2:], device=x.device, dtype=x.dtype)
        x = x + (self.noise * noise + self.bias).to(x.dtype)
        return F.leaky_relu(x, 0.2) * 2**0.5


class Generator(nn.Module):
    def __init__(self, widths, z_dim, mapping=8):
        super().__init__()
        layers = []
        for _ in range(mapping):
            layers += [EqualLinear(z_dim, z_dim, lr_mul=0.01), nn.LeakyReLU(0.2)]
        self.mapping = nn.Sequential(*layers)
        self.const = nn.Parameter(torch.randn(1, widths[0], 4, 4))
        self.first = StyledLayer(widths[0], widths[0], z_dim)
        self.up = nn.ModuleList(StyledLayer(a, b, z_dim) for a, b in itertools.pairwise(widths))
        self.same = nn.ModuleList(StyledLayer(b, b, z_dim) for b in widths[1:])
        self.rgb = nn.ModuleList(ModConv(b, 3, 1, z_dim, demod=False) for b in widths[1:])

    def forward(self, z):
        w = self.mapping(z * torch.rsqrt(z.square().mean(1, keepdim=True) + 1e-8))
        x = self.const.expand(len(z), -1, -1, -1)
        x = self.first(x.contiguous(memory_format=torch.channels_last), w)
        image = None
        for up, same, rgb in zip(self.up, self.same, self.rgb):
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = same(up(x, w), w)
            out = rgb(x, w)
            image = out if image is None else F.interpolate(image, scale_factor=2) + out
        return image


class DBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cin, 3, padding=1)
        self.conv2 = nn.Conv2d(cin, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1, bias=False)

    def forward(self, x):
        y = F.leaky_relu(self.conv1(x), 0.2)
        y = F.avg_pool2d(F.leaky_relu(self.conv2(y), 0.2), 2)
        return (y + self.skip(F.avg_pool2d(x, 2))) * 0.5**0.5


class Discriminator(nn.Module):
    def __init__(self, widths):
        super().__init__()
        down = widths[::-1]
        self.from_rgb = nn.Conv2d(3, down[0], 1)
        self.blocks = nn.Sequential(*(DBlock(a, b) for a, b in itertools.pairwise(down)))
        self.last = nn.Conv2d(down[-1], down[-1], 3, padding=1)
        self.fc = nn.Sequential(
            nn.Linear(down[-1] * 16, down[-1]), nn.LeakyReLU(0.2), nn.Linear(down[-1], 1)
        )

    def forward(self, x):
        x = self.blocks(F.leaky_relu(self.from_rgb(x), 0.2))
        return self.fc(F.leaky_relu(self.last(x), 0.2).flatten(1))


def build(cfg):
    widths = cfg.pick([256, 256, 256, 256, 128, 64, 32], [16, 16, 8])  # 4 px ... 256 px
    batch, z_dim = cfg.pick((16, 512), (2, 16))
    size = 4 * 2 ** (len(widths) - 1)
    dev = cfg.device
    if cfg.cuda:
        torch.backends.cudnn.benchmark = True

    G = Generator(widths, z_dim).to(dev, memory_format=torch.channels_last)
    D = Discriminator(widths).to(dev, memory_format=torch.channels_last)
    G_ema = copy.deepcopy(G).eval().requires_grad_(False)
    g_params, d_params, ema_params = map(list, (G.parameters(), D.parameters(), G_ema.parameters()))
    g_opt = torch.optim.Adam(g_params, lr=2e-3, betas=(0.0, 0.99), fused=True)
    d_opt = torch.optim.Adam(d_params, lr=2e-3, betas=(0.0, 0.99), fused=True)
    reals = torch.rand(64, 3, size, size, device=dev).mul_(2).sub_(1)
    reals = reals.contiguous(memory_format=torch.channels_last)

    def train_discriminator(real):
        D.requires_grad_(True)
        d_opt.zero_grad(set_to_none=True)
        with cfg.amp():
            loss_real = F.softplus(-D(real).float()).mean()
        loss_real.backward()
        free_memory()
        with cfg.amp():
            with torch.no_grad():
                fake = G(torch.randn(batch, z_dim, device=dev))
            loss_fake = F.softplus(D(fake).float()).mean()
        loss_fake.backward()
        d_opt.step()
        free_memory()
        return (loss_real + loss_fake).detach()

    def train_generator():
        D.requires_grad_(False)
        g_opt.zero_grad(set_to_none=True)
        with cfg.amp():
            fake = G(torch.randn(batch, z_dim, device=dev))
            loss = F.softplus(-D(fake).float()).mean()
        loss.backward()
        g_opt.step()
        free_memory()
        return loss.detach()

    def step(i):
        at = (i * batch) % (len(reals) - batch + 1)
        d_loss = train_discriminator(reals[at : at + batch])
        g_loss = train_generator()
        with torch.no_grad():
            torch._foreach_lerp_(ema_params, g_params, 0.001)
        return d_loss + g_loss

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
