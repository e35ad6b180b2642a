"""Pointwise ops, casts, broadcasts and everything that only moves numbers, from small to the DRAM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle

import torch
from cases import Case, Pool, Run, both, building
from harness import main
from torch.nn import functional as F

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
SIZES = ((8, 128, 768), (8, 512, 3072), (2, 2048, 4096), (4, 1024, 8192), (37, 1021), (512, 512))
"""Less than a wave, in the L2, and two for the DRAM; odd; small."""
Op = Callable[[torch.Tensor], torch.Tensor]
ACTIVATIONS: dict[str, Op] = {
    "gelu": F.gelu,
    "tanh gelu": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "relu": F.relu,
    "leaky relu": F.leaky_relu,
    "hardswish": F.hardswish,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "elu": F.elu,
    "mish": F.mish,
}
"""Forward and backward."""
ALONE: dict[str, Op] = {
    "exp": torch.exp,
    "pow 2": lambda x: x.pow(2),
    "pow 3": lambda x: x.pow(3),
    "pow 1.5": lambda x: x.abs().pow(1.5),
    "rsqrt": lambda x: x.abs().rsqrt(),
    "log": lambda x: x.abs().log(),
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "scaled": lambda x: x * 0.125,
    "clamp": lambda x: x.clamp(-1, 1),
    "round": torch.round,
    "compare": lambda x: x > 0,
    "is finite": torch.isfinite,
    "tril": torch.tril,
    "triu": lambda x: x.triu(1),
    "flip": lambda x: x.flip(-1),
    "roll": lambda x: x.roll(3, -1),
    "pad": lambda x: F.pad(x, (1, 1)),
    "pad rows": lambda x: F.pad(x, (0, 0, 1, 1)),
    "transposed copy": lambda x: x.transpose(-1, -2).contiguous(),
    "clone": torch.clone,
    "repeat": lambda x: x.repeat(2, *[1] * (x.dim() - 1)),
    "stack": lambda x: torch.stack((x, x)),
    "cat rows": lambda x: torch.cat((x, x, x)),
    "cat columns": lambda x: torch.cat((x, x), -1),
    "even columns": lambda x: x[..., ::2].contiguous(),
    "first half": lambda x: x.chunk(2, -1)[0].contiguous(),
    "zeros": torch.zeros_like,
    "noise": torch.randn_like,
    "uniform": torch.rand_like,
    "repeat interleave": lambda x: x.repeat_interleave(2, 0),
}
CASTS = (
    (FP32, BF16),
    (BF16, FP32),
    (FP32, FP16),
    (FP16, FP32),
    (FP32, torch.float64),
    (FP32, torch.int32),
)


def rotary(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = q.chunk(2, -1)
    return q * cos + torch.cat((-b, a), -1) * sin


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * up


def residual(x: torch.Tensor, branch: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x + branch * scale


def drop_path(x: torch.Tensor, branch: torch.Tensor) -> torch.Tensor:
    kept = torch.rand(x.shape[0], *[1] * (x.dim() - 1), device=x.device, dtype=x.dtype) < 0.9
    return x + branch * kept / 0.9


def image_noise(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """A diffusion model's: signal and noise by a scalar an image."""
    return x * t.sqrt() + torch.randn_like(x) * (1 - t).sqrt()


def alone(f: Op, size: tuple[int, ...], dtype: torch.dtype, p: Pool) -> Run:
    x = p.randn(*size, dtype=dtype)
    return lambda: f(x)


def activation(f: Op, size: tuple[int, ...], dtype: torch.dtype, p: Pool) -> Run:
    return both(p, f, p.leaf(*size, dtype=dtype))


def several(
    f: Callable[..., torch.Tensor], sizes: tuple[tuple[int, ...], ...], dtype: torch.dtype, p: Pool
) -> Run:
    """Forward and backward; extents of 1 are broadcast, and the gradient of such an input is a sum."""
    return both(p, f, *(p.leaf(*size, dtype=dtype) for size in sizes))


def cast(source: torch.dtype, target: torch.dtype, size: tuple[int, ...], p: Pool) -> Run:
    x = p.randn(*size, dtype=source)
    return lambda: x.to(target)


def to_last(size: tuple[int, ...], dtype: torch.dtype, back: bool, p: Pool) -> Run:
    layouts = (torch.contiguous_format, torch.channels_last)
    x = p.randn(*size, dtype=dtype, layout=layouts[back])
    return lambda: x.contiguous(memory_format=layouts[not back])


def heads_apart(size: tuple[int, ...], dtype: torch.dtype, p: Pool) -> Run:
    """The copy that puts heads before positions."""
    x = p.randn(*size, dtype=dtype)
    return lambda: x.permute(2, 0, 3, 1, 4).contiguous()


def masked(size: tuple[int, ...], dtype: torch.dtype, p: Pool) -> Run:
    x, hidden = p.leaf(*size, dtype=dtype), p.mask(*size[-2:])
    return both(p, lambda x: x.masked_fill(hidden, -1e4), x)


def chosen(size: tuple[int, ...], dtype: torch.dtype, p: Pool) -> Run:
    a, b, which = p.randn(*size, dtype=dtype), p.randn(*size, dtype=dtype), p.mask(*size)
    return lambda: torch.where(which, a, b)


def in_place(size: tuple[int, ...], dtype: torch.dtype, p: Pool) -> Run:
    x, a, b = p.own(*size, dtype=dtype), p.randn(*size, dtype=dtype), p.randn(*size, dtype=dtype)

    def run() -> object:
        x.mul_(0.9).add_(a, alpha=0.1).addcmul_(a, b, value=0.1)
        return x.lerp_(a, 0.01).copy_(b), x.zero_()

    return run


def unlike(size: tuple[int, ...], p: Pool) -> Run:
    """Operands of two dtypes."""
    a, b = p.randn(*size, dtype=BF16), p.randn(*size)
    return lambda: a * b


def cases() -> Iterator[Case]:
    sizes, dtypes = cycle(SIZES), cycle((BF16, FP32, FP16, BF16, FP32))
    for name, f in ACTIVATIONS.items():
        for _ in range(2):
            size, dtype = next(sizes), next(dtypes)
            yield Case(f"{name} {size} {dtype}", partial(activation, f, size, dtype))
    for name, f in ALONE.items():
        for _ in range(2):
            size, dtype = next(sizes), next(dtypes)
            yield Case(f"{name} {size} {dtype}", partial(alone, f, size, dtype))
        next(dtypes)
    for i, (source, target) in enumerate(CASTS):
        for size in (SIZES[1], SIZES[(0, 2, 3, 4, 5, 3)[i]]):
            name = f"cast {source} {target} {size}"
            yield Case(name, partial(cast, source, target, size))
    for i, size in enumerate(SIZES[:4]):
        dtype = (BF16, FP32, FP16, BF16)[i]
        row, scalar = (1, 1, size[-1]), (size[0], 1, 1)
        wanted: dict[str, tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]] = {
            "add": (torch.add, (size, size)),
            "bias": (torch.add, (size, row)),
            "swiglu": (swiglu, (size, size)),
            "residual": (residual, (size, size, row)),
            "gate of an image": (torch.mul, (size, scalar)),
        }
        for name, (call, operands) in wanted.items():
            yield Case(f"{name} {size} {dtype}", partial(several, call, operands, dtype))
        for name, make in (("masked", masked), ("where", chosen), ("in place", in_place)):
            yield Case(f"{name} {size} {dtype}", partial(make, size, dtype))
        yield Case(f"two dtypes {size}", partial(unlike, size))
    yield from of_models()


def of_models() -> Iterator[Case]:
    """What stands between the products of known models."""
    for q, dtype in (((2, 32, 2048, 128), BF16), ((8, 12, 128, 64), FP32)):
        angles = (1, 1, *q[2:])
        yield Case(f"rotary {q}", partial(several, rotary, (q, angles, angles), dtype))
    for size, dtype in (((32, 197, 768), FP16), ((32, 256, 56, 56), BF16)):
        yield Case(f"drop path {size}", partial(several, drop_path, (size, size), dtype))
    for size in ((16, 4, 64, 64), (16, 3, 512, 512)):
        noise = partial(alone, lambda x: image_noise(x, x[:, :1, :1, :1].sigmoid()), size, FP32)
        yield Case(f"noise {size}", noise)
    squeeze = ((32, 240, 28, 28), (32, 240, 1, 1))
    yield Case("squeeze and excite", partial(several, torch.mul, squeeze, FP16))
    for size, dtype in (
        ((32, 256, 56, 56), FP16),
        ((32, 3, 224, 224), FP32),
        ((4, 320, 64, 64), FP32),
    ):
        for back in (False, True):
            yield Case(f"to last {size} {back}", partial(to_last, size, dtype, back))
    for size in ((8, 512, 3, 12, 64), (4, 2048, 3, 32, 128)):
        yield Case(f"heads apart {size}", partial(heads_apart, size, BF16))
    for many in ((64, 4096), (4096, 4096)):
        dtype = torch.complex64
        yield Case(f"complex {many}", partial(several, torch.mul, (many, many), dtype))


build = building("pointwise", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
