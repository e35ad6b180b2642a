"""Pairs whose loop leaves the GPU waiting: launches, reads, the loader, collections, logs."""

from __future__ import annotations

import gc
import json
import random
import time
from itertools import count
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import torch
from pairs.place import Pair, Place, Step, products, tiny_model, training
from torch import nn
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

EVERY, FIRST = 21, 10
"""Steps between two collections or logs once that is fixed, and the first step's number: one falls
into each timed round, the next comes after the traced steps."""


def launch_bound_compile(place: Place, fixed: bool) -> Step:
    """350 kernels a step: beside them a compiled step's own millisecond on the host is small."""
    model = tiny_model(place, place.pick(32, 2))
    fused = place.device == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused)
    ran = torch.compile(model, mode="reduce-overhead") if fixed else model
    return training(ran, place.randn(256, 128), optimizer)


def cuda_graphs(place: Place, fixed: bool) -> Step:
    model = tiny_model(place)
    step = training(model, place.randn(256, 128), torch.optim.SGD(model.parameters(), lr=1e-4))
    if not fixed:
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def fused_optimizer(place: Place, fixed: bool) -> Step:
    model = tiny_model(place)
    kind = {"fused": True} if fixed else {"foreach": False, "fused": False}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **kind)
    return training(model, place.randn(256, 128), optimizer)


def sync_point(place: Place, fixed: bool) -> Step:
    """24 reads a step. A layer is 80 us of kernels: without the reads the host stays ahead."""
    size = place.pick(2048, 32)
    layers = [nn.Linear(size, size) for _ in range(24)]
    for layer in layers:
        layer.to(place.device, torch.bfloat16)
    x = place.randn(2 * size, size, dtype=torch.bfloat16)

    @torch.no_grad()
    def step() -> Any:
        y, total = x, 0.0
        for layer in layers:
            y = torch.tanh(layer(y))
            value = y.float().mean()
            total = total + (value if fixed else value.item())
        return total

    return step


def allocation_churn(place: Place, fixed: bool) -> Step:
    rows = place.pick(8192, 32)
    layers = (
        [nn.Linear(4096, 4096, bias=False) for _ in range(8)]
        if not place.tiny
        else [nn.Linear(32, 32)]
    )
    for layer in layers:
        layer.to(place.device, torch.bfloat16)
    x = place.randn(rows, layers[0].in_features, dtype=torch.bfloat16)

    @torch.no_grad()
    def step() -> Any:
        kept = [x]
        for layer in layers:
            kept.append(layer(kept[-1]))
        last = kept[-1].sum()
        del kept
        if not fixed:
            torch.cuda.empty_cache()
        return last

    return step


class Decoded(Dataset[torch.Tensor]):
    """A data set whose decode takes 2 ms of a core a sample."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        until = time.perf_counter() + 0.002
        while time.perf_counter() < until:
            pass
        return torch.rand(3, 64, 64)


def dataloader_stall(place: Place, fixed: bool) -> Step:
    """16 ms of decoding beside 6 ms of GPU work; eight workers make a batch in 2 ms."""
    how: dict[str, Any] = {"num_workers": place.pick(8, 2), "prefetch_factor": 4} if fixed else {}
    batches = iter(DataLoader(Decoded(), batch_size=8, **how))
    model = nn.Conv2d(3, 64, 3).to(place.device)
    work = products(place, place.pick(30, 1))

    @torch.no_grad()
    def step() -> Any:
        seen = model(next(batches).to(place.device)).mean()
        work()
        return seen

    return step


def gc_pause(place: Place, fixed: bool) -> Step:
    """A full collection a step in a process that holds many objects."""
    held = [[i] for i in range(place.pick(1_000_000, 1_000))]
    work, turns = products(place, place.pick(30, 1)), count(FIRST)

    def step() -> Any:
        out = work()
        if not fixed or next(turns) % EVERY == 0:
            with record_function("gc.collect"):
                gc.collect()
        return out, held

    return step


def logging_stall(place: Place, fixed: bool) -> Step:
    """A histogram of what is on the host already, written as text each step."""
    values = [random.random() for _ in range(place.pick(40_000, 100))]
    work, turns = products(place, place.pick(30, 1)), count(FIRST)
    path = Path(gettempdir()) / "brrrtop-promises.jsonl"

    def step() -> Any:
        out = work()
        if not fixed or next(turns) % EVERY == 0:
            with record_function("log_metrics"), path.open("w") as log:
                log.write(json.dumps({"histogram": values}) + "\n")
        return out

    return step


PAIRS: tuple[Pair, ...] = (
    launch_bound_compile,
    fused_optimizer,
    sync_point,
    dataloader_stall,
    cuda_graphs,
    allocation_churn,
    gc_pause,
    logging_stall,
)
