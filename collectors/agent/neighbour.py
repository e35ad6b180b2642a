"""Gets out of torch.profiler's way before it starts, and comes back after it."""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable, Dict

from .probe import Probe, imported

_WHO = "torch.profiler"


class Neighbour(Probe):
    """Hooks on `torch.autograd.profiler.profile`, which every torch profiler goes through.

    Preparing is the only hook early enough: Kineto takes CUPTI's callbacks there, long before torch
    calls itself profiling. The hooks sit on the class, so objects made before the attach count too.
    """

    name = "neighbour"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._open: Dict[int, Any] = {}
        """Profiles between prepare and exit, by address, as weak references."""
        self._found_running = False
        self._yielded = False

    def install(self) -> None:
        super().install()
        owner = imported("torch.autograd.profiler", "profile")
        if owner is None or self.patches:
            return
        for attribute, wrap in (
            ("_prepare_trace", self._before),
            ("_start_trace", self._before),
            ("__exit__", self._after),
        ):
            original = vars(owner).get(attribute)
            if original is not None:
                self.replace(owner, attribute, wrap(original))
        # What closed while we were not looking, and what was running before we came.
        self._drop(lambda profile: profile is None or profile.kineto_results is not None)
        self._found_running = profiling() and not self._open
        self._settle()

    def wake(self, now_ns: int) -> None:
        """Notice profiles that were dropped without an exit, or that we never saw begin."""
        self._drop(lambda profile: profile is None)
        if self._found_running and not profiling():
            self._found_running = False
        self._settle()

    def _before(self, original: Any) -> Any:
        entered = self.guard(self._entered)

        @functools.wraps(original)
        def brrrtop_before(profile: Any, *args: Any, **kwargs: Any) -> Any:
            if self.live:
                entered(profile)
            return original(profile, *args, **kwargs)

        return brrrtop_before

    def _after(self, original: Any) -> Any:
        left = self.guard(self._left)

        @functools.wraps(original)
        def brrrtop_after(profile: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(profile, *args, **kwargs)
            finally:
                if self.live:
                    left(profile)

        return brrrtop_after

    def _entered(self, profile: Any) -> None:
        self._open[id(profile)] = weakref.ref(profile)
        self._settle()

    def _left(self, profile: Any) -> None:
        self._open.pop(id(profile), None)
        if self._found_running and not profiling():
            self._found_running = False
        self._settle()

    def _drop(self, closed: Callable[[Any], bool]) -> None:
        for key, reference in list(self._open.items()):
            if closed(reference()):
                del self._open[key]

    def _settle(self) -> None:
        wanted = bool(self._open) or self._found_running
        if wanted and not self._yielded:
            self._yielded = True
            self.native.give_way(_WHO)
        elif self._yielded and not wanted:
            self._yielded = False
            self.native.resume()


def profiling() -> bool:
    """True while a torch profiler records in this process."""
    return bool(imported("torch.autograd.profiler", "_is_profiler_enabled"))
