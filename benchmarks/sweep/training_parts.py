"""What a training step does beside its layers: losses, sampling, metrics, positions, updates.

Losses of many classes and of pairs, softmax wide and narrow, norms written out, and the optimizers
on the shapes of real models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
import updates
from cases import Case, Pool, Run, both, building
from harness import main
from torch.nn import functional as F

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
Size = tuple[int, ...]
Op = Callable[..., torch.Tensor]


def classes(kind: str, rows: int, many: int, dtype: torch.dtype, p: Pool) -> Run:
    """A loss of logits, forward and backward."""
    x, y = p.leaf(rows, many, dtype=dtype), p.index(many, rows)
    other, dim = p.randn(rows, many, dtype=dtype), p.n(many)
    ignored = torch.where(p.mask(rows), y, -100)
    share = other.softmax(-1) if kind in ("soft", "distilled") else other
    weight = p.randn(many, dtype=dtype).abs()
    calls: dict[str, Op] = {
        "plain": lambda x: F.cross_entropy(x, y),
        "smooth": lambda x: F.cross_entropy(x, y, label_smoothing=0.1),
        "ignored": lambda x: F.cross_entropy(x.float(), ignored),
        "weighted": lambda x: F.cross_entropy(x, y, weight),
        "each": lambda x: F.cross_entropy(x, y, reduction="none"),
        "soft": lambda x: F.cross_entropy(x, share),
        "distilled": lambda x: F.kl_div((x / 4).log_softmax(-1), share, reduction="batchmean") * 16,
        "written out": lambda x: -x.log_softmax(-1).gather(-1, y[:, None]).mean(),
        "z": lambda x: 1e-4 * x.float().logsumexp(-1).square().mean(),
        "margin": lambda x: F.cross_entropy(64 * (x.tanh() - 0.35 * F.one_hot(y, dim)), y),
        "multi margin": lambda x: F.multi_margin_loss(x, y),
        "entropy": lambda x: (x.softmax(-1) * x.log_softmax(-1)).sum(-1),
        "chosen": lambda x: x.gather(-1, y[:, None])[:, 0] - x.logsumexp(-1),
    }
    return both(p, calls[kind], x)


CLASSES = (
    ("plain", 4096, 50257, BF16), ("plain", 8192, 32000, BF16), ("plain", 64, 100, FP32),
    ("plain", 1000000, 3, FP32), ("plain", 8192, 8192, FP32), ("smooth", 1024, 21841, FP32),
    ("smooth", 6144, 37000, FP16), ("ignored", 4096, 30522, FP16), ("ignored", 512, 151936, BF16),
    ("weighted", 65536, 19, FP32), ("each", 16384, 512, BF16), ("soft", 256, 1000, FP32),
    ("soft", 1024, 21841, FP16), ("distilled", 2048, 32000, BF16), ("written out", 8192, 1000, FP32),
    ("z", 2048, 50304, BF16), ("margin", 512, 85742, FP32), ("multi margin", 4096, 100, FP32),
    ("entropy", 16384, 18, FP32), ("chosen", 1024, 32000, FP32),
)  # fmt: skip


def contrasted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """CLIP's, from the products on."""
    at = torch.arange(len(x), device=x.device)
    return 0.5 * (F.cross_entropy(x * 14.3, at) + F.cross_entropy(x.T * 14.3, at))


def without_itself(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    itself = torch.eye(len(x), dtype=torch.bool, device=x.device)
    return (x / 0.1).masked_fill(itself, -1e4).logsumexp(-1)


def hardest(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Batch-hard triplets of a matrix of distances."""
    same = (at := torch.arange(len(x), device=x.device) // 4)[:, None] == at
    return F.relu((x * same).amax(1) - (x + 100 * same).amin(1) + 0.3)


def focal(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss, share = F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction="none"), x.sigmoid()
    return loss * (1 - share).square()


def dice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    share, y = x.sigmoid().flatten(1), y.sigmoid().flatten(1)
    return (share * y).sum(1) / (share.sum(1) + y.sum(1) + 1)


def spectra(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A vocoder's: magnitudes and their logs."""
    x, y = x.abs() + 1e-3, y.abs() + 1e-3
    return (x - y).abs() + (x.log() - y.log()).abs()


PAIRED: tuple[tuple[str, Op, Size, torch.dtype], ...] = (
    ("contrasted", contrasted, (4096, 4096), FP32), ("contrasted", contrasted, (512, 512), FP16),
    ("without itself", without_itself, (8192, 8192), FP32), ("hardest", hardest, (4096, 4096), FP32),
    ("focal", focal, (8, 76725, 80), FP32), ("dice", dice, (8, 4, 512, 512), FP32),
    ("huber", F.huber_loss, (4096, 51), FP32), ("huber", F.huber_loss, (20000000,), FP32),
    ("cosine", lambda x, y: F.cosine_similarity(x, y, -1), (65536, 256), FP32),
    ("triplet", lambda x, y: F.triplet_margin_loss(x, y, y.flip(0), reduction="none"), (8192, 128), FP32),
    ("poisson", F.poisson_nll_loss, (4096, 2000), FP32),
    ("gaussian", lambda x, y: x + y.square() * (-x).exp(), (2000000, 4), FP32),
    ("quantiles", lambda x, y: torch.maximum(0.9 * (y - x), 0.1 * (x - y)), (65536, 24), FP32),
    ("ranked", lambda x, y: F.logsigmoid(x - y), (8192, 100), FP32),
    ("tags", lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), (4096, 5000), FP32),
    ("spectra", spectra, (32, 80, 3000), FP32),
    ("barlow", lambda x, y: (x.square() * 0.005).sum() + (x.diag() - 1).square().sum(), (8192, 8192), FP32),
)  # fmt: skip


def layer_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    apart = wide - wide.mean(-1, keepdim=True)
    return w * (apart * torch.rsqrt(apart.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


def batch_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    over = tuple(range(x.dim() - 1))
    var, mean = torch.var_mean(x, over, correction=0)
    return (x - mean) * torch.rsqrt(var + 1e-5) * w


def image_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """ConvNeXt's over the channels of an image in its own layout."""
    x = x.movedim(-1, 1)
    mean = x.mean(1, keepdim=True)
    x = (x - mean) / torch.sqrt((x - mean).pow(2).mean(1, keepdim=True) + 1e-6)
    return w[:, None, None] * x


def standardized(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    var, mean = torch.var_mean(x, 0, keepdim=True)
    return (x - mean) / (var + 1e-5).sqrt() * w


NORMED: tuple[tuple[Op, Size, torch.dtype], ...] = (
    (layer_norm, (8, 2048, 4096), BF16), (rms_norm, (8192, 2048), FP32), (rms_norm, (4, 4096, 3072), BF16),
    (batch_norm, (65536, 64), FP32), (image_norm, (32, 14, 14, 384), FP16), (standardized, (2304, 512), FP32),
)  # fmt: skip
SOFTENED: tuple[tuple[str, Op, Size, torch.dtype], ...] = (
    ("softmax", lambda x: x.softmax(-1), (1000000, 4), FP32),
    ("softmax", lambda x: x.softmax(-1), (64, 250002), FP32),
    ("softmax", lambda x: x.softmax(-1), (64, 12, 197, 197), FP16),
    ("softmax", lambda x: x.softmax(-1, dtype=FP32).to(x.dtype), (2, 32, 2048, 2048), BF16),
    ("softmax", lambda x: x.softmax(-1), (8, 16, 1500, 1500), FP16),
    ("softmax", lambda x: x.softmax(1), (16, 19, 512, 512), FP32),
    ("softmax", lambda x: x.softmax(0), (8192, 64), FP32),
    ("log softmax", lambda x: x.log_softmax(-1), (262144, 17), FP32),
    ("log softmax", lambda x: x.log_softmax(-1), (800, 32, 5000), BF16),
    ("log softmax", lambda x: x.log_softmax(1), (8, 150, 128, 128), FP32),
    ("gumbel", lambda x: F.gumbel_softmax(x, 0.5), (65536, 32), FP32),
    ("hard gumbel", lambda x: F.gumbel_softmax(x, hard=True), (8192, 512), FP32),
    ("log sigmoid", F.logsigmoid, (8192, 1024), FP32),
    ("linear attention", lambda x: x.softmax(-1) * x.softmax(-2), (8, 8, 4096, 64), FP32),
)  # fmt: skip


def gumbel(x: torch.Tensor) -> torch.Tensor:
    """A word drawn without a sum over them."""
    return (x - torch.empty_like(x).exponential_().log()).argmax(-1)


def nucleus(x: torch.Tensor) -> torch.Tensor:
    """Top-p: the order of all words, their running share, one of the rest."""
    share, at = x.softmax(-1).sort(-1, descending=True)
    share = share.masked_fill(share.cumsum(-1) - share > 0.9, 0.0)
    return at.gather(-1, torch.multinomial(share, 1))


def top_k(x: torch.Tensor) -> torch.Tensor:
    value, at = x.topk(min(50, x.shape[-1]), -1)
    return at.gather(-1, torch.multinomial(value.softmax(-1), 1))


def area_under(x: torch.Tensor) -> torch.Tensor:
    """AUC: true where the score's neighbour is positive, by the order of scores."""
    true = x.roll(1) > 0
    ordered = true[x.argsort(descending=True)]
    return ((~ordered) * ordered.cumsum(0)).sum() / (true.sum() * (~true).sum())


def right_in_five(x: torch.Tensor) -> torch.Tensor:
    y = torch.arange(len(x), device=x.device) % x.shape[1]
    hit = x.topk(5, 1).indices == y[:, None]
    return torch.stack((hit[:, 0].float().mean(), hit.any(1).float().mean()))


def confusion(x: torch.Tensor) -> torch.Tensor:
    said, many = x.argmax(1).flatten(), x.shape[1]
    return torch.bincount(said * many + said.flip(0), minlength=many * many)


def calibration(x: torch.Tensor) -> torch.Tensor:
    sure, _ = x.softmax(-1).max(-1)
    part = (sure * 14.99).long()
    return torch.zeros(15, device=x.device).index_add(0, part, sure)


def thresholds(x: torch.Tensor) -> torch.Tensor:
    return (x[:, None] > torch.linspace(-3, 3, 200, device=x.device)).sum(0)


def positions(x: torch.Tensor) -> torch.Tensor:
    """The sines and cosines of the first model to have them, made anew."""
    at = torch.arange(x.shape[-2], device=x.device)[:, None].float()
    wave = torch.exp(
        torch.arange(0, x.shape[-1], 2, device=x.device) * (-math.log(1e4) / x.shape[-1])
    )
    return x + torch.stack((torch.sin(at * wave), torch.cos(at * wave)), -1).flatten(-2)


def biases(x: torch.Tensor) -> torch.Tensor:
    """ALiBi's."""
    at = torch.arange(x.shape[-1], device=x.device)
    slope = 2.0 ** -torch.arange(1, x.shape[-3] + 1, device=x.device)
    return x + slope[:, None, None] * (at - at[:, None])


def buckets(x: torch.Tensor) -> torch.Tensor:
    """T5's distances on a log scale."""
    at = torch.arange(x.shape[-1], device=x.device)
    far = (at - at[:, None]).abs()
    wide = 16 + (torch.log(far.float() / 16 + 1e-6) / math.log(8) * 16).long()
    return torch.where(far < 16, far, wide.clamp(max=31))


ALONE: tuple[tuple[str, Op, Size, torch.dtype], ...] = (
    ("nucleus", nucleus, (64, 50257), FP32), ("top k", top_k, (64, 50257), FP32),
    ("top k", top_k, (512, 32000), FP16),
    ("multinomial", lambda x: torch.multinomial(x.abs(), 1), (256, 32000), FP32),
    ("multinomial", lambda x: torch.multinomial(x.abs(), 8), (64, 10000), FP32),
    ("gumbel argmax", gumbel, (1024, 50257), FP32), ("gumbel argmax", gumbel, (16, 32000), BF16),
    ("greedy", lambda x: x.argmax(-1), (2048, 50257), FP16),
    ("bernoulli", lambda x: torch.bernoulli(x.sigmoid()), (4096, 784), FP32),
    ("area under", area_under, (1000000,), FP32), ("right in five", right_in_five, (1024, 1000), FP32),
     ("confusion", confusion, (8, 19, 512, 512), FP32),
    ("confusion", confusion, (10000, 100), FP32), ("calibration", calibration, (50000, 1000), FP32),
    ("thresholds", thresholds, (200000,), FP32),
    ("recall", lambda x: x.topk(8, 1).indices, (5000, 5000), FP32),
    ("rank", lambda x: (x > x.diag()[:, None]).sum(1), (8192, 8192), FP32),
    ("positions", positions, (32, 512, 768), FP32), ("positions", positions, (8, 2048, 1024), BF16),
    ("biases", biases, (4, 16, 1024, 1024), FP16), ("buckets", buckets, (1, 2048), FP32),
    ("perplexity", lambda x: x.float().log_softmax(-1)[:, 0].mean().exp(), (4096, 32000), BF16),
)  # fmt: skip


def paired(f: Op, size: Size, dtype: torch.dtype, p: Pool) -> Run:
    y = p.randn(*size, dtype=dtype)
    return both(p, lambda x: f(x, y), p.leaf(*size, dtype=dtype))


def softened(f: Op, size: Size, dtype: torch.dtype, p: Pool) -> Run:
    return both(p, f, p.leaf(*size, dtype=dtype))


def normed(f: Op, size: Size, dtype: torch.dtype, p: Pool) -> Run:
    return both(p, f, p.leaf(*size, dtype=dtype), p.leaf(size[-1], dtype=dtype))


def alone(f: Op, size: Size, dtype: torch.dtype, p: Pool) -> Run:
    x = p.randn(*size, dtype=dtype)
    return lambda: f(x)


def ctc(length: int, batch: int, many: int, target: int, p: Pool) -> Run:
    x, target = p.leaf(length, batch, many), min(target, p.n(length) // 2)
    words = 1 + torch.randint(x.shape[2] - 1, (x.shape[1], target), device=p.device)
    lengths = [torch.full((x.shape[1],), n, device=p.device) for n in (len(x), target)]
    return both(p, lambda x: F.ctc_loss(x.log_softmax(-1), words, *lengths, zero_infinity=True), x)


def pixels(size: Size, p: Pool) -> Run:
    x, y = p.leaf(*size), p.index(size[1], size[0], *size[2:])
    return both(p, lambda x: F.cross_entropy(x, y, ignore_index=0), x)


def cases() -> Iterator[Case]:
    yield from updates.cases()
    for given in CLASSES:
        yield Case(f"classes {given}", partial(classes, *given))
    for name, f, size, dtype in PAIRED:
        yield Case(f"{name} {size} {dtype}", partial(paired, f, size, dtype))
    for name, f, size, dtype in SOFTENED:
        yield Case(f"{name} {size} {dtype}", partial(softened, f, size, dtype))
    for f, size, dtype in NORMED:
        yield Case(f"{f.__name__} {size} {dtype}", partial(normed, f, size, dtype))
    for name, f, size, dtype in ALONE:
        yield Case(f"{name} {size} {dtype}", partial(alone, f, size, dtype))
    for sounds in ((1000, 8, 80, 120), (100, 256, 5000, 12)):
        yield Case(f"CTC {sounds}", partial(ctc, *sounds))
    for size in ((8, 19, 512, 1024), (4, 150, 160, 160)):
        yield Case(f"pixels {size}", partial(pixels, size))


build = building("training_parts", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
