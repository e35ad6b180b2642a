"""Runs groups of small functions on inputs that their parameters' names ask for.

A part of `layers_norms.py`. Of a size (batch, …, width), or (batch, channels, …) from four extents on:
x, y: of that size, wanting gradients; z: the same without; w, v: a vector over the channels;
s, t: one a batch and channel; m: half true, of the size; k: half true, (batch, 1, …, last);
i: indices below the last extent, of the size; r: one such index a row; h: one a row below the rows.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from cases import Case, Pool, Run, both
from torch import Tensor

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
Size = tuple[int, ...]
Op = Callable[..., Tensor]


class Look(NamedTuple):
    dtype: torch.dtype
    last: bool = False


LOOKS = (
    Look(BF16), Look(FP32, True), Look(FP16), Look(FP32), Look(BF16, True), Look(FP32), Look(FP16, True),
)  # fmt: skip


class Group(NamedTuple):
    """Functions that run one after the other; of four or more every other one, in turns of sizes."""

    name: str
    sizes: tuple[Size, ...]
    ops: tuple[Op, ...]
    looks: tuple[Look, ...] = LOOKS


def given(letter: str, size: Size, look: Look, p: Pool) -> Tensor:
    image = len(size) > 3
    layout = LAST[len(size)] if image and look.last else torch.contiguous_format
    ones = (1,) * (len(size) - 2)
    if letter in "xyz":
        return (p.randn if letter == "z" else p.leaf)(*size, dtype=look.dtype, layout=layout)
    if letter in "wv":
        return p.leaf(*((size[1], *ones) if image else size[-1:]), dtype=look.dtype)
    if letter in "st":
        return p.leaf(
            *((*size[:2], *ones) if image else (size[0], *ones, size[-1])), dtype=look.dtype
        )
    if letter in "mk":
        return p.mask(*(size if letter == "m" else (size[0], *ones, size[-1])))
    if letter == "h":
        return p.index(math.prod(p.shape(*size[:-1])), *size[:-1])
    return p.index(size[-1], *(size if letter == "i" else size[:-1]))


def single(f: Op, size: Size, look: Look, p: Pool) -> Run:
    inputs = [given(name, size, look, p) for name in inspect.signature(f).parameters]
    if any(x.requires_grad for x in inputs):
        return both(p, f, *inputs)
    return lambda: f(*inputs)


def one_by_one(ops: tuple[Op, ...], size: Size, look: Look, p: Pool) -> Run:
    runs = [single(f, size, look, p) for f in ops]
    return lambda: [run() for run in runs]


def listed(groups: tuple[Group, ...]) -> Iterator[Case]:
    i = 0
    for g in groups:
        for j, size in enumerate(g.sizes):
            look = g.looks[i % len(g.looks)]
            i += 1
            ops = g.ops if len(g.ops) < 4 or len(g.sizes) == 1 else g.ops[j % 2 :: 2]
            yield Case(f"{g.name} {size} {look}", partial(one_by_one, ops, size, look))
