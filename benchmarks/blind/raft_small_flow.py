"""RAFT-small: optical flow with an all-pairs correlation pyramid and 12 recurrent updates, 2 pairs a GPU."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# H200, 2 pairs of 320x448, fp32 (cuDNN's TF32 default): 1/8 grid 40x56 = 2,240 cells, 4,480 rows a batch.
# Per update: lookup 4 x ~11 ops + update block ~50 = ~95 ops forward, ~130 backward; x 12 = 2,700, with sequence
# loss, encoders and AdamW ~3,500 launches. Host: 12 x 95 x 9 us = 10 ms, backward 9-10 ms, encoders, clip and
# AdamW 4 ms -> 22-27 ms. GPU: 12 x 225 x 3-4 us = 8-10 ms of kernels, nearly all < 132 blocks (convs on 4,480 rows are
# 35-70 tiles), encoders 2 ms, correlation (5 GFLOP, 40 MB volume and its 12 gradient additions) 1 ms.
# GPU idle ~50-55 %, underfilled ~25-30 %. No plant besides the batch that the recipe gives each GPU.
TRUTH = {
    "regime": "overhead",
    "cause": "launch: thousands of microsecond kernels in 12 sequential updates on a 40x56 grid",
    "advice": ["launch-bound-compile"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "pin-memory",
        "activation-checkpointing",
        "fuse-pointwise",
        "tensor-core-alignment",
    ],
}


class BottleneckBlock(nn.Module):
    def __init__(self, cin, cout, norm, stride=1):
        super().__init__()
        mid = cout // 4
        self.conv1 = nn.Conv2d(cin, mid, 1)
        self.conv2 = nn.Conv2d(mid, mid, 3, stride, 1)
        self.conv3 = nn.Conv2d(mid, cout, 1)
        self.norms = nn.ModuleList([norm(mid), norm(mid), norm(cout)])
        self.down = (
            None if stride == 1 else nn.Sequential(nn.Conv2d(cin, cout, 1, stride), norm(cout))
        )

    def forward(self, x):
        y = F.relu(self.norms[0](self.conv1(x)))
        y = F.relu(self.norms[1](self.conv2(y)))
        y = F.relu(self.norms[2](self.conv3(y)))
        return F.relu((x if self.down is None else self.down(x)) + y)


class SmallEncoder(nn.Module):
    def __init__(self, out, norm, dims=(32, 32, 64, 96)):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, dims[0], 7, 2, 3), norm(dims[0]), nn.ReLU())
        blocks = []
        for a, b, s in zip(dims, dims[1:], (1, 2, 2)):
            blocks += [BottleneckBlock(a, b, norm, s), BottleneckBlock(b, b, norm)]
        self.blocks = nn.Sequential(*blocks)
        self.out = nn.Conv2d(dims[-1], out, 1)

    def forward(self, x):
        return self.out(self.blocks(self.stem(x)))


def bilinear_sampler(img, coords):
    h, w = img.shape[-2:]
    xgrid, ygrid = coords.split([1, 1], dim=-1)
    xgrid = 2 * xgrid / (w - 1) - 1
    ygrid = 2 * ygrid / (h - 1) - 1
    return F.grid_sample(img, torch.cat([xgrid, ygrid], -1), align_corners=True)


class CorrBlock:
    def __init__(self, fmap1, fmap2, levels, radius):
        self.levels, self.radius = levels, radius
        b, c, h, w = fmap1.shape
        corr = torch.matmul(fmap1.flatten(2).transpose(1, 2), fmap2.flatten(2)) / c**0.5
        corr = corr.view(b * h * w, 1, h, w)
        self.pyramid = [corr]
        for _ in range(levels - 1):
            corr = F.avg_pool2d(corr, 2, stride=2)
            self.pyramid.append(corr)

    def __call__(self, coords):
        r = self.radius
        coords = coords.permute(0, 2, 3, 1)
        b, h, w, _ = coords.shape
        out = []
        for k, corr in enumerate(self.pyramid):
            d = torch.linspace(-r, r, 2 * r + 1, device=coords.device)
            delta = torch.stack(torch.meshgrid(d, d, indexing="ij"), -1)
            centre = coords.reshape(b * h * w, 1, 1, 2) / 2**k
            sampled = bilinear_sampler(corr, centre + delta.view(1, 2 * r + 1, 2 * r + 1, 2))
            out.append(sampled.view(b, h, w, -1))
        return torch.cat(out, -1).permute(0, 3, 1, 2).contiguous()


class ConvGRU(nn.Module):
    def __init__(self, hidden, inputs):
        super().__init__()
        self.convz = nn.Conv2d(hidden + inputs, hidden, 3, padding=1)
        self.convr = nn.Conv2d(hidden + inputs, hidden, 3, padding=1)
        self.convq = nn.Conv2d(hidden + inputs, hidden, 3, padding=1)

    def forward(self, h, x):
        hx = torch.cat([h, x], 1)
        z = torch.sigmoid(self.convz(hx))
        r = torch.sigmoid(self.convr(hx))
        q = torch.tanh(self.convq(torch.cat([r * h, x], 1)))
        return (1 - z) * h + z * q


class UpdateBlock(nn.Module):
    def __init__(self, corr_planes, hidden, context):
        super().__init__()
        self.convc1 = nn.Conv2d(corr_planes, 96, 1)
        self.convf1 = nn.Conv2d(2, 64, 7, padding=3)
        self.convf2 = nn.Conv2d(64, 32, 3, padding=1)
        self.conv = nn.Conv2d(128, 80, 3, padding=1)
        self.gru = ConvGRU(hidden, 82 + context)
        self.head1 = nn.Conv2d(hidden, 128, 3, padding=1)
        self.head2 = nn.Conv2d(128, 2, 3, padding=1)

    def forward(self, net, inp, corr, flow):
        cor = F.relu(self.convc1(corr))
        flo = F.relu(self.convf2(F.relu(self.convf1(flow))))
        motion = F.relu(self.conv(torch.cat([cor, flo], 1)))
        net = self.gru(net, torch.cat([inp, motion, flow], 1))
        return net, self.head2(F.relu(self.head1(net)))


class RAFTSmall(nn.Module):
    def __init__(self, feat, hidden, context, levels=4, radius=3):
        super().__init__()
        self.hidden, self.context, self.levels, self.radius = hidden, context, levels, radius
        self.fnet = SmallEncoder(feat, nn.InstanceNorm2d)
        self.cnet = SmallEncoder(hidden + context, nn.Identity)
        self.update = UpdateBlock(levels * (2 * radius + 1) ** 2, hidden, context)

    def forward(self, image1, image2, iters):
        f1, f2 = self.fnet(torch.cat([image1, image2])).chunk(2)
        lookup = CorrBlock(f1, f2, self.levels, self.radius)
        net, inp = self.cnet(image1).split([self.hidden, self.context], 1)
        net, inp = torch.tanh(net), torch.relu(inp)
        b, _, h, w = f1.shape
        ys, xs = torch.meshgrid(
            torch.arange(h, device=f1.device), torch.arange(w, device=f1.device), indexing="ij"
        )
        coords0 = torch.stack([xs, ys]).float().expand(b, -1, -1, -1)
        coords1, flows = coords0.clone(), []
        for _ in range(iters):
            coords1 = coords1.detach()
            corr = lookup(coords1)
            net, delta = self.update(net, inp, corr, coords1 - coords0)
            coords1 = coords1 + delta
            up = F.interpolate(
                coords1 - coords0, scale_factor=8, mode="bilinear", align_corners=True
            )
            flows.append(8 * up)
        return flows


def sequence_loss(flows, target, valid, gamma=0.8):
    loss = 0.0
    for k, flow in enumerate(flows):
        weight = gamma ** (len(flows) - k - 1)
        loss = loss + weight * (valid * (flow - target).abs()).mean()
    return loss


def build(cfg):
    batch, (h, w), iters = cfg.pick((2, (320, 448), 12), (1, (128, 160), 3))
    model = RAFTSmall(128, 96, 64).to(cfg.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4, weight_decay=1e-4, eps=1e-8)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        4e-4,
        total_steps=1_000_000,
        pct_start=0.05,
        cycle_momentum=False,
        anneal_strategy="linear",
    )
    pool = []
    for _ in range(4):
        pair = torch.randint(0, 256, (2, batch, 3, h, w), dtype=torch.uint8)
        flow = F.interpolate(
            8 * torch.randn(batch, 2, h // 32, w // 32), size=(h, w), mode="bilinear"
        )
        pool.append((pair.pin_memory(), flow.pin_memory()) if cfg.cuda else (pair, flow))
    epe_sum = torch.zeros((), device=cfg.device)

    def step(i):
        pair, flow = pool[i % len(pool)]
        pair = pair.to(cfg.device, non_blocking=True)
        flow = flow.to(cfg.device, non_blocking=True)
        image1, image2 = 2 * (pair / 255.0) - 1.0
        valid = (flow.square().sum(1, keepdim=True).sqrt() < 400).float()
        optimizer.zero_grad()
        flows = model(image1, image2, iters)
        loss = sequence_loss(flows, flow, valid)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        epe_sum.add_((flows[-1].detach() - flow).square().sum(1).sqrt().mean())
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
