"""Embeddings, gathers and scatters, sorting and counting, pooling and resampling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from cases import Case, Pool, Run, both, building
from harness import main
from torch.nn import functional as F

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
LAST = torch.channels_last
TABLES = (
    (50257, 768, 8192, FP32), (128256, 1024, 4096, BF16), (30522, 768, 4096, FP32),
    (1000000, 64, 65536, FP32), (1000, 32, 8192, FP32), (2, 768, 4096, FP32), (512, 768, 512, FP16),
    (32000, 4096, 2048, BF16),
)  # fmt: skip
"""Rows, width, lookups."""
BAGS = ((1000000, 64, 2048, 20), (100000, 128, 8192, 10), (1000, 16, 512, 5))
"""Rows, width, bags, lookups a bag."""
EDGES = ((169343, 128, 400000), (10000, 64, 100000), (2708, 16, 10556), (100000, 256, 200000))
"""Nodes, features, edges."""
LISTS = ((1000000,), (64, 32000), (4096, 64), (256, 4096), (10000,), (16, 131072))
IMAGES = (
    ((16, 64, 112, 112), FP32, False), ((32, 64, 112, 112), FP16, True), ((8, 256, 56, 56), BF16, False),
    ((4, 320, 32, 32), FP32, False), ((2, 16, 28, 28), FP32, False),
)  # fmt: skip


def table(
    rows: int, width: int, many: int, dtype: torch.dtype, hot: bool, padded: bool, p: Pool
) -> Run:
    w, at = p.leaf(rows, width, dtype=dtype), p.index(rows, 8, many // 8, hot=hot)
    return both(p, lambda w: F.embedding(at, w, padding_idx=0 if padded else None), w)


def bag(rows: int, width: int, bags: int, each: int, mode: str, p: Pool) -> Run:
    w, at = p.leaf(rows, width), p.index(rows, bags, each, hot=mode == "sum")
    return both(p, lambda w: F.embedding_bag(at, w, mode=mode), w)


def messages(nodes: int, width: int, edges: int, way: str, dtype: torch.dtype, p: Pool) -> Run:
    """What a graph network does with its edges: rows taken, rows added up."""
    x, source, target = (
        p.leaf(nodes, width, dtype=dtype),
        p.index(nodes, edges),
        p.index(nodes, edges),
    )

    def f(x: torch.Tensor) -> torch.Tensor:
        taken = x.index_select(0, source) if way != "rows" else x[source]
        out = torch.zeros_like(x)
        if way == "index_add":
            return out.index_add(0, target, taken)
        if way == "scatter_add":
            return out.scatter_add(0, target[:, None].expand_as(taken), taken)
        if way == "amax":
            return out.scatter_reduce(0, target[:, None].expand_as(taken), taken, "amax")
        return out.index_put((target,), taken, accumulate=True)

    return both(p, f, x)


def gathered(size: tuple[int, int], dtype: torch.dtype, p: Pool) -> Run:
    """The log probability of a token, as losses and policies take it."""
    x, at = p.leaf(*size, dtype=dtype), p.index(size[1], size[0], 1)
    return both(p, lambda x: x.gather(1, at), x)


def gathered_rows(size: tuple[int, int, int], p: Pool) -> Run:
    """A quarter of the positions, as masked pretraining keeps them."""
    x = p.leaf(*size)
    kept = p.index(size[1], size[0], size[1] // 4)[..., None].expand(-1, -1, p.n(size[2]))
    return both(p, lambda x: x.gather(1, kept), x)


def segments(rows: int, width: int, many: int, p: Pool) -> Run:
    x = p.leaf(rows, width)
    lengths = torch.full((p.n(many),), p.n(rows) // p.n(many), device=p.device)
    return both(p, lambda x: torch.segment_reduce(x, "mean", lengths=lengths, unsafe=True), x)


LISTED: dict[str, Callable[[torch.Tensor], object]] = {
    "sort": lambda x: x.sort(-1),
    "argsort": lambda x: x.argsort(-1, descending=True),
    "top 8": lambda x: x.topk(8, -1),
    "top 1": lambda x: x.topk(1, -1),
    "argmax": lambda x: x.argmax(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "cumprod": lambda x: x.sigmoid().cumprod(-1),
    "masked select": lambda x: x[x > 0.5],
    "nonzero": lambda x: (x > 2).nonzero(),
    "kth": lambda x: x.kthvalue(2, -1),
}
COUNTED: dict[str, Callable[[torch.Tensor], object]] = {
    "unique": torch.unique,
    "bincount": lambda at: torch.bincount(at.flatten()),
    "one hot": lambda at: F.one_hot(at.flatten()[:32768], 64),
    "sorted": lambda at: at.flatten().sort(),
    "remainder": lambda at: at % 1000 + at // 7,
    "equal": lambda at: (at == 3).sum(),
}


def listed(
    f: Callable[[torch.Tensor], object], size: tuple[int, ...], dtype: torch.dtype, p: Pool
) -> Run:
    x = p.randn(*size, dtype=dtype)
    return lambda: f(x)


def counted(f: Callable[[torch.Tensor], object], many: int, p: Pool) -> Run:
    at = p.index(64, 8, many // 8, hot=True)
    return lambda: f(at)


def bounds(many: int, p: Pool) -> Run:
    x, edges = p.randn(many), torch.linspace(-3, 3, 1000, device=p.device)
    return lambda: (torch.searchsorted(edges, x), torch.histc(x, 64))


def experts(tokens: int, many: int, p: Pool) -> Run:
    """A router's bookkeeping: two experts a token, tokens in order of expert, and back."""
    logits, x = p.randn(tokens, many), p.leaf(tokens, 1024, dtype=BF16)

    def f(x: torch.Tensor) -> torch.Tensor:
        share, chosen = logits.softmax(-1).topk(2, -1)
        order = chosen.flatten().argsort()
        rows = x[order // 2] * share.flatten()[order, None].to(x.dtype)
        return torch.zeros_like(x).index_add(0, order // 2, rows)

    return both(p, f, x)


POOLED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "max": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max 2": lambda x: F.max_pool2d(x, 2),
    "average": lambda x: F.avg_pool2d(x, 2),
    "global": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, 6),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "bicubic": lambda x: F.interpolate(x, scale_factor=0.5, mode="bicubic"),
    "unfold": lambda x: F.unfold(x, 3, stride=2),
    "reflection": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
}


def pooled(name: str, size: tuple[int, ...], dtype: torch.dtype, last: bool, p: Pool) -> Run:
    layout = LAST if last else torch.contiguous_format
    return both(p, POOLED[name], p.leaf(*size, dtype=dtype, layout=layout))


def shuffled(p: Pool) -> Run:
    return both(p, partial(F.pixel_shuffle, upscale_factor=2), p.leaf(8, 256, 64, 64))


def warped(size: tuple[int, ...], p: Pool) -> Run:
    grid = p.randn(size[0], *size[2:], dtype=FP32).tanh()[..., None].repeat(1, 1, 1, 2)
    return both(p, lambda x, g: F.grid_sample(x, g, align_corners=False), p.leaf(*size), grid)


def volume(p: Pool) -> Run:
    x = p.leaf(2, 32, 64, 64, 64)
    return both(p, lambda x: F.interpolate(F.max_pool3d(x, 2), scale_factor=2, mode="trilinear"), x)


def cases() -> Iterator[Case]:
    for i, (rows, width, many, dtype) in enumerate(TABLES):
        make = partial(table, rows, width, many, dtype, i % 2 == 0, i % 3 == 0)
        yield Case(f"embedding {rows} {width} {dtype}", make)
    for rows, width, bags, each in BAGS:
        for mode in ("sum", "mean"):
            yield Case(f"bag {rows} {mode}", partial(bag, rows, width, bags, each, mode))
    for i, (nodes, width, edges) in enumerate(EDGES):
        for j, way in enumerate(("index_add", "scatter_add", "amax", "rows")):
            dtype = BF16 if (i + j) % 4 == 3 else FP32
            if (i, way) != (0, "amax"):
                make = partial(messages, nodes, width, edges, way, dtype)
                yield Case(f"{way} {nodes} {dtype}", make)
    for size, dtype in (((4096, 32000), BF16), ((1024, 50257), FP32), ((256, 1000), FP32)):
        yield Case(f"gather {size}", partial(gathered, size, dtype))
    for many in ((64, 196, 768), (256, 196, 1024)):
        yield Case(f"gather rows {many}", partial(gathered_rows, many))
    for rows, width, parts in ((65536, 64, 1024), (8192, 128, 64)):
        yield Case(f"segments {rows}", partial(segments, rows, width, parts))
    for i, (name, f) in enumerate(LISTED.items()):
        for j in range(2):
            size, dtype = LISTS[(i * 2 + j) % len(LISTS)], (FP32, BF16)[(i + j) % 3 == 2]
            yield Case(f"{name} {size} {dtype}", partial(listed, f, size, dtype))
    for name, g in COUNTED.items():
        for elements in (8192, 1 << 20):
            yield Case(f"{name} {elements}", partial(counted, g, elements))
    for elements in (65536, 1 << 22):
        yield Case(f"bounds {elements}", partial(bounds, elements))
    for tokens, many in ((4096, 8), (16384, 64)):
        yield Case(f"experts {tokens} {many}", partial(experts, tokens, many))
    for i, name in enumerate(POOLED):
        for j in range(3):
            shape, dtype, last = IMAGES[(i + j) % len(IMAGES)]
            if not (name == "unfold" and j == 0):
                make = partial(pooled, name, shape, dtype, last)
                yield Case(f"{name} {shape} {dtype} {last}", make)
    yield Case("pixel shuffle", shuffled)
    for size in ((8, 64, 56, 56), (16, 3, 224, 224)):
        yield Case(f"grid sample {size}", partial(warped, size))
    yield Case("volume", volume)


build = building("index", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
