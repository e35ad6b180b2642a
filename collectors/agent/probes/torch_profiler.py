"""Gets out of torch.profiler's way before it starts, and comes back after it."""

from __future__ import annotations

import weakref
from typing import Any, Callable

from .probe import Probe, find_imported

_RECORDING = ("torch.autograd.profiler", "_is_profiler_enabled")


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
