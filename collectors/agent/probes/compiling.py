"""Marks torch.compile at work, with the reason of a recompile."""

from __future__ import annotations

from collections import deque
from time import time_ns
from types import CodeType
from typing import Any

from ..library import COMPILE, STATUS, this_thread
from .probe import Probe, find_imported

_METRICS_WAIT_NS = 3_000_000_000
"""torch books a compile's metrics after its end callback; later than this they will not come."""

Compile = tuple[int, int, int, str, str]
"""An outermost compile: start and end in ns, thread, trigger, compile id."""


class Compiling(Probe):
    """Dynamo's start and end callbacks; reasons are looked up later, on the control thread.

    The mark's value is the recompile number; 0 for a first compile, and for what belongs to one
    already counted (a backward compiled late, CUDA graphs recorded).
    """

    name = "compile"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._started, self._ended = self.guard(self._start), self.guard(self._end)
        self._open: dict[int, Compile] = {}
        self._done: deque[Compile] = deque(maxlen=256)
        self._told_ns = 0
        self._skipped: set[CodeType] = set()

    def place(self) -> None:
        for callbacks, ours in self._places():  # torch._dynamo.reset() empties these lists
            if ours not in callbacks:
                callbacks.append(ours)
        skip = find_imported("torch._dynamo.eval_frame", "skip_code")
        if skip is not None:
            for code in self.fence.codes - self._skipped:
                self._skipped.add(code)
                skip(code)

    def clear(self) -> None:
        for callbacks, ours in self._places():
            while ours in callbacks:
                callbacks.remove(ours)
        self._open.clear()
        self._done.clear()

    def wake(self, now_ns: int) -> None:
        """Send what has ended, and say so when a compile takes more than a second."""
        read = (
            find_imported("torch._dynamo.utils", "get_compilation_metrics") if self._done else None
        )
        metrics = {str(one.compile_id): one for one in read()[-64:]} if read is not None else {}
        for _ in range(len(self._done)):
            compile_ = self._done.popleft()
            compilation = metrics.get(compile_[4])
            if compilation is None and now_ns - compile_[1] < _METRICS_WAIT_NS:
                self._done.append(compile_)
            else:
                self._send(compile_, compilation)
        for start_ns, _, _, trigger, compile_id in list(self._open.values()):
            if now_ns - start_ns > 1_000_000_000 and start_ns != self._told_ns:
                self._told_ns = start_ns
                says = f"torch.compile is at work ({trigger} {compile_id})"
                self.native.frame(STATUS, {"says": says, "compiling": True})
        if self._told_ns and not any(one[0] == self._told_ns for one in list(self._open.values())):
            self._told_ns = 0
            self.native.frame(STATUS, {"compiling": False})

    def _places(self) -> list[tuple[list[Any], Any]]:
        handler = find_imported("torch._dynamo.callback", "callback_handler")
        if handler is None:
            return []
        return [(handler.start_callbacks, self._started), (handler.end_callbacks, self._ended)]

    def _start(self, *arguments: Any) -> None:
        """Before torch 2.7 the callbacks are called with nothing."""
        trigger, compile_id = "DYNAMO", ""
        if arguments:
            trigger, compile_id = arguments[0].callback_trigger.name, str(arguments[0].compile_id)
        thread = this_thread()
        self._open[thread] = (time_ns(), 0, thread, trigger, compile_id)

    def _end(self, *_: Any) -> None:
        opened = self._open.pop(this_thread(), None)
        if opened is not None:
            self._done.append((opened[0], time_ns(), *opened[2:]))

    def _send(self, compile_: Compile, compilation: Any | None) -> None:
        start_ns, end_ns, thread, trigger, compile_id = compile_
        name = f"{trigger} {compile_id} {getattr(compilation, 'co_name', None) or ''}".strip()
        reason = getattr(compilation, "recompile_reason", None)
        if reason:
            name += f" | {' '.join(reason.split())[:240]}"
        # 2 of `7/2` or `7/2_1`: how often that frame had been compiled before.
        tail = compile_id.rpartition("/")[2].partition("_")[0]
        number = int(tail) if trigger == "DYNAMO" and tail.isdigit() else 0
        self.native.mark(COMPILE, start_ns, end_ns, number, self.native.name(name), thread)
