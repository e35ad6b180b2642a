"""What torch's legacy recorder brought, as ops with shapes. Knows nothing of when it is on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from time import sleep
from typing import Any

from ..library import OPS, PERTURBED, RECORDED_OP, Native

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


class Clock:
    """The recorder's clock and CLOCK_REALTIME, from ranges at both ends of the recording."""

    def __init__(self, theirs_ns: list[float], begun: Instants, ended: Instants) -> None:
        """Raises ValueError where the ranges are not there, or the clocks ran apart."""
        if len(theirs_ns) != len(begun) + len(ended) or not begun or not ended:
            raise ValueError("torch's clock cannot be mapped to the trace's")
        self._at, self._offset = _meet(theirs_ns[: len(begun)], begun)
        later, offset = _meet(theirs_ns[len(begun) :], ended)
        if abs(offset - self._offset) > _APART_NS or later <= self._at:
            raise ValueError("a clock was set while the step was recorded")
        self._slope = (offset - self._offset) / (later - self._at)

    def real_ns(self, theirs_ns: float) -> int:
        return self._offset + int(theirs_ns + self._slope * (theirs_ns - self._at))


def _meet(theirs_ns: list[float], ours: Instants) -> tuple[float, int]:
    """Of the narrowest pair: their time, and what to add to it."""
    _, at, middle = min(
        (after - before, their, (before + after) // 2)
        for their, (before, after) in zip(theirs_ns, ours)
    )
    return at, middle - int(at)


class OpRecording:
    """One recorded step.

    Args:
        threads: What the recorder returned: a list of events a thread. Emptied while read.
        begun, ended: The ranges called `CLOCK` at either end.
        span_ns: CLOCK_REALTIME from before switching on until after switching off.
        thread: The stepping thread, as CUPTI numbers threads.
    """

    def __init__(
        self,
        threads: list[list[Any]],
        begun: Instants,
        ended: Instants,
        span_ns: tuple[int, int],
        thread: int,
    ) -> None:
        self._threads, self._thread = threads, thread
        self._begun, self._ended, self._span_ns = begun, ended, span_ns
        self._signatures: dict[tuple[str, str], int] = {}
        self._new: list[list[Any]] = []
        self._marks: list[bytes] = []

    def send(self, native: Native, first_id: int) -> int:
        """Sends ops, then marks, then the mark that says how many there were; returns that.

        Lets go of the GIL between slices: the training thread waits for it.

        Raises:
            ValueError: The clocks cannot be mapped, or the library took no more.
        """
        when, stepping = self._origin()
        for name, shapes, start, end, number in self._close(when):
            key = (name, str(shapes))
            op_id = self._signatures.get(key)
            if op_id is None:
                op_id = self._signatures[key] = first_id + len(self._signatures)
                self._new.append([op_id, name, shapes, [], []])
            tid = self._thread if number == stepping else number
            name_id = native.name(name)
            self._marks.append(_MARK.pack(start, end, op_id, tid, name_id, RECORDED_OP, 0, 0))
        count = len(self._marks)
        self._marks.append(_MARK.pack(*self._span_ns, count, self._thread, 0, PERTURBED, 0, 0))
        for at in range(0, len(self._new), _CHUNK):
            _patiently(native.frame, OPS, self._new[at : at + _CHUNK])
        for at in range(0, len(self._marks), _CHUNK):
            chunk = self._marks[at : at + _CHUNK]
            _patiently(native.send_marks, b"".join(chunk), len(chunk))
        return count

    @property
    def signatures(self) -> int:
        return len(self._signatures)

    def _origin(self) -> tuple[Callable[[Any], int], int]:
        """From an event to its CLOCK_REALTIME, and the recorder's number of the stepping thread."""
        stepping = [one for one in self._threads if one and one[0].name() == "__start_profile"]
        if not stepping:
            raise ValueError("torch's recorder did not say when it began")
        events, start = stepping[0], stepping[0][0]
        edge = 4 * (len(self._begun) + len(self._ended))
        near = events if len(events) <= 2 * edge else [*events[:edge], *events[-edge:]]

        def theirs_ns(event: Any) -> float:
            return 1e3 * float(start.cpu_elapsed_us(event))

        met = [theirs_ns(event) for event in near if event.name() == CLOCK]
        clock = Clock(met, self._begun, self._ended)
        return (lambda event: clock.real_ns(theirs_ns(event))), start.thread_id()

    def _close(
        self, when: Callable[[Any], int]
    ) -> Iterator[tuple[str, list[list[int]], int, int, int]]:
        """Name, shapes, start, end and thread of each op that ended."""
        for events in self._threads:
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
