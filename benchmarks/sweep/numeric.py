"""What is neither a product nor a convolution: recurrences, spectra, factorizations, scans, sorts, fp64, chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from cases import Case, Pool, Run, both, building, of_module, with_tf32
from harness import main
from numeric_ops import (
    decayed,
    doubling,
    forces,
    gumbel,
    hashed,
    matern,
    nucleus,
    one_by_one,
    option,
    phases,
    returns,
    spectral,
    wide_product,
)
from torch import nn
from torch.nn import functional as F

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP16, FP32, FP64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
C64 = torch.complex64
Size = tuple[int, ...]
Op = Callable[..., object]
Smooth = Callable[..., torch.Tensor]
Inputs = tuple[tuple[Size, torch.dtype], ...]

LAYERS = (
    ("LSTM", 64, 6, 512, 512, 1, False, FP16), ("LSTM", 128, 5, 1024, 1024, 1, False, FP16),
    ("LSTM", 32, 2, 300, 256, 1, True, FP32), ("LSTM", 256, 2, 80, 320, 1, False, BF16),
    ("GRU", 64, 2, 256, 512, 1, True, FP16), ("GRU", 16, 2, 128, 1024, 2, False, BF16),
    ("GRU", 512, 3, 64, 128, 1, False, FP32), ("RNN", 128, 3, 64, 256, 1, False, FP32),
    ("GRU", 32, 2, 64, 64, 1, False, FP64), ("LSTM", 2048, 2, 8, 64, 1, False, FP32),
)  # fmt: skip
"""Batch, length, features in and out, layers, both ways. Short: some launch kernels a position."""
CELLS = (
    ("LSTMCell", 256, 256, FP32), ("LSTMCell", 4096, 512, BF16), ("GRUCell", 128, 512, FP32),
    ("GRUCell", 2048, 1024, FP16), ("RNNCell", 512, 256, FP32),
)  # fmt: skip
CHOLESKY = (
    ((2048, 2048), FP32), ((1024, 1024), FP64), ((512, 64, 64), FP32), ((4096, 16, 16), FP32),
    ((64, 128, 128), FP64),
)  # fmt: skip
TRIANGLES = (
    ((2048, 2048), 256, FP32), ((1024, 1024), 1024, FP64), ((2000, 2000), 1, FP32), ((512, 64, 64), 8, FP32),
    ((4096, 16, 16), 16, FP64),
)  # fmt: skip
SOLVED = (
    ((1024, 1024), 64, FP64), ((2048, 2048), 1, FP32), ((512, 512), 512, FP32), ((512, 32, 32), 1, FP64),
)  # fmt: skip
FACTORED: dict[str, tuple[Op, Inputs]] = {
    "inverse": (torch.linalg.inv, (((4096, 4, 4), FP32), ((256, 64, 64), FP32), ((1024, 1024), FP32))),
    "lu": (torch.linalg.lu_factor, (((1024, 1024), FP32), ((512, 512), FP64), ((1024, 16, 16), FP32))),
    "determinant": (torch.linalg.slogdet, (((8192, 8, 8), FP32),)),
    "eigh": (torch.linalg.eigh, (((4096, 3, 3), FP32), ((1024, 16, 16), FP32), ((256, 32, 32), FP64))),
    "svd": (torch.linalg.svd, (((4096, 3, 3), FP32), ((64, 32, 32), FP64))),
    "triangle of qr": (partial(torch.linalg.qr, mode="r"), (((512, 32, 32), FP32), ((256, 16, 16), FP64))),
    "solve": (lambda a: torch.linalg.solve(a, a[..., :1]), (((8192, 6, 6), FP32), ((512, 512), FP32))),
}  # fmt: skip
"""Of symmetric positive matrices. Large eigenproblems are left to real scripts: each is thousands of launches."""
TALL = (((16384, 4), FP32), ((2048, 64), FP32))
SPECTRA: dict[str, tuple[Op, Inputs]] = {
    "fft": (torch.fft.fft, (((4096, 512), C64), ((256, 65536), C64), ((8, 1 << 20), C64), ((512, 1000), C64), ((128, 10007), C64))),
    "wide fft": (lambda x: torch.fft.fft(torch.view_as_complex(x)), (((256, 4096, 2), FP64),)),
    "rfft": (torch.fft.rfft, (((256, 4096), FP16), ((64, 16384), FP64), ((1024, 1024), FP32))),
    "ifft 2d": (torch.fft.ifft2, (((32, 320, 320), C64), ((64, 128, 128), C64))),
    "fft 3d": (torch.fft.fftn, (((96, 120, 128), C64),)),
    "rfft 2d": (torch.fft.rfft2, (((64, 3, 224, 224), FP32),)),
    "shifted": (lambda x: torch.fft.fftshift(torch.fft.fft2(torch.fft.ifftshift(x), norm="ortho")), (((16, 320, 320), C64),)),
    "cross spectrum": (lambda x: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(x).conj()), (((64, 32768), FP32),)),
}  # fmt: skip
COMPLEX: dict[str, tuple[Smooth, tuple[tuple[tuple[Size, ...], torch.dtype], ...]]] = {
    "product": (torch.mul, ((((512, 4096),) * 2, C64), (((8, 64, 65, 128), (64, 65, 1)), C64))),
    "wide product": (wide_product, ((((1024, 1024, 2),) * 2, FP64),)),
    "sum": (torch.add, ((((2048, 4096),) * 2, C64),)),
    "size": (torch.abs, ((((4096, 4096),), C64),)),
    "angle": (torch.angle, ((((16, 513, 626),), C64),)),
    "exponential": (torch.exp, ((((1024, 2048),), C64),)),
    "polar": (lambda x: torch.polar(x, x).real, ((((1024, 4096),), FP32),)),
    "conjugate product": (lambda x, y: (x * y.conj()).sum(-1), ((((4096, 1024),) * 2, C64),)),
    "square": (lambda x: x.real.square() + x.imag.square(), ((((16, 1025, 345),), C64),)),
    "matrices": (torch.matmul, ((((1024, 1024),) * 2, C64), (((256, 32, 32),) * 2, C64))),
}  # fmt: skip
DOUBLE: dict[str, tuple[Smooth, tuple[tuple[tuple[Size, ...], torch.dtype], ...]]] = {
    "add": (torch.add, ((((4096, 4096),) * 2, FP64), (((64, 1000), (1000,)), FP64))),
    "chain": (lambda a, b: torch.addcmul(a, a, b).mul(0.5) - b, ((((2048, 1024),) * 2, FP64),)),
    "tanh": (torch.tanh, ((((65536, 64),), FP64),)),
    "exponential": (torch.exp, ((((2048, 2048),), FP64),)),
    "gelu": (F.gelu, ((((8192, 512),), FP64),)),
    "softmax": (partial(F.softmax, dim=-1), ((((4096, 1000),), FP64),)),
    "layer norm": (lambda x: F.layer_norm(x, x.shape[-1:]), ((((8192, 256),), FP64),)),
    "mean": (torch.mean, ((((4096, 4096),), FP64),)),
    "sum": (partial(torch.sum, dim=0), ((((65536, 64),), FP64),)),
    "variance": (partial(torch.var, dim=1), ((((2048, 4096),), FP64),)),
    "norm": (partial(torch.linalg.vector_norm, dim=-1), ((((1 << 20, 3),), FP64),)),
    "matrices": (torch.matmul, ((((2048, 2048),) * 2, FP64), (((65536, 64), (64, 64)), FP64), (((1024, 16, 16),) * 2, FP64))),
    "distances": (lambda x, y: torch.cdist(x, y), ((((2048, 32), (4096, 32)), FP32), (((1000, 3), (1000, 3)), FP64))),
    "taxi distances": (partial(torch.cdist, p=1.0), ((((1024, 16), (1024, 16)), FP32),)),
    "matern": (matern, ((((2048, 4), (512, 4)), FP64),)),
    "forces": (forces, ((((1024, 3),), FP64),)),
    "option": (option, ((((1 << 20,),), FP64),)),
}  # fmt: skip
SCANS: dict[str, tuple[Smooth, tuple[tuple[tuple[Size, ...], torch.dtype], ...]]] = {
    "cumsum": (partial(torch.cumsum, dim=-1), ((((4096, 4096),), FP32), (((1 << 24,),), FP32), (((64, 512),), BF16), (((2048, 2048),), FP64))),
    "cumsum of rows": (partial(torch.cumsum, dim=1), ((((16, 2048, 256),), BF16), (((4, 8192, 64),), FP32))),
    "cumprod": (lambda x: x.sigmoid().cumprod(-1), ((((8192, 192),), FP32),)),
    "logcumsumexp": (partial(torch.logcumsumexp, dim=1), ((((512, 2048),), FP32), (((16, 1024, 64),), FP32), (((256, 1024),), BF16))),
    "cummax": (lambda x: torch.cummax(x, -1).values, ((((1024, 4096),), FP32),)),
    "doubling": (doubling, ((((16, 1024, 256),) * 2, FP32),)),
    "one by one": (one_by_one, ((((64, 256, 512),) * 2, FP32), (((16, 1024, 4096),) * 2, BF16))),
    "decayed": (decayed, ((((8, 2048, 512),) * 2, FP32),)),
    "returns": (returns, ((((128, 4096),) * 2, FP32),)),
    "gumbel": (gumbel, ((((64, 32, 2048),), FP32),)),
}  # fmt: skip
ORDERED: dict[str, tuple[Op, Inputs]] = {
    "sort": (lambda x: x.sort(-1), (((1 << 24,), FP32), ((4096, 1024), FP16), ((128, 100000), FP32), ((1 << 20,), FP64))),
    "sort of rows": (lambda x: x.sort(0), (((4096, 256), FP32),)),
    "stable sort": (lambda x: x.sort(dim=-1, stable=True), (((64, 8400), BF16),)),
    "argsort": (lambda x: x.argsort(-1), (((1 << 21,), FP16),)),
    "top 50": (lambda x: x.topk(min(50, x.shape[-1]), -1), (((64, 128256), BF16),)),
    "top 1000": (lambda x: x.topk(min(1000, x.shape[-1]), -1), (((1 << 22,), FP32), ((16, 120000), FP32))),
    "top 2": (lambda x: x.topk(2, -1), (((32768, 64), FP32), ((8192, 256), BF16))),
    "kth": (lambda x: x.kthvalue(min(100, x.shape[-1]), -1), (((1024, 8192), FP32),)),
    "median": (lambda x: x.median(-1), (((4096, 512), FP32),)),
    "quantile": (lambda x: x.quantile(0.9), (((1 << 20,), FP32),)),
    "argmax": (lambda x: x.argmax(-1), (((512, 50257), BF16), ((1 << 24,), FP32))),
    "argmax of classes": (lambda x: x.argmax(1), (((8, 19, 512, 512), FP16),)),
    "histogram": (lambda x: torch.histc(x, 256, -4, 4), (((1 << 24,), FP32),)),
    "nucleus": (nucleus, (((64, 32000), BF16),)),
}  # fmt: skip
COUNTED: dict[str, tuple[Op, tuple[tuple[int, int], ...]]] = {
    "unique": (torch.unique, ((1 << 20, 50000), (1 << 22, 1000))),
    "unique and back": (partial(torch.unique, return_inverse=True, return_counts=True), ((1 << 19, 100000),)),
    "unique neighbours": (lambda at: torch.unique_consecutive(at.sort()[0]), ((1 << 20, 10000),)),
    "bincount": (lambda at: torch.bincount(at, minlength=1000), ((1 << 22, 1000), (1 << 16, 64), (1 << 24, 1 << 20))),
    "weighted bincount": (lambda at: torch.bincount(at, at.float()), ((1 << 20, 4096),)),
    "sort": (torch.sort, ((1 << 22, 1 << 20),)),
    "hash": (hashed, ((1 << 22, 1 << 20),)),
    "running count": (lambda at: (at == 3).cumsum(0), ((1 << 22, 8),)),
    "is in": (lambda at: torch.isin(at, at[:1024]), ((1 << 20, 1 << 16),)),
    "places": (lambda at: F.one_hot(at, 64).cumsum(0), ((16384, 64),)),
}  # fmt: skip
"""Whole numbers as words are spread: how many, and below what."""
CHANCE: dict[str, tuple[Op, Inputs]] = {
    "normal": (torch.randn_like, (((1 << 20,), FP32), ((64, 1 << 20), FP16), ((1 << 22,), FP64))),
    "uniform": (torch.rand_like, (((1 << 24,), FP32), ((1 << 22,), FP64))),
    "coins": (lambda x: torch.bernoulli(x.sigmoid()), (((4096, 1024), FP32), ((2048, 2048), BF16))),
    "same coins": (lambda x: torch.empty_like(x).bernoulli_(0.1), (((1 << 24,), FP32),)),
    "waiting": (lambda x: torch.empty_like(x).exponential_(), (((1024, 32000), FP32),)),
    "whole": (lambda x: torch.randint_like(x, 1000), (((1 << 22,), FP32),)),
    "order": (lambda x: torch.randperm(len(x), device=x.device), (((1 << 20,), FP32),)),
    "poisson": (lambda x: torch.poisson(x.abs() * 4), (((1 << 20,), FP32),)),
    "gamma": (lambda x: torch._standard_gamma(x.abs() + 0.5), (((1 << 20,), FP32),)),
    "cut normal": (lambda x: nn.init.trunc_normal_(torch.empty_like(x)), (((1024, 4096), FP32),)),
    "draws": (lambda x: torch.multinomial(x.exp(), 1), (((64, 32000), FP32), ((65536, 10), FP32))),
    "draws put back": (lambda x: torch.multinomial(x.exp(), 64, replacement=True), (((256, 1000), FP32), ((1, 1 << 20), FP32))),
    "draws kept": (lambda x: torch.multinomial(x.exp(), 4), (((1024, 4096), FP32),)),
}  # fmt: skip
SOUNDS = (
    (16, 65536, 1024, 256),
    (16, 480000, 400, 160),
    (32, 32768, 2048, 512),
    (8, 131072, 512, 50),
)
"""Batch, length, window, hop."""
PLACES = ((1 << 20, 1 << 22, FP32), (1000, 1 << 20, FP64), (16, 1 << 22, FP32))
"""Sorted borders and what is looked up among them."""


def alone(f: Op, size: Size, dtype: torch.dtype, p: Pool) -> Run:
    x = p.randn(*size, dtype=dtype)
    return lambda: f(x)


def learnt(f: Smooth, sizes: tuple[Size, ...], dtype: torch.dtype, p: Pool) -> Run:
    return both(p, f, *(p.leaf(*size, dtype=dtype) for size in sizes))


def spread(many: int, high: int, p: Pool, even: bool = False) -> torch.Tensor:
    """The k-th number is drawn as 1/k says, as words are, or all alike."""
    if even:
        return p.index(high, many)
    high = p.n(high)
    drawn = torch.rand(p.n(many), device=p.device).mul_(math.log(high)).exp_()
    return drawn.long().sub_(1).clamp_(0, high - 1)


def counted(f: Op, many: int, high: int, even: bool, p: Pool) -> Run:
    at = spread(many, high, p, even)
    return lambda: f(at)


def positive(size: Size, dtype: torch.dtype, p: Pool) -> torch.Tensor:
    """Symmetric positive matrices."""
    a = p.own(*size, dtype=dtype)
    return a @ a.mT / a.shape[-1] + torch.eye(a.shape[-1], dtype=dtype, device=p.device)


def factored(f: Op, size: Size, dtype: torch.dtype, p: Pool) -> Run:
    a = positive(size, dtype, p)
    return lambda: f(a)


def cholesky(size: Size, dtype: torch.dtype, checked: bool, p: Pool) -> Run:
    a = positive(size, dtype, p)
    return partial(torch.linalg.cholesky if checked else torch.linalg.cholesky_ex, a)


def likelihood(size: Size, dtype: torch.dtype, p: Pool) -> Run:
    """A Gaussian process's, with its gradient."""
    a, y = positive(size, dtype, p).requires_grad_(), p.randn(*size[:-1], 1, dtype=dtype)

    def f(a: torch.Tensor) -> torch.Tensor:
        low = torch.linalg.cholesky(a)
        off = torch.linalg.solve_triangular(low, y, upper=False)
        return off.square().sum() + low.diagonal(dim1=-2, dim2=-1).log().sum()

    return both(p, f, a)


def triangle(size: Size, columns: int, dtype: torch.dtype, how: str, learns: bool, p: Pool) -> Run:
    a, y = positive(size, dtype, p), p.randn(*size[:-1], columns, dtype=dtype)
    low = torch.linalg.cholesky(a)
    if how == "both":
        return lambda: torch.cholesky_solve(y, low)
    f = partial(torch.linalg.solve_triangular, upper=how == "upper")
    a = (low.mT.contiguous() if how == "upper" else low).requires_grad_(learns)
    return both(p, lambda a, y: f(a, y), a, y) if learns else lambda: f(a, y)


def tall(size: Size, dtype: torch.dtype, p: Pool) -> Run:
    x = p.own(*size, dtype=dtype)
    return lambda: torch.linalg.qr(x)


def orthogonal(size: Size, p: Pool) -> Run:
    """A step of Muon's iteration."""
    x = p.randn(*size, dtype=BF16)

    def run() -> torch.Tensor:
        unit = x / (x.norm() + 1e-7)
        square = unit @ unit.mT
        return 3.4445 * unit + (2.0315 * square @ square - 4.775 * square) @ unit

    return run


def recurrent(
    kind: str, batch: int, length: int, fin: int, width: int, layers: int, ways: bool,
    dtype: torch.dtype, p: Pool,
) -> Run:  # fmt: skip
    sizes = p.n(fin), p.n(width), layers
    module = getattr(nn, kind)(*sizes, batch_first=True, bidirectional=ways).to(p.device, dtype)
    x = p.leaf(batch, length, fin, dtype=dtype)
    return with_tf32(batch % 32 == 0, of_module(p, module, x))


def cell(kind: str, batch: int, width: int, dtype: torch.dtype, p: Pool) -> Run:
    module = getattr(nn, kind)(p.n(width), p.n(width)).to(p.device, dtype)
    state = () if kind == "LSTMCell" else (p.leaf(batch, width, dtype=dtype),)
    return of_module(p, module, p.leaf(batch, width, dtype=dtype), *state)


def cell_written_out(batch: int, width: int, dtype: torch.dtype, p: Pool) -> Run:
    def f(x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        enter, keep, fresh, leave = F.linear(torch.cat((x, h), 1), w).chunk(4, 1)
        c = keep.sigmoid() * c + enter.sigmoid() * fresh.tanh()
        return leave.sigmoid() * c.tanh()

    x, h, c = (p.leaf(batch, width, dtype=dtype) for _ in range(3))
    w = p.own(4, x.shape[1], 2, x.shape[1], dtype=dtype).view(4 * x.shape[1], -1)
    return both(p, f, x, h, c, w.requires_grad_())


def spectrogram(batch: int, length: int, size: int, hop: int, kind: str, p: Pool) -> Run:
    x, size = p.leaf(batch, length), p.n(size)
    hop = max(1, min(hop, size // 4))
    window = torch.hann_window(size, device=p.device)
    there = partial(torch.stft, n_fft=size, hop_length=hop, window=window, return_complex=True)
    mel = torch.rand(80, size // 2 + 1, device=p.device)

    def f(x: torch.Tensor) -> torch.Tensor:
        spectrum = there(x)
        if kind == "mel":
            return (mel @ spectrum.abs().square()).clamp(min=1e-5).log10()
        if kind == "back":
            return torch.istft(spectrum, size, hop, window=window, length=x.shape[-1])
        return spectrum.abs() if kind == "size" else torch.view_as_real(spectrum).square()

    return both(p, f, x)


def operator(p: Pool) -> Run:
    return both(p, spectral, p.leaf(16, 32, 128, 128), p.leaf(32, 32, 12, 12, dtype=C64))


def rotary(p: Pool) -> Run:
    x = p.leaf(4, 1024, 16, 64, dtype=BF16)
    angles = torch.rand(x.shape[1], 1, x.shape[-1] // 2, device=p.device)
    turn = torch.polar(torch.ones_like(angles), angles)
    return both(p, lambda x: phases(x, turn), x)


def looked_up(borders: int, many: int, dtype: torch.dtype, p: Pool) -> Run:
    edges = torch.linspace(-4, 4, p.n(borders), dtype=dtype, device=p.device)
    x = p.randn(many, dtype=dtype)
    return lambda: torch.searchsorted(edges, x, right=True)


def inverted(p: Pool) -> Run:
    """NeRF's finer samples along its rays."""
    sums = torch.rand(p.shape(8192, 64), device=p.device).cumsum(-1)
    x = torch.rand(p.shape(8192, 128), device=p.device) * sums[:, -1:]

    def run() -> torch.Tensor:
        at = torch.searchsorted(sums, x).clamp_(max=sums.shape[-1] - 1)
        return sums.gather(-1, at)

    return run


def cases() -> Iterator[Case]:
    for one in LAYERS:
        yield Case(f"{one}", partial(recurrent, *one))
    for each in CELLS:
        yield Case(f"{each}", partial(cell, *each))
    for batch, width, dtype in ((64, 512, FP32), (512, 1024, FP16)):
        yield Case(f"cell written out {batch}", partial(cell_written_out, batch, width, dtype))
    for name, table in (("spectrum", SPECTRA), ("order", ORDERED), ("chance", CHANCE)):
        for what, (f, inputs) in table.items():
            for size, dtype in inputs:
                yield Case(f"{name}: {what} {size} {dtype}", partial(alone, f, size, dtype))
    for name, smooth in (("complex", COMPLEX), ("number", DOUBLE), ("scan", SCANS)):
        for what, (g, many) in smooth.items():
            for sizes, dtype in many:
                yield Case(f"{name}: {what} {sizes} {dtype}", partial(learnt, g, sizes, dtype))
    for i, (what, (f, ranges)) in enumerate(COUNTED.items()):
        for j, (many, high) in enumerate(ranges):
            even = (i + j) % 3 == 2
            yield Case(f"counted: {what} {many} {high}", partial(counted, f, many, high, even))
    yield from matrices()
    for i, sound in enumerate(SOUNDS):
        kind = ("size", "mel", "back", "square")[i]
        yield Case(f"{kind} of windows {sound}", partial(spectrogram, *sound, kind))
    yield Case("operator", operator)
    yield Case("rotary", rotary)
    for borders, many, dtype in PLACES:
        yield Case(f"looked up {borders} {many}", partial(looked_up, borders, many, dtype))
    yield Case("inverted", inverted)


def matrices() -> Iterator[Case]:
    for what, (f, inputs) in FACTORED.items():
        for size, dtype in inputs:
            yield Case(f"{what} {size} {dtype}", partial(factored, f, size, dtype))
    for i, (size, dtype) in enumerate(CHOLESKY):
        yield Case(f"cholesky {size} {dtype}", partial(cholesky, size, dtype, i % 2 == 1))
    for size, dtype in (((256, 256), FP64), ((256, 32, 32), FP32)):
        yield Case(f"likelihood {size} {dtype}", partial(likelihood, size, dtype))
    for i, (size, columns, dtype) in enumerate(TRIANGLES):
        how, learns = ("lower", "upper")[i % 2], i % 3 == 2
        make = partial(triangle, size, columns, dtype, how, learns)
        yield Case(f"triangle {how} {size} {columns} {dtype} {learns}", make)
    for size, columns, dtype in SOLVED:
        make = partial(triangle, size, columns, dtype, "both", False)
        yield Case(f"cholesky solve {size} {columns} {dtype}", make)
    for size, dtype in TALL:
        yield Case(f"tall qr {size} {dtype}", partial(tall, size, dtype))
    yield Case("orthogonal", partial(orthogonal, (768, 3072)))


build = building("numeric", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
