"""Who else records in the trainer. Keeps out of the way: tells of CUDA graphs, under whose captures nothing
may be switched, and leaves CUPTI to torch.profiler before it starts, until it is over. And what the legacy
recorder of torch brought, as ops with shapes; that part knows nothing of when it is on.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from struct import Struct
from time import sleep
from typing import Any, NamedTuple

from ..library import OPS, PERTURBED, RECORDED_OP, Native
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


_MARK = Struct("<qqqIIHHI")
_SLICE = 256
"""Events looked at in one go: about half a millisecond with the GIL held."""
_REST_S = 0.003
_CHUNK = 1024
"""Marks or ops a frame: well within what the library takes at once (2 MiB)."""
_TRIES = 50
CLOCK = "brrrtop clock"
"""Name of the ranges by which their clock is mapped to ours."""
_APART_NS = 100_000
"""Clocks that ran apart by more within a step were set meanwhile."""

Instants = list[tuple[int, int]]
"""CLOCK_REALTIME before and after the beginning of each of those ranges, in order."""


class OpRecording(NamedTuple):
    threads: list[list[Any]]
    """What the recorder returned: a list of events a thread. Emptied while read."""
    begun: Instants
    ended: Instants
    """The ranges called `CLOCK` at either end."""
    span_ns: tuple[int, int]
    """CLOCK_REALTIME from before switching on until after switching off."""
    thread: int
    """The stepping thread, as CUPTI numbers threads."""

    def send(self, native: Native, ids: Iterator[int]) -> None:
        """Sends ops, then marks, then the mark that says how many there were.

        Lets go of the GIL between slices: the training thread waits for it.

        Args:
            ids: Where each signature gets its number.
        """
        when, stepping = self._origin()
        signatures: dict[tuple[str, str], int] = {}
        ops: list[list[Any]] = []
        marks: list[bytes] = []
        for name, shapes, start, end, number in self._close(when):
            key = (name, str(shapes))
            op_id = signatures.get(key)
            if op_id is None:
                op_id = signatures[key] = next(ids)
                ops.append([op_id, name, shapes, [], []])
            tid = self.thread if number == stepping else number
            marks.append(_MARK.pack(start, end, op_id, tid, native.name(name), RECORDED_OP, 0, 0))
        marks.append(_MARK.pack(*self.span_ns, len(marks), self.thread, 0, PERTURBED, 0, 0))
        for at in range(0, len(ops), _CHUNK):
            _patiently(native.frame, OPS, ops[at : at + _CHUNK])
        for at in range(0, len(marks), _CHUNK):
            chunk = marks[at : at + _CHUNK]
            _patiently(native.send_marks, b"".join(chunk), len(chunk))

    def _origin(self) -> tuple[Callable[[Any], int], int]:
        """From an event to its CLOCK_REALTIME, and the recorder's number of the stepping thread."""
        stepping = [one for one in self.threads if one and one[0].name() == "__start_profile"]
        if not stepping:
            raise ValueError("torch's recorder did not say when it began")
        events, start = stepping[0], stepping[0][0]
        edge = 4 * (len(self.begun) + len(self.ended))
        near = events if len(events) <= 2 * edge else [*events[:edge], *events[-edge:]]

        def theirs_ns(event: Any) -> float:
            return 1e3 * float(start.cpu_elapsed_us(event))

        met = [theirs_ns(event) for event in near if event.name() == CLOCK]
        real_ns = clock(met, self.begun, self.ended)
        return (lambda event: real_ns(theirs_ns(event))), start.thread_id()

    def _close(
        self, when: Callable[[Any], int]
    ) -> Iterator[tuple[str, list[list[int]], int, int, int]]:
        """Name, shapes, start, end and thread of each op that ended."""
        for events in self.threads:
            opened: dict[int, tuple[str, list[list[int]], int]] = {}
            events.reverse()  # taken from the end, so that each is freed in its slice
            seen = 0
            while events:
                event = events.pop()
                seen += 1
                if seen % _SLICE == 0:
                    sleep(_REST_S)
                kind = event.kind()
                if kind == "push":
                    name = event.name()
                    if is_op(name):
                        opened[event.handle()] = (name, event.shapes(), when(event))
                elif kind == "pop":
                    begun = opened.pop(event.handle(), None)
                    if begun is not None:
                        yield (*begun, max(when(event), begun[2]), event.thread_id())


def clock(theirs_ns: list[float], begun: Instants, ended: Instants) -> Callable[[float], int]:
    """From the recorder's clock to CLOCK_REALTIME, by ranges at both ends of the recording.

    Raises:
        ValueError: The ranges are not there, or the clocks ran apart.
    """
    if len(theirs_ns) != len(begun) + len(ended) or not begun or not ended:
        raise ValueError("torch's clock cannot be mapped to the trace's")
    at, offset = _meet(theirs_ns[: len(begun)], begun)
    later, offset_later = _meet(theirs_ns[len(begun) :], ended)
    if abs(offset_later - offset) > _APART_NS or later <= at:
        raise ValueError("a clock was set while the step was recorded")
    slope = (offset_later - offset) / (later - at)
    return lambda ns: offset + int(ns + slope * (ns - at))


def _meet(theirs_ns: list[float], ours: Instants) -> tuple[float, int]:
    """Of the narrowest pair: their time, and what to add to it."""
    _, at, middle = min(
        (after - before, their, (before + after) // 2)
        for their, (before, after) in zip(theirs_ns, ours)
    )
    return at, middle - int(at)


def is_op(name: str) -> bool:
    """A framework op, not a range somebody named nor the autograd engine's own."""
    return "::" in name and not name.startswith("autograd::") and " " not in name


def _patiently(send: Callable[..., Any], *given: Any) -> None:
    """The library takes 2 MiB at a time and hands them on within its next round."""
    for _ in range(_TRIES):
        if send(*given) >= 0:
            return
        sleep(0.02)
    raise ValueError("the queue to the monitor stayed full")
