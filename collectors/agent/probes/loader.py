"""Marks the waits for the next batch, and the evaluation between two of them."""

from __future__ import annotations

from time import time_ns
from typing import Any, Callable

from ..fault_guard import FaultGuard
from ..library import EVALUATION, INPUT, Native, this_thread
from .probe import Probe, find_imported
from .steps import Steps

_BEGIN_GAP_NS = 250_000_000
"""Of iterations that begin more often, not each tells its place."""
_OPTIONS = ("num_workers", "pin_memory", "prefetch_factor", "persistent_workers")


class Loader(Probe):
    """Every `next()` on a torch DataLoader, also in the middle of a running iteration.

    An INPUT mark's name tells how the loader is set up, its value the batches that lay ready behind
    the one drawn (-1: no workers). From a batch drawn with gradients off to the next one is
    evaluation, unless an optimizer stepped meanwhile: some loops prefetch with gradients off.
    """

    name = "loader"

    def __init__(self, native: Native, fence: FaultGuard, steps: Steps) -> None:
        super().__init__(native, fence)
        self._steps = steps
        self._names: dict[int, int] = {}
        self._evaluating_ns = self._begun_ns = 0
        self._grad_enabled: Callable[[], bool] = lambda: True

    def place(self) -> None:
        base = find_imported("torch.utils.data.dataloader", "_BaseDataLoaderIter")
        if base is None:
            return
        self._grad_enabled = find_imported("torch", "is_grad_enabled") or self._grad_enabled
        for owner in (base, *base.__subclasses__()):
            self.patch(owner, "__next__", after=self._on_wait)

    def clear(self) -> None:
        self._names.clear()
        self._evaluating_ns = 0

    def _on_wait(self, args: Any, start_ns: int) -> None:
        end_ns = time_ns()
        loader = args[0]
        name_id = self._names.get(id(loader))
        # An address is used again by the next epoch's iterator, which starts counting anew.
        if name_id is None or loader._num_yielded <= 1:
            name_id = self._on_loader(loader, end_ns)
        queue = getattr(loader, "_data_queue", None)
        ready = -1 if queue is None else queue.qsize()
        native = self.native
        thread = this_thread()
        native.mark(INPUT, start_ns, end_ns, ready, name_id, thread)
        places = self._steps.places
        if end_ns >= places.due.get(id(loader), 0):
            places.note(INPUT, id(loader), end_ns)
        if self._evaluating_ns > self._steps.last_ns:
            native.mark(EVALUATION, self._evaluating_ns, start_ns, 0, name_id, thread)
        self._evaluating_ns = 0 if self._grad_enabled() else start_ns

    def _on_loader(self, loader: Any, now_ns: int) -> int:
        due = self._steps.places.due
        if abs(now_ns - self._begun_ns) >= _BEGIN_GAP_NS:
            self._begun_ns = now_ns
            due.pop(id(loader), None)
        else:
            due.setdefault(id(loader), now_ns + _BEGIN_GAP_NS)
        if len(self._names) >= 64:
            self._names.clear()
        options = [f"{key}={getattr(loader, '_' + key, None)}" for key in _OPTIONS]
        options.append(f"dataset={type(getattr(loader, '_dataset', None)).__name__}")
        self._names[id(loader)] = name_id = self.native.name(f"DataLoader({', '.join(options)})")
        return name_id
