"""Ops over a matrix of given rows and width, whatever they are: what `layers_small.py` draws from.

Every function takes the pool, rows, width and dtype, and gives one op's forward and backward, or an
update. Images have as many pixels as there are rows, and channels by the width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from cases import Pool, Run, both
from torch import Tensor
from torch.nn import functional as F

Op = Callable[..., Tensor]
Maker = Callable[[Pool, int, int, torch.dtype], Run]


def smooth(f: Op, p: Pool, rows: int, width: int, dtype: torch.dtype) -> Run:
    """`f` of two matrices and two rows, as far as it takes note of them."""
    x, y = p.leaf(rows, width, dtype=dtype), p.leaf(rows, width, dtype=dtype)
    return both(p, f, x, y, p.leaf(width, dtype=dtype), p.leaf(width, dtype=dtype))


def plain(f: Callable[..., object], p: Pool, rows: int, width: int, dtype: torch.dtype) -> Run:
    """Forward only: what has no gradient, or wants none."""
    x, y = p.randn(rows, width, dtype=dtype), p.randn(rows, width, dtype=dtype)
    return lambda: f(x, y)


def placed(f: Op, p: Pool, rows: int, width: int, dtype: torch.dtype) -> Run:
    """`f` of a matrix, a row's number for each row, and a column's for each element."""
    x, at, of = p.leaf(rows, width, dtype=dtype), p.index(rows, rows), p.index(width, rows, width)
    return both(p, lambda x: f(x, at, of), x)


def layer(
    many: float, bias: bool, act: Op | None, p: Pool, rows: int, width: int, dtype: torch.dtype
) -> Run:
    """To `many` times the width."""
    out = max(8, int(width * many) // 8 * 8)
    b = p.leaf(out, dtype=dtype) if bias else None

    def f(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        y = F.linear(x, w, b)
        return act(y) if act else y

    return both(p, f, p.leaf(rows, width, dtype=dtype), p.leaf(out, width, dtype=dtype), b)


def classified(many: int, p: Pool, rows: int, width: int, dtype: torch.dtype) -> Run:
    """A head and its loss."""
    y, w = p.index(many, rows), p.leaf(many, width, dtype=dtype)
    f = lambda x, w: F.cross_entropy(F.linear(x, w).float(), y)  # noqa: E731
    return both(p, f, p.leaf(rows, width, dtype=dtype), w)


def by_heads(
    long: int, dim: int, product: bool, p: Pool, rows: int, width: int, dtype: torch.dtype
) -> Run:
    """Products within groups of `long` rows and `dim` columns: scores, or attention."""
    size = (max(1, rows // long), max(1, width // dim), long, dim)
    q, k, v = (p.leaf(*size, dtype=dtype) for _ in range(3))
    if product:
        return both(p, lambda q, k: q @ k.mT, q, k)
    return both(p, F.scaled_dot_product_attention, q, k, v)


def written(long: int, dim: int, p: Pool, rows: int, width: int, dtype: torch.dtype) -> Run:
    size = (max(1, rows // long), max(1, width // dim), long, dim)
    f = lambda q, k, v: ((q @ k.mT) * dim**-0.5).softmax(-1) @ v  # noqa: E731
    return both(p, f, *(p.leaf(*size, dtype=dtype) for _ in range(3)))


def grouped(many: int, p: Pool, rows: int, width: int, dtype: torch.dtype) -> Run:
    """As many matrices as experts, each of a share of the rows."""
    x = p.leaf(many, max(1, rows // many), width, dtype=dtype)
    return both(p, torch.bmm, x, p.leaf(many, width, width // 2, dtype=dtype))


def images(
    side: int, last: bool, p: Pool, rows: int, width: int, dtype: torch.dtype, most: int = 512
) -> Tensor:
    layout = torch.channels_last if last else torch.contiguous_format
    size = (max(1, rows // side**2), min(width, most), side, side)
    return p.leaf(*size, dtype=dtype, layout=layout)


def convolved(
    side: int, k: int, stride: int, groups: int, last: bool, p: Pool, rows: int, width: int,
    dtype: torch.dtype,
) -> Run:  # fmt: skip
    """Square images; without groups at most 512 channels; no groups (0) is a channel each."""
    x = images(side, last, p, rows, width, dtype, 2048 if groups == 0 else 512)
    layout, c = torch.channels_last if last else torch.contiguous_format, x.shape[1]
    groups = groups or c
    w = p.leaf(c, c // groups, k, k, dtype=dtype, layout=layout)
    return both(p, partial(F.conv2d, stride=stride, padding=k // 2, groups=groups), x, w)


def of_lines(
    length: int, k: int, dilation: int, p: Pool, rows: int, width: int, dtype: torch.dtype
) -> Run:
    c = min(width, 512)
    x, w = p.leaf(max(1, rows // length), c, length, dtype=dtype), p.leaf(c, c, k, dtype=dtype)
    pad = dilation * (p.n(k) // 2)
    return both(p, partial(F.conv1d, padding=pad, dilation=dilation), x, w, p.leaf(c, dtype=dtype))


def of_volumes(side: int, k: int, p: Pool, rows: int, width: int, dtype: torch.dtype) -> Run:
    c = min(width, 256)
    x = p.leaf(max(1, rows // side**3), c, side, side, side, dtype=dtype)
    return both(p, partial(F.conv3d, padding=k // 2), x, p.leaf(c, c, k, k, k, dtype=dtype))


def grown(side: int, k: int, last: bool, p: Pool, rows: int, width: int, dtype: torch.dtype) -> Run:
    x = images(side, last, p, rows, width, dtype)
    w = p.leaf(x.shape[1], max(8, x.shape[1] // 2), k, k, dtype=dtype)
    return both(p, partial(F.conv_transpose2d, stride=2, padding=(k - 2) // 2), x, w)


def over_images(
    f: Op, side: int, last: bool, p: Pool, rows: int, width: int, dtype: torch.dtype
) -> Run:
    """`f` of images and two rows of their channels: norms, pools, activations, resizing."""
    x = images(side, last, p, rows, width, dtype, 2048)
    return both(p, f, x, p.leaf(x.shape[1], dtype=dtype), p.leaf(x.shape[1], dtype=dtype))


def updated(
    kind: str, options: dict[str, object], p: Pool, rows: int, width: int, dtype: torch.dtype
) -> Run:
    """An optimizer over a net of a few layers whose weights sum up to about the matrix."""
    sizes = ((rows // 2, width), (rows // 4, width), (rows // 4,), (width, rows // 8), (width,))
    weights = [p.own(*size, dtype=dtype).mul_(0.02).requires_grad_() for size in sizes]
    for w in weights:
        w.grad = torch.randn_like(w) * 1e-4
    return getattr(torch.optim, kind)(weights, lr=1e-9, **options).step


def on_weights(f: Callable[..., object], p: Pool, rows: int, width: int, dtype: torch.dtype) -> Run:
    """What is written out over one weight, its gradient and two moments."""
    w, m, v = (p.own(rows, width, dtype=dtype).mul_(0.01) for _ in range(3))
    g = p.randn(rows, width, dtype=dtype)
    v.abs_()
    return lambda: f(w, g, m, v)


def on_lists(f: Callable[..., object], p: Pool, rows: int, width: int, dtype: torch.dtype) -> Run:
    sizes = (
        (rows // 2, width),
        (rows // 4, width),
        (rows // 8, width),
        (width,),
        (rows // 8, width),
    )
    w, g = ([p.own(*size, dtype=dtype) for size in sizes] for _ in range(2))
    return lambda: f(w, g)
