"""Writes down when the steps of a trial end: on the GPU's clock too, with losses, samples and memory.

A step ends where the optimizer steps; where none ever does, where the next batch is drawn or a backward
pass ends. Lines of JSON go to `PID.jsonl` of the trial's folder, written by the process that steps, at
most twenty a second. Nothing here waits for the GPU: its events and losses are read once they are there.

An evaluation between two steps is no part of either: seconds of it, in one run and not in the next, would
hide what an edit wins. It is where batches of a loader, or a model's `eval()` up to its `train()`, go by
without a backward pass.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from .edits import Edits, compiled_graphs

MARK_NS = 50_000_000
"""Between two lines of steps."""
DETAILS_NS = 1_000_000_000
"""Between two lines with what is slow to ask for."""
WITHOUT_OPTIMIZER = 20
"""Batches or backward passes before it is settled that no optimizer steps."""
SETTLED = 3
"""Steps after which models are known. A GAN has two, each of them called in the first step."""
EVALUATED_BATCHES = 2
"""Batches of another loader without a backward pass between them: one alone may be half of a step's data."""
STEPS_BETWEEN = 4
"""Evaluations that follow each other after fewer steps are a part of the program's steps."""
FIRST_LOSSES, EACH_LOSS, LOSSES = 32, 10, 1024
"""The losses of so many first steps are kept, then each tenth, so many in all."""


class Steps:
    def __init__(self, torch: Any, folder: str, edits: Edits) -> None:
        self._torch, self._folder, self._edits = torch, folder, edits
        self._file: int | None = None
        self._muted = False
        self._unit, self._primary = "", 0
        self._before = {"batch": 0, "backward": 0}
        self._steps = self._samples = self._waited_ns = 0
        self._began_ns = self._marked_ns = self._detailed_ns = 0
        self._loss: Any = None
        self._losses: deque[tuple[int, Any]] = deque()
        self._loss_count = 0
        self._room: Any = None
        self._event: Any = None
        self._device_ns = 0
        self._pending: deque[tuple[Any, dict[str, Any], list[tuple[int, Any]]]] = deque()
        self._iterator = self._drawn = 0
        self._since: Any = None
        """Event and line of when it began to draw; None: a backward pass came since."""
        self._evaluates: Any = None
        """Id of a model that was put into evaluation, and the same of when."""
        self._evaluated_step = -STEPS_BETWEEN

    def install(self) -> None:
        torch = self._torch
        os.register_at_fork(after_in_child=self._mute)
        optimizer = sys.modules["torch.optim.optimizer"]
        optimizer.register_optimizer_step_post_hook(self._on_optimizer)
        backward = torch.Tensor.backward

        @functools.wraps(backward)
        def noted_backward(loss: Any, *args: Any, **kwargs: Any) -> Any:
            self.on_model()
            self._loss = loss.detach() if loss.numel() == 1 else None
            result = backward(loss, *args, **kwargs)
            self._ended("backward")
            return result

        torch.Tensor.backward = noted_backward
        base = sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter
        for owner in (base, *base.__subclasses__()):
            if "__next__" in vars(owner):
                owner.__next__ = self._around_next(owner.__next__)
        base.__init__ = self._calling(
            base.__init__, lambda iterator, *_: self._draw_from(id(iterator))
        )
        module = torch.nn.Module
        module.eval = self._calling(module.eval, self._on_eval)
        module.train = self._around_train(module.train)

    def fail(self, message: str) -> None:
        self._write({"fault": message})

    def on_model(self) -> None:
        """The first call of a model, batch or backward pass is where the program's steps begin."""
        self._began_ns = self._began_ns or monotonic_ns()

    def _mute(self) -> None:
        self._muted, self._file = True, None

    def _calling(self, original: Any, first: Callable[..., None]) -> Any:
        @functools.wraps(original)
        def after_ours(*args: Any, **kwargs: Any) -> Any:
            self._safely(first, *args)
            return original(*args, **kwargs)

        return after_ours

    def _safely(self, action: Callable[..., None], *args: Any) -> None:
        """A fault of ours ends what is written down, not the program."""
        if self._muted:
            return
        try:
            action(*args)
        except Exception as fault:
            self._muted = True
            self.fail(f"{type(fault).__name__}: {fault}")

    def _draw_from(self, iterator: int) -> None:
        """What an iterator of a loader drew ends where another one is made or drawn from."""
        if self._drawn >= EVALUATED_BATCHES and self._since is not None:
            self._leave_out(self._since)
        self._iterator, self._drawn = iterator, 0
        self._since = self._point()

    def _on_eval(self, model: Any) -> None:
        if self._evaluates is None:
            self._evaluates = (id(model), self._point())

    def _around_train(self, original: Any) -> Any:
        @functools.wraps(original)
        def train(model: Any, mode: bool = True) -> Any:
            if self._evaluates is not None and mode and self._evaluates[0] == id(model):
                self._safely(self._leave_out, self._evaluates[1])
            return original(model, mode)

        return train

    def _point(self) -> tuple[Any, dict[str, Any]]:
        """An event on the GPU and a line of steps, of this moment."""
        line: dict[str, Any] = {
            "n": self._steps, "t": monotonic_ns(), "samples": self._samples,
            "waited": self._waited_ns,
        }  # fmt: skip
        event = None
        if self._on_gpu():
            event = self._torch.cuda.Event(enable_timing=True)
            event.record()
        return event, line

    def _leave_out(self, since: tuple[Any, dict[str, Any]]) -> None:
        """Says that the time since then is of no step, unless each step has such a time."""
        rare = self._steps - self._evaluated_step >= STEPS_BETWEEN
        self._evaluated_step = self._steps
        self._since = self._evaluates = None
        if self._steps >= SETTLED and self._unit != "batch" and rare:
            event, line = self._point()
            self._pending.extend([(*since, []), (event, {**line, "apart": True}, [])])

    def _around_next(self, original: Any) -> Any:
        @functools.wraps(original)
        def timed_next(loader: Any) -> Any:
            if id(loader) != self._iterator:
                self._safely(self._draw_from, id(loader))
            start_ns = monotonic_ns()
            self._began_ns = self._began_ns or start_ns
            batch = original(loader)
            self._waited_ns += monotonic_ns() - start_ns
            self._samples += _size(batch)
            self._drawn += 1
            self._ended("batch")
            return batch

        return timed_next

    def _on_optimizer(self, optimizer: Any, *_: Any) -> None:
        if self._unit != "step":
            self._unit, self._primary, self._steps = "step", id(optimizer), 0
        if id(optimizer) == self._primary:
            self._ended("step")

    def _ended(self, unit: str) -> None:
        if self._muted:
            return
        if unit != "batch":
            self._since = self._evaluates = None
        if not self._unit:
            self._before[unit] += 1
            if self._before[unit] >= WITHOUT_OPTIMIZER:
                self._unit = unit
        if unit == self._unit:
            self._safely(self._count)

    def _count(self) -> None:
        self._steps += 1
        self._keep_loss()
        now_ns = monotonic_ns()
        if self._steps == SETTLED:
            self._write({
                "pid": os.getpid(), "rank": os.environ.get("RANK"), "cwd": os.getcwd(),
                "cmdline": _cmdline(), "unit": self._unit, "began_ns": self._began_ns,
                "gpu": self._gpu(), "facts": self._edits.settle(),
            })  # fmt: skip
        if self._steps >= SETTLED and now_ns - self._marked_ns >= MARK_NS:
            self._mark(now_ns)

    def _mark(self, now_ns: int) -> None:
        self._marked_ns = now_ns
        event, line = self._point()
        if now_ns - self._detailed_ns >= DETAILS_NS:
            self._detailed_ns = now_ns
            line.update(self._details())
        losses = list(self._losses)
        self._losses.clear()
        self._pending.append((event, line, losses))
        while self._pending and (self._pending[0][0] is None or self._pending[0][0].query()):
            self._emit(*self._pending.popleft())

    def _emit(self, event: Any, line: dict[str, Any], losses: list[tuple[int, Any]]) -> None:
        if event is not None:
            if self._event is not None:
                self._device_ns += round(self._event.elapsed_time(event) * 1e6)
            self._event = event
            line["d"] = self._device_ns
        if losses:
            line["losses"] = [(step, float(value)) for step, value in losses]
        self._write(line)

    def _details(self) -> dict[str, Any]:
        peak = self._torch.cuda.max_memory_allocated() if self._on_gpu() else None
        return {"graphs": compiled_graphs(), "peak": peak}

    def _keep_loss(self) -> None:
        """Keeps this step's loss without a wait: it is copied to the host behind what is queued."""
        loss, self._loss = self._loss, None
        wanted = self._steps <= FIRST_LOSSES or self._steps % EACH_LOSS == 0
        if loss is None or not wanted or self._loss_count >= LOSSES:
            return
        if loss.device.type == "cuda":
            if self._room is None:
                self._room = self._torch.empty(LOSSES, pin_memory=True)
            kept = self._room[self._loss_count]
            kept.copy_(loss, non_blocking=True)
        else:
            kept = float(loss)
        self._losses.append((self._steps, kept))
        self._loss_count += 1

    def _on_gpu(self) -> bool:
        return bool(self._torch.cuda.is_initialized())

    def _gpu(self) -> str | None:
        return self._torch.cuda.get_device_name() if self._on_gpu() else None

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            path = os.path.join(self._folder, f"{os.getpid()}.jsonl")
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(self._file, (json.dumps(line) + "\n").encode())


def _cmdline() -> list[str]:
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]


def _size(batch: Any) -> int:
    """Samples of a batch: its graphs, or the first dimension of its first tensor; 0 where it has none."""
    graphs = getattr(batch, "num_graphs", None)
    if isinstance(graphs, int):
        return graphs
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return next((size for size in map(_size, batch) if size), 0)
    shape: Any = getattr(batch, "shape", ())
    return int(shape[0]) if len(shape) else 0
