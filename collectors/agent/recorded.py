"""What torch's legacy recorder brought, as ops with shapes. Knows nothing of when it is on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from time import sleep
from typing import Any

from .native import OPS, PERTURBED, RECORDED_OP, Native

_MARK = Struct("<qqqIIHHI")
_SLICE = 256
"""Events looked at in one go: about half a millisecond with the GIL held."""
_REST_S = 0.001
_CHUNK = 4096
"""Marks or ops a frame: well within what the library takes at once (2 MiB)."""
_TRIES = 50
_APART_NS = 100_000
"""Two clocks that cannot be told closer than this put launches into the wrong ops."""


class Clock:
    """The recorder's clock and CLOCK_REALTIME, from instants known on both."""

    def __init__(self) -> None:
        self._low, self._high = -(1 << 62), 1 << 62

    def saw(self, their_ns: float, before_ns: int, after_ns: int) -> None:
        """Their instant lay between these two of ours."""
        self._low = max(self._low, before_ns - int(their_ns))
        self._high = min(self._high, after_ns - int(their_ns))

    def offset_ns(self) -> int:
        """What to add to their time.

        Raises:
            ValueError: The clocks ran apart meanwhile, or nothing told where they meet.
        """
        if not -_APART_NS // 10 <= self._high - self._low <= _APART_NS:
            raise ValueError("torch's clock cannot be mapped to the trace's")
        return (self._low + self._high) // 2


class Recorded:
    """One recorded step.

    Args:
        threads: What the recorder returned: a list of events a thread. Emptied while read.
        enabled_ns: CLOCK_REALTIME before and after switching on.
        disabled_ns: The same of switching off.
        thread: The stepping thread, as CUPTI numbers threads.
    """

    def __init__(
        self,
        threads: list[list[Any]],
        enabled_ns: tuple[int, int],
        disabled_ns: tuple[int, int],
        thread: int,
    ) -> None:
        self._threads, self._thread = threads, thread
        self._enabled_ns, self._disabled_ns = enabled_ns, disabled_ns
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
        for name, shapes, start, end, number in self._closed(when):
            key = (name, str(shapes))
            op_id = self._signatures.get(key)
            if op_id is None:
                op_id = self._signatures[key] = first_id + len(self._signatures)
                self._new.append([op_id, name, shapes, [], []])
            tid = self._thread if number == stepping else number
            name_id = native.name(name)
            self._marks.append(_MARK.pack(start, end, op_id, tid, name_id, RECORDED_OP, 0, 0))
        count = len(self._marks)
        span = (self._enabled_ns[0], self._disabled_ns[1])
        self._marks.append(_MARK.pack(*span, count, self._thread, 0, PERTURBED, 0, 0))
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
        start = stop = None
        for events in self._threads:
            for event in (events[0], events[-1]) if events else ():
                start = event if event.name() == "__start_profile" else start
                stop = event if event.name() == "__stop_profile" else stop
        if start is None:
            raise ValueError("torch's recorder did not say when it began")
        clock, begun = Clock(), start
        clock.saw(0.0, *self._enabled_ns)
        if stop is not None:
            clock.saw(1e3 * begun.cpu_elapsed_us(stop), *self._disabled_ns)
        offset = clock.offset_ns()
        return (lambda event: offset + int(1e3 * begun.cpu_elapsed_us(event))), start.thread_id()

    def _closed(
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
                    held = opened.pop(event.handle(), None)
                    if held is not None:
                        yield (*held, max(when(event), held[2]), event.thread_id())


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
