"""Marks Python's garbage collections that take time."""

from __future__ import annotations

import gc
from time import time_ns
from typing import Any

from .native import GC
from .probe import Probe

_WORTH_NS = 200_000
"""Young collections come hundreds of times a second and take microseconds: not worth a mark."""


class Collecting(Probe):
    """A `gc.callbacks` entry. The mark's value is the generation."""

    name = "gc"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._callback = self.guard(self._collected)
        self._start_ns = 0

    def place(self) -> None:
        if self._callback not in gc.callbacks:
            gc.callbacks.append(self._callback)

    def clear(self) -> None:
        while self._callback in gc.callbacks:
            gc.callbacks.remove(self._callback)
        self._start_ns = 0

    def _collected(self, phase: str, told: dict[str, int]) -> None:
        now_ns = time_ns()
        if phase == "start":
            self._start_ns = now_ns
        elif self._start_ns and now_ns - self._start_ns >= _WORTH_NS:
            native, generation = self.native, told["generation"]
            name_id = native.name(f"gc generation {generation}")
            native.mark(GC, self._start_ns, now_ns, generation, name_id, native.thread())
