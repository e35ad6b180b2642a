"""Products in fp32 with TF32 off and on and in fp64: layers, odd batches, Grams, distances, volumes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from cases import Case, Pool, Run, both, building, with_tf32
from harness import main
from torch.nn import functional as F

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP32, FP64 = torch.bfloat16, torch.float32, torch.float64
Size = tuple[int, int, int]
LAYERS: dict[str, tuple[Size, ...]] = {
    "vit": ((6304, 384, 1152), (12608, 768, 3072), (3152, 3072, 768), (25216, 192, 576)),
    "bert": ((2048, 768, 768), (8192, 384, 1536), (1024, 4096, 1024), (512, 768, 30522)),
    "gpt": ((8192, 384, 1152), (16384, 384, 65), (2048, 1280, 5120), (1024, 768, 50257)),
    "swin": ((50176, 96, 384), (12544, 192, 192), (3136, 1536, 384)),
    "mixer": ((24576, 196, 384), (6272, 512, 2048)),
    "whisper": ((3000, 512, 2048), (448, 512, 51865)),
    "recommender": ((65536, 13, 512), (16384, 479, 1024), (65536, 256, 64), (4096, 429, 400),
                    (8192, 1024, 1), (32768, 128, 128)),
    "field": ((65536, 63, 256), (65536, 256, 256), (65536, 319, 256), (65536, 128, 3)),
    "graph": ((19717, 500, 16), (65536, 128, 40), (40960, 602, 256), (232965, 64, 41)),
    "policy": ((2048, 17, 64), (256, 376, 256), (4096, 256, 256), (16384, 512, 12)),
    "tables": ((1024, 192, 384), (8192, 54, 1024), (512, 8192, 397), (4099, 771, 129)),
    "adapter": ((4096, 1024, 8), (4096, 16, 1024)),
}  # fmt: skip
"""Rows, features in and out."""
DOUBLES = (
    (4096, 64, 64), (2048, 128, 512), (10000, 50, 50), (512, 1024, 1024), (65536, 20, 20),
    (1024, 784, 300), (3000, 257, 33),
)  # fmt: skip
SMALL = (
    (4096, 64, 64, 64), (16384, 32, 32, 32), (65536, 3, 3, 3), (32768, 4, 4, 4),
    (8192, 16, 16, 64), (2048, 128, 3, 128), (1024, 100, 7, 100), (512, 256, 5, 64),
    (10000, 21, 13, 9), (65536, 6, 6, 1), (8192, 26, 16, 26), (256, 37, 111, 53),
    (128, 400, 16, 400), (4096, 8, 128, 8), (64, 1024, 3, 1024),
)  # fmt: skip
"""Batch, M, K and N: poses, filters, fields of a recommender, graphs of a molecule."""
BATCHED64 = ((2048, 32, 32, 32), (16384, 6, 6, 6), (256, 128, 128, 128), (512, 64, 9, 64))
EINSUMS: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = (
    ("bikc,bjkc->bijc", (1, 256, 256, 32), (1, 256, 256, 32)),
    ("bsic,bsjd->bijcd", (1, 128, 96, 16), (1, 128, 96, 16)),
    ("ncvt,vw->ncwt", (32, 64, 25, 300), (25, 25)),
    ("bnld,nde->bnle", (16, 321, 12, 64), (321, 64, 64)),
    ("bld,dn->bln", (8, 2048, 768), (768, 16)),
    ("zui,zvi->zuv", (20000, 32, 5), (20000, 32, 5)),
    ("zu,uw->zw", (65536, 48), (48, 64)),
    ("bhqd,bkhd->bhqk", (8, 8, 384, 48), (8, 384, 8, 48)),
    ("bxyi,io->bxyo", (16, 128, 128, 32), (32, 32)),
    ("nctkv,kvw->nctw", (16, 64, 75, 3, 25), (3, 25, 25)),
    ("ecd,edf->ecf", (16, 320, 512), (16, 512, 1024)),
    ("bqnc,bchw->bqnhw", (4, 100, 2, 256), (4, 256, 64, 64)),
)  # fmt: skip
"""Triangles, outer products, graphs in time, a weight a variable, tensor products, experts, masks."""
FOURIER = (("bixy,ioxy->boxy", (16, 32, 16, 16), (32, 32, 16, 16)),
           ("bix,iox->box", (20, 64, 16), (64, 64, 16)))  # fmt: skip
GRAMS = (
    (4, 64, 65536), (4, 256, 16384), (8, 512, 1024), (1, 1024, 4096), (1, 4096, 1024),
    (1, 8192, 512), (1, 2048, 256), (32, 128, 784), (1, 50, 65536),
)  # fmt: skip
"""Batch, features and samples: styles, covariances of embeddings, Shampoo's statistics."""
SQUARES = ((768, 768), (1024, 1024), (2048, 2048), (3072, 3072), (4096, 4096), (768, 3072),
           (1024, 4096), (2048, 5632), (512, 2048), (384, 1152))  # fmt: skip
"""Weights that Muon makes orthogonal."""
CLOUDS = (
    (1, 4096, 512, 64), (1, 16384, 1024, 8), (8, 2048, 2048, 3), (1, 8192, 8192, 16),
    (16, 1024, 256, 128), (1, 1000, 5000, 33),
)  # fmt: skip
"""Batch, points, other points, dimensions."""
CODES = (
    (65536, 1024, 64),
    (8192, 8192, 256),
    (16384, 512, 256),
    (12544, 16384, 32),
    (3000, 320, 128),
)
VOLUMES = ((1, 256, 7040), (4, 256, 2784), (2, 128, 3072), (8, 64, 1024), (1, 128, 9216))
"""Batch, channels and pixels of RAFT's pairs of images."""
LOW_RANK = (
    (4096, 4096, 4),
    (768, 3072, 128),
    (2048, 8192, 32),
    (50257, 768, 16),
    (1024, 1024, 256),
)
VECTORS = ((12288, 12288), (65536, 300), (300, 65536), (2048, 2048), (100000, 13), (784, 60000))


def linear(size: Size, on: bool, dtype: torch.dtype, bias: bool, p: Pool) -> Run:
    rows, fin, fout = size
    b = p.leaf(fout, dtype=dtype) if bias else None
    run = both(p, F.linear, p.leaf(rows, fin, dtype=dtype), p.leaf(fout, fin, dtype=dtype), b)
    return with_tf32(on, run)


def batched(size: tuple[int, int, int, int], on: bool, dtype: torch.dtype, p: Pool) -> Run:
    many, m, k, n = size
    a, b = p.leaf(many, m, k, dtype=dtype), p.leaf(many, k, n, dtype=dtype)
    return with_tf32(on, both(p, torch.bmm, a, b))


def summed(
    rule: str, left: tuple[int, ...], right: tuple[int, ...], on: bool, dtype: torch.dtype, p: Pool
) -> Run:
    a, b = p.leaf(*left, dtype=dtype), p.leaf(*right, dtype=dtype)
    return with_tf32(on, both(p, partial(torch.einsum, rule), a, b))


def gram(size: Size, on: bool, p: Pool) -> Run:
    """The features against themselves, over how many there are."""
    x = p.leaf(*size)
    scale = 1 / x.shape[-1]
    return with_tf32(on, both(p, lambda x: x @ x.mT * scale, x))


def crossed(rows: int, width: int, on: bool, p: Pool) -> Run:
    """Barlow Twins': two views' features against each other, over the rows."""
    a, b = p.leaf(rows, width), p.leaf(rows, width)
    return with_tf32(on, both(p, lambda a, b: a.t() @ b / rows, a, b))


def shampoo(rows: int, columns: int, on: bool, p: Pool) -> Run:
    """Both statistics of a gradient, and it between their roots."""
    g, left, right = p.randn(rows, columns), p.own(rows, rows), p.own(columns, columns)

    def run() -> object:
        left.mul_(0.95).addmm_(g, g.t(), alpha=0.05)
        right.lerp_(g.t() @ g, 0.05)
        return left @ g @ right

    return with_tf32(on, run)


def orthogonal(size: tuple[int, int], fused: bool, p: Pool) -> Run:
    """One of Newton-Schulz's five steps in Muon, as written there or with its sums in the products."""
    x = p.randn(*size, dtype=BF16) / p.n(size[0])
    b, c = -4.775, 2.0315

    def plain() -> object:
        a = x @ x.mT
        return 3.4445 * x + (b * a + c * a @ a) @ x

    def in_products() -> object:
        a = x @ x.mT
        return torch.addmm(x, torch.addmm(a, a, a, beta=b, alpha=c), x, beta=3.4445)

    return in_products if fused else plain


def apart(size: tuple[int, int, int, int], on: bool, dtype: torch.dtype, p: Pool) -> Run:
    """By the product where there are more than 25 points, or, with a norm of 1, by pairs."""
    many, left, right, width = size
    a, b = p.leaf(many, left, width, dtype=dtype), p.leaf(many, right, width, dtype=dtype)
    return with_tf32(on, both(p, torch.cdist, a, b))


def by_pairs(size: tuple[int, int, int, int], p: Pool) -> Run:
    many, left, right, width = size
    return both(
        p, partial(torch.cdist, p=1.0), p.leaf(many, left, width), p.leaf(many, right, width)
    )


def coded(size: Size, on: bool, p: Pool) -> Run:
    """The nearest code of a table, as a VQ-VAE writes the distance."""
    rows, codes, width = size
    x, table = p.randn(rows, width), p.randn(codes, width)

    def run() -> object:
        near = x.pow(2).sum(1, keepdim=True) - 2 * x @ table.t() + table.pow(2).sum(1)
        return near.argmin(1)

    return with_tf32(on, run)


def correlated(size: Size, dtype: torch.dtype, on: bool, p: Pool) -> Run:
    many, channels, pixels = size
    a, b = (p.leaf(many, channels, pixels, dtype=dtype) for _ in range(2))
    return with_tf32(on, both(p, lambda a, b: a.mT @ b / channels**0.5, a, b))


def low_rank(size: Size, on: bool, p: Pool) -> Run:
    """PowerSGD's and GaLore's: a gradient seen from few directions, and back."""
    rows, columns, rank = size
    g, q, w = p.randn(rows, columns), p.randn(columns, rank), p.own(rows, columns)

    def run() -> object:
        seen = g @ q
        other = g.t() @ seen
        return other, w.addmm_(seen, q.t(), beta=0.9, alpha=1e-4)

    return with_tf32(on, run)


def vector(rows: int, columns: int, dtype: torch.dtype, p: Pool) -> Run:
    """Power iteration: there, back, and an update by an outer product."""
    a, v = p.own(rows, columns, dtype=dtype), p.randn(columns, dtype=dtype)

    def run() -> object:
        u = torch.mv(a, v)
        back = torch.mv(a.t(), u)
        return a.addr_(u, v, beta=0.9, alpha=1e-6), back

    return run


def turned(clouds: int, points: int, p: Pool) -> Run:
    """Poses on point clouds: a few rows against many columns."""
    pose, cloud = p.leaf(clouds, 3, 3), p.leaf(clouds, 3, points)
    return both(p, lambda r, x: r @ x - x.mean(-1, keepdim=True), pose, cloud)


def alike(rows: int, width: int, on: bool, p: Pool) -> Run:
    """CLIP's: normed first, then all against all."""
    a, b = p.leaf(rows, width), p.leaf(rows, width)
    return with_tf32(on, both(p, lambda a, b: F.normalize(a) @ F.normalize(b).t() * 14.3, a, b))


def cases() -> Iterator[Case]:
    i = 0
    for model, sizes in LAYERS.items():
        for size in sizes:
            for on in (False, True) if i % 3 == 0 else (i % 2 == 0,):
                make = partial(linear, size, on, FP32, i % 4 != 1)
                yield Case(f"{model} {size} tf32={on}", make)
            i += 1
    for i, size in enumerate(DOUBLES):
        yield Case(f"fp64 {size}", partial(linear, size, False, FP64, i % 2 == 0))
    for i, many in enumerate(SMALL):
        for on in (False, True) if i % 4 == 0 else (i % 2 == 0,):
            yield Case(f"bmm {many} tf32={on}", partial(batched, many, on, FP32))
    for many in BATCHED64:
        yield Case(f"bmm fp64 {many}", partial(batched, many, False, FP64))
    for i, (rule, left, right) in enumerate(EINSUMS):
        make = partial(summed, rule, left, right, i % 2 == 0, FP32)
        yield Case(f"einsum {rule} tf32={i % 2 == 0}", make)
    for rule, left, right in FOURIER:
        yield Case(f"fourier {rule}", partial(summed, rule, left, right, False, torch.complex64))
    for i, size in enumerate(GRAMS):
        yield Case(f"gram {size} tf32={i % 2 == 1}", partial(gram, size, i % 2 == 1))
    for rows, width, on in ((1024, 4096, True), (256, 2048, False)):
        yield Case(f"crossed {rows} {width} tf32={on}", partial(crossed, rows, width, on))
    for rows, columns, on in ((768, 3072, True), (1024, 1024, False), (256, 512, False)):
        yield Case(f"shampoo {rows} {columns} tf32={on}", partial(shampoo, rows, columns, on))
    for i, shape in enumerate(SQUARES):
        yield Case(f"muon {shape}", partial(orthogonal, shape, i % 2 == 1))
    for i, cloud in enumerate(CLOUDS):
        dtype = FP64 if i == 5 else FP32
        yield Case(f"cdist {cloud} {dtype}", partial(apart, cloud, i % 2 == 0, dtype))
    for cloud in ((1, 2048, 512, 16), (8, 1024, 1024, 3), (1, 24, 20, 64)):
        yield Case(f"cdist by pairs {cloud}", partial(by_pairs, cloud))
    yield from of_tables()


def of_tables() -> Iterator[Case]:
    """Codes, volumes, updates and vectors."""
    for i, size in enumerate(CODES):
        yield Case(f"codes {size} tf32={i % 2 == 0}", partial(coded, size, i % 2 == 0))
    for i, size in enumerate(VOLUMES):
        dtype = BF16 if i == 2 else FP32
        yield Case(f"volume {size} {dtype}", partial(correlated, size, dtype, i % 2 == 1))
    for i, size in enumerate(LOW_RANK):
        yield Case(f"low rank {size} tf32={i % 2 == 1}", partial(low_rank, size, i % 2 == 1))
    for i, (rows, columns) in enumerate(VECTORS):
        dtype = FP64 if i % 3 == 2 else FP32
        yield Case(f"vector {rows} {columns} {dtype}", partial(vector, rows, columns, dtype))
    for clouds, points in ((64, 4096), (4096, 32), (16, 65536)):
        yield Case(f"turned {clouds} {points}", partial(turned, clouds, points))
    for rows, width, on in ((4096, 512, True), (1024, 128, False)):
        yield Case(f"alike {rows} {width} tf32={on}", partial(alike, rows, width, on))


build = building("linear_float", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
