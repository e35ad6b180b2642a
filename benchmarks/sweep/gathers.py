"""Rows taken by an index and rows added up by one, by how far apart the indices lie.

Tables lie in the DRAM or in the L2, rows are 1 to 1024 elements wide, lookups from a few warps to
millions: what such a kernel waits for is told by its indices more than by its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

import torch
from cases import Case, Pool, Run, both, building
from harness import main
from torch.nn import functional as F

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
I64, I32, U8 = torch.int64, torch.int32, torch.uint8
K, M = 1 << 10, 1 << 20
LARGEST_GRAD = 1 << 28
"""Bytes of a table whose dense gradient is made: beyond, its fill of zeros is most of the time."""
LOOKUPS = (
    # Tables of a GB: recommendation, large vocabularies, memories of samples.
    ("embedding", 4 * M, 64, 256 * K, FP32, "uniform"), ("embedding", 4 * M, 64, 256 * K, FP32, "hashed"),
    ("select", 2 * M, 128, 64 * K, FP32, "uniform"), ("select", 16 * M, 16, M, FP32, "uniform"),
    ("rows", 16 * M, 16, M, FP32, "zipf"), ("rows", 32 * M, 8, 2 * M, FP32, "uniform"),
    ("rows", 200 * M, 1, 8 * M, FP32, "uniform"), ("select", 200 * M, 1, 4 * M, FP32, "sorted"),
    ("gather", 200 * M, 1, 4 * M, FP32, "uniform"), ("gather", 100 * M, 1, 2 * M, I64, "uniform"),
    ("rows", 100 * M, 1, 4 * M, I64, "local"), ("take", 100 * M, 1, 4 * M, I64, "hashed"),
    ("select", 64 * M, 4, M, FP32, "uniform"), ("gather", 8 * M, 32, 512 * K, FP32, "uniform"),
    ("embedding", 8 * M, 32, 128 * K, FP32, "zipf"), ("sparse", 4 * M, 64, 64 * K, FP32, "hashed"),
    ("sparse", 2 * M, 128, 16 * K, FP32, "uniform"), ("sparse", 1000000, 16, 128 * K, FP32, "zipf"),
    ("rows", M, 256, 32 * K, FP32, "uniform"), ("embedding", 256 * K, 1024, 16 * K, BF16, "zipf"),
    ("select", 500000, 512, 48 * K, FP16, "uniform"), ("rows", 4 * M, 100, 150 * K, BF16, "uniform"),
    ("select", 2449029, 100, 400 * K, FP32, "sorted"), ("rows", 2449029, 100, 200 * K, FP32, "local"),
    ("rows", 100000, 7056, 512, U8, "uniform"), ("select", 1000000, 512, 1024, FP16, "uniform"),
    ("embedding", 256000, 768, 16 * K, FP32, "few"), ("along", 4 * M, 64, 128 * K, BF16, "uniform"),
    # Tables the L2 holds.
    ("embedding", 50257, 384, 16 * K, BF16, "zipf"), ("embedding", 32000, 512, 32 * K, FP16, "uniform"),
    ("embedding", 250002, 64, 24 * K, FP32, "zipf"), ("embedding", 30522, 128, 64 * K, FP32, "zipf"),
    ("embedding", 3, 512, 16 * K, FP32, "few"), ("embedding", 1024, 1024, 8 * K, BF16, "local"),
    ("embedding", 6000, 16, 2 * K, FP32, "uniform"), ("select", 65536, 128, 512 * K, FP32, "local"),
    ("select", 169343, 40, 1166243, FP32, "hashed"), ("rows", 232965, 41, 500000, FP16, "uniform"),
    ("rows", 10000, 3, 200000, FP32, "local"), ("rows", 4096, 1024, 8 * K, BF16, "all"),
    ("rows", 8 * K, 1, 4 * M, FP32, "uniform"), ("gather", 65536, 1, 8 * M, FP16, "uniform"),
    ("gather", 65536, 64, 65536, FP32, "all"), ("gather", 100000, 6, 600000, FP32, "local"),
    ("along", 8192, 1024, 4096, FP32, "sorted"), ("take", 2 * M, 1, 3 * M, FP32, "zipf"),
    ("rows", 2708, 1433, 10556, FP32, "uniform"), ("embedding", 1024, 96, M, FP16, "few"),
    ("rows", 49, 16, 2401, FP32, "uniform"), ("rows", 4 * K, 2, 256 * K, BF16, "zipf"),
    # Few lookups: a part of the SMs, each waiting.
    ("select", 4 * M, 64, 256, FP32, "uniform"), ("rows", 100 * M, 1, 4096, I64, "uniform"),
    ("embedding", 128256, 1024, 64, BF16, "zipf"), ("gather", 200 * M, 1, 16 * K, FP32, "uniform"),
    ("select", 16 * M, 16, 8 * K, FP32, "hashed"), ("rows", M, 256, 128, FP32, "uniform"),
    ("rows", 50000, 3072, 128, U8, "all"), ("sparse", 8 * M, 32, 2048, FP32, "zipf"),
)  # fmt: skip
"""Op, rows, width, lookups, dtype, where the indices lie."""
UPDATES = (
    ("add", 4 * M, 64, 128 * K, FP32, "uniform"), ("add", 16 * M, 16, M, FP32, "hashed"),
    ("add", 200 * M, 1, 4 * M, FP32, "uniform"), ("add", 65536, 128, 512 * K, FP32, "uniform"),
    ("add", 65536, 128, 512 * K, FP32, "runs"), ("add", 10000, 64, 400 * K, FP32, "zipf"),
    ("add", 8192, 1024, 16 * K, BF16, "uniform"), ("add", 16, 256, 128 * K, FP32, "few"),
    ("add", 169343, 40, 1166243, FP32, "sorted"), ("add", M, 256, 512, FP32, "uniform"),
    ("scatter add", 8 * M, 32, 256 * K, FP32, "uniform"), ("scatter add", 200 * M, 1, 2 * M, FP32, "local"),
    ("scatter add", 65536, 1, 8 * M, FP32, "uniform"), ("scatter add", 65536, 32, M, FP32, "sorted"),
    ("scatter add", 1000, 1, 4 * M, FP32, "zipf"), ("scatter add", 20000, 16, 800 * K, BF16, "uniform"),
    ("scatter add", 50000, 1, M, I64, "zipf"), ("scatter add", 4096, 512, 32 * K, FP16, "local"),
    ("amax", 65536, 64, 512 * K, FP32, "uniform"), ("amax", 4 * M, 4, 2 * M, FP32, "uniform"),
    ("amax", 214272, 64, 100000, FP32, "zipf"), ("amin", 20000, 1, 4 * M, FP32, "runs"),
    ("mean", 30000, 32, 240 * K, FP32, "uniform"), ("prod", 100000, 1, M, FP32, "local"),
    ("put", 4 * M, 64, 128 * K, FP32, "uniform"), ("put", 100 * M, 1, 4 * M, FP32, "all"),
    ("put", 100000, 172, 4 * K, FP32, "zipf"), ("put", 8 * M, 8, M, BF16, "sorted"),
    ("put", 65536, 1024, 16 * K, FP16, "all"), ("put", 2 * M, 128, 1024, FP32, "uniform"),
    ("accumulate", 2 * M, 128, 32 * K, FP32, "uniform"), ("accumulate", 65536, 64, 256 * K, FP32, "zipf"),
    ("accumulate", 50000, 1, M, FP32, "uniform"), ("accumulate", 1000, 512, 16 * K, FP32, "few"),
    ("accumulate", 16384, 8, 500000, BF16, "local"), ("copy", 4 * M, 64, 64 * K, FP32, "all"),
    ("copy", 16384, 768, 16 * K, BF16, "all"), ("copy", 16 * M, 1, M, I64, "all"),
    ("fill", M, 128, 100 * K, FP32, "uniform"), ("fill", 30522, 1, 4 * K, FP32, "uniform"),
    ("scatter", 64 * M, 1, 4 * M, FP32, "uniform"), ("scatter", 131072, 32, 512 * K, FP32, "hashed"),
    ("reduce", 40000, 64, 160 * K, FP32, "uniform"), ("put flat", 64 * M, 1, 2 * M, FP32, "uniform"),
)  # fmt: skip
GRAPHS = (
    ("convolved", 169343, 128, 600000, FP32, "uniform"), ("convolved", 40000, 64, 640000, FP16, "zipf"),
    ("differences", 20000, 3, 400000, FP32, "local"), ("differences", 100000, 32, 600000, FP32, "local"),
    ("differences", 5000, 128, 80000, BF16, "sorted"), ("pairs scored", 500000, 64, 262144, FP32, "zipf"),
    ("softmax", 169343, 8, 1166243, FP32, "uniform"), ("softmax", 2708, 8, 13264, FP32, "sorted"),
    ("softmax", 50000, 1, 800000, FP32, "runs"), ("pooled", 120000, 300, 120000, FP32, "sorted"),
    ("pooled", 8192, 64, 262144, FP32, "local"), ("sparse mm", 100000, 64, 800000, FP32, "uniform"),
    ("sparse mm", 19717, 500, 88648, FP32, "sorted"), ("mean", 89250, 256, 450000, FP32, "zipf"),
)  # fmt: skip
"""What, nodes, features or heads, edges, dtype, where their ends lie."""
BAGS = (
    (10 * M, 16, 16384, 10, "sum", "hashed"), (4 * M, 64, 8192, 32, "mean", "uniform"),
    (100000, 64, 4096, 50, "max", "uniform"), (1000000, 128, 2048, 1, "sum", "zipf"),
    (20000, 32, 65536, 4, "sum", "uniform"), (2 * M, 128, 4096, 20, "sum", "few"),
    (500000, 8, 8192, 100, "mean", "zipf"),
)  # fmt: skip
"""Rows, width, bags, lookups a bag, mode, where the indices lie."""
PARTS = (
    ("sum", 2 * M, 32, 65536), ("max", 500000, 64, 4096), ("mean", 100000, 300, 512),
    ("sum", 4 * M, 1, 200000), ("max", 16384, 128, 16384), ("min", 300000, 8, 64),
)  # fmt: skip
"""Rows in order, added up in so many segments of unlike lengths."""


def spread(how: str, rows: int, many: int, p: Pool) -> torch.Tensor:
    """Indices below `rows`, int64: where they lie is what the kernels wait for.

    Zipf's have exponent 1 and the frequent rows in front, as words have; `hashed` lays the same
    over the table, as ids of users do; `runs` are 16 of one row in a row, `few` 16 rows of all.
    """
    rows, many = p.n(rows), p.n(many)
    drawn = torch.rand(many, dtype=torch.float64, device=p.device)
    order = torch.arange(many, device=p.device)
    if how == "uniform":
        at = drawn * rows
    elif how == "sorted":
        at = (drawn * rows).sort().values
    elif how == "zipf":
        at = rows**drawn - 1
    elif how == "hashed":
        at = (rows**drawn).long() * 2654435761 % rows
    elif how == "few":
        at = (drawn * 16).long() * 2654435761 % rows
    elif how == "runs":
        at = order // 16 * 40503 % rows
    elif how == "local":
        at = order * (rows / many) + drawn * 64 - 32
    else:
        at = torch.randperm(rows, device=p.device)[order % rows]
    return at.long().clamp_(0, rows - 1)


def numbers(rows: int, width: int, dtype: torch.dtype, p: Pool) -> torch.Tensor:
    """A table of the pool's; of one element a row it is a list."""
    x = p.randn(rows, width, dtype=dtype) if width > 1 else p.randn(rows, dtype=dtype)
    small = x.numel() * x.itemsize <= LARGEST_GRAD
    return x.requires_grad_() if dtype.is_floating_point and small else x


@cache
def ground(p: Pool, dtype: torch.dtype) -> torch.Tensor:
    """What all cases write to, a GiB of fp32: what they leave there is nothing to them."""
    many = 1 << 16 if p.tiny else (1 << (30 if dtype == FP32 else 28)) // dtype.itemsize
    return torch.zeros(many, dtype=dtype, device=p.device)


def as_wide(at: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """An index a row for ops that want one an element: the same memory."""
    return at if x.dim() == 1 else at[:, None].expand(-1, x.shape[1])


TAKEN: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "embedding": lambda x, at: F.embedding(at, x),
    "select": lambda x, at: x.index_select(0, at),
    "rows": lambda x, at: x[at],
    "gather": lambda x, at: x.gather(0, as_wide(at, x)),
    "take": torch.take,
    "along": lambda x, at: torch.take_along_dim(x, at[:, None], 0),
}


def lookup(op: str, rows: int, width: int, many: int, dtype: torch.dtype, how: str, p: Pool) -> Run:
    """With the gradient of the table where that is not of GBs."""
    at = spread(how, rows, many, p)
    if op == "sparse":
        w = p.leaf(rows, width, dtype=dtype)
        grad = p.randn(many, width, dtype=dtype)

        def run() -> object:
            out = F.embedding(at, w, sparse=True)
            return torch.autograd.grad(out, w, grad)[0].coalesce()

        return run
    x, f = numbers(rows, width, dtype, p), TAKEN[op]
    return both(p, lambda x: f(x, at), x) if x.requires_grad else lambda: f(x, at)


UPDATED: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]] = {
    "add": lambda y, at, x: y.index_add_(0, at, x),
    "scatter add": lambda y, at, x: y.scatter_add_(0, as_wide(at, x), x),
    "scatter": lambda y, at, x: y.scatter_(0, as_wide(at, x), x),
    "put": lambda y, at, x: y.index_put_((at,), x),
    "put flat": lambda y, at, x: y.put_(at, x),
    "accumulate": lambda y, at, x: y.index_put_((at,), x, accumulate=True),
    "copy": lambda y, at, x: y.index_copy_(0, at, x),
    "fill": lambda y, at, x: y.index_fill_(0, at, 0.5),
    "reduce": lambda y, at, x: y.index_reduce_(0, at, x, "amax"),
}


def update(op: str, rows: int, width: int, many: int, dtype: torch.dtype, how: str, p: Pool) -> Run:
    """In place and without a gradient: the op's kernels alone."""
    at, x = spread(how, rows, many, p), numbers(many, width, dtype, p).detach()
    form = (p.n(rows), *x.shape[1:])
    y = ground(p, dtype)[: torch.Size(form).numel()].view(form)
    if op in ("amax", "amin", "mean", "prod"):
        return lambda: y.scatter_reduce_(0, as_wide(at, x), x, op)
    return lambda: UPDATED[op](y, at, x)


def graph(
    kind: str, nodes: int, width: int, edges: int, dtype: torch.dtype, how: str, p: Pool
) -> Run:
    """A layer's work on edges, forward and backward."""
    source, target = spread("uniform", nodes, edges, p), spread(how, nodes, edges, p)
    many = p.n(nodes)
    if kind == "softmax":
        return both(p, lambda x: softmax(x, target, many), p.leaf(edges, width, dtype=dtype))
    x, weight = p.leaf(nodes, width, dtype=dtype), p.randn(edges, 1, dtype=dtype)
    if kind == "sparse mm":
        ends = torch.stack((target, source))
        near = torch.sparse_coo_tensor(ends, weight[:, 0], (many, many)).coalesce()
        return both(p, lambda x: torch.sparse.mm(near, x), x)

    def f(x: torch.Tensor) -> torch.Tensor:
        if kind == "differences":
            return x[source] - x[target]
        if kind == "pairs scored":
            return (F.embedding(source, x) * F.embedding(target, x)).sum(-1)
        if kind == "pooled":
            return x.new_zeros(1 + many // 20, x.shape[1]).index_add(0, target // 20, x[source])
        out = torch.zeros_like(x)
        if kind == "mean":
            taken = x.index_select(0, source)
            return out.scatter_reduce(0, as_wide(target, taken), taken, "mean", include_self=False)
        return out.index_add(0, target, x.index_select(0, source) * weight)

    return both(p, f, x)


def softmax(score: torch.Tensor, at: torch.Tensor, nodes: int) -> torch.Tensor:
    """Over the edges that end at a node, as graph attention has it."""
    top = score.new_full((nodes, score.shape[1]), -1e4)
    top = top.scatter_reduce(0, as_wide(at, score), score.detach(), "amax")
    share = (score - top[at]).exp()
    return share / (torch.zeros_like(top).index_add(0, at, share)[at] + 1e-16)


def bag(rows: int, width: int, bags: int, each: int, mode: str, how: str, p: Pool) -> Run:
    """Bags by their offsets; the gradient of a table of GBs is sparse, or not made for a maximum."""
    at = spread(how, rows, bags * each, p)
    offsets = torch.arange(p.n(bags), device=p.device) * (1 if p.tiny else each)
    w = p.leaf(rows, width)
    large = w.numel() * w.itemsize > LARGEST_GRAD and mode != "max"
    return both(p, lambda w: F.embedding_bag(at, w, offsets, mode=mode, sparse=large), w)


def segments(how: str, rows: int, width: int, many: int, p: Pool) -> Run:
    x, many = p.leaf(rows, width), p.n(many)
    cuts = torch.rand(many - 1, dtype=torch.float64, device=p.device).sort().values * len(x)
    ends = torch.tensor([0, len(x)], device=p.device)
    offsets = torch.cat((ends[:1], cuts.long(), ends[1:]))
    return both(p, lambda x: torch.segment_reduce(x, how, offsets=offsets, unsafe=True), x)


def beside(
    f: Callable[..., torch.Tensor],
    size: tuple[int, ...],
    high: int,
    many: tuple[int, ...],
    dtype: torch.dtype,
    p: Pool,
) -> Run:
    """`f` of numbers and of uniform indices in a shape, forward and, of floats, backward."""
    at, x = p.index(high, *many), p.randn(*size, dtype=dtype)
    if dtype.is_floating_point and x.numel() * x.itemsize <= LARGEST_GRAD:
        return both(p, lambda x: f(x, at), x.requires_grad_())
    return lambda: f(x, at)


def of_rows(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Each sample's own rows: neighbours of points, kept patches."""
    first = torch.arange(len(x), device=x.device).view(-1, *[1] * (at.dim() - 1))
    return x[first, at]


def hash_grid(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """A level of a hashed grid of features: eight corners a point, weighted."""
    corner = torch.arange(8, device=at.device)
    spot = (at[:, None] ^ (corner * 2654435761)) % len(x)
    return (x[spot] * 0.125).sum(1)


def kept_of_topk(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """All but a few of a row set to zero."""
    return torch.zeros_like(x).scatter(-1, at, x.gather(-1, at))


def negatives(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Word2vec's: a centre against its context and drawn words."""
    rows = F.embedding(at, x)
    return (rows[:, 1:] * rows[:, :1]).sum(-1)


BESIDE = (
    ("cells", lambda x, at: x[at[0], at[1]], (16384, 16384), 16384, (2, M), FP32),
    ("cells small", lambda x, at: x[at[0], at[1]], (2048, 2048), 2048, (2, 256 * K), FP32),
    ("rows of 3d", lambda x, at: x[:, at], (8, 4096, 512), 4096, (1024,), FP16),
    ("pixels", lambda x, at: x[:, :, at[0], at[1]], (8, 64, 128, 128), 128, (2, 4096), FP32),
    ("neighbours of points", of_rows, (32, 1024, 64), 1024, (32, 512, 32), FP32),
    ("neighbours of points 3", of_rows, (16, 4096, 3), 4096, (16, 1024, 32), FP32),
    ("kept patches", of_rows, (256, 196, 768), 196, (256, 49), FP16),
    ("blocks of a cache", lambda x, at: x[at], (8192, 16, 8, 128), 8192, (32, 128), BF16),
    ("beams", lambda x, at: x.index_select(1, at), (4, 64, 8, 512, 64), 64, (64,), FP16),
    ("hash grid", hash_grid, (524288, 2), 1 << 40, (262144,), FP32),
    ("hash grid half", hash_grid, (16384, 2), 1 << 40, (M,), FP16),
    ("hash grid wide", hash_grid, (4 * M, 8), 1 << 40, (131072,), FP32),
    ("relative bias", lambda x, at: x[at], (169, 12), 169, (49, 49), FP32),
    ("relative bias wide", lambda x, at: x[at], (961, 16), 961, (256, 256), FP16),
    ("kept of top k", kept_of_topk, (4096, 16384), 16384, (4096, 64), FP32),
    ("kept of top k half", kept_of_topk, (16384, 1024), 1024, (16384, 8), BF16),
    ("negatives", negatives, (500000, 100), 500000, (8192, 21), FP32),
    ("fields", lambda x, at: F.embedding(at, x).flatten(1), (1086810, 16), 1086810, (8192, 39), FP32),
    ("reordered", partial(torch.take_along_dim, dim=1), (4096, 4096), 4096, (4096, 4096), FP32),
    ("reordered half", partial(torch.take_along_dim, dim=1), (64, 512 * K), 512 * K, (64, 32768), BF16),
    ("reordered far", partial(torch.take_along_dim, dim=1), (16, 8 * M), 8 * M, (16, 65536), FP32),
    ("columns", lambda x, at: x.index_select(1, at), (65536, 1024), 1024, (128,), FP32),
    ("channels", lambda x, at: x[:, at], (64, 256, 56, 56), 256, (256,), FP16),
    ("code sums", lambda x, at: x[:1024].index_add(0, at, x), (65536, 256), 1024, (65536,), FP32),
    ("chained", lambda x, at: x[(x[at] + at * 40503) % len(x)], (8 * M,), 8 * M, (M,), I64),
    ("frames", lambda x, at: x[at].float() / 255, (30000, 4, 84, 84), 30000, (256,), U8),
)  # fmt: skip
"""Name, op, size of the numbers, bound of the indices, shape of the indices, dtype."""


MASKING: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "rows": lambda x, kept: x[kept],
    "select": lambda x, kept: x.masked_select(kept),
    "fill": lambda x, kept: x.masked_fill(kept, 0.0),
    "fill wide": lambda x, kept: x.masked_fill(kept[..., None], -100.0),
    "put rows": lambda x, kept: x.index_put((kept,), x.new_zeros(())),
    "scatter": lambda x, kept: x.masked_scatter(kept, x),
    "where": lambda x, kept: torch.where(kept, x, 0.0),
}


def masking(kind: str, size: tuple[int, ...], share: float, dtype: torch.dtype, p: Pool) -> Run:
    """By a mask of which so much is true: of elements, or of rows where the name says so."""
    x = p.leaf(*size, dtype=dtype)
    of = x.shape[:-1] if "rows" in kind or kind == "fill wide" else x.shape
    kept = torch.rand(of, device=p.device) < share
    return both(p, lambda x: MASKING[kind](x, kept), x)


MASKED = (
    ("rows", (64, 512, 768), 0.15, FP32), ("rows", (32, 196, 1024), 0.25, FP16), ("rows", (M, 64), 0.5, FP32),
    ("select", (16 * M,), 0.5, FP32), ("select", (256, 4096), 0.01, BF16), ("select", (100000,), 0.9, FP32),
    ("fill", (16, 12, 512, 512), 0.15, FP16), ("fill", (4 * M,), 0.01, FP32),
    ("put rows", (64, 512, 768), 0.2, FP32), ("fill wide", (32, 1500, 512), 0.3, FP32),
    ("scatter", (4, 2048, 2048), 0.3, BF16), ("where", (8192, 8192), 0.5, FP32),
)  # fmt: skip


def stretched(rows: int, width: int, most: int, dtype: torch.dtype, p: Pool) -> Run:
    """Each row 1 to `most` times: durations of phonemes, nodes by degree."""
    times = 1 + p.index(most, rows)
    many = int(times.sum())
    x = p.leaf(rows, width, dtype=dtype)
    return both(p, lambda x: x.repeat_interleave(times, 0, output_size=many), x)


def searched(bounds: int, many: int, ordered: bool, p: Pool) -> Run:
    """A binary search: each step waits for the one before."""
    edges = p.own(bounds).sort().values
    x = p.own(many)
    x = x.sort().values if ordered else x
    return lambda: torch.searchsorted(edges, x)


def cases() -> Iterator[Case]:
    for op, *rest in LOOKUPS:
        yield Case(f"{op} {rest}", partial(lookup, op, *rest))
    for op, *rest in UPDATES:
        yield Case(f"{op} in place {rest}", partial(update, op, *rest))
    for op, *rest in GRAPHS:
        yield Case(f"edges {op} {rest}", partial(graph, op, *rest))
    for bags in BAGS:
        yield Case(f"bag {bags}", partial(bag, *bags))
    for part in PARTS:
        yield Case(f"segments {part}", partial(segments, *part))
    for name, *how in BESIDE:
        yield Case(name, partial(beside, *how))
    for mask in MASKED:
        yield Case(f"masked {mask}", partial(masking, *mask))
    for rows in (
        (3200, 384, 12, FP32),
        (200000, 32, 8, BF16),
        (M, 1, 5, FP32),
        (512, 1024, 3, FP16),
    ):
        yield Case(f"stretched {rows}", partial(stretched, *rows))
    for bounds, many, ordered in ((16 * M, M, False), (16 * M, M, True), (65536, 4 * M, False)):
        yield Case(f"searched {bounds} {ordered}", partial(searched, bounds, many, ordered))


build = building("gathers", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
