"""Linear layers of known models in bf16 and fp16: three products, the bias, and what follows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from cases import Case, Pool, Run, both, building
from harness import main
from torch.nn import functional as F

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP16 = torch.bfloat16, torch.float16
Size = tuple[int, int, int]
BIASED: dict[str, tuple[Size, ...]] = {
    "vit s": ((12608, 384, 1152), (788, 384, 1536), (50432, 1536, 384)),
    "vit b": ((25216, 768, 3072), (12608, 768, 2304), (1576, 768, 768), (197, 3072, 768)),
    "vit l": ((8224, 1024, 3072), (16448, 4096, 1024), (2056, 1280, 5120)),
    "deit": ((50432, 192, 576), (12608, 768, 192), (3152, 192, 192)),
    "swin": ((65536, 96, 288), (50176, 192, 768), (12544, 768, 384), (3136, 768, 3072)),
    "bert": ((16384, 768, 3072), (4096, 768, 768), (384, 3072, 768), (8192, 384, 1536)),
    "bert large": ((8192, 1024, 1024), (2048, 4096, 1024), (1024, 1024, 4096)),
    "mixer": ((24576, 196, 384), (49152, 384, 196), (12544, 512, 2048), (6272, 3072, 768)),
    "dit": ((4096, 1152, 4608), (8192, 1152, 3456), (32, 1152, 6912), (256, 768, 4608),
            (16384, 384, 384), (8192, 1152, 32)),
    "whisper": ((12000, 512, 512), (6000, 768, 3072), (3000, 1280, 1280), (448, 1024, 4096)),
    "speech": ((3992, 512, 768), (15968, 256, 1024), (7984, 768, 32)),
    "recommender": ((65536, 512, 256), (32768, 479, 1024), (65536, 256, 64), (16384, 1024, 512),
                    (65536, 256, 1), (4096, 3456, 400), (8192, 128, 128)),
    "field": ((65536, 256, 256), (65536, 283, 128), (32768, 64, 64), (65536, 128, 3)),
    "graph": ((65536, 256, 47), (40960, 100, 256), (19717, 500, 16)),
    "policy": ((256, 256, 256), (2048, 256, 6), (4096, 512, 512), (64, 64, 64)),
    "head": ((1024, 768, 397), (256, 1536, 1000), (64, 2048, 21841), (32, 1024, 2),
             (2048, 768, 30522), (512, 768, 50265)),
    "odd": ((8191, 257, 129), (1999, 511, 513), (30000, 33, 65), (4099, 1537, 771)),
}  # fmt: skip
"""Rows, features in and out."""
BARE: dict[str, tuple[Size, ...]] = {
    "gpt head": ((4096, 768, 50257), (1024, 1600, 50257), (2048, 1024, 50304)),
    "llama 1b": ((8192, 2048, 512), (4096, 2048, 8192), (1024, 8192, 2048), (512, 2048, 128256)),
    "llama 3b": ((4096, 3072, 1024), (2048, 8192, 3072), (512, 3072, 3072)),
    "llama 8b": ((8192, 4096, 1024), (2048, 4096, 14336), (1024, 4096, 6144), (128, 14336, 4096)),
    "tinyllama": ((16384, 2048, 256), (2048, 2048, 5632), (4096, 2048, 32000)),
    "small gpt": ((32768, 288, 864), (16384, 512, 2048), (65536, 384, 65), (2048, 640, 2560)),
    "t5": ((4096, 512, 384), (16384, 1024, 512), (2048, 768, 2048), (1024, 512, 32128)),
    "expert": ((16, 1024, 3584), (37, 2048, 1408), (72, 1408, 2048), (96, 2048, 768),
               (200, 4096, 1792), (300, 768, 2048), (8192, 1024, 8), (16384, 2048, 64)),
    "whisper head": ((1792, 768, 51865),),
}  # fmt: skip
FIRST = (
    (25088, 768, 768), (50176, 588, 1024), (65536, 13, 512), (65536, 63, 256), (256, 17, 256),
    (8192, 80, 512), (16384, 16, 1152),
)  # fmt: skip
"""Layers of the data itself: no gradient of the input."""
CONV1D = (
    (16384, 768, 2304), (8192, 768, 3072), (1024, 3072, 768), (8192, 1024, 3072),
    (4096, 1280, 5120), (512, 5120, 1280), (2048, 1600, 6400), (4096, 1600, 1600),
)  # fmt: skip
"""GPT-2's: weights lie the other way round, one addmm with the bias."""
FOLLOWED = (
    ("gelu", (12608, 384, 1536)), ("gelu", (8192, 1024, 4096)), ("tanh gelu", (2048, 1152, 4608)),
    ("tanh gelu", (16384, 512, 2048)), ("relu", (65536, 512, 256)), ("relu", (512, 2048, 8192)),
    ("silu", (2048, 3072, 8192)), ("silu", (64, 256, 1152)), ("tanh", (512, 768, 768)),
)  # fmt: skip
"""An activation behind the layer as its own op."""
ADAPTERS = (
    (2048, 4096, 4096, 8), (4096, 2048, 512, 16), (1024, 4096, 14336, 64), (8192, 768, 768, 4),
    (512, 3072, 1024, 32), (16384, 1024, 4096, 16),
)  # fmt: skip
"""Rows, features in and out, rank."""
DECODED = (
    (1, 768, 2304), (1, 4096, 14336), (2, 2048, 8192), (4, 3072, 1024), (7, 5120, 1280),
    (16, 4096, 6144), (24, 1600, 6400), (32, 8192, 2048), (64, 1024, 1024), (1, 2048, 128256),
    (8, 768, 50257), (64, 1280, 51865), (16, 512, 512), (48, 14336, 4096),
)  # fmt: skip
EXPERTS = ((8, 640, 1024, 3584), (32, 80, 2048, 768), (64, 24, 1024, 512), (128, 16, 768, 256))
"""Experts, rows each, features in and out."""
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "tanh gelu": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


def linear(size: Size, dtype: torch.dtype, bias: bool, first: bool, p: Pool) -> Run:
    rows, fin, fout = size
    x = p.randn(rows, fin, dtype=dtype) if first else p.leaf(rows, fin, dtype=dtype)
    b = p.leaf(fout, dtype=dtype) if bias else None
    return both(p, F.linear, x, p.leaf(fout, fin, dtype=dtype), b)


def conv1d(size: Size, dtype: torch.dtype, p: Pool) -> Run:
    rows, fin, fout = size
    b, x, w = (p.leaf(*s, dtype=dtype) for s in ((fout,), (rows, fin), (fin, fout)))
    return both(p, torch.addmm, b, x, w)


def followed(name: str, size: Size, dtype: torch.dtype, p: Pool) -> Run:
    rows, fin, fout = size
    x, w, b = (p.leaf(*s, dtype=dtype) for s in ((rows, fin), (fout, fin), (fout,)))
    f = ACTIVATIONS[name]
    return both(p, lambda x, w, b: f(F.linear(x, w, b)), x, w, b)


def adapter(rows: int, fin: int, fout: int, rank: int, frozen: bool, p: Pool) -> Run:
    """LoRA beside its frozen layer or without it; the layer itself wants no gradient."""
    x, down, up = (p.leaf(*s, dtype=BF16) for s in ((rows, fin), (rank, fin), (fout, rank)))
    w = p.randn(fout, fin, dtype=BF16)

    def f(x: torch.Tensor, down: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        low = F.linear(F.linear(x, down), up) * 2.0
        return F.linear(x, w) + low if frozen else low

    return both(p, f, x, down, up)


def decoded(size: Size, dtype: torch.dtype, bias: bool, p: Pool) -> Run:
    """A few new positions or one observation an environment: forward only."""
    rows, fin, fout = size
    x, w = p.randn(rows, fin, dtype=dtype), p.randn(fout, fin, dtype=dtype)
    b = p.randn(fout, dtype=dtype) if bias else None
    return lambda: F.linear(x, w, b)


def experts(size: tuple[int, int, int, int], dtype: torch.dtype, p: Pool) -> Run:
    many, rows, fin, fout = size
    x, w = p.leaf(many, rows, fin, dtype=dtype), p.leaf(many, fin, fout, dtype=dtype)
    return both(p, torch.bmm, x, w)


def routed(rows: int, many: int, width: int, p: Pool) -> Run:
    """An expert's rows taken from all and its results put back, weighed."""
    x, w, gate = (p.leaf(*s, dtype=BF16) for s in ((rows, width), (width, width), (many, 1)))
    chosen = p.index(rows, many)

    def f(x: torch.Tensor, w: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x).index_add(0, chosen, F.linear(x[chosen], w) * gate)

    return both(p, f, x, w, gate)


def across(batch: int, positions: int, width: int, out: int, p: Pool) -> Run:
    """MLP-Mixer's over positions: the input is a transposed view."""
    x, w, b = (
        p.leaf(*s, dtype=BF16) for s in ((batch, positions, width), (out, positions), (out,))
    )
    return both(p, lambda x, w, b: F.linear(x.transpose(1, 2), w, b).transpose(1, 2), x, w, b)


def from_heads(batch: int, length: int, heads: int, dim: int, dtype: torch.dtype, p: Pool) -> Run:
    """The projection behind attention: heads come before positions."""
    x = p.leaf(batch, heads, length, dim, dtype=dtype)
    width = p.n(heads) * p.n(dim)
    w = p.like(torch.empty(width, width, dtype=dtype, device="meta")).requires_grad_()
    b = p.like(torch.empty(width, dtype=dtype, device="meta")).requires_grad_()
    return both(p, lambda x, w, b: F.linear(x.transpose(1, 2).flatten(2), w, b), x, w, b)


def cast(size: Size, dtype: torch.dtype, p: Pool) -> Run:
    """Under autocast: weights are fp32 and cast on the way, and so are their gradients."""
    rows, fin, fout = size
    x, w, b = p.leaf(rows, fin), p.leaf(fout, fin), p.leaf(fout)

    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        with torch.autocast(p.device.type, dtype):
            return F.linear(x, w, b)

    return both(p, f, x, w, b)


def gated(rows: int, width: int, inner: int, dtype: torch.dtype, p: Pool) -> Run:
    """Llama's two halves in one weight and their gate."""
    x, w = p.leaf(rows, width, dtype=dtype), p.leaf(2 * inner, width, dtype=dtype)

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        gate, up = F.linear(x, w).chunk(2, -1)
        return F.silu(gate) * up

    return both(p, f, x, w)


def residual(size: Size, dtype: torch.dtype, p: Pool) -> Run:
    """A whole matrix added by the product itself, as gradients are accumulated."""
    rows, fin, fout = size
    held, x = p.own(rows, fout, dtype=dtype), p.randn(rows, fin, dtype=dtype)
    w = p.randn(fout, fin, dtype=dtype)
    return lambda: held.addmm_(x, w.t(), beta=0.5, alpha=0.1)


def tied(rows: int, width: int, classes: int, p: Pool) -> Run:
    """Similarities of two towers, or codes against a table: no weight of a layer, a scale behind."""
    a, b = p.leaf(rows, width, dtype=FP16), p.leaf(classes, width, dtype=FP16)
    return both(p, lambda a, b: a @ b.t() * 0.07, a, b)


def cases() -> Iterator[Case]:
    i = 0
    for bias, table in ((True, BIASED), (False, BARE)):
        for model, sizes in table.items():
            for size in sizes:
                dtype = (BF16, FP16, BF16)[i % 3]
                yield Case(f"{model} {size} {dtype}", partial(linear, size, dtype, bias, False))
                i += 1
    for i, size in enumerate(FIRST):
        make = partial(linear, size, (FP16, BF16)[i % 2], True, True)
        yield Case(f"first {size}", make)
    for i, size in enumerate(CONV1D):
        yield Case(f"conv1d {size}", partial(conv1d, size, (BF16, FP16)[i % 2]))
    for i, (name, size) in enumerate(FOLLOWED):
        yield Case(f"{name} {size}", partial(followed, name, size, (BF16, FP16, BF16)[i % 3]))
    for i, sizes in enumerate(ADAPTERS):
        yield Case(f"adapter {sizes}", partial(adapter, *sizes, i % 3 == 1))
    for i, size in enumerate(DECODED):
        make = partial(decoded, size, (BF16, FP16)[i % 2], i % 3 == 0)
        yield Case(f"decoded {size}", make)
    for i, many in enumerate(EXPERTS):
        yield Case(f"experts {many}", partial(experts, many, (BF16, FP16)[i % 2]))
    for i, (rows, width, inner) in enumerate(
        ((2048, 4096, 7168), (4096, 2048, 5632), (256, 1024, 2816))
    ):
        yield Case(f"gated {rows} {width}", partial(gated, rows, width, inner, (BF16, FP16)[i % 2]))
    for rows, many, width in ((8192, 1024, 1024), (16384, 300, 2048)):
        yield Case(f"routed {rows} {many} {width}", partial(routed, rows, many, width))
    for shape in ((64, 196, 512, 256), (128, 196, 768, 384), (32, 96, 321, 192)):
        yield Case(f"across {shape}", partial(across, *shape))
    for i, shape in enumerate(((64, 197, 6, 64), (8, 1024, 16, 64), (2, 2048, 32, 64))):
        yield Case(f"from heads {shape}", partial(from_heads, *shape, (BF16, FP16)[i % 2]))
    for i, size in enumerate(((8192, 768, 3072), (512, 1024, 4096), (12608, 384, 384))):
        yield Case(f"autocast {size}", partial(cast, size, (BF16, FP16)[i % 2]))
    for size in ((4096, 1024, 4096), (768, 8192, 3072), (50257, 1024, 768)):
        yield Case(f"added {size}", partial(residual, size, BF16))
    for rows, width, classes in ((4096, 512, 4096), (256, 128, 65536), (16384, 256, 1024)):
        yield Case(f"tied {rows} {width} {classes}", partial(tied, rows, width, classes))


build = building("linear_half", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
