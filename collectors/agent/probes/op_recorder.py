"""What torch's legacy recorder brought, as ops with shapes. Knows nothing of when it is on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from time import sleep
from typing import Any, NamedTuple

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
