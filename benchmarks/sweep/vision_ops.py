"""What vision models do to images between their convolutions, written out as their authors have it."""

from __future__ import annotations

import torch
from torch.nn import functional as F


def patches(x: torch.Tensor) -> torch.Tensor:
    """A masked autoencoder's targets."""
    n, c, h, w = x.shape
    k = 16 if h % 16 == 0 else 2
    x = x.reshape(n, c, h // k, k, w // k, k)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(n, h * w // k**2, k * k * c)


def windows(x: torch.Tensor) -> torch.Tensor:
    """Swin's shifted windows; channels behind."""
    n, h, w, c = x.shape
    k = 7 if h % 7 == 0 else 2
    x = torch.roll(x, (-(k // 2), -(k // 2)), (1, 2)).view(n, h // k, k, w // k, k, c)
    return x.transpose(2, 3).reshape(-1, k * k, c)


def merged(x: torch.Tensor) -> torch.Tensor:
    """Every second pixel of four: Swin's merging and YOLO's focus."""
    parts = (x[..., i::2, j::2] for j in (0, 1) for i in (0, 1))
    return torch.cat(tuple(parts), 1)


def swapped(x: torch.Tensor) -> torch.Tensor:
    """ShuffleNet's channels of two groups."""
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def dropped_block(x: torch.Tensor) -> torch.Tensor:
    seeds = torch.rand_like(x[:, :1]).lt(0.01).to(x.dtype)
    kept = 1 - F.max_pool2d(seeds, 7, 1, 3)
    return x * kept * (kept.numel() / kept.sum())


def depth(x: torch.Tensor, branch: torch.Tensor) -> torch.Tensor:
    kept = torch.empty(len(x), 1, 1, 1, dtype=x.dtype, device=x.device).bernoulli_(0.8)
    return x + branch * kept.div_(0.8)


def channels_first_norm(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(1, keepdim=True)
    return (x - mean) * torch.rsqrt((x - mean).pow(2).mean(1, keepdim=True) + 1e-6)


def response_norm(x: torch.Tensor) -> torch.Tensor:
    """ConvNeXt V2's."""
    size = torch.linalg.vector_norm(x, dim=(2, 3), keepdim=True)
    return x * (size / (size.mean(1, keepdim=True) + 1e-6)) + x


def unit(x: torch.Tensor) -> torch.Tensor:
    return F.normalize(x, dim=1)


def attention_map(x: torch.Tensor) -> torch.Tensor:
    """CBAM's two images of the channels."""
    return torch.cat((x.mean(1, keepdim=True), x.amax(1, keepdim=True)), 1)


def power_mean(x: torch.Tensor) -> torch.Tensor:
    """The pooling of image retrieval."""
    return F.avg_pool2d(x.clamp(min=1e-2).pow(3), x.shape[-2:]).pow(1 / 3)


def binary(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    share = x.sigmoid()
    overlap = 2 * (share * y).sum() / (share.sum() + y.sum() + 1)
    return F.binary_cross_entropy_with_logits(x, y) + 1 - overlap


def focal(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    share = x.sigmoid()
    loss = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    right = share * y + (1 - share) * (1 - y)
    return ((0.25 * y + 0.75 * (1 - y)) * loss * (1 - right) ** 2).sum()


def heat(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """CenterNet's, of a map of centres."""
    share = x.sigmoid().clamp(1e-4, 1 - 1e-4)
    near = share.log() * (1 - share).pow(2) * y.eq(1)
    return -(near + (1 - share).log() * share.pow(2) * (1 - y).pow(4)).sum()


def charbonnier(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sqrt((x - y).pow(2) + 1e-6).mean()


def variation(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x[..., 1:, :] - x[..., :-1, :]).abs().mean() + (x[..., 1:] - x[..., :-1]).abs().mean()


def depths(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Scale-invariant, of logarithms."""
    off = F.softplus(x).log() - y.add(1).log()
    return off.pow(2).mean() - 0.85 * off.mean().pow(2)


def boxes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """One minus the overlap of boxes in two rows of corners."""
    low, high = torch.maximum(x[..., :2], y[..., :2]), torch.minimum(x[..., 2:], y[..., 2:])
    inside = (high - low).clamp(min=0).prod(-1)
    areas = ((one[..., 2:] - one[..., :2]).prod(-1) for one in (x, y))
    return (1 - inside / (sum(areas) - inside + 1e-7)).mean()


def normal(bytes_: torch.Tensor) -> torch.Tensor:
    mean = torch.full((1, 3, 1, 1), 0.45, device=bytes_.device)
    return bytes_.float().div_(255).sub_(mean).div_(mean)


def mixed(x: torch.Tensor) -> torch.Tensor:
    return x * 0.7 + x[torch.randperm(len(x), device=x.device)] * 0.3


def pasted(x: torch.Tensor) -> torch.Tensor:
    h, w = x.shape[-2] // 4, x.shape[-1] // 4
    out = x.clone()
    out[..., h : 3 * h, w : 3 * w] = x.flip(0)[..., h : 3 * h, w : 3 * w]
    return out


def flipped(x: torch.Tensor) -> torch.Tensor:
    chosen = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
    return torch.where(chosen, x.flip(-1), x)


def bright(x: torch.Tensor) -> torch.Tensor:
    by = torch.rand(2, len(x), 1, 1, 1, device=x.device, dtype=x.dtype)
    x = (x * (0.6 + 0.8 * by[0])).clamp(0, 1)
    return (x * by[1] + x.mean((1, 2, 3), keepdim=True) * (1 - by[1])).clamp(0, 1)


def gray(x: torch.Tensor) -> torch.Tensor:
    one = 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:3]
    return x * 0.4 + one * 0.6


def blurred(x: torch.Tensor) -> torch.Tensor:
    taps = torch.full((x.shape[1], 1, 1, 5), 0.2, device=x.device, dtype=x.dtype)
    x = F.conv2d(F.pad(x, (2,) * 4, mode="reflect"), taps, groups=len(taps))
    return F.conv2d(x, taps.transpose(2, 3), groups=len(taps))


def moved(x: torch.Tensor) -> torch.Tensor:
    """The random shift of reinforcement learning from pixels."""
    n, _, h, w = x.shape
    big = F.pad(x.float(), (4,) * 4, mode="replicate")
    by = torch.randint(9, (n, 2), device=x.device)
    rows = by[:, :1] + torch.arange(h, device=x.device)
    columns = by[:, 1:] + torch.arange(w, device=x.device)
    one = torch.arange(n, device=x.device)[:, None, None]
    return big[one, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def erased(x: torch.Tensor) -> torch.Tensor:
    h, w = x.shape[-2:]
    at = torch.rand(4, len(x), 1, 1, 1, device=x.device)
    row, column = torch.arange(h, device=x.device)[:, None], torch.arange(w, device=x.device)
    hidden = (row > at[0] * h) & (row < (at[0] + 0.3) * h) & (column > at[1] * w)
    return x.masked_fill(hidden & (column < (at[1] + 0.3) * w), 0)
