"""Pairs whose products run on the wrong unit, in the wrong precision or in the wrong shape."""

from __future__ import annotations

from typing import Any

import torch
from pairs.place import Pair, Place, Step, training
from torch import nn
from torch.nn import functional as F


def flash_attention(place: Place, fixed: bool) -> Step:
    length = place.pick(4096, 32)
    q, k, v = (place.randn(2, 16, length, 64, dtype=torch.bfloat16) for _ in range(3))
    mask = torch.ones(length, length, dtype=torch.bool, device=place.device).triu(1)
    for tensor in (q, k, v):
        tensor.requires_grad_()

    def step() -> Any:
        if fixed:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1) * 0.125).masked_fill(mask, float("-inf"))
            out = torch.softmax(scores, dim=-1) @ v
        out.sum().backward()
        return out.detach()

    return step


def tensor_core_alignment(place: Place, fixed: bool) -> Step:
    whole = place.pick(4096, 32)
    size = whole if fixed else whole - 1
    layers = (nn.Linear(size, size) for _ in range(4))
    model = nn.Sequential(*layers).to(place.device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    return training(model, place.randn(2 * whole, size, dtype=torch.bfloat16), optimizer)


def _linears(place: Place) -> Step:
    size = place.pick(4096, 32)
    model = nn.Sequential(*(nn.Linear(size, size) for _ in range(4))).to(place.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    return training(model, place.randn(2 * size, size), optimizer)


def enable_tf32_or_amp(place: Place, fixed: bool) -> Step:
    step = _linears(place)

    def set_and_step() -> Any:
        torch.set_float32_matmul_precision("high" if fixed else "highest")
        return step()

    return set_and_step


def use_bf16(place: Place, fixed: bool) -> Step:
    step = _linears(place)

    def set_and_step() -> Any:
        torch.set_float32_matmul_precision("high")
        with torch.autocast(place.device, torch.bfloat16, enabled=fixed):
            return step()

    return set_and_step


def double_precision(place: Place, fixed: bool) -> Step:
    """Targets that came from numpy: the loss and its gradient run in fp64."""
    dtype = torch.float32 if fixed else torch.float64
    target = place.randn(1 << place.pick(26, 10)).to(dtype)
    weight = place.randn(1 << place.pick(26, 10)).requires_grad_()

    def step() -> Any:
        weight.grad = None
        loss = ((torch.tanh(weight) - target) ** 2).mean()
        loss.backward()
        return loss.detach()

    return step


PAIRS: tuple[Pair, ...] = (
    flash_attention,
    tensor_core_alignment,
    enable_tf32_or_amp,
    use_bf16,
    double_precision,
)
