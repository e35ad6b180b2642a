"""A rank of a distributed job that `ranks.py` watches, torments and slows down; started by torchrun.

    torchrun --standalone --nproc-per-node 2 benchmarks/ranks_trainer.py exact|ddp|fsdp --folder DIR

`exact` trains a small model under DDP from a fixed seed with deterministic algorithms and appends each
loss as four bytes to DIR/rankN.f4. `ddp` and `fsdp` train a transformer in bf16 on batches of a DataLoader; what
goes wrong on which rank is read in each step from DIR/plan, and DIR/rankN.steps tells when each step ended.
A rank touches its GPU once DIR/begin exists, writes its process id to DIR/rankN.pid once it is warm, and trains
on once DIR/go exists.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import stepped
import torch
import torch.distributed as dist
from ranks_plan import LOADER, LOG_STEPS, SLEEP, WORK, Plan
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

SHAPES = {"ddp": (16384, 1024, 8, 16, 1025), "fsdp": (16384, 2048, 4, 8, 1025)}
"""Words, width, depth, rows and length: the GPU, not the host that gathers layer by layer, sets the pace."""


class Batches(IterableDataset):  # type: ignore[type-arg]
    """Random tokens, half of a batch more than what is usually trained on."""

    def __init__(self, plan: Plan, words: int, rows: int, length: int) -> None:
        self._plan, self._shape, self._words = plan, (rows, length), words

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            if late_s := self._plan.seconds(LOADER):
                time.sleep(late_s)
            yield torch.randint(self._words, self._shape)


def loader(plan: Plan, words: int, rows: int, length: int, pinned: bool) -> Iterator[torch.Tensor]:
    return iter(
        DataLoader(
            Batches(plan, words, rows, length), batch_size=None, num_workers=1, pin_memory=pinned,
            multiprocessing_context="fork",
        )
    )  # fmt: skip


class Block(nn.Module):
    """Causal attention and an MLP, both on a residual stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        tensor: torch.Tensor = x + self.mlp(self.norms[1](x))
        return tensor


class Transformer(nn.Module):
    def __init__(self, words: int, width: int, depth: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, max(1, width // 64)) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens[:, :-1])
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1).float(), tokens[:, 1:].flatten())


def language(args: argparse.Namespace, device: torch.device) -> None:
    """Steps of the transformer, under DDP or FSDP."""
    cuda, rank = device.type == "cuda", dist.get_rank()
    words, width, depth, rows, length = SHAPES[args.job] if cuda else (64, 32, 2, 2, 17)
    model: nn.Module = Transformer(words, width, depth).to(device)
    if args.job == "fsdp":
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=cuda)
    plan = Plan(args.folder / "plan", rank)
    batches = loader(plan, words, rows + rows // 2, length, cuda)

    def step(more: bool) -> torch.Tensor:
        batch = next(batches)
        tokens = (batch if more else batch[:rows]).to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16):
            loss: torch.Tensor = model(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for number in range(8):
        step(number % 2 == 1)
    optimizer.register_step_post_hook(hook(args.folder, rank))
    wait_to_go(args.folder, cuda)
    number = 0
    while True:
        loss = step(plan.seconds(WORK) > 0)
        number += 1
        if rank == 0 and number % LOG_STEPS == 0:
            print(f"step {number} loss {loss.item():.3f}", flush=True)
        if late_s := plan.seconds(SLEEP):
            time.sleep(late_s)


def hook(folder: Path, rank: int) -> Callable[..., None]:
    return stepped.Log(folder / f"rank{rank}.steps", None).stepped


def exact(args: argparse.Namespace, device: torch.device) -> None:
    """Dropout, Python's own generator and the gradients of both ranks show whether anything was disturbed."""
    torch.manual_seed(7 + dist.get_rank())
    random.seed(7)
    torch.use_deterministic_algorithms(True)
    width = 1024 if device.type == "cuda" else 32
    layers = [nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1)) for _ in range(4)]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(width, 64)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    wait_to_go(args.folder, device.type == "cuda")
    with (args.folder / f"rank{dist.get_rank()}.f4").open("ab", buffering=0) as file:
        while True:
            x = torch.randn(256, width, device=device)
            loss = model(x * random.random()).square().mean() + 0.01
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            file.write(struct.pack("<f", float(loss.detach())))


def wait_to_go(folder: Path, cuda: bool) -> None:
    if cuda:
        torch.cuda.synchronize()
    (folder / f"rank{dist.get_rank()}.pid").write_text(str(os.getpid()))
    wait_for(folder / "go")
    dist.barrier()


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job", choices=("exact", "ddp", "fsdp"))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    wait_for(args.folder / "begin")
    device = torch.device(args.device)
    if args.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
    (exact if args.job == "exact" else language)(args, device)


if __name__ == "__main__":
    main()
