"""Modules whose weights are slices of a pool: a hundred layers of large models in a few GiB.

A part of `language_layers.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from cases import Case, Pool, Run, of_module, with_tf32
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Extent = Callable[[int], int]
Sizes = tuple[tuple[int, ...], ...]
POOLS: dict[int, Small] = {}


class Small(Pool):
    """Numbers as small as those of fresh matrices: sums over thousands of them stay near one."""

    def __init__(self, p: Pool) -> None:
        self.device, self.tiny = p.device, p.tiny
        self._flat: dict[torch.dtype, Tensor] = {}
        self._at: dict[torch.dtype, int] = {}

    def _buffer(self, dtype: torch.dtype) -> Tensor:
        fresh = dtype not in self._flat
        flat = super()._buffer(dtype)
        return flat.mul_(0.02) if fresh else flat


def small(p: Pool) -> Small:
    """The one pool of weights beside a pool of inputs."""
    return POOLS.setdefault(id(p), Small(p))


def seat(p: Pool, module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Every matrix becomes a slice of the pool; vectors and the weights of cuDNN's RNNs stay."""
    module.to(dtype)
    for part in module.modules():
        for name, w in part.named_parameters(recurse=False):
            if w.dim() > 1 and not isinstance(part, nn.RNNBase):
                held = small(p).like(w)
                part._parameters[name] = nn.Parameter(held, requires_grad=w.requires_grad)
    return module


class Cast(nn.Module):
    """A module of fp32 weights under autocast."""

    def __init__(self, inner: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.inner, self.dtype = inner, dtype

    def forward(self, *x: Tensor) -> Tensor:
        with torch.autocast(x[0].device.type, self.dtype):
            out: Tensor = self.inner(*x)
            return out


class Checkpointed(nn.Module):
    """Its forward runs twice."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *x: Tensor) -> Tensor:
        out: Tensor = checkpoint(self.inner, *x, use_reentrant=False)
        return out


class Block(NamedTuple):
    """A module in training; an input's last extent is the module's `widths`, one or each its own.

    mode: "" for weights in the dtype, "autocast", "tf32", "kept" for checkpointing, "frozen" for
    weights without gradients, "forward" for an evaluation.
    """

    name: str
    make: Callable[[Extent], nn.Module]
    sizes: Sizes
    dtype: torch.dtype
    mode: str = ""


def block(b: Block, p: Pool) -> Run:
    with torch.device(p.device):
        module = b.make(p.n)
    dtype = torch.float32 if b.mode == "autocast" else b.dtype
    module = seat(p, module, dtype)
    widths = module.widths if isinstance(module.widths, tuple) else [module.widths] * len(b.sizes)
    inputs = []
    for size, width in zip(b.sizes, widths, strict=True):
        form = torch.empty(*p.shape(*size), width, dtype=dtype, device="meta")
        inputs.append(p.like(form).requires_grad_(b.mode != "forward"))
    if b.mode == "forward":
        module.eval().requires_grad_(False)
        return lambda: module(*inputs)
    module.requires_grad_(b.mode != "frozen")
    if b.mode == "autocast":
        module = Cast(module, b.dtype)
    if b.mode == "kept":
        module = Checkpointed(module)
    run = of_module(p, module, *inputs)
    return with_tf32(True, run) if b.mode == "tf32" else run


def as_case(b: Block) -> Case:
    return Case(f"{b.name} {b.sizes} {b.dtype} {b.mode}", partial(block, b))
