"""Heads, losses, geometry and augmentations of vision models, as their authors have them.

A part of `vision_layers.py`. Boxes are rows of centre and size, made positive where they are used.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

T = torch.Tensor


def corners(x: T) -> T:
    size = x[..., 2:].abs() / 2
    return torch.cat((x[..., :2] - size, x[..., :2] + size), -1)


def overlaps(a: T, b: T) -> tuple[T, T]:
    """Of corners that broadcast: the share two boxes have in common, and the union."""
    low, high = torch.max(a[..., :2], b[..., :2]), torch.min(a[..., 2:], b[..., 2:])
    inside = (high - low).clamp(min=0).prod(-1)
    whole = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - inside
    return inside / (whole + 1e-7), whole


def retina(said: T, off: T, y: T, boxes: T) -> T:
    """Focal loss of all anchors and a smooth distance of those that hold something."""
    truth = F.one_hot(y, said.shape[-1]).to(said.dtype)
    share, loss = said.sigmoid(), F.binary_cross_entropy_with_logits(said, truth, reduction="none")
    right = share * truth + (1 - share) * (1 - truth)
    focal = (0.25 * truth + 0.75 * (1 - truth)) * (1 - right).pow(2.0) * loss
    near = F.smooth_l1_loss(off, boxes, beta=1 / 9, reduction="none").sum(-1) * (y > 0)
    return (focal.sum() + near.sum()) / (y > 0).sum().clamp(min=1)


def matched(anchors: T, truth: T) -> T:
    """Which of an image's boxes each anchor is for, and the offsets to it."""
    share, _ = overlaps(corners(truth)[:, None], corners(anchors))
    best, at = share.max(0)
    low = share >= share.max(1, keepdim=True)[0] - 1e-6
    at = torch.where(low.any(0) | (best > 0.5), at, torch.full_like(at, -1))
    chosen = truth[at.clamp(min=0)]
    size = anchors[:, 2:].abs() + 0.1
    off = torch.cat(((chosen - anchors)[:, :2] / size, (chosen[:, 2:].abs() / size).log1p()), 1)
    return torch.where(at[:, None] >= 0, off, 0.0)


def distributed(x: T, y: T) -> T:
    """YOLOv8's sides of a box as expected values and the loss of their distributions."""
    b, a, _ = x.shape
    bins = x.shape[2] // 4
    sides = x.view(b, a, 4, bins).softmax(3).matmul(torch.arange(bins, device=x.device).to(x.dtype))
    left = (y.abs() * 2).clamp(0, bins - 1.01)
    at = left.long()
    each = F.cross_entropy(x.view(-1, bins), at.view(-1), reduction="none").view_as(left)
    return (each * (at + 1 - left)).mean() + F.l1_loss(sides, left)


def distant(x: T, y: T) -> T:
    """Distance IoU: what boxes of corners share, and how far apart they are."""
    share, _ = overlaps(x, y)
    across = torch.max(x[..., 2:], y[..., 2:]) - torch.min(x[..., :2], y[..., :2])
    apart = (x[..., :2] + x[..., 2:] - y[..., :2] - y[..., 2:]).pow(2).sum(-1) / 4
    return (1 - share + apart / (across.pow(2).sum(-1) + 1e-7)).mean()


def suppressed(boxes: T, scores: T) -> T:
    """Matrix suppression of the best of a level."""
    score, at = scores.sigmoid().topk(min(1000, len(scores)))
    box = corners(boxes[at])
    share = overlaps(box[:, None], box)[0].triu(diagonal=1)
    most = share.max(0)[0]
    return score * torch.exp(-2 * (share**2 - most[:, None] ** 2)).min(0)[0]


def peaks(heat: T, size: T) -> T:
    """CenterNet's decoding."""
    share = heat.sigmoid()
    share = share * (F.max_pool2d(share, 3, 1, 1) == share)
    h, w = share.shape[2:]
    score, at = share.flatten(1).topk(min(100, h * w))
    at = at % (h * w)
    near = size.flatten(2).gather(2, at[:, None].expand(-1, size.shape[1], -1))
    return torch.cat(((at % w)[:, None] + near[:, :2], score[:, None]), 1)


def hardest(said: T, y: T) -> T:
    """SSD's three hardest of the background for one that holds something."""
    loss = F.cross_entropy(said.flatten(0, 1), y.flatten(), reduction="none").view_as(y)
    held = y < 3
    _, order = loss.detach().masked_fill(held, 0).sort(1, descending=True)
    _, rank = order.sort(1)
    kept = held | (rank < 3 * held.sum(1, keepdim=True))
    return (loss * kept).sum() / held.sum()


def costs(said: T, boxes: T, y: T, truth: T) -> T:
    """DETR's matrix for the matching of queries."""
    share = said.flatten(0, 1).softmax(-1)
    out = boxes.flatten(0, 1)
    a, b = corners(out)[:, None], corners(truth)
    iou, whole = overlaps(a, b)
    around = (torch.max(a[..., 2:], b[..., 2:]) - torch.min(a[..., :2], b[..., :2])).prod(-1)
    giou = iou - (around - whole) / around
    return 5 * torch.cdist(out, truth, p=1) - share[:, y] - 2 * giou


def pooled(x: T, boxes: T) -> T:
    """ROI align by sampling: a grid of 14 a box, averaged by four."""
    k = torch.linspace(-1, 1, 14, device=x.device)
    each = boxes.view(len(x), -1, 4).tanh()
    grid = each[..., None, None, :2] + 0.2 * each[..., None, None, 2:] * torch.stack(
        torch.meshgrid(k, k, indexing="xy"), -1
    )
    y = F.grid_sample(x, grid.flatten(1, 2).to(x.dtype), align_corners=False)
    y = y.view(len(x), x.shape[1], -1, 14, 14).transpose(1, 2).flatten(0, 1)
    return F.avg_pool2d(y, 2)


def deformed(x: T, off: T, mask: T, w: T) -> T:
    """Deformable convolution: nine places a pixel, sampled, weighed, multiplied."""
    b, c, h, wide = x.shape
    many = mask.shape[1]
    theta = torch.eye(2, 3, device=x.device).expand(b, 2, 3)
    base = F.affine_grid(theta, [b, c, h, wide], align_corners=False)
    grid = base[:, None] + 0.05 * off.permute(0, 1, 3, 4, 2)
    taken = F.grid_sample(x, grid.flatten(1, 2), padding_mode="zeros", align_corners=False)
    taken = taken.view(b, c, many, h, wide) * mask.sigmoid()[:, None]
    return torch.einsum("bckhw,ock->bohw", taken, w)


def multiscale(value: T, at: T, share: T) -> T:
    """Deformable DETR's attention over one level: values of heads, places of queries."""
    b, q, heads, points, _ = at.shape
    side = math.isqrt(value.shape[1])
    v = value.view(b, -1, heads, value.shape[2] // heads)[:, : side * side]
    v = v.permute(0, 2, 3, 1).reshape(b * heads, -1, side, side)
    grid = (2 * at.sigmoid() - 1).transpose(1, 2).flatten(0, 1)
    y = F.grid_sample(v, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    w = share.softmax(-1).transpose(1, 2).reshape(b * heads, 1, q, points)
    return (y * w).sum(-1).view(b, -1, q).transpose(1, 2)


def masks(queries: T, pixels: T, truth: T) -> T:
    """MaskFormer's: products of queries and pixels, dice and binary cross entropy of them."""
    x = torch.einsum("bqc,bchw->bqhw", queries, pixels).flatten(2)
    y = (truth.flatten(2) > 0).to(x.dtype)
    share = x.sigmoid()
    dice = 1 - (2 * (share * y).sum(-1) + 1) / (share.sum(-1) + y.sum(-1) + 1)
    return dice.mean() + 5 * F.binary_cross_entropy_with_logits(x, y)


def mined(x: T, y: T) -> T:
    """Logits of a quarter of the side made whole, the hardest sixteenth of their losses."""
    x = F.interpolate(x.float(), scale_factor=4, mode="bilinear", align_corners=False)
    big = y.repeat_interleave(4, 1).repeat_interleave(4, 2)
    loss = F.cross_entropy(x, big, ignore_index=255, reduction="none").flatten()
    return loss.topk(loss.numel() // 16)[0].mean()


def lovasz(x: T, y: T) -> T:
    share = x.softmax(1).movedim(1, 0).flatten(1)
    truth = (y.flatten() == torch.arange(len(share), device=x.device)[:, None]).float()
    error, order = (truth - share).abs().sort(1, descending=True)
    truth = truth.gather(1, order)
    whole = truth.sum(1, keepdim=True)
    jaccard = 1 - (whole - truth.cumsum(1)) / (whole + (1 - truth).cumsum(1))
    return (error * jaccard.diff(dim=1, prepend=jaccard[:, :1])).sum(1).mean()


def uncertain(x: T, fine: T) -> T:
    """PointRend's: many places, those of the least sure logits, both maps there."""
    many = min(12544, x[0].numel() * 4)
    at = torch.rand(len(x), many, 1, 2, device=x.device, dtype=x.dtype)
    with torch.no_grad():
        said = -F.grid_sample(x, 2 * at - 1, align_corners=False)[..., 0].abs().amax(1)
        best = said.topk(many // 4, 1)[1]
        at = at.gather(1, best[..., None, None].expand(-1, -1, 1, 2))
    both = [F.grid_sample(y, 2 * at - 1, align_corners=False) for y in (x, fine)]
    return torch.cat(both, 1)


def correlated(a: T, b: T) -> T:
    """RAFT's volume of all pairs and its first pyramid."""
    n, c, h, w = a.shape
    volume = torch.matmul(a.view(n, c, h * w).transpose(1, 2), b.view(n, c, h * w))
    volume = volume.view(n * h * w, 1, h, w) / math.sqrt(c)
    return F.avg_pool2d(F.avg_pool2d(volume, 2, stride=2), 2, stride=2)


def looked_up(volume: T, flow: T) -> T:
    """RAFT's lookup of 81 places around where each pixel went."""
    d = torch.linspace(-4, 4, 9, device=volume.device)
    delta = torch.stack(torch.meshgrid(d, d, indexing="ij"), -1)
    at = flow.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2)[: len(volume)] + delta
    x, y = at.split([1, 1], dim=-1)
    h, w = volume.shape[-2:]
    grid = torch.cat((2 * x / (w - 1) - 1, 2 * y / (h - 1) - 1), -1)
    return F.grid_sample(volume, grid, align_corners=True).flatten(1)


def shifted(a: T, b: T) -> T:
    """PWC-Net's costs of a few moves."""
    h, w = a.shape[-2:]
    wide = F.pad(b, (2,) * 4)
    moves = ((0, 0), (0, 2), (2, 2), (4, 3))
    costs_ = [(a * wide[:, :, i : i + h, j : j + w]).mean(1, keepdim=True) for i, j in moves]
    return F.leaky_relu(torch.cat(costs_, 1), 0.1)


def convex(flow: T, mask: T) -> T:
    """RAFT's flow eight times larger, of nine neighbours."""
    n, _, h, w = flow.shape
    if mask.shape[1] != 576:
        mask = mask.repeat(1, 576 // mask.shape[1], 1, 1)
    share = mask.view(n, 1, 9, 8, 8, h, w).softmax(2)
    up = F.unfold(8 * flow, 3, padding=1).view(n, 2, 9, 1, 1, h, w)
    return (share * up).sum(2).permute(0, 1, 4, 2, 5, 3).reshape(n, 2, 8 * h, 8 * w)


def alike(x: T, y: T) -> T:
    """Monodepth's SSIM of three by three."""
    x, y = F.pad(x, (1,) * 4, mode="reflect"), F.pad(y, (1,) * 4, mode="reflect")
    mx, my = F.avg_pool2d(x, 3, 1), F.avg_pool2d(y, 3, 1)
    vx, vy = F.avg_pool2d(x**2, 3, 1) - mx**2, F.avg_pool2d(y**2, 3, 1) - my**2
    cov = F.avg_pool2d(x * y, 3, 1) - mx * my
    top, under = (2 * mx * my + 1e-4) * (2 * cov + 9e-4), (mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4)
    return torch.clamp((1 - top / under) / 2, 0, 1).mean(1, True)


def structural(x: T, y: T) -> T:
    """SSIM with a Gaussian of eleven."""
    g = torch.exp(-((torch.arange(11, device=x.device) - 5.0) ** 2) / 4.5)
    w = (g[:, None] * g / g.sum() ** 2).expand(x.shape[1], 1, 11, 11).contiguous().to(x.dtype)
    five = torch.cat((x, y, x * x, y * y, x * y))
    mx, my, xx, yy, xy = F.conv2d(five, w, padding=5, groups=len(w)).chunk(5)
    top = (2 * mx * my + 1e-4) * (2 * (xy - mx * my) + 9e-4)
    return 1 - (top / ((mx * mx + my * my + 1e-4) * (xx - mx * mx + yy - my * my + 9e-4))).mean()


def smooth(depth: T, image: T) -> T:
    """Depth may jump where the image does."""
    depth = depth / (depth.mean((2, 3), True) + 1e-7)
    dx = (depth[..., :-1] - depth[..., 1:]).abs()
    dy = (depth[..., :-1, :] - depth[..., 1:, :]).abs()
    ix = (image[..., :-1] - image[..., 1:]).abs().mean(1, True)
    iy = (image[..., :-1, :] - image[..., 1:, :]).abs().mean(1, True)
    return (dx * torch.exp(-ix)).mean() + (dy * torch.exp(-iy)).mean()


def perceived(x: T, y: T, w: T) -> T:
    """LPIPS of one level's features."""
    a, b = (z / (z.pow(2).sum(1, keepdim=True).sqrt() + 1e-10) for z in (x, y))
    return F.conv2d((a - b) ** 2, w[None, :, None, None].abs()).mean((2, 3))


def stereo(left: T, right: T) -> T:
    """GC-Net's volume of joined features, disparity after disparity."""
    n, c, h, w = left.shape
    far = min(24, w)
    volume = left.new_zeros(n, 2 * c, far, h, w)
    for i in range(0, far, 6):
        volume[:, :c, i, :, i:] = left[..., i:]
        volume[:, c:, i, :, i:] = right[..., : w - i]
    return volume


def disparity(cost: T, truth: T) -> T:
    """The expected disparity of a volume four times finer, and its loss."""
    cost = F.interpolate(cost, scale_factor=(2, 2, 2), mode="trilinear", align_corners=False)
    share = F.softmax(-cost.squeeze(1), 1)
    at = torch.arange(share.shape[1], device=cost.device, dtype=cost.dtype).view(1, -1, 1, 1)
    off = (share * at).sum(1)
    near = truth.abs().repeat(1, 2, 2)
    return (F.smooth_l1_loss(off, near, reduction="none") * (near < 2)).mean()


def varied(a: T, b: T, turn: T) -> T:
    """MVSNet's variance of two views over planes of depth."""
    n, c, h, w = a.shape
    theta = torch.eye(2, 3, device=a.device) + 0.05 * turn
    planes = theta.shape[0]
    grid = F.affine_grid(theta, [planes, c, h, w], align_corners=False)
    grid = grid.expand(n, planes, h, w, 2).reshape(n, planes * h, w, 2)
    moved = F.grid_sample(b, grid, align_corners=False).view(n, c, planes, h, w)
    a = a.unsqueeze(2)
    total, squares = a + moved, a**2 + moved**2
    return squares / 2 - (total / 2) ** 2
