"""Pairs whose loop moves bytes that it need not move: over the bus, or through device memory."""

from __future__ import annotations

from itertools import count
from typing import Any

import torch
from pairs.place import Pair, Place, Step, products, training
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def pin_memory(place: Place, fixed: bool) -> Step:
    size = place.pick(4096, 64)
    batch = torch.rand(2 * size, size)
    if fixed:
        batch = batch.pin_memory()
    weight = place.randn(size, size, dtype=torch.bfloat16)
    return lambda: batch.to(place.device, non_blocking=fixed).to(torch.bfloat16) @ weight


def overlap_copies(place: Place, fixed: bool) -> Step:
    """Pinned uploads of 128 MiB, 2.5 ms at 50 GB/s, beside 6 ms of GPU work."""
    size = place.pick(4096, 64)
    pinned = torch.rand(2 * size, size).pin_memory()
    weight, work = place.randn(size, 64), products(place, place.pick(30, 1))
    copies, compute = torch.cuda.Stream(), torch.cuda.current_stream()
    ahead: list[torch.Tensor] = []

    def fetch() -> torch.Tensor:
        with torch.cuda.stream(copies):
            return pinned.to("cuda", non_blocking=True)

    def step() -> Any:
        if not fixed:
            return pinned.to("cuda", non_blocking=True) @ weight, work()
        batch = ahead.pop() if ahead else fetch()
        compute.wait_stream(copies)
        batch.record_stream(compute)
        ahead.append(fetch())
        return batch @ weight, work()

    return step


def readback_traffic(place: Place, fixed: bool) -> Step:
    """All logits are copied back where one column of them is read."""
    size = place.pick(8192, 64)
    x, weight = (place.randn(size, size, dtype=torch.bfloat16) for _ in range(2))

    def step() -> Any:
        logits = x @ weight
        return logits[:, 0].cpu() if fixed else logits.cpu()[:, 0]

    return step


def fuse_pointwise(place: Place, fixed: bool) -> Step:
    width = place.pick(2048, 32)
    x = place.randn(1 << place.pick(26, 10), dtype=torch.bfloat16)
    weight = place.randn(width, width, dtype=torch.bfloat16)

    def block(x: Any) -> Any:
        y = (x.view(-1, width) @ weight).view(-1)
        for _ in range(4):
            y = y * torch.sigmoid(y) + 0.1
            y = 0.5 * y * (1.0 + torch.tanh(0.8 * y))
        return y

    ran = torch.compile(block) if fixed else block
    return lambda: ran(x)


def low_precision_storage(place: Place, fixed: bool) -> Step:
    dtype = torch.bfloat16 if fixed else torch.float32
    x, skip = (place.randn(1 << place.pick(27, 10), dtype=dtype) for _ in range(2))

    def step() -> Any:
        y = x
        for _ in range(8):
            y = F.silu(y + skip)
        return y

    return step


def cast_churn(place: Place, fixed: bool) -> Step:
    """Inference under autocast converts each fp32 weight at each call."""
    size = place.pick(4096, 32)
    dtype = torch.bfloat16 if fixed else torch.float32
    model = nn.Sequential(*(nn.Linear(size, size) for _ in range(16))).to(place.device, dtype)
    x = place.randn(place.pick(1024, 8), size, dtype=torch.bfloat16)

    @torch.no_grad()
    def step() -> Any:
        with torch.autocast(place.device, torch.bfloat16, enabled=not fixed):
            return model(x)

    return step


def needless_copies(place: Place, fixed: bool) -> Step:
    """A window over the last 64 rows of features: moved up by cat, or written in place."""
    held, turns = place.randn(64, 1 << place.pick(20, 8)), count()
    new = place.randn(1, held.shape[1])
    window = [held]

    def step() -> Any:
        for _ in range(8):
            if fixed:
                window[0][next(turns) % 64] = new[0]
            else:
                window[0] = torch.cat([window[0][1:], new])
            found = window[0].amax(0)
        return found

    return step


def channels_last(place: Place, fixed: bool) -> Step:
    layers: list[nn.Module] = []
    width = place.pick(128, 8)
    for _ in range(8):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    layout = torch.channels_last if fixed else torch.contiguous_format
    model = nn.Sequential(*layers).to(place.device).to(memory_format=layout)
    images = place.randn(place.pick(64, 2), width, 56, 56).to(memory_format=layout)
    step = training(model, images, torch.optim.SGD(model.parameters(), lr=1e-4))

    def amp_step() -> Any:
        with torch.autocast(place.device, torch.bfloat16):
            return step()

    return amp_step


def remove_checkpointing(place: Place, fixed: bool) -> Step:
    """Eight blocks of two norms and two products, all recomputed with most of the memory free."""
    size = place.pick(2048, 32)

    def block_of(width: int) -> nn.Module:
        up = (nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU())
        return nn.Sequential(*up, nn.LayerNorm(2 * width), nn.Linear(2 * width, width))

    blocks = nn.ModuleList(block_of(size) for _ in range(8)).to(place.device, torch.bfloat16)

    def model(x: Any) -> Any:
        for block in blocks:
            x = x + (block(x) if fixed else checkpoint(block, x, use_reentrant=False))
        return x

    inputs = place.randn(4 * size, size, dtype=torch.bfloat16)
    return training(model, inputs, torch.optim.SGD(blocks.parameters(), lr=1e-4))


PAIRS: tuple[Pair, ...] = (
    fuse_pointwise,
    pin_memory,
    channels_last,
    overlap_copies,
    needless_copies,
    cast_churn,
    low_precision_storage,
    readback_traffic,
    remove_checkpointing,
)
