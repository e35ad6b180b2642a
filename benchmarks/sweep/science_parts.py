"""What the parts of `science_layers.py` share: gradients of a function, small networks, lists of cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import pairwise

import torch
from cases import Case, Pool, Run, with_tf32
from torch import nn

BF16, FP16, FP32, FP64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
C64 = torch.complex64
Size = tuple[int, ...]
Part = tuple[Callable[..., Run], tuple[object, ...]]


def learnt(
    p: Pool,
    f: Callable[..., torch.Tensor],
    *inputs: torch.Tensor,
    of: Iterable[nn.Module] = (),
    cast: torch.dtype | None = None,
    fast: bool = False,
) -> Run:
    """`f` and the gradients of the modules it is made `of` and of inputs that want one.

    Args:
        cast: The dtype of autocast, where the job has it.
        fast: TF32 for products and convolutions.
    """
    weights = [w for module in of for w in module.parameters() if w.requires_grad]
    wanted = [*weights, *(x for x in inputs if x.requires_grad)]

    def call() -> torch.Tensor:
        with torch.autocast(p.device.type, cast) if cast else nullcontext():
            return f(*inputs)

    with torch.enable_grad():  # some call for gradients themselves
        grad = p.like(call().detach())
    return with_tf32(fast, lambda: torch.autograd.grad(call(), wanted, grad, allow_unused=True))


def seen(f: Callable[..., object], *inputs: torch.Tensor) -> Run:
    """Without a gradient: a metric, a draw, a step of a simulation."""

    def run() -> object:
        with torch.no_grad():
            return f(*inputs)

    return run


def mlp(
    p: Pool,
    *widths: int,
    act: Callable[[], nn.Module] = nn.ReLU,
    dtype: torch.dtype = FP32,
) -> nn.Sequential:
    """Linear layers with activations between them; widths as they are, cut by the caller."""
    layers: list[nn.Module] = []
    for fin, fout in pairwise(widths):
        layers += [nn.Linear(fin, fout), act()]
    return nn.Sequential(*layers[:-1]).to(p.device, dtype)


def put(p: Pool, *modules: nn.Module, dtype: torch.dtype = FP32) -> list[nn.Module]:
    """Modules where the job runs, in its dtype."""
    return [module.to(p.device, dtype) for module in modules]


def listed(parts: Iterable[Part]) -> Iterator[Case]:
    for make, given in parts:
        yield Case(f"{make.__name__} {given}", partial(make, *given))
