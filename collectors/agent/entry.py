"""Starts the agent in the trainer once, stops it, and keeps forked children clean. Its thread hooks the
probes in while a monitor watches, and out when none does.
"""

from __future__ import annotations

import atexit
import os
import signal
import time
from _thread import allocate_lock, start_new_thread
from typing import Any

from . import facts
from .facts import VERSION, hello
from .library import (
    CONNECTED,
    DEVICE,
    ENDED,
    GONE,
    HELLO,
    REST,
    SHAPES,
    STATUS,
    STOP,
    TRACING,
    Native,
    NativeError,
)
from .probes.neighbours import Graphs, Neighbour
from .probes.op_shapes import Shapes
from .probes.pauses import Allocator, Collections, Compiling, Saving
from .probes.places import PERIOD_MS, Stacks
from .probes.probe import FaultGuard
from .probes.steps import Loader, Steps

_ROUND_MS = 500
"""With a monitor: a look at what has been imported since, and the probes' own wake-up."""
_DORMANT_MS = 10_000
_FACTS_NS = 5_000_000_000
_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}


class Control:
    """One run of the agent, from start to detach. Probes are in place only while a monitor is."""

    def __init__(self, native: Native, socket_path: str) -> None:
        self.native, self.socket_path, self.fence = native, socket_path, FaultGuard()
        self.steps = Steps(native, self.fence)
        self.stacks = Stacks(native, self.fence, steps=self.steps)
        neighbour, graphs = Neighbour(native, self.fence), Graphs(native, self.fence)
        self.shapes = Shapes(native, self.fence, self.steps, neighbour, graphs)
        self.probes = [
            neighbour,  # first: nobody may be disturbed, not for a moment
            graphs,
            self.shapes,
            self.stacks,  # knows the user's frames before any other asks
            self.steps,
            Loader(native, self.fence, self.steps),
            Compiling(native, self.fence),
            Collections(native, self.fence),
            Allocator(native, self.fence),
            Saving(native, self.fence),
        ]
        self.hooked = self.ended = False
        self._off: set[str] = set()
        self._lock = allocate_lock()
        self._round_ns = self._facts_ns = 0
        self._upkeep_ns = 0.0
        self._reported: dict[Any, Any] = {}

    def hook(self) -> None:
        with self._lock:
            self.hooked = not self.ended
            if self.hooked:
                self._each("install")

    def unhook(self) -> None:
        """Take every probe out; the trainer is as it was when this comes back."""
        with self._lock:
            self.hooked = False
            self._each("remove")
            self.native.forget_names()

    def end(self, forked: bool = False) -> None:
        """Take everything out and stop the library, for good. A forked child has no threads."""
        if forked:
            self.native.disarm()
            self._lock = allocate_lock()
        self.ended = True
        self.unhook()
        self.native.stop()

    def _each(self, what: str, *given: Any) -> None:
        for probe in self.probes:
            if what == "remove" or probe.name not in self._off:
                self.fence.guard(probe.name, getattr(probe, what))(*given)

    def run(self) -> None:
        """Heed the library until the end; the body of the control thread."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # they have to wake the main thread
        apply = self.fence.guard("control", self._apply)
        while not self.ended:
            asked_ns, worked_ns = time.monotonic_ns(), time.thread_time_ns()
            bits = self.native.wait(self._patience_ms())
            if not self.ended and (bits < 0 or bits & ENDED):
                self.ended = True
                self.unhook()
            if self.ended:
                return
            apply(bits)
            self._upkeep_ns += self.stacks.weigh(time.thread_time_ns() - worked_ns)
            if not bits and time.monotonic_ns() - asked_ns < PERIOD_MS * 500_000:
                time.sleep(PERIOD_MS / 1e3)  # whatever the library does, this loop must not spin

    def _patience_ms(self) -> int:
        if not self.hooked:
            return _DORMANT_MS
        return self.stacks.period_ms if self.stacks.sampling else _ROUND_MS

    def _apply(self, bits: int) -> None:
        if bits & STOP:
            self.unhook()
            if not bits & GONE:
                self.end()
                return
        if bits & CONNECTED:
            self.steps.places.due.clear()
            self.stacks.rest(0)
            self.hook()
            self._reported.clear()
            self._facts_ns = 0
        if not self.hooked:
            return
        if bits & (SHAPES | TRACING):
            self.fence.guard(self.shapes.name, self.shapes.apply)(bits)
        now_ns = time.time_ns()
        if bits & REST:
            self.stacks.rest()
        if self.stacks.sampling and self.stacks.name not in self._off:
            self.fence.guard(self.stacks.name, self.stacks.sample)(now_ns)
        if bits & ~REST or now_ns - self._round_ns >= _ROUND_MS * 900_000:
            self._round(now_ns)

    def _round(self, now_ns: int) -> None:
        self._round_ns = now_ns
        self.hook()
        self._each("wake", now_ns)
        if now_ns - self._facts_ns >= _FACTS_NS:
            self._facts_ns = now_ns
            self._tell()
            self.native.frame(STATUS, {"upkeep_ns": int(self._upkeep_ns)})
        self._retire()

    def _tell(self) -> None:
        """Send what has changed of the hello and the devices: torch or CUDA may have come since."""
        for kind, body in [(HELLO, facts.hello()), *((DEVICE, one) for one in facts.devices())]:
            key = (kind, body.get("device_id"))
            if body != self._reported.get(key):
                self._reported[key] = body
                self.native.frame(kind, body)

    def _retire(self) -> None:
        """Take out probes that have failed too often, and all of them when all together have."""
        for probe in self.probes:
            if probe.name not in self._off and self.fence.spent(probe.name):
                self._off.add(probe.name)
                with self._lock:
                    self.fence.guard(probe.name, probe.remove)()
                message = f"the {probe.name} probe is off: {self.fence.last.get(probe.name, '')}"
                self.native.frame(STATUS, {"says": message})
        if self.fence.tripped:
            message = f"the agent is off: faults in {', '.join(self.fence.faults)}"
            self.native.frame(STATUS, {"says": message})
            self.end()


_lock = allocate_lock()
_control: Control | None = None
_watching = False


def start(library_path: str, socket_path: str, options: str = "", version: str = VERSION) -> str:
    """Start the agent, or leave a running one alone.

    Args:
        library_path: The native library.
        socket_path: Where it is to listen.
        options: `key=value;key=value` for the library.
        version: The brrrtop that asks. Loaded code is never replaced: another version is refused.

    Returns:
        Nothing when the agent runs, else the reason why not.
    """
    global _control
    if version != VERSION:
        return (
            f"brrrtop {VERSION} is loaded in this process already and {version} cannot replace "
            f"it: watch with brrrtop {VERSION}, or restart the trainer"
        )
    with _lock:
        if _control is not None and not _control.ended:
            if socket_path == _control.socket_path:
                return ""
            if os.path.exists(_control.socket_path):
                return f"the agent listens at {_control.socket_path} already"
            _control.end()  # its folder is gone, nobody can reach it there
        _watch()
        try:
            native = Native(library_path)
            native.start(socket_path, hello(), options)
        except NativeError as fault:
            return str(fault)
        _control = Control(native, socket_path)
        start_new_thread(_control.run, ())  # a raw one: `threading.enumerate` does not list it
        return ""


def stop() -> None:
    """Undo everything. The library stays mapped and asleep."""
    global _control
    control, _control = _control, None
    if control is not None:
        control.end()


def _watch() -> None:
    """Be told of forks and of the end. Neither can be taken back; they do nothing with no agent."""
    global _watching
    if not _watching:
        _watching = True
        os.register_at_fork(after_in_child=_on_fork)
        atexit.register(stop)


def _on_fork() -> None:
    global _control, _lock
    control, _control, _lock = _control, None, allocate_lock()
    if control is not None:
        control.end(forked=True)
