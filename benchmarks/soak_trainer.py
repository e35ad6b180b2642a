"""What `soak.py` torments: a busy trainer, or a deterministic one that writes down every loss.

    python benchmarks/soak_trainer.py busy [--graphs] [--foreign-hook] [--order FILE] [--device cpu]
    python benchmarks/soak_trainer.py exact --losses FILE [--order FILE] [--device cpu]

`busy` allocates tensors of random sizes, loads data in two workers, runs a torch.compile'd block and,
with --graphs, replays a CUDA graph and a graphed callable; it prints a line about every half second.
With --foreign-hook it has a global optimizer hook of its own that lets other threads run.
`exact` trains from a fixed seed with deterministic algorithms and appends each loss as four bytes.
Once the file of --order exists it is read as JSON {"steps": n, "out": FILE}: n steps are traced with
torch.profiler, and the trace lies at `out`. Each optimizer step waits for the device, so that the
kernels between two steps' ends are one step's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):  # type: ignore[type-arg]
    """Random rows, made by loader workers."""

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(256)


def block(width: int, device: torch.device) -> nn.Module:
    return nn.Sequential(
        nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, width)
    ).to(device)


def graph_replays(device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    """A graphed callable that trains, after the replay of a plain captured graph."""
    sample = torch.randn(64, 256, device=device, requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(block(256, device), (sample,))
    still, weight = torch.randn(256, 256, device=device), torch.randn(256, 256, device=device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.tanh(still @ weight)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            still.copy_(torch.tanh(still @ weight))

    def replay(x: torch.Tensor) -> torch.Tensor:
        graph.replay()
        tensor: torch.Tensor = graphed(x)
        return tensor

    return replay


def busy(args: argparse.Namespace, device: torch.device) -> None:
    cuda = device.type == "cuda"
    model, plain = block(256, device), block(256, device)
    compiled = torch.compile(plain, backend="inductor" if cuda else "aot_eager")
    replay = graph_replays(device) if args.graphs else None
    optimizer = torch.optim.AdamW([*model.parameters(), *plain.parameters()], lr=1e-4)
    loader = DataLoader(Noise(), batch_size=64, num_workers=2, shuffle=False, pin_memory=cuda)
    if args.foreign_hook:
        register_optimizer_step_post_hook(lambda *_: time.sleep(0.001))
    tensors: list[torch.Tensor] = []
    checked_s = time.monotonic()
    profiling: tuple[Any, int, Path] | None = None
    for step, rows in enumerate(loader):
        profiling = next_of_profile(args.order, profiling, step, device)
        x = rows.to(device, non_blocking=True)
        tensors += [torch.empty(random.randrange(1, 1 << 22), device=device) for _ in range(8)]
        random.shuffle(tensors)
        del tensors[24:]
        if step % 400 == 399 and cuda:
            tensors.clear()
            torch.cuda.empty_cache()
        y = compiled(model(x))
        if replay is not None:
            y = y + replay(x.detach().requires_grad_(True))
        loss = y.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if time.monotonic() - checked_s > 0.5:
            value = float(loss)
            if value != value:
                sys.exit("the loss is no number")
            print(f"step={step} loss={value:.4f}", flush=True)
            checked_s = time.monotonic()


def next_of_profile(
    order: Path | None, under_way: tuple[Any, int, Path] | None, step: int, device: torch.device
) -> tuple[Any, int, Path] | None:
    """Begins and ends torch.profiler's profiles of a busy loop: (profiler, last step, trace)."""
    if under_way is not None and step >= under_way[1]:
        profiler, _, out = under_way
        profiler.__exit__(None, None, None)
        half_made = f"{out}.part.json"
        profiler.export_chrome_trace(half_made)
        Path(half_made).rename(out)
        return None
    if under_way is None and order is not None and order.exists():
        wanted = json.loads(order.read_text())
        order.unlink()
        profiler = torch.profiler.profile(activities=kinds(device))
        profiler.__enter__()
        return profiler, step + int(wanted["steps"]), Path(wanted["out"])
    return under_way


def kinds(device: torch.device) -> list[torch.profiler.ProfilerActivity]:
    cpu, cuda = torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA
    return [cpu, *([cuda] if device.type == "cuda" else [])]


class Exact:
    """The deterministic loop. Dropout and Python's own generator show whether either was disturbed."""

    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(7)
        random.seed(7)
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        self._device = device
        self._width = 2048 if device.type == "cuda" else 64
        width = self._width
        layers = [
            nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1)) for _ in range(3)
        ]
        self._model = nn.Sequential(*layers, nn.Linear(width, 64)).to(device)
        self.optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4, foreach=False)

    def step(self) -> float:
        x = torch.randn(512 if self._width > 64 else 8, self._width, device=self._device)
        loss = self._model(x * random.random()).square().mean() + 0.01
        self.optimizer.zero_grad(set_to_none=False)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


def traced(loop: Exact, order: dict[str, Any], device: torch.device) -> list[float]:
    """The losses of the steps that were traced."""
    from torch.profiler import profile

    with profile(activities=kinds(device)) as warm_up:
        result = [loop.step()]
    del warm_up
    with profile(activities=kinds(device)) as profiler:
        result += [loop.step() for _ in range(int(order["steps"]))]
    half_made = f"{order['out']}.part.json"
    profiler.export_chrome_trace(half_made)
    Path(half_made).rename(order["out"])
    return result


def exact(args: argparse.Namespace, device: torch.device) -> None:
    def wait(*_: object) -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    loop = Exact(device)
    loop.optimizer.register_step_post_hook(wait)
    with args.losses.open("ab", buffering=0) as file:
        while True:
            file.write(struct.pack("<f", loop.step()))
            if args.order is not None and args.order.exists():
                order = json.loads(args.order.read_text())
                args.order.unlink()
                losses = traced(loop, order, device)
                file.write(struct.pack(f"<{len(losses)}f", *losses))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("loop", choices=("busy", "exact"))
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--foreign-hook", action="store_true")
    parser.add_argument("--losses", type=Path)
    parser.add_argument("--order", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    (busy if args.loop == "busy" else exact)(args, device)


if __name__ == "__main__":
    main()
