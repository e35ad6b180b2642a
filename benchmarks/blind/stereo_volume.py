"""Learned stereo matching (PSMNet/StereoNet style): siamese features, concatenation volume, 3-D convs."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# H200, fp32 storage with TF32 convolutions, batch 2, crop 256x512, maxdisp 384 -> 96 planes at 1/4.
# Volume 2x64x96x64x128 fp32 = 403 MB. It is filled by 2*96-1 slice assignments; the backward of each
# (CopySlices) copies the WHOLE gradient volume: 191 x 0.81 GB / 4.1 TB/s = 38 ms, + 3 slice kernels each = 2-3 ms.
# 3-D convs at 1/8: 78 GFLOP forward, x3 = 0.24 TFLOP at ~70 TFLOP/s = 4 ms; 2-D features + refinement
# 0.14 TFLOP = 3 ms, their BN/ReLU 2 ms. Step ~50 ms: memory ~80 %, compute ~13 %.
# Host: 191 x (30 us forward + 50 us backward) + ~6 ms = ~22 ms, hidden.
TRUTH = {
    "regime": "memory",
    "cause": "cost volume filled slice by slice in place: each slice's backward copies the whole gradient volume",
    "advice": ["needless-copies"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "pin-memory",
        "flash-attention",
        "tensor-core-alignment",
        "fused-optimizer",
        "embedding-sort",
        "overlap-copies",
    ],
}


def convbn(cin, cout, k, stride, pad, dilation=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, k, stride, dilation if dilation > 1 else pad, dilation, bias=False),
        nn.BatchNorm2d(cout),
    )


def convbn_3d(cin, cout, k, stride, pad):
    return nn.Sequential(nn.Conv3d(cin, cout, k, stride, pad, bias=False), nn.BatchNorm3d(cout))


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1, dilation=1):
        super().__init__()
        self.conv1 = nn.Sequential(convbn(cin, cout, 3, stride, 1, dilation), nn.ReLU(True))
        self.conv2 = convbn(cout, cout, 3, 1, 1, dilation)
        self.down = convbn(cin, cout, 1, stride, 0) if stride > 1 or cin != cout else None

    def forward(self, x):
        out = self.conv2(self.conv1(x))
        return out + (x if self.down is None else self.down(x))


class FeatureExtraction(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.firstconv = nn.Sequential(
            convbn(3, c, 3, 2, 1), nn.ReLU(True), convbn(c, c, 3, 1, 1), nn.ReLU(True)
        )
        self.layer1 = nn.Sequential(BasicBlock(c, c), BasicBlock(c, c))
        self.layer2 = nn.Sequential(
            BasicBlock(c, 2 * c, 2), *[BasicBlock(2 * c, 2 * c) for _ in range(3)]
        )
        self.layer3 = nn.Sequential(
            BasicBlock(2 * c, 2 * c, dilation=2), BasicBlock(2 * c, 2 * c, dilation=2)
        )
        self.lastconv = nn.Sequential(
            convbn(4 * c, 2 * c, 3, 1, 1), nn.ReLU(True), nn.Conv2d(2 * c, c, 1, bias=False)
        )

    def forward(self, x):
        raw = self.layer2(self.layer1(self.firstconv(x)))
        return self.lastconv(torch.cat([raw, self.layer3(raw)], 1))


class Hourglass(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Sequential(convbn_3d(c, 2 * c, 3, 2, 1), nn.ReLU(True))
        self.conv2 = nn.Sequential(convbn_3d(2 * c, 2 * c, 3, 1, 1), nn.ReLU(True))
        self.up = nn.Sequential(
            nn.ConvTranspose3d(2 * c, c, 3, 2, 1, output_padding=1, bias=False), nn.BatchNorm3d(c)
        )

    def forward(self, x):
        return F.relu(self.up(self.conv2(self.conv1(x))) + x)


class StereoNet(nn.Module):
    def __init__(self, maxdisp, c):
        super().__init__()
        self.maxdisp = maxdisp
        self.features = FeatureExtraction(c)
        self.dres0 = nn.Sequential(
            convbn_3d(2 * c, c, 3, 2, 1), nn.ReLU(True), convbn_3d(c, c, 3, 1, 1), nn.ReLU(True)
        )
        self.dres1 = nn.Sequential(
            convbn_3d(c, c, 3, 1, 1), nn.ReLU(True), convbn_3d(c, c, 3, 1, 1)
        )
        self.dres2 = Hourglass(c)
        self.classif = nn.Sequential(
            convbn_3d(c, c, 3, 1, 1), nn.ReLU(True), nn.Conv3d(c, 1, 3, padding=1, bias=False)
        )
        self.refine = nn.Sequential(
            nn.Conv2d(4, 16, 3, padding=1),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(16, 16, 3, padding=2, dilation=2),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(16, 1, 3, padding=1),
        )
        bins = torch.arange(maxdisp // 8, dtype=torch.float32) * 8
        self.register_buffer("bins", bins.view(1, -1, 1, 1))

    def volume(self, left, right):
        b, c, h, w = left.shape
        cost = left.new_zeros(b, 2 * c, self.maxdisp // 4, h, w)
        for i in range(self.maxdisp // 4):
            if i > 0:
                cost[:, :c, i, :, i:] = left[:, :, :, i:]
                cost[:, c:, i, :, i:] = right[:, :, :, :-i]
            else:
                cost[:, :c, i] = left
                cost[:, c:, i] = right
        return cost.contiguous()

    def forward(self, left, right):
        fl, fr = self.features(torch.cat([left, right])).chunk(2)
        cost = self.dres0(self.volume(fl, fr))
        cost = self.dres1(cost) + cost
        cost = self.classif(self.dres2(cost)).squeeze(1)
        prob = F.softmax(cost, 1)
        disp = (prob * self.bins).sum(1, keepdim=True)
        disp = F.interpolate(disp, size=left.shape[-2:], mode="bilinear", align_corners=False)
        return disp, disp + self.refine(torch.cat([disp / self.maxdisp, left], 1))


def build(cfg):
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    batch, h, w, maxdisp, c = cfg.pick((2, 256, 512, 384, 32), (1, 32, 96, 64, 4))
    model = StereoNet(maxdisp, c).to(cfg.device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.999), fused=cfg.cuda)
    pairs = []
    for _ in range(3):
        texture = torch.rand(batch, 3, h, w + maxdisp // 4, device=cfg.device)
        truth = torch.rand(batch, 1, h, w, device=cfg.device) * (maxdisp // 4)
        pairs.append((texture[..., :w].contiguous(), texture[..., -w:].contiguous(), truth))

    def step(i):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 if i < 200_000 else 1e-4
        left, right, truth = pairs[i % len(pairs)]
        optimizer.zero_grad(set_to_none=True)
        coarse, fine = model(left, right)
        valid = (truth < maxdisp).float()
        n = valid.sum().clamp(min=1)
        loss = 0.7 * (F.smooth_l1_loss(coarse, truth, reduction="none") * valid).sum() / n
        loss = loss + (F.smooth_l1_loss(fine, truth, reduction="none") * valid).sum() / n
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
