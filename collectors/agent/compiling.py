"""Marks torch.compile at work, with the reason of a recompile."""

from __future__ import annotations

from collections import deque
from time import time_ns
from types import CodeType
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Set, Tuple

from .native import COMPILE, STATUS
from .probe import Probe, imported

_REASON_LIMIT = 240
_METRICS_WAIT_NS = 3_000_000_000
"""torch books the metrics of a compile after its end callback; later than this they will not come."""
_LONG_NS = 1_000_000_000


class Compile(NamedTuple):
    """One outermost compile, ended."""

    start_ns: int
    end_ns: int
    trigger: str
    compile_id: str
    thread: int


class Compiling(Probe):
    """Dynamo's start and end callbacks; reasons are looked up later, on the control thread.

    The mark's value is the recompile number; 0 for a first compile, and for what belongs to a compile
    already counted (a backward compiled late, CUDA graphs recorded).
    """

    name = "compile"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._started, self._ended = self.guard(self._start), self.guard(self._end)
        self._open: Dict[int, Tuple[int, str, str]] = {}
        self._done: Deque[Compile] = deque(maxlen=256)
        self._told_ns = 0
        self._skipped: Set[CodeType] = set()

    def install(self) -> None:
        super().install()
        handler = imported("torch._dynamo.callback", "callback_handler")
        if handler is None or imported("torch._dynamo") is None:
            return
        # torch._dynamo.reset() empties these lists.
        for callbacks, ours in self._places(handler):
            if ours not in callbacks:
                callbacks.append(ours)
        skip = imported("torch._dynamo.eval_frame", "skip_code")
        if skip is not None:
            for code in self.fence.codes - self._skipped:
                self._skipped.add(code)
                skip(code)

    def remove(self) -> None:
        super().remove()
        handler = imported("torch._dynamo.callback", "callback_handler")
        if handler is not None:
            for callbacks, ours in self._places(handler):
                while ours in callbacks:
                    callbacks.remove(ours)
        self._open.clear()
        self._done.clear()

    def wake(self, now_ns: int) -> None:
        """Send what has ended, and say so when a compile takes long."""
        metrics = _metrics() if self._done else {}
        for _ in range(len(self._done)):
            compile_ = self._done.popleft()
            found = metrics.get(compile_.compile_id)
            if found is None and now_ns - compile_.end_ns < _METRICS_WAIT_NS:
                self._done.append(compile_)
            else:
                self._send(compile_, found)
        for start_ns, trigger, compile_id in list(self._open.values()):
            if now_ns - start_ns > _LONG_NS and start_ns != self._told_ns:
                self._told_ns = start_ns
                says = f"torch.compile is at work ({trigger} {compile_id})"
                self.native.frame(STATUS, {"tier": "compile", "state": "running", "says": says})

    def _places(self, handler: Any) -> List[Tuple[List[Any], Any]]:
        return [(handler.start_callbacks, self._started), (handler.end_callbacks, self._ended)]

    def _start(self, *told: Any) -> None:
        """Before torch 2.7 the callbacks are called with nothing."""
        trigger, compile_id = "DYNAMO", ""
        if told:
            trigger = getattr(told[0].callback_trigger, "name", str(told[0].callback_trigger))
            compile_id = str(told[0].compile_id)
        self._open[self.native.thread()] = (time_ns(), trigger, compile_id)

    def _end(self, *_: Any) -> None:
        thread = self.native.thread()
        opened = self._open.pop(thread, None)
        if opened is not None:
            start_ns, trigger, compile_id = opened
            self._done.append(Compile(start_ns, time_ns(), trigger, compile_id, thread))

    def _send(self, compile_: Compile, found: Optional[Any]) -> None:
        function = getattr(found, "co_name", None) or ""
        reason = " ".join((getattr(found, "recompile_reason", None) or "").split())
        name = f"{compile_.trigger} {compile_.compile_id} {function}".strip()
        if reason:
            name += f" | {reason[:_REASON_LIMIT]}"
        number = recompile_number(compile_.compile_id) if compile_.trigger == "DYNAMO" else 0
        name_id = self.native.name(name)
        self.native.mark(
            COMPILE, compile_.start_ns, compile_.end_ns, number, name_id, compile_.thread
        )


def recompile_number(compile_id: str) -> int:
    """2 of `7/2`, `7/2_1` or `!0/7/2`: how often that frame had been compiled before."""
    tail = compile_id.rpartition("/")[2].partition("_")[0]
    return int(tail) if tail.isdigit() else 0


def _metrics() -> Dict[str, Any]:
    """torch's own record of the compiles it did, by compile id."""
    read = imported("torch._dynamo.utils", "get_compilation_metrics")
    if read is None:
        return {}
    return {str(m.compile_id): m for m in read()[-64:] if getattr(m, "compile_id", None)}
