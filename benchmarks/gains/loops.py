"""Public models as training loops, and the edits that are made to them for real.

A model is registered with what its users choose (batch, precision, optimizer, how batches arrive) and a
maker, which puts the loop together from the parts of `Tools`. The same maker makes the base loop and every
edited one: `Tools` reads the edits.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

Batch = tuple[Any, ...]
Step = Callable[[], torch.Tensor]

ORDER = (
    "double-batch", "channels-last", "tf32", "bf16", "fused-optimizer", "sdpa", "loader-ready",
    "no-sync", "pinned-copies", "pinned-same-stream", "compile", "compile-reduce-overhead",
    "compile+bf16", "compile+channels-last",
)  # fmt: skip
"""Every edit, cheap ones first. `pinned-same-stream` is pinned memory whose copies wait in the stream of
the compute; the others are those of the JSON contract, and `+` makes two of them at once."""


def half_of(name: str) -> str:
    """`fresh`, `tune` or `test`. Nothing was tuned on *fresh*, whose models were chosen before any of them
    was measured, those of rounds that are not kept here among them. The two others are told apart by a name
    alone: *tune* was in view from the start, *test* was looked at once and tuned on from then on."""
    if name not in MODELS or MODELS[name].fresh:
        return "fresh"
    return "test" if hashlib.sha256(name.encode()).digest()[-1] & 1 else "tune"


@dataclass(frozen=True)
class Public:
    """A model that is not ours, in the loop that its users write.

    Attributes:
        batch: Samples of a step.
        precision: fp32 (torch's defaults), bf16 or fp16 (autocast; fp16 with a scaler), or bf16-weights.
        optimizer: adam, adamw, sgd, adadelta, or hand (`p.data.add_(p.grad, alpha=-lr)`).
        images: Convolutions over NCHW batches, for which there is a channels-last layout.
        written: Attention is written out, and the model can be told to use scaled_dot_product_attention.
        feed: gpu (the batch lies there), loader (a DataLoader with work to do), pageable (host copies).
        waits: The loop reads a value back each step and logs it.
        whole: The batch is one whole graph; there is no twice as many.
        period: Steps after which the loop repeats itself.
        fresh: Nothing was tuned on it.
        compiled: Its users compile it already.
    """

    name: str
    maker: Callable[[Tools], Step]
    batch: int
    precision: str = "fp32"
    optimizer: str = "adamw"
    images: bool = False
    written: bool = False
    feed: str = "gpu"
    waits: bool = False
    whole: bool = False
    period: int = 1
    fresh: bool = False
    compiled: bool = False
    tiny_batch: int = 2

    @property
    def kind(self) -> str:
        return self.name.partition("_")[0]

    @property
    def half(self) -> str:
        return half_of(self.name)

    @property
    def edits(self) -> tuple[str, ...]:
        """Those that apply, in the order of `ORDER`."""
        fp32 = self.precision == "fp32"
        applies = {
            "compile": not self.compiled,
            "compile-reduce-overhead": True,
            "channels-last": self.images,
            "tf32": fp32,
            "bf16": fp32,
            "double-batch": not self.whole,
            "fused-optimizer": self.optimizer != "adadelta",
            "sdpa": self.written,
            "loader-ready": self.feed == "loader",
            "no-sync": self.waits,
            "pinned-copies": self.feed == "pageable",
            "pinned-same-stream": self.feed == "pageable",
            "compile+channels-last": self.images,
            "compile+bf16": fp32,
        }
        return tuple(edit for edit in ORDER if applies[edit])


MODELS: dict[str, Public] = {}


def public(name: str, maker: Callable[[Tools], Step], batch: int, **facts: Any) -> None:
    """Registers a model."""
    MODELS[name] = Public(name, maker, batch, **facts)


def in_turn() -> list[Public]:
    """All models, the kinds interleaved: whatever is cut off, the rest is a fair sample."""
    kinds: dict[str, list[Public]] = {}
    for model in sorted(MODELS.values(), key=lambda m: hashlib.sha256(m.name.encode()).digest()):
        kinds.setdefault(model.kind, []).append(model)
    shares = [
        ((at + 0.5) / len(group), model)
        for group in kinds.values()
        for at, model in enumerate(group)
    ]
    return [model for _, model in sorted(shares, key=lambda pair: (pair[0], pair[1].name))]


def moved(value: Any, device: torch.device, images: bool = False, wait: bool = True) -> Any:
    """Tensors of nested tuples and dicts on the device, those of 4 dimensions in channels-last if asked."""
    if isinstance(value, torch.Tensor):
        value = value.to(device, non_blocking=not wait)
        channels = images and value.dim() == 4
        return value.contiguous(memory_format=torch.channels_last) if channels else value
    if isinstance(value, dict):
        return {key: moved(v, device, images, wait) for key, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(moved(v, device, images, wait) for v in value)
    return value


def pinned(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(map(pinned, value))
    return value.pin_memory() if torch.cuda.is_available() else value


class Ahead:
    """Batches copied on a stream of their own while the step before computes."""

    def __init__(self, batches: Iterator[Batch], device: torch.device, images: bool) -> None:
        self._batches, self._device, self._images = batches, device, images
        self._stream = torch.cuda.Stream() if device.type == "cuda" else None
        self._next = self._begin()

    def _begin(self) -> Batch:
        with torch.cuda.stream(self._stream) if self._stream else contextlib.nullcontext():
            return moved(next(self._batches), self._device, self._images, wait=False)

    def __call__(self) -> Batch:
        if self._stream:
            torch.cuda.current_stream().wait_stream(self._stream)
        batch = self._next
        for tensor in batch:
            if self._stream and isinstance(tensor, torch.Tensor):
                tensor.record_stream(torch.cuda.current_stream())
        self._next = self._begin()
        return batch


class Tools:
    """What a maker puts its loop together from; each part obeys the edits.

    Args:
        edit: One of `Public.edits`; empty: the base loop.
        tiny: Sizes for a check on a CPU.
    """

    def __init__(self, public: Public, edit: str, device: torch.device, tiny: bool = False) -> None:
        self.public, self.device, self.tiny = public, device, tiny
        self.edits = frozenset(filter(None, edit.split("+")))
        size = public.tiny_batch if tiny else public.batch
        self.batch = size * (2 if "double-batch" in self.edits else 1)
        self.sdpa = "sdpa" in self.edits or not public.written
        self.channels_last = "channels-last" in self.edits
        self.waits = public.waits and "no-sync" not in self.edits
        bf16 = public.precision == "bf16" or "bf16" in self.edits
        self.half = (
            torch.bfloat16 if bf16 else torch.float16 if public.precision == "fp16" else None
        )
        scales = public.precision == "fp16" and device.type == "cuda"
        self.scaler = torch.amp.GradScaler("cuda") if scales else None
        torch.manual_seed(0)
        self.set_precision()

    def set_precision(self) -> None:
        """Of float32 products, which torch keeps for the whole process: before steps of this loop."""
        torch.set_float32_matmul_precision("high" if "tf32" in self.edits else "highest")

    def pick(self, full: Any, tiny: Any) -> Any:
        return tiny if self.tiny else full

    def randn(self, *shape: int, device: Any = None) -> torch.Tensor:
        return torch.randn(*shape, device=device or self.host_or_device)

    def randint(self, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, device=self.host_or_device)

    @property
    def host_or_device(self) -> torch.device:
        """Where batches are born."""
        return self.device if self.public.feed == "gpu" else torch.device("cpu")

    def prepare(self, module: nn.Module) -> Any:
        """On the device, in training mode, with the edits that are made to a model."""
        module = module.to(self.device).train()
        if self.public.precision == "bf16-weights":
            module = module.to(torch.bfloat16)
        if self.channels_last:
            module = module.to(memory_format=torch.channels_last)
        if "compile-reduce-overhead" in self.edits:
            return torch.compile(module, mode="reduce-overhead")
        if "compile" in self.edits or self.public.compiled:
            return torch.compile(module)
        return module

    def optimizer(self, module: nn.Module, rate: float = 1e-4) -> Callable[[], None]:
        """One update, as the optimizer's default or its fused form does it; gradients are gone after it."""
        parameters = [p for p in module.parameters() if p.requires_grad]
        kind = self.public.optimizer
        fused = {"fused": True} if "fused-optimizer" in self.edits else {}
        if kind == "hand" and not fused:

            def by_hand() -> None:
                for p in parameters:
                    if p.grad is not None:
                        p.data.add_(p.grad, alpha=-rate)
                module.zero_grad()

            return by_hand
        makers: dict[str, Callable[..., torch.optim.Optimizer]] = {
            "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "adadelta": torch.optim.Adadelta,
            "hand": torch.optim.SGD, "sgd": torch.optim.SGD,
        }  # fmt: skip
        momentum = {"momentum": 0.9} if kind == "sgd" else {}
        made = makers[kind](parameters, lr=rate, **momentum, **fused)

        def update() -> None:
            if self.scaler is None:
                made.step()
            else:
                self.scaler.step(made)
                self.scaler.update()
            made.zero_grad(set_to_none=True)

        return update

    def amp(self) -> Any:
        if self.half is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.half)

    def backward(self, loss: torch.Tensor) -> None:
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def feed(self, example: Callable[[], Batch]) -> Callable[[], Batch]:
        """The next batch, by the way the model's users get it; `example` draws one on the host or GPU."""
        feed = "gpu" if "loader-ready" in self.edits else self.public.feed
        device, images = self.device, self.channels_last
        if feed == "loader":
            raise ValueError("a model with a loader calls `loaded`")
        here = [example() for _ in range(2)]
        if "pinned-copies" in self.edits:
            return Ahead(itertools.cycle(map(pinned, here)), device, images)
        if "pinned-same-stream" in self.edits:
            ready = itertools.cycle(list(map(pinned, here)))
            return lambda: moved(next(ready), device, images, wait=False)
        if feed == "pageable":
            turns = itertools.cycle(here)
            return lambda: moved(next(turns), device, images)
        lying = itertools.cycle([moved(b, device, images) for b in here])
        return lambda: next(lying)

    def loaded(self, dataset: Any, workers: int, collate: Any = None) -> Callable[[], Batch]:
        """Batches of a DataLoader; or, with the edit, the first two of them lying on the GPU."""
        workers = 0 if self.tiny else workers
        loader = torch.utils.data.DataLoader(
            dataset, self.batch, shuffle=True, num_workers=workers, collate_fn=collate, drop_last=True,
            pin_memory=self.device.type == "cuda", persistent_workers=workers > 0,
        )  # fmt: skip
        batches = itertools.chain.from_iterable(itertools.repeat(loader))
        if "loader-ready" in self.edits:
            lying = itertools.cycle(
                [moved(next(batches), self.device, self.channels_last) for _ in range(2)]
            )
            return lambda: next(lying)
        return lambda: moved(next(batches), self.device, self.channels_last, wait=False)

    def train(
        self,
        module: nn.Module,
        batches: Callable[[], Batch],
        loss: Callable[..., torch.Tensor],
        rate: float = 1e-4,
        clip: float | None = None,
    ) -> Step:
        """The plain loop's step: `loss(model, *batch)`, backward, update."""
        model = self.prepare(module)
        update = self.optimizer(module, rate)
        graphs = "compile-reduce-overhead" in self.edits

        def step() -> torch.Tensor:
            if graphs:
                torch.compiler.cudagraph_mark_step_begin()
            batch = batches()
            with self.amp():
                result = loss(model, *batch)
            self.backward(result)
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
            update()
            if self.waits:
                self.log(loss=result)
            return result.detach()

        return step

    def log(self, **values: torch.Tensor) -> None:
        """Reads the values back and writes a line, as loops do each step."""
        line = " ".join(f"{name}={value.item():.4f}" for name, value in values.items())
        with Path(os.devnull).open("a") as file:
            print(line, file=file, flush=True)


def make(name: str, edit: str, device: torch.device, tiny: bool = False) -> tuple[Step, Tools]:
    """One step of the loop with the edit made, and the tools it was made with."""
    tools = Tools(MODELS[name], edit, device, tiny)
    return tools.public.maker(tools), tools
