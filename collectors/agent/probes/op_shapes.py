"""Records the ops of one whole step with their shapes, when a monitor's user asks for it.

The recorder is torch's legacy autograd profiler: callbacks around the dispatcher, per thread and
inherited by the backward threads. Unlike a dispatch mode it never makes a compiled model run eager,
and unlike Kineto it does not touch CUPTI.
"""

from __future__ import annotations

import ctypes
import threading
from _thread import get_ident
from collections.abc import Callable
from itertools import count
from time import sleep, time_ns
from typing import Any

from ..library import PERTURBED, SHAPES, STATUS, TRACING, Native, this_thread
from .neighbours import CLOCK, Graphs, Instants, Neighbour, OpRecording
from .probe import FaultGuard, Probe, find_imported
from .steps import Steps

LONGEST_STEP_NS = 5_000_000_000
"""Steps that usually take longer are not recorded: what the recorder keeps has no bound."""
TRACING_NS = 5_000_000_000
"""Within this time of the wish a burst has to begin: ops without their kernels say nothing."""
DEADLINE_NS = 10_000_000_000
"""No step's end by then, and it is given up: an evaluation, a checkpoint, a compile."""
_AGAIN_NS = 1_000_000_000
_LEAVE_NS = 1_000_000_000
_REST_S = 0.02
_OTHERS = (
    ("torch.autograd.profiler", "emit_nvtx"), ("torch.autograd.profiler", "emit_itt"),
    ("torch.autograd.profiler_legacy", "profile"),
)  # fmt: skip
"""Profilers that would find ours and raise in the trainer; the others go through `Neighbour`."""
_CONFIGURED = ("ProfilerConfig", "ProfilerState", "_ExperimentalConfig")
_INSTANTS = 3
"""The narrowest of so many pairs of clock readings counts; it is under a microsecond."""
_FLAGS = (True, False, False, False, False)
"""Shapes; and no memory, stacks, FLOPs nor modules."""

_lasting: set[Any] = set()
"""What the interpreter was asked to call: it may do so long after we have left."""


class _Pending:
    """A call that the main thread makes between two of its instructions.

    The interpreter is asked for `PyObject_IsTrue` of this. Through that an exception gets out that
    a signal handler of the trainer raises meanwhile; a function of `ctypes` would drop it.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call

    def queue(self) -> None:
        python = ctypes.pythonapi
        function = ctypes.cast(python.PyObject_IsTrue, ctypes.c_void_p)
        python.Py_AddPendingCall(function, ctypes.py_object(self))

    def __bool__(self) -> bool:
        self._call()
        return False  # anything else would mean a failure


class Shapes(Probe):
    """Off, but for the one step between two hooks of the optimizer that is the step.

    Both ends of the recording run on the thread that steps: the recorder is that thread's own.
    Only a main thread will do, because only there can a recording be given up from outside.
    """

    name = "shapes"

    def __init__(
        self, native: Native, fence: FaultGuard, steps: Steps, neighbour: Neighbour, graphs: Graphs
    ) -> None:
        super().__init__(native, fence)
        self._steps, self._neighbour = steps, neighbour
        self._order: list[int] = []
        """Holds one token from the wish to the first hook; whoever pops it acts on it."""
        self._thread = 0
        """The thread that records, as `threading.get_ident()`; 0: none does."""
        self._unwanted = ""
        self._wished_ns = self._until_ns = self._begun_ns = 0
        self._ids = count(1)
        self._begun: Instants = []
        self._taken: OpRecording | None = None
        # One function each: torch.compile may have seen the one, the interpreter may hold the other.
        self._beat = self.guard(self._stepped)
        self._pending = _Pending(self.guard(self._called_back))
        neighbour.arriving = self.guard(lambda: self._give_way("torch.profiler begins"))
        graphs.capturing = self.guard(lambda: self._give_way("a CUDA graph is being captured"))

    # --- on the control thread ------------------------------------------------------

    def apply(self, bits: int) -> None:
        """What a monitor wishes, and whether kernels are traced: with both, the next step it is."""
        now_ns = time_ns()
        if not self.live:
            return
        if bits & SHAPES and not (self._order or self._thread or self._taken):
            reason = self._reason()
            if reason:
                self._say(reason)
            else:
                self._wished_ns = now_ns
        if bits & TRACING and self._wished_ns:
            self._wished_ns, self._unwanted = 0, ""
            self._until_ns = now_ns + DEADLINE_NS
            self._order.append(1)
            self._steps.on_step = self._beat

    def place(self) -> None:
        for module, owner in _OTHERS:
            profiler = find_imported(module, owner)
            if profiler is not None:
                self.patch(
                    profiler,
                    "__enter__",
                    before=lambda _: self._give_way("another profiler begins"),
                )

    def clear(self) -> None:
        self._wished_ns = 0
        self._give_up("the monitor left")
        self._taken = None

    def wake(self, now_ns: int) -> None:
        taken, self._taken = self._taken, None
        if taken is not None:
            begun_ns = time_ns()
            try:
                taken.send(self.native, self._ids)
            except ValueError as fault:
                self._say(str(fault))
            # Reading them out holds the GIL now and then.
            self.native.mark(PERTURBED, begun_ns, time_ns(), 0, 0, this_thread())
        if self._wished_ns and now_ns - self._wished_ns > TRACING_NS:
            self._wished_ns = 0
            self._say("no burst of tracing began")
        if now_ns > self._until_ns and (self._order or self._thread):
            self._until_ns = now_ns + _AGAIN_NS
            self._give_up("no step began and ended in time")

    def _reason(self) -> str:
        """Why a step cannot be recorded; nothing where it can."""
        if _recorder() is None:
            return "this torch has no recorder that leaves compiled code alone"
        if not self._steps.last_ns:
            return "no optimizer step has been seen yet"
        if self._steps.thread_ident != threading.main_thread().ident:
            return "the optimizer does not step on the main thread"
        if self._steps.usual_ns > LONGEST_STEP_NS:
            return f"a step takes more than {LONGEST_STEP_NS // 1_000_000_000} s"
        return self._reason_now()

    def _reason_now(self) -> str:
        """Why not at this moment."""
        if self._neighbour.present or find_imported(
            "torch.autograd.profiler", "_is_profiler_enabled"
        ):
            return "torch.profiler is at work"
        if find_imported("torch._C._autograd", "_profiler_enabled")():
            return "another profiler of torch's is at work"
        if find_imported("torch.distributed.rpc.api", "_init_rpc_backend") is not None:
            agent_is_set = find_imported("torch.distributed.rpc.api", "_is_current_rpc_agent_set")
            if agent_is_set is None or agent_is_set():
                return "torch.distributed.rpc would make its peers record too"
        cuda = find_imported("torch.cuda")
        if cuda is not None and cuda.is_initialized() and cuda.is_current_stream_capturing():
            return "a CUDA graph is being captured"
        return ""

    def _give_up(self, why: str) -> None:
        """From any thread; the recorder itself goes off on the thread that has it."""
        self._steps.on_step = None
        self._unwanted = why
        if self._claim():
            self._say(why)
        elif self._thread == get_ident():
            self._drop()
        elif self._thread:
            _lasting.add(self)
            until_ns = time_ns() + _LEAVE_NS
            while self._thread and time_ns() < until_ns:
                self._pending.queue()
                sleep(_REST_S)

    def _claim(self) -> bool:
        """True for the one caller that takes the order."""
        try:
            self._order.pop()
        except IndexError:
            return False
        return True

    # --- on the thread that steps ---------------------------------------------------

    def _stepped(self) -> None:
        if self._thread == get_ident():
            self._steps.on_step = None
            self._taken = self._end()
        elif not self._thread and self._claim():
            self._begin()

    def _begin(self) -> None:
        recorder, why = _recorder(), self._reason_now()
        if get_ident() != threading.main_thread().ident:
            why = "the optimizer does not step on the main thread"
        if recorder is None or why:
            self._steps.on_step = None
            self._say(why)
            return
        self._thread = get_ident()
        try:
            start_ns = time_ns()
            self.native.mark(PERTURBED, start_ns, start_ns, 0, 0, this_thread())
            autograd, profiler = recorder
            config, state, experimental = (getattr(profiler, name) for name in _CONFIGURED)
            autograd._enable_profiler_legacy(config(state.CPU, *_FLAGS, experimental()))
            self._begun_ns, self._begun = start_ns, _instants(profiler)
        except Exception:
            self._thread, self._steps.on_step = 0, None
            self._say("torch's recorder would not begin")
            raise
        self._until_ns = start_ns + DEADLINE_NS
        if self._unwanted:
            self._drop()

    def _end(self) -> OpRecording | None:
        """Off; what cannot be switched off this time is tried again in a second."""
        recorder = _recorder()
        if recorder is None:
            return None
        autograd, profiler = recorder
        ended = _instants(profiler)
        threads = autograd._disable_profiler_legacy()
        self._thread = 0
        span = (self._begun_ns, time_ns())
        self.native.mark(PERTURBED, *span, 0, 0, this_thread())
        return OpRecording(threads, self._begun, ended, span, this_thread())

    def _drop(self) -> None:
        """Off, and what was recorded forgotten."""
        self._end()
        self._say(self._unwanted)

    def _called_back(self) -> None:
        """The interpreter's pending call, on the main thread between two of its instructions."""
        if self._unwanted and self._begun_ns and self._thread == get_ident():
            self._drop()

    def _give_way(self, why: str) -> None:
        """Somebody begins on this thread what must not meet a recording."""
        if self._order or self._thread == get_ident():
            self._give_up(why)

    def _say(self, why: str) -> None:
        self.native.frame(STATUS, {"shapes": "none", "says": f"no shapes: {why}"})


def _instants(profiler: Any) -> Instants:
    """Begins some ranges, and says when."""
    instants = []
    for _ in range(_INSTANTS):
        clock = profiler._RecordFunctionFast(CLOCK)
        before_ns = time_ns()
        clock.__enter__()
        instants.append((before_ns, time_ns()))
        clock.__exit__(None, None, None)
    return instants


def _recorder() -> tuple[Any, Any] | None:
    """`torch._C._autograd` and `torch._C._profiler`, which have torch's legacy profiler since 2.1."""
    autograd, profiler = find_imported("torch._C._autograd"), find_imported("torch._C._profiler")
    needed = (*_CONFIGURED, "_RecordFunctionFast")
    there = hasattr(autograd, "_disable_profiler_legacy")
    return (autograd, profiler) if there and all(hasattr(profiler, one) for one in needed) else None
