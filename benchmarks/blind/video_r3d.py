"""Action recognition: a 3-D ResNet on 16-frame clips, augmented in the DataLoader's workers."""

from contextlib import nullcontext

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import forever, main
from torch.utils.data import DataLoader, Dataset

WORKERS = 1

# Host: a clip's augmentation (antialiased resize of 16 x 192 x 256 frames, jitter, blur, flip, back to uint8) takes 9 ms of one
#   core (measured on a CPU); 8 clips = 72 ms a batch, and there is one worker.
# H200: R3D-18, 8 clips x 40 GMAC x 6 = 2.0 TFLOP at about 250 T/s = 8 ms; BN/ReLU/adds on 8 x 16 x 56^2 x 64 (51 MB a tensor)
#   about 3 ms; SGD on 33 M weights 0.2 ms; copy 4.8 MB pinned 0.1 ms -> 12 ms of GPU work.
# Step about 72 ms, GPU waits 80 %. 8 workers (9 ms a batch) bring the step to 12 to 16 ms.
TRUTH = {
    "regime": "overhead",
    "cause": "input: one worker cannot augment the clips as fast as the GPU trains on them",
    "advice": ["dataloader-stall"],
    "not_advice": [
        "launch-bound-compile",
        "fuse-pointwise",
        "enable-tf32-or-amp",
        "channels-last",
        "pin-memory",
        "fused-optimizer",
        "sync-point",
        "none-healthy",
    ],
}


class Clips(Dataset):
    def __init__(self, frames, height, width, crop, stored=12):
        g = torch.Generator().manual_seed(3)
        small = torch.rand(stored * frames, 3, 8, 8, generator=g)
        v = F.interpolate(small, size=(height, width), mode="bilinear").mul_(255).to(torch.uint8)
        self.videos = v.view(stored, frames, 3, height, width)
        self.crop = crop

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        video = self.videos[i % len(self.videos)]
        g = torch.Generator().manual_seed(i)
        r = torch.rand(6, generator=g).tolist()
        h, w = video.shape[-2:]
        s = int(h * (0.8 + 0.2 * r[0]))
        y, x = int(r[1] * (h - s)), int(r[2] * (w - s))
        clip = video[:, :, y : y + s, x : x + s].float().div_(255)
        size = (self.crop, self.crop)
        clip = F.interpolate(clip, size=size, mode="bilinear", antialias=True)
        clip = clip * (0.7 + 0.6 * r[3])  # brightness
        mean = clip.mean((1, 2, 3), keepdim=True)
        clip = (clip - mean) * (0.7 + 0.6 * r[4]) + mean  # contrast
        grey = (0.299 * clip[:, 0] + 0.587 * clip[:, 1] + 0.114 * clip[:, 2]).unsqueeze(1)
        clip = grey + (clip - grey) * (0.7 + 0.6 * r[5])  # saturation
        blur = F.avg_pool2d(clip, 3, 1, 1)
        clip = clip + 0.5 * (clip - blur)  # sharpen
        if i % 2:
            clip = clip.flip(-1)
        clip = clip.clamp_(0, 1).mul_(255).to(torch.uint8)
        return clip.transpose(0, 1).contiguous(), i % 400


class BasicBlock3d(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv3d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm3d(cout)
        self.conv2 = nn.Conv3d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm3d(cout)
        self.down = None
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(
                nn.Conv3d(cin, cout, 1, stride, bias=False), nn.BatchNorm3d(cout)
            )

    def forward(self, x):
        skip = x if self.down is None else self.down(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(x)) + skip, inplace=True)


def r3d18(width, classes):
    layers = [
        nn.Conv3d(3, width, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False),
        nn.BatchNorm3d(width),
        nn.ReLU(inplace=True),
    ]
    cin = width
    for k in range(4):
        cout = width << k
        layers += [BasicBlock3d(cin, cout, 2 if k else 1), BasicBlock3d(cout, cout, 1)]
        cin = cout
    layers += [nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(cin, classes)]
    return nn.Sequential(*layers)


def make_loader(cfg, workers, prefetch):
    frames, h, w, crop, batch = cfg.pick((16, 192, 256, 112, 8), (4, 36, 48, 32, 4))
    return DataLoader(
        Clips(frames, h, w, crop),
        batch_size=batch,
        shuffle=False,
        num_workers=workers,
        pin_memory=cfg.cuda,
        drop_last=True,
        persistent_workers=True,
        prefetch_factor=prefetch,
    )


def build(cfg, workers=WORKERS, prefetch=2):
    if cfg.tiny:
        workers = 1
    torch.backends.cudnn.benchmark = True
    loader = make_loader(cfg, workers, prefetch)
    batches = iter(forever(loader))
    model = r3d18(cfg.pick(64, 8), 400)
    model = model.to(cfg.device, memory_format=torch.channels_last_3d)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True
    )
    mean = torch.tensor([0.43, 0.39, 0.38], device=cfg.device).view(1, 3, 1, 1, 1) * 255
    std = torch.tensor([0.23, 0.22, 0.22], device=cfg.device).view(1, 3, 1, 1, 1) * 255
    correct = torch.zeros((), device=cfg.device)

    def step(i):
        clips, labels = next(batches)
        clips = clips.to(cfg.device, non_blocking=True)
        labels = labels.to(cfg.device, non_blocking=True)
        x = ((clips.float() - mean) / std).to(memory_format=torch.channels_last_3d)
        with cfg.amp() if cfg.cuda else nullcontext():  # the CPU's bf16 Conv3d is flaky
            logits = model(x)
            loss = criterion(logits, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        correct.add_((logits.argmax(1) == labels).sum())
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
