"""Reductions over each dimension, optimizers in their three ways, recurrent layers, CTC and FFT."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle

import torch
from cases import Case, Pool, Run, both, building, of_module, with_tf32
from harness import main
from torch import nn
from torch.nn import functional as F

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
SIZES = ((16, 512, 768), (8, 1024, 4096), (32, 256, 3136), (64, 128, 32), (3, 501, 1001))
REDUCED: dict[str, Callable[..., object]] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "var": torch.var,
    "norm": torch.linalg.vector_norm,
    "amax": torch.amax,
    "argmax": torch.argmax,
    "logsumexp": torch.logsumexp,
    "max": torch.max,
    "prod": torch.prod,
}
WHOLE: dict[str, Callable[[torch.Tensor], object]] = {
    "sum": torch.sum,
    "mean of squares": lambda x: x.float().square().mean(),
    "norm": torch.linalg.vector_norm,
    "max": torch.max,
    "any nan": lambda x: x.isnan().any(),
    "standard deviation": torch.std,
    "columns and rows": lambda x: x.sum((0, 1)),
    "count": lambda x: (x > 0).sum(),
}
GPT = (
    (8192, 768),
    (1024, 768),
    *[(2304, 768), (768, 768), (3072, 768), (768, 3072), (768,), (3072,)] * 4,
)
RESNET = ((64, 3, 7, 7), *[(64,), (256, 64, 1, 1), (512, 128, 3, 3), (512,), (1024, 256, 1, 1)] * 8)
LARGE = ((16000, 1024), (4096, 4096), (4096, 1024))
SMALL = ((256, 13), (256,), (64, 256), (64,), (1, 64))
LISTS = {"gpt": GPT, "resnet": RESNET, "large": LARGE, "small": SMALL}
Parts = tuple[tuple[int, ...], ...]


def reduced(
    f: Callable[..., object], size: tuple[int, ...], dim: int, dtype: torch.dtype, p: Pool
) -> Run:
    x = p.randn(*size, dtype=dtype)
    return lambda: f(x, dim=dim)


def whole(
    f: Callable[[torch.Tensor], object], size: tuple[int, ...], dtype: torch.dtype, p: Pool
) -> Run:
    x = p.randn(*size, dtype=dtype)
    return lambda: f(x)


def parameters(parts: Parts, p: Pool, dtype: torch.dtype = FP32) -> list[torch.Tensor]:
    """With gradients of their own: some ops write to them."""
    listed = [p.own(*size, dtype=dtype).mul_(0.02).requires_grad_() for size in parts]
    for one in listed:
        one.grad = torch.randn_like(one) * 1e-4
    return listed


def optimizer(kind: str, way: str, parts: Parts, p: Pool) -> Run:
    """One step: `fused`, `foreach`, or a loop over the parameters."""
    options: dict[str, float] = {"lr": 1e-9}
    if kind == "SGD":
        options |= {"momentum": 0.9, "weight_decay": 1e-4}
    ways = {"foreach": way == "foreach"} | ({"fused": True} if way == "fused" else {})
    if way == "fused":
        ways.pop("foreach")
    return getattr(torch.optim, kind)(parameters(parts, p), **options, **ways).step


def clipped(parts: Parts, foreach: bool, p: Pool) -> Run:
    listed = parameters(parts, p)
    return lambda: nn.utils.clip_grad_norm_(listed, 1.0, foreach=foreach)


def unscaled(parts: Parts, p: Pool) -> Run:
    """GradScaler's: gradients divided and looked through for infinities."""
    grads = [one.grad for one in parameters(parts, p)]
    found, scale = torch.zeros(1, device=p.device), torch.ones(1, device=p.device)
    return lambda: torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale)


def averaged(parts: Parts, foreach: bool, p: Pool) -> Run:
    """The moving average of weights."""
    kept = [one.detach() for one in parameters(parts, p)]
    fresh = [p.like(one) for one in kept]

    def loop() -> None:
        for a, b in zip(kept, fresh, strict=True):
            a.lerp_(b, 0.001)

    return (lambda: torch._foreach_lerp_(kept, fresh, 0.001)) if foreach else loop


def zeroed(parts: Parts, p: Pool) -> Run:
    return partial(torch.optim.SGD(parameters(parts, p)).zero_grad, set_to_none=False)


def master(parts: Parts, p: Pool) -> Run:
    """Half weights written from their fp32 masters."""
    kept = [one.detach() for one in parameters(parts, p)]
    half = [one.bfloat16() for one in kept]
    return lambda: torch._foreach_copy_(half, kept)


def recurrent(
    kind: str, batch: int, length: int, width: int, layers: int, dtype: torch.dtype, p: Pool
) -> Run:
    width = p.n(width)
    # Short in full size too: a layer launches a few kernels a position.
    module = getattr(nn, kind)(width, width, layers).to(p.device, dtype)
    return with_tf32(True, of_module(p, module, p.leaf(length, batch, width, dtype=dtype)))


def cell(batch: int, width: int, p: Pool) -> Run:
    width = p.n(width)
    return of_module(p, nn.LSTMCell(width, width).to(p.device), p.leaf(batch, width))


def ctc(length: int, batch: int, classes: int, target: int, p: Pool) -> Run:
    x = p.leaf(length, batch, classes)
    length, batch, target = x.shape[0], x.shape[1], min(target, x.shape[0] // 2)
    words = 1 + torch.randint(x.shape[2] - 1, (batch, target), device=p.device)
    lengths = [torch.full((batch,), n, device=p.device) for n in (length, target)]
    return both(p, lambda x: F.ctc_loss(x.log_softmax(-1), words, *lengths), x)


def spectrum(size: tuple[int, ...], p: Pool) -> Run:
    return both(p, lambda x: torch.fft.irfft(torch.fft.rfft(x) * 0.5, x.shape[-1]), p.leaf(*size))


def spectrum_2d(size: tuple[int, ...], p: Pool) -> Run:
    return both(
        p, lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 0.5, x.shape[-2:]), p.leaf(*size)
    )


def long_filter(batch: int, channels: int, length: int, p: Pool) -> Run:
    """A state space model's convolution, through the spectrum."""
    x, k = p.leaf(batch, channels, length), p.leaf(channels, length)

    def f(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        n = 2 * x.shape[-1]
        product = torch.fft.rfft(x, n) * torch.fft.rfft(k, n)
        return torch.fft.irfft(product, n)[..., : x.shape[-1]]

    return both(p, f, x, k)


def windows(p: Pool) -> Run:
    x, window = p.randn(16, 160000), torch.hann_window(p.n(400), device=p.device)
    size = len(window)
    return lambda: torch.stft(x, size, size // 2, window=window, return_complex=True).abs()


def cases() -> Iterator[Case]:
    sizes, dtypes = cycle(SIZES), cycle((FP32, BF16, FP32, FP16))
    for name, f in REDUCED.items():
        for dim in (0, 1, 2):
            size, dtype = next(sizes), next(dtypes)
            yield Case(f"{name} {size} {dim} {dtype}", partial(reduced, f, size, dim, dtype))
        next(dtypes)
    for name, g in WHOLE.items():
        for _ in range(2):
            size, dtype = next(sizes), next(dtypes)
            yield Case(f"{name} {size} {dtype}", partial(whole, g, size, dtype))
    yield from updates()
    yield from sequences()


def updates() -> Iterator[Case]:
    """What happens to weights and gradients between steps."""
    for kind, way, name in (
        ("AdamW", "fused", "gpt"), ("AdamW", "foreach", "resnet"), ("AdamW", "loop", "large"),
        ("Adam", "fused", "resnet"), ("Adam", "foreach", "large"), ("Adam", "foreach", "small"),
        ("Adam", "fused", "large"), ("AdamW", "fused", "small"), ("SGD", "fused", "resnet"),
        ("SGD", "foreach", "gpt"), ("SGD", "loop", "small"), ("Adagrad", "foreach", "large"),
        ("Adagrad", "loop", "small"), ("RMSprop", "foreach", "resnet"),
    ):  # fmt: skip
        yield Case(f"{kind} {way} {name}", partial(optimizer, kind, way, LISTS[name]))
    for name in ("gpt", "resnet", "small"):
        yield Case(f"clip {name}", partial(clipped, LISTS[name], True))
        yield Case(f"unscale {name}", partial(unscaled, LISTS[name]))
    yield Case("clip loop", partial(clipped, LARGE, False))
    for name in ("large", "resnet"):
        yield Case(f"average {name}", partial(averaged, LISTS[name], True))
        yield Case(f"zero {name}", partial(zeroed, LISTS[name]))
        yield Case(f"master {name}", partial(master, LISTS[name]))
    yield Case("average loop", partial(averaged, SMALL, False))


def sequences() -> Iterator[Case]:
    """Recurrent layers, alignments and spectra."""
    yield Case("LSTM half", partial(recurrent, "LSTM", 64, 6, 1024, 1, FP16))
    yield Case("LSTM", partial(recurrent, "LSTM", 32, 4, 512, 2, FP32))
    yield Case("GRU", partial(recurrent, "GRU", 128, 6, 256, 1, FP32))
    for batch, width in ((64, 512), (1024, 1024)):
        yield Case(f"LSTM cell {batch}", partial(cell, batch, width))
    for length, batch, classes, target in ((400, 16, 32, 60), (150, 64, 1000, 20)):
        yield Case(f"CTC {length}", partial(ctc, length, batch, classes, target))
    for size in ((64, 16000), (16, 768, 4096), (256, 1000)):
        yield Case(f"spectrum {size}", partial(spectrum, size))
    for size in ((8, 64, 128, 128), (16, 32, 85, 85)):
        yield Case(f"spectrum 2d {size}", partial(spectrum_2d, size))
    for batch, channels, length in ((8, 256, 4096), (4, 64, 1024)):
        yield Case(f"long filter {length}", partial(long_filter, batch, channels, length))
    yield Case("windows", windows)


build = building("reduce_optim", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
