"""Points, rays, sounds, augmentations and what pictures are compared by, as their authors have them.

A part of `vision_layers.py`.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

T = torch.Tensor


def edges(x: T, w: T) -> T:
    """DGCNN's: twenty nearest points, differences to them, a convolution, the most of them."""
    b, c, many = x.shape
    inner = -2 * torch.matmul(x.transpose(2, 1), x)
    xx = (x**2).sum(1, keepdim=True)
    at = (-xx - inner - xx.transpose(2, 1)).topk(min(20, many), dim=-1)[1]
    rows = (at + torch.arange(b, device=x.device).view(-1, 1, 1) * many).view(-1)
    flat = x.transpose(2, 1).reshape(b * many, c)
    near = flat[rows].view(b, many, -1, c)
    here = flat.view(b, many, 1, c).expand_as(near)
    y = torch.cat((near - here, here), 3).permute(0, 3, 1, 2).contiguous()
    y = F.conv2d(y, torch.cat((w, w), 1)[..., None, None])
    return F.leaky_relu(y, 0.2).max(-1)[0]


def grouped(points: T, x: T, centres: T) -> T:
    """PointNet++: the first 32 points in a ball around each centre, with their features."""
    b, n, _ = points.shape
    far = torch.cdist(centres, points)
    at = torch.arange(n, device=x.device).expand_as(far)
    at = at.masked_fill(far > 0.4, n).sort(-1)[0][..., : min(32, n)]
    at = torch.where(at == n, at[..., :1], at).clamp(max=n - 1)
    one = torch.arange(b, device=x.device).view(b, 1, 1)
    return torch.cat((points[one, at] - centres[:, :, None], x[one, at]), -1).amax(2)


def farthest(points: T) -> T:
    """Four steps of the sampling of farthest points."""
    b, n, _ = points.shape
    far = torch.full((b, n), 1e10, device=points.device)
    one = torch.arange(b, device=points.device)
    at = torch.zeros_like(one)
    out = []
    for _ in range(4):
        out.append(at)
        far = torch.minimum(far, (points - points[one, at][:, None]).square().sum(-1))
        at = far.argmax(-1)
    return torch.stack(out, 1)


def pillars(x: T, w: T, at: T) -> T:
    """PointPillars: a point's layer, the most of each pillar, an image of the pillars."""
    y = F.relu(F.layer_norm(F.linear(x, w), (len(w),)))
    most = y.amax(1)
    image = torch.zeros(len(w), 512 * 512, dtype=x.dtype, device=x.device)
    return image.index_copy(1, at, most.t()).view(-1, 512, 512)


def voxels(x: T, at: T) -> T:
    """Means of the points of a voxel, given back to the points."""
    many = at.new_zeros(65536, dtype=x.dtype).index_add_(0, at, torch.ones_like(x[:, 0]))
    total = torch.zeros(65536, x.shape[1], dtype=x.dtype, device=x.device).index_add(0, at, x)
    return torch.cat((x, (total / many.clamp(min=1)[:, None])[at]), 1)


def vectors(q: T, k: T, v: T, where: T, at: T) -> T:
    """Point Transformer's attention, a share for every channel."""
    near = where[at] - where[:, None]
    place = F.pad(near, (0, q.shape[1] - near.shape[-1]))
    share = (q[:, None] - k[at] + place).softmax(1)
    return (share * (v[at] + place)).sum(1)


def chamfer(a: T, b: T) -> T:
    far = (a[:, :, None] - b[:, None]).square().sum(-1)
    return far.min(1)[0].mean() + far.min(2)[0].mean()


def lifted(x: T, depth: T, at: T) -> T:
    """Lift, splat: features times shares of depth, summed into cells seen from above."""
    volume = depth.softmax(1)[:, :, None] * x[:, None]
    flat = volume.permute(0, 1, 3, 4, 2).reshape(-1, x.shape[1])
    grid = torch.zeros(40000, x.shape[1], dtype=x.dtype, device=x.device)
    return grid.index_add(0, at.view(-1)[: len(flat)], flat[: at.numel()])


def encoded(x: T, w1: T, w2: T) -> T:
    """NeRF's waves of a place, two layers."""
    by = 2.0 ** torch.arange(10, device=x.device) * math.pi
    y = (x[..., None] * by).flatten(-2)
    y = torch.cat((x, y.sin(), y.cos()), -1)
    w = F.pad(w1, (0, y.shape[1] - w1.shape[1]))
    return F.linear(F.relu(F.linear(y, w)), w2)


def rendered(sigma: T, rgb: T, depth: T) -> T:
    """Colours along rays."""
    depth = depth.abs().cumsum(-1)
    delta = torch.cat((depth.diff(dim=-1), torch.full_like(depth[:, :1], 1e10)), -1)
    alpha = 1 - torch.exp(-F.relu(sigma) * delta)
    through = torch.cumprod(torch.cat((torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10), -1), -1)
    weight = alpha * through[:, :-1]
    return (weight[..., None] * rgb.sigmoid()).sum(-2)


def searched(depth: T, weight: T) -> T:
    """Where along its ray NeRF looks again, by what it has seen."""
    depth = depth.abs().cumsum(-1)
    share = weight.abs() + 1e-5
    cdf = F.pad((share / share.sum(-1, keepdim=True)).cumsum(-1), (1, 0))
    u = torch.rand(len(cdf), 128, device=cdf.device)
    at = torch.searchsorted(cdf, u, right=True)
    both = torch.stack(((at - 1).clamp(min=0), at.clamp(max=depth.shape[1] - 1)), -1)
    low, high = cdf.gather(1, both.flatten(1).clamp(max=cdf.shape[1] - 1)).view_as(both).unbind(-1)
    a, b = depth.gather(1, both.flatten(1)).view_as(both).unbind(-1)
    step = torch.where(high - low < 1e-5, torch.ones_like(low), high - low)
    return torch.sort(torch.cat((depth, a + (u - low) / step * (b - a)), -1), -1)[0]


def hashed(x: T, table: T) -> T:
    """A level of an Instant-NGP grid: two of its eight corners hashed, looked up, weighed."""
    at = x.sigmoid() * 512
    low = at.floor()
    part, low = at - low, low.long()
    out = torch.zeros_like(table[:1])
    for i in range(2):
        bit = (i & 1, i >> 1)
        place = (low[:, 0] + bit[0]) ^ ((low[:, 1] + bit[1]) * 2654435761)
        share = (part[:, 0] if bit[0] else 1 - part[:, 0]) * (
            part[:, 1] if bit[1] else 1 - part[:, 1]
        )
        out = out + table[(place ^ low[:, 2] * 805459861) % len(table)] * share[:, None]
    return out


def planes(x: T, a: T, b: T, c: T) -> T:
    """Features of three planes through a scene."""
    x = x.tanh()
    taken = [
        F.grid_sample(plane[None], x[None, None][..., at], align_corners=True)[0, :, 0]
        for plane, at in ((a, (0, 1)), (b, (0, 2)), (c, (1, 2)))
    ]
    return (taken[0] * taken[1] * taken[2]).t()


def splats(q: T, scale: T) -> T:
    """Gaussians' covariances of quaternions and sizes."""
    r, x, y, z = F.normalize(q, dim=-1).unbind(-1)
    turn = torch.stack((
        1 - 2 * (y * y + z * z), 2 * (x * y - r * z), 2 * (x * z + r * y),
        2 * (x * y + r * z), 1 - 2 * (x * x + z * z), 2 * (y * z - r * x),
        2 * (x * z - r * y), 2 * (y * z + r * x), 1 - 2 * (x * x + y * y),
    ), -1).view(-1, 3, 3)  # fmt: skip
    m = turn * scale.exp()[:, None]
    return m @ m.transpose(1, 2)


def harmonics(colour: T, ray: T) -> T:
    """Colours seen from a side."""
    way = F.normalize(ray, dim=-1)
    c = (
        0.282 * colour[:, 0]
        - 0.488 * way[:, 1:2] * colour[:, 1]
        + 0.488 * way[:, 2:] * colour[:, 2]
    )
    return (c + 0.5).clamp(min=0)


def melodies(x: T, bank: T) -> T:
    """Log-mel of waves, normed, with bands of time and of pitch hidden."""
    n = 2 * (bank.shape[0] - 1)
    s = torch.stft(x, n, n // 4, window=torch.hann_window(n, device=x.device), return_complex=True)
    mel = torch.matmul(s.abs().square().transpose(1, 2), bank.abs()).clamp(min=1e-10).log10()
    mel = torch.maximum(mel, mel.amax((1, 2), keepdim=True) - 8.0)
    mel = (mel - mel.mean()) / (2 * mel.std())
    t, f = (torch.arange(k, device=x.device) for k in mel.shape[1:])
    at = torch.rand(2, len(x), 1, device=x.device)
    hidden = (t > at[0] * len(t)) & (t < at[0] * len(t) + 50)
    return mel.masked_fill(hidden[..., None], 0).masked_fill((f < at[1] * 24)[:, None], 0)


def spectra(x: T, y: T) -> T:
    """Spectral convergence and log magnitudes at one resolution."""
    k = 1024 if x.shape[-1] > 1024 else 4
    w = torch.hann_window(k, device=x.device)
    a, b = (torch.stft(z, k, max(1, k // 8), window=w, return_complex=True) for z in (x, y))
    a, b = (torch.sqrt(z.real**2 + z.imag**2 + 1e-7) for z in (a, b))
    return torch.norm(b - a, p="fro") / torch.norm(b, p="fro") + F.l1_loss(a.log(), b.log())


def jittered(x: T) -> T:
    """Hue and saturation of pictures by way of HSV."""
    x = x.sigmoid()
    high, at = x.max(1)
    span = high - x.min(1)[0] + 1e-6
    r, g, b = x.unbind(1)
    hue = torch.where(
        at == 0, (g - b) / span, torch.where(at == 1, (b - r) / span + 2, (r - g) / span + 4)
    )
    hue = (hue / 6 + torch.rand(len(x), 1, 1, device=x.device).to(x.dtype) * 0.1) % 1.0
    k = 5 - 2 * torch.arange(3, device=x.device, dtype=x.dtype).view(1, 3, 1, 1)
    k = (k + hue[:, None] * 6) % 6
    return high[:, None] * (1 - (span / high)[:, None] * torch.minimum(k, 4 - k).clamp(0, 1))


def resized(x: T) -> T:
    """Each picture its own crop, turn and size."""
    angle = torch.rand(len(x), device=x.device) * 0.5
    scale = 0.3 + 0.7 * torch.rand(len(x), device=x.device)
    c, s = angle.cos() * scale, angle.sin() * scale
    off = torch.rand(2, len(x), device=x.device) * 0.2
    theta = torch.stack((c, -s, off[0], s, c, off[1]), -1).view(-1, 2, 3)
    grid = F.affine_grid(theta, x.shape, align_corners=False).to(x.dtype)
    return F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)


def posterized(x: T) -> T:
    """RandAugment's on bytes: bits dropped, the turned-over, contrast of each."""
    x = torch.where(x < 128, x, 255 - x) & 0xF0
    wide = x.float()
    low, high = wide.amin((2, 3), keepdim=True), wide.amax((2, 3), keepdim=True)
    return ((wide - low) * (255.0 / (high - low + 1e-5))).clamp_(0, 255).to(torch.uint8)


def equalized(x: T) -> T:
    """Histograms of each channel made level."""
    rows = x.flatten(0, 1).flatten(1).long()
    counts = torch.zeros(len(rows), 256, device=x.device)
    counts.scatter_add_(1, rows, torch.ones_like(rows, dtype=torch.float32))
    table = (counts.cumsum(1) * (255.0 / rows.shape[1])).to(torch.uint8)
    return table.gather(1, rows).view_as(x)


def different(x: T) -> T:
    """DiffAugment's of a GAN: brightness, saturation, contrast, a part cut out."""
    b = len(x)
    x = x + (torch.rand(b, 1, 1, 1, dtype=x.dtype, device=x.device) - 0.5)
    mean = x.mean(dim=1, keepdim=True)
    x = (x - mean) * (torch.rand(b, 1, 1, 1, dtype=x.dtype, device=x.device) * 2) + mean
    mean = x.mean(dim=[1, 2, 3], keepdim=True)
    x = (x - mean) * (torch.rand(b, 1, 1, 1, dtype=x.dtype, device=x.device) + 0.5) + mean
    kept = torch.ones_like(x[:, 0])
    kept[:, : x.shape[2] // 2, : x.shape[3] // 2] = 0
    return x * kept.unsqueeze(1)


def cut(x: T, y: T) -> tuple[T, T]:
    """CutMix with soft labels."""
    at = torch.randperm(len(x), device=x.device)
    h, w = x.shape[2] // 2, x.shape[3] // 2
    x = x.clone()
    x[:, :, h // 2 : h + h // 2, w // 2 :] = x[at, :, h // 2 : h + h // 2, w // 2 :]
    soft = torch.full((len(y), 1000), 1e-4, device=x.device).scatter_(1, y[:, None], 0.9)
    return x, soft * 0.625 + soft[at] * 0.375


def covaried(a: T, b: T) -> T:
    """VICReg's three terms, the spread of one view."""
    near = F.mse_loss(a, b)
    a = a - a.mean(0)
    std = F.relu(1 - torch.sqrt(a.var(0) + 1e-4)).mean()
    cov = (a.T @ a) / (len(a) - 1)
    cov = (cov.pow(2).sum() - cov.diagonal().pow(2).sum()) / cov.shape[0]
    return 25 * near + 25 * std + cov


def queued(q: T, k: T, queue: T) -> T:
    """MoCo's: one key, all of a queue."""
    q, k = F.normalize(q, dim=1), F.normalize(k, dim=1)
    near = torch.einsum("nc,nc->n", q, k)[:, None]
    said = torch.cat((near, torch.einsum("nc,kc->nk", q, queue)), 1) / 0.07
    return F.cross_entropy(said, torch.zeros(len(q), dtype=torch.long, device=q.device))


def arced(x: T, w: T, y: T) -> T:
    """ArcFace's, an angle added to the right face's."""
    cosine = F.linear(F.normalize(x), F.normalize(w)).clamp(-1 + 1e-6, 1 - 1e-6)
    wide = torch.cos(torch.acos(cosine.gather(1, y[:, None])) + 0.5)
    return F.cross_entropy(64 * cosine.scatter(1, y[:, None], wide), y)


def taught(student: T, teacher: T, centre: T) -> T:
    """DINO's: a teacher centred and sharpened."""
    soft = ((teacher - centre) / 0.04).softmax(-1).detach()
    loss = -(soft * (student / 0.1).log_softmax(-1)).sum(-1).mean()
    centre = centre * 0.9 + teacher.mean(0, keepdim=True) * 0.1
    return loss + 0 * centre.sum()


def merged(x: T, metric: T) -> T:
    """Token merging: every second token to its likest neighbour."""
    metric = metric / metric.norm(dim=-1, keepdim=True)
    a, b = metric[:, ::2], metric[:, 1::2]
    best, at = (a @ b.transpose(-1, -2)).max(-1)
    r = max(1, best.shape[1] // 8)
    order = best.argsort(-1, descending=True)[..., None]
    kept, gone = order[:, r:], order[:, :r]
    to = at[..., None].gather(1, gone).expand(-1, -1, x.shape[2])
    src, dst = x[:, ::2], x[:, 1::2]
    left = src.gather(1, kept.expand(-1, -1, x.shape[2]))
    moved = src.gather(1, gone.expand(-1, -1, x.shape[2]))
    return torch.cat((left, dst.scatter_reduce(1, to, moved, "mean")), 1)


def noised(x: T, said: T, t: T, alphas: T) -> T:
    """A diffusion's loss: noise of a step, velocity, weights by signal to noise."""
    share = alphas.sigmoid().cumprod(0)[t].view(-1, 1, 1, 1)
    noise = torch.randn_like(x)
    noisy = share.sqrt() * x + (1 - share).sqrt() * noise
    aim = share.sqrt() * noise - (1 - share).sqrt() * noisy
    ratio = share / (1 - share)
    weight = ratio.clamp(max=5) / (ratio + 1)
    return (F.mse_loss(said.float(), aim.float(), reduction="none") * weight).mean()


def guided(x: T, said: T, again: T) -> T:
    """A step of sampling, of guesses with a text and without one; the guess clipped by its largest."""
    guess = again + 7.5 * (said - again)
    clean = (x - 0.6 * guess) / 0.8
    s = clean.flatten(1).abs().amax(1).clamp(min=1.0).view(-1, 1, 1, 1)
    clean = clean.clamp(-s, s) / s
    return 0.9 * clean + 0.42 * guess + 0.1 * torch.randn_like(x)


def filtered(x: T) -> T:
    """upfirdn: zeros between pixels, a filter of four either way, every second kept."""
    b, c, h, w = x.shape
    x = F.pad(x.reshape(b, c, h, 1, w, 1), (0, 1, 0, 0, 0, 1)).reshape(b, c, 2 * h, 2 * w)
    taps = torch.full((4,), 0.5, device=x.device, dtype=x.dtype).expand(c, 1, 4)
    x = F.conv2d(F.pad(x, (2, 1, 2, 1)), taps.unsqueeze(2), groups=c)
    x = F.leaky_relu(F.conv2d(x, taps.unsqueeze(3), groups=c), 0.2) * 1.4
    return F.pad(x, (1, 1, 1, 1))[..., ::2, ::2].contiguous()


def deviated(x: T, w: T) -> T:
    """A discriminator's spread of a group of images, a map more."""
    g = min(4, len(x))
    y = x.view(g, -1, *x.shape[1:])
    y = (y - y.mean(0)).square().mean(0).add(1e-8).sqrt().mean((1, 2, 3))
    y = y.view(-1, 1, 1, 1).repeat(g, 1, *x.shape[2:])
    return F.conv2d(torch.cat((x, y), 1), F.pad(w, (0, 0, 0, 0, 0, 1)), padding=1)
