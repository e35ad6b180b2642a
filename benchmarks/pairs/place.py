"""Where a pair runs and how large it is; what pairs have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Step = Callable[[], Any]


@dataclass(frozen=True)
class Place:
    """A device, and sizes for it: full ones for a GPU, tiny ones to try the plumbing."""

    device: str
    tiny: bool

    def pick(self, full: int, tiny: int) -> int:
        return tiny if self.tiny else full

    def randn(self, *sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(*sizes, device=self.device, dtype=dtype)


Pair = Callable[[Place, bool], Step]
"""The loop as it was (False) or with the one fix (True): a function that does one step."""


def tiny_model(place: Place, depth: int = 10) -> nn.Module:
    """Kernels of a few us each, whatever the GPU: layers of 3 ops, 11 kernels a step each."""
    layers = [
        nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 128), nn.GELU()) for _ in range(depth)
    ]
    return nn.Sequential(*layers, nn.Linear(128, 1)).to(place.device)


def training(model: Any, inputs: torch.Tensor, optimizer: Any) -> Step:
    """One optimizer step over the same inputs; reads nothing back."""

    def step() -> Any:
        loss = model(inputs).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def products(place: Place, count: int) -> Step:
    """GPU work that one launch each keeps going: bf16 products of 4096 (0.2 ms on an H200)."""
    size = place.pick(4096, 64)
    left, right = (place.randn(size, size, dtype=torch.bfloat16) for _ in range(2))

    def work() -> torch.Tensor:
        for _ in range(count):
            out = left @ right
        return out

    return work
