"""EfficientNetV2-S from scratch: fp16 + GradScaler, RMSprop, stochastic depth, SE, SiLU, weight EMA."""

import copy

import torch
from harness import main
from torch import nn
from torch.nn import functional as F

# H200, batch 112 at 288x288, channels_last fp16: 20 M conv outputs an image, one pass over them = 4.5 GB.
# Clear bandwidth: BN 8 passes (36 GB, 13-18 ms at 2-2.8 TB/s), SiLU 5 on 3/4 of them (17 GB, 5 ms), SE pool and scale 4 on 1/4
# (5 GB, 2 ms), drop-path and residuals (5 GB, 2 ms). Dense convs 4.8 GMAC x 6 x 112 = 3.2 TFLOP, 24-64 channels wide
# or 1x1: 10-13 ms, about half of it bytes. Depthwise 3x3 (0.6 G outputs, 3 directions) 8-10 ms. Sum 42-50 ms, ~60-65 % bandwidth.
# Host: ~2,500 launches, 20-25 ms: hidden; GradScaler's single read costs 1-2 ms; RMSprop and EMA of 22 M 0.5 ms.
# No plant; the gain left is fusing BN, SiLU and the SE scale (20-30 %).
TRUTH = {
    "regime": "memory",
    "cause": "healthy recipe; unfused BatchNorm, SiLU and SE scaling over widened maps stream from DRAM",
    "advice": ["fuse-pointwise"],
    "not_advice": [
        "dataloader-stall",
        "enable-tf32-or-amp",
        "channels-last",
        "flash-attention",
        "pin-memory",
        "tensor-core-alignment",
        "activation-checkpointing",
        "fused-optimizer",
    ],
}

# fused, expand, channels, repeats, stride
V2_S = [
    (True, 1, 24, 2, 1),
    (True, 4, 48, 4, 2),
    (True, 4, 64, 4, 2),
    (False, 4, 128, 6, 2),
    (False, 6, 160, 9, 1),
    (False, 6, 256, 15, 2),
]
TINY = [(True, 1, 8, 1, 1), (True, 2, 16, 1, 2), (False, 2, 16, 2, 2)]


def conv_bn(cin, cout, k, stride=1, groups=1, act=True):
    mods = [
        nn.Conv2d(cin, cout, k, stride, (k - 1) // 2, groups=groups, bias=False),
        nn.BatchNorm2d(cout, eps=1e-3, momentum=0.01),
    ]
    return nn.Sequential(*mods, nn.SiLU()) if act else nn.Sequential(*mods)


class SqueezeExcite(nn.Module):
    def __init__(self, c, squeezed):
        super().__init__()
        self.reduce = nn.Conv2d(c, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, c, 1)

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.expand(F.silu(self.reduce(s))))


class Block(nn.Module):
    """MBConv, or Fused-MBConv (a dense 3x3 in place of 1x1 and depthwise)."""

    def __init__(self, cin, cout, fused, expand, stride, drop):
        super().__init__()
        mid = cin * expand
        if fused and expand == 1:
            self.body = conv_bn(cin, cout, 3, stride)
        elif fused:
            self.body = nn.Sequential(
                conv_bn(cin, mid, 3, stride), conv_bn(mid, cout, 1, act=False)
            )
        else:
            self.body = nn.Sequential(
                conv_bn(cin, mid, 1),
                conv_bn(mid, mid, 3, stride, groups=mid),
                SqueezeExcite(mid, max(1, cin // 4)),
                conv_bn(mid, cout, 1, act=False),
            )
        self.residual = stride == 1 and cin == cout
        self.drop = drop

    def forward(self, x):
        y = self.body(x)
        if not self.residual:
            return y
        if self.training and self.drop > 0:
            keep = 1.0 - self.drop
            y = y * y.new_empty(y.shape[0], 1, 1, 1).bernoulli_(keep).div_(keep)
        return x + y


class EfficientNetV2(nn.Module):
    def __init__(self, stages, head, classes, drop_path=0.2, dropout=0.2):
        super().__init__()
        cin = stages[0][2]
        self.stem = conv_bn(3, cin, 3, 2)
        count, blocks = sum(n for *_, n, _ in stages), []
        for fused, expand, c, n, s in stages:
            for r in range(n):
                drop = drop_path * len(blocks) / count
                blocks.append(Block(cin, c, fused, expand, s if r == 0 else 1, drop))
                cin = c
        self.blocks = nn.Sequential(*blocks)
        self.head = conv_bn(cin, head, 1)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(head, classes)

    def forward(self, x):
        x = self.head(self.blocks(self.stem(x)))
        return self.fc(self.dropout(x.mean((2, 3))))


class ModelEma:
    def __init__(self, model, decay):
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay
        self.pairs = [(list(self.shadow.parameters()), list(model.parameters()))]
        ours = [b for b in self.shadow.buffers() if b.is_floating_point()]
        theirs = [b for b in model.buffers() if b.is_floating_point()]
        self.pairs.append((ours, theirs))

    @torch.no_grad()
    def update(self):
        for ours, theirs in self.pairs:
            torch._foreach_lerp_(ours, theirs, 1.0 - self.decay)


def build(cfg):
    device = cfg.device
    batch, res, classes = cfg.pick((112, 288, 1000), (4, 32, 10))
    stages, head = cfg.pick((V2_S, 1280), (TINY, 32))
    net = EfficientNetV2(stages, head, classes).to(device).to(memory_format=torch.channels_last)
    ema = ModelEma(net, 0.9999)
    decay = [p for p in net.parameters() if p.ndim > 1]
    plain = [p for p in net.parameters() if p.ndim <= 1]
    opt = torch.optim.RMSprop(
        [{"params": decay, "weight_decay": 1e-5}, {"params": plain, "weight_decay": 0.0}],
        lr=0.016 * batch / 256,
        alpha=0.9,
        momentum=0.9,
        eps=1e-3,
    )
    sched = torch.optim.lr_scheduler.StepLR(opt, step_size=3000, gamma=0.97)
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**14, enabled=cfg.cuda)
    half = torch.float16 if cfg.cuda else torch.bfloat16

    # A DALI-like source: decoded, cropped and normalised batches are on the device already.
    pool = [
        (
            torch.randn(batch, 3, res, res, device=device)
            .to(half)
            .contiguous(memory_format=torch.channels_last),
            torch.randint(classes, (batch,), device=device),
        )
        for _ in range(4)
    ]
    top1 = torch.zeros((), device=device)

    def step(i):
        images, labels = pool[i % len(pool)]
        if i % 2:
            images = images.flip(3)
        opt.zero_grad(set_to_none=True)
        with cfg.amp(half):
            logits = net(images)
            loss = F.cross_entropy(logits, labels, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        scaler.step(opt)
        scaler.update()
        sched.step()
        ema.update()
        top1.lerp_((logits.detach().argmax(1) == labels).float().mean(), 0.01)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
