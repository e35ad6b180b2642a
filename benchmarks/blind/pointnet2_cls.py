"""PointNet++ (single-scale grouping) shape classification, everything in plain PyTorch.

Plant: farthest-point sampling is a Python loop, 512 + 128 rounds of seven tiny kernels.
"""

# H200, batch 16 x 1024 points, fp32 with TF32 convolutions:
#   FPS: 640 rounds x 7 ops on <= 49k elements; host ~6 us an op -> 27-32 ms; the kernels themselves are
#   ~2-4 us each, grids below one wave -> launch-bound either way
#   SA1 262k x (64, 64, 128), SA2 131k x (128, 128, 256): 134 MB tensors, ~70 passes = 8 GB, 3 ms
#   ball query: (16, 512, 1024) distances, sort and masks ~1.5-2 ms; SA3, head, Adam(foreach) <1 ms
#   sum ~35 ms of which ~6 ms are real work -> overhead ~80 %

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from _common import forever, main
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "regime": "overhead",
    "cause": "launch: farthest-point sampling as a Python loop of tiny kernels",
    "advice": ["launch-bound-compile"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "enable-tf32-or-amp",
        "use-bf16",
        "channels-last",
        "pin-memory",
        "activation-checkpointing",
        "none-healthy",
    ],
}


def square_distance(a, b):
    d = -2 * torch.matmul(a, b.transpose(1, 2))
    d += (a**2).sum(-1)[:, :, None]
    d += (b**2).sum(-1)[:, None, :]
    return d


def index_points(points, idx):
    """points (B, N, C), idx (B, ...) -> (B, ..., C)"""
    b = torch.arange(points.shape[0], device=points.device)
    b = b.view(-1, *([1] * (idx.dim() - 1))).expand_as(idx)
    return points[b, idx]


@torch.no_grad()
def farthest_point_sample(xyz, npoint):
    B, N, _ = xyz.shape
    centroids = torch.zeros(B, npoint, dtype=torch.long, device=xyz.device)
    distance = torch.full((B, N), 1e10, device=xyz.device)
    farthest = torch.randint(0, N, (B, 1), device=xyz.device)
    for i in range(npoint):
        centroids[:, i : i + 1] = farthest
        centroid = xyz.gather(1, farthest.unsqueeze(-1).expand(B, 1, 3))
        dist = ((xyz - centroid) ** 2).sum(-1)
        distance = torch.minimum(distance, dist)
        farthest = distance.argmax(-1, keepdim=True)
    return centroids


@torch.no_grad()
def query_ball_point(radius, nsample, xyz, new_xyz):
    B, N, _ = xyz.shape
    S = new_xyz.shape[1]
    group_idx = torch.arange(N, device=xyz.device).view(1, 1, N).expand(B, S, N)
    far = square_distance(new_xyz, xyz) > radius**2
    group_idx = group_idx.masked_fill(far, N).sort(dim=-1)[0][:, :, :nsample]
    first = group_idx[:, :, :1].clamp(max=N - 1)
    return torch.where(group_idx == N, first, group_idx)


class SetAbstraction(nn.Module):
    def __init__(self, npoint, radius, nsample, in_channel, mlp):
        super().__init__()
        self.npoint, self.radius, self.nsample = npoint, radius, nsample
        layers, last = [], in_channel
        for out in mlp:
            layers += [nn.Conv2d(last, out, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(True)]
            last = out
        self.mlp = nn.Sequential(*layers)

    def forward(self, xyz, feats):
        if self.npoint is None:  # group all
            new_xyz = None
            grouped = torch.cat([xyz, feats], -1).unsqueeze(1)
        else:
            new_xyz = index_points(xyz, farthest_point_sample(xyz, self.npoint))
            idx = query_ball_point(self.radius, self.nsample, xyz, new_xyz)
            grouped = index_points(xyz, idx) - new_xyz.unsqueeze(2)
            if feats is not None:
                grouped = torch.cat([grouped, index_points(feats, idx)], -1)
        x = self.mlp(grouped.permute(0, 3, 2, 1).contiguous())  # B, C, nsample, S
        return new_xyz, x.max(dim=2)[0].transpose(1, 2)


class PointNet2(nn.Module):
    def __init__(self, classes, s1, s2, k1, k2, w):
        super().__init__()
        self.sa1 = SetAbstraction(s1, 0.2, k1, 6, [w, w, 2 * w])
        self.sa2 = SetAbstraction(s2, 0.4, k2, 2 * w + 3, [2 * w, 2 * w, 4 * w])
        self.sa3 = SetAbstraction(None, None, None, 4 * w + 3, [4 * w, 8 * w, 16 * w])
        self.head = nn.Sequential(
            nn.Linear(16 * w, 8 * w), nn.BatchNorm1d(8 * w), nn.ReLU(True), nn.Dropout(0.4),
            nn.Linear(8 * w, 4 * w), nn.BatchNorm1d(4 * w), nn.ReLU(True), nn.Dropout(0.4),
            nn.Linear(4 * w, classes),
        )  # fmt: skip

    def forward(self, cloud):
        xyz, normals = cloud[..., :3].contiguous(), cloud[..., 3:]
        xyz, x = self.sa1(xyz, normals)
        xyz, x = self.sa2(xyz, x)
        _, x = self.sa3(xyz, x)
        return self.head(x.squeeze(1))


def augment(cloud):
    """Random scale and shift, as the reference's provider.py does, but on the device."""
    b = cloud.shape[0]
    scale = torch.rand(b, 1, 1, device=cloud.device) * 0.45 + 0.8
    shift = torch.rand(b, 1, 3, device=cloud.device) * 0.2 - 0.1
    return torch.cat([cloud[..., :3] * scale + shift, cloud[..., 3:]], -1)


def build(cfg):
    batch, n, shapes = cfg.pick((16, 1024, 1024), (4, 64, 16))
    s1, s2, k1, k2, w = cfg.pick((512, 128, 32, 64, 64), (16, 8, 8, 8, 8))
    rng = np.random.default_rng(0)
    points = rng.standard_normal((shapes, n, 3), dtype=np.float32)
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    normals = points.copy()
    points *= rng.uniform(0.3, 1.0, (shapes, 1, 3)).astype(np.float32)
    clouds = torch.from_numpy(np.concatenate([points, normals], -1))
    labels = torch.from_numpy(rng.integers(0, 40, shapes))
    loader = DataLoader(
        TensorDataset(clouds, labels), batch, shuffle=True, drop_last=True, pin_memory=cfg.cuda
    )
    batches = forever(loader)

    model = PointNet2(40, s1, s2, k1, k2, w).to(cfg.device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2000, gamma=0.7)

    def step(i):
        cloud, target = next(batches)
        cloud = augment(cloud.to(cfg.device, non_blocking=True))
        target = target.to(cfg.device, non_blocking=True)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(cloud), target, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
