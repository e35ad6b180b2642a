"""Keeps out of the way: tells of CUDA graphs, under whose captures nothing may be switched, and leaves
CUPTI to torch.profiler before it starts, until it is over."""

from __future__ import annotations

import weakref
from typing import Any, Callable

from .probe import Probe, find_imported

_RECORDING = ("torch.autograd.profiler", "_is_profiler_enabled")


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


class Neighbour(Probe):
    """Hooks on `torch.autograd.profiler.profile`, which every torch profiler goes through.

    Preparing is the only hook early enough: Kineto takes CUPTI's callbacks there, long before torch
    calls itself profiling. The hooks sit on the class, so objects made before the attach count too.
    """

    name = "neighbour"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._open: dict[int, Any] = {}
        """Profiles between prepare and exit, by address, as weak references."""
        self._found_running = self._yielded = False
        self.arriving: Callable[[], None] | None = None
        """Called on the thread on which another profiler begins, before it does."""

    @property
    def present(self) -> bool:
        """Another profiler is at work, or about to be."""
        return self._yielded

    def place(self) -> None:
        owner = find_imported("torch.autograd.profiler", "profile")
        if owner is None or self._patches:
            return
        self.patch(owner, "_prepare_trace", before=self._on_enter)
        self.patch(owner, "_start_trace", before=self._on_enter)
        self.patch(owner, "__exit__", after=self._on_leave)
        # What ended while we were not looking, and what was running before we came.
        self._drop(lambda profile: profile is None or profile.kineto_results is not None)
        self._found_running = bool(find_imported(*_RECORDING)) and not self._open
        self._settle()

    def wake(self, now_ns: int) -> None:
        """Notice profiles that were dropped without an exit, or that we never saw begin."""
        self._drop(lambda profile: profile is None)
        self._settle()

    def _on_enter(self, args: Any) -> None:
        if self.arriving is not None:
            self.arriving()
        self._open[id(args[0])] = weakref.ref(args[0])
        self._settle()

    def _on_leave(self, args: Any, _: int) -> None:
        self._open.pop(id(args[0]), None)
        self._settle()

    def _drop(self, ended: Callable[[Any], bool]) -> None:
        for key, reference in list(self._open.items()):
            if ended(reference()):
                del self._open[key]

    def _settle(self) -> None:
        self._found_running = self._found_running and bool(find_imported(*_RECORDING))
        wanted = bool(self._open) or self._found_running
        if wanted != self._yielded:
            self._yielded = wanted
            if wanted:
                self.native.give_way("torch.profiler")
            else:
                self.native.resume()
