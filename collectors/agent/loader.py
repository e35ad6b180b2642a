"""Marks the waits for the next batch, and the evaluation between two of them."""

from __future__ import annotations

from time import time_ns
from typing import Any, Callable, Dict

from .native import EVALUATION, INPUT
from .probe import Probe, imported

_LOADERS = 64


class Loader(Probe):
    """Every `next()` on a torch DataLoader, also in the middle of a running iteration.

    An INPUT mark's name tells how the loader is set up, its value the batches that lay ready behind
    the one drawn (-1: no workers). From a batch drawn with gradients off to the next one is
    evaluation, unless an optimizer stepped meanwhile: some loops prefetch with gradients off.
    """

    name = "loader"

    def __init__(self, native: Native, fence: Fence, steps: Steps) -> None:
        super().__init__(native, fence)
        self._steps = steps
        self._names: Dict[int, int] = {}
        self._evaluating_ns = 0
        self._grad_enabled: Callable[[], bool] = _always

    def install(self) -> None:
        super().install()
        base = imported("torch.utils.data.dataloader", "_BaseDataLoaderIter")
        if base is None:
            return
        self._grad_enabled = imported("torch", "is_grad_enabled") or _always
        for owner in (base, *base.__subclasses__()):
            own = vars(owner).get("__next__")
            if own is not None and not self.patched(owner, "__next__"):
                self.replace(owner, "__next__", self.timed(own, self._waited))

    def _waited(self, start_ns: int, loader: Any) -> None:
        end_ns = time_ns()
        name_id = self._names.get(id(loader))
        # An address is used again by the next epoch's iterator, which starts counting anew.
        if name_id is None or loader._num_yielded <= 1:
            name_id = self._met(loader)
        native = self.native
        thread = native.thread()
        native.mark(INPUT, start_ns, end_ns, ready_count(loader), name_id, thread)
        if self._evaluating_ns > self._steps.last_ns:
            native.mark(EVALUATION, self._evaluating_ns, start_ns, 0, name_id, thread)
        self._evaluating_ns = 0 if self._grad_enabled() else start_ns

    def _met(self, loader: Any) -> int:
        if len(self._names) >= _LOADERS:
            self._names.clear()
        self._names[id(loader)] = found = self.native.name(described(loader))
        return found


def ready_count(loader: Any) -> int:
    """Batches that lay ready behind the one just drawn; -1 without workers."""
    queue = getattr(loader, "_data_queue", None)
    return -1 if queue is None else int(queue.qsize())


def described(loader: Any) -> str:
    """How a loader's iterator is set up, as `DataLoader(workers=4, ...)`."""
    facts = {
        "workers": getattr(loader, "_num_workers", None),
        "pin_memory": getattr(loader, "_pin_memory", None),
        "prefetch": getattr(loader, "_prefetch_factor", None),
        "persistent": getattr(loader, "_persistent_workers", None),
        "dataset": type(getattr(loader, "_dataset", None)).__name__,
    }
    return "DataLoader(" + ", ".join(f"{k}={v}" for k, v in facts.items()) + ")"


def _always() -> bool:
    return True
