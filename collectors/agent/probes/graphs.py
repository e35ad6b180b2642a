"""Says whether the trainer may hold CUDA graphs: CUPTI can only be taken out where none exist."""

from __future__ import annotations

from typing import Any, Callable

from .probe import Probe, find_imported


class Graphs(Probe):
    """Finalizing CUPTI while a graph replays kills the trainer, so doubt counts as a graph.

    A graph that torch captured has a memory pool of its own for as long as it lives; one that is
    captured later is heard of before it begins.
    """

    name = "graphs"
    _looked = _captures = False
    capturing: Callable[[], None] | None = None
    """Called on the thread that captures, before it begins."""

    def place(self) -> None:
        owner = find_imported("torch.cuda.graphs", "CUDAGraph")
        if owner is not None:
            self.patch(owner, "capture_begin", before=self._capturing)
            self.patch(owner, "capture_end", after=self._on_capture)

    def clear(self) -> None:
        self._looked = False
        if self._captures:
            self._on_capture((), 0)

    def wake(self, now_ns: int) -> None:
        cuda = find_imported("torch.cuda")
        if self._looked or cuda is None or not self._patches or not cuda.is_initialized():
            return
        self._looked = True
        pools = {tuple(part.get("segment_pool_id", (0, 0))) for part in cuda.memory_snapshot()}
        self.native.graphs(1 if pools - {(0, 0)} else 0)

    def _capturing(self, _: Any) -> None:
        if self.capturing is not None:
            self.capturing()
        self._captures = True
        self.native.capture(1)
        self.native.graphs(1)

    def _on_capture(self, _: Any, __: int) -> None:
        self._captures = False
        self.native.capture(0)
