"""What a way into a running interpreter is: it makes it run a text, or says why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from collectors.attach.files import Place
from collectors.process.process import Process


@dataclass(frozen=True, slots=True)
class Stop:
    """A thread of the trainer that was held for a moment."""

    tid: int
    stopped_ns: int
    """From when it was seen to stand to its release, measured by who held it."""
    says: str
    """Empty: what was to be done there was done."""
    awaited_ns: int = 0
    """Before that, from the interrupt: it was on its way out of the kernel, or had no processor."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one way in went."""

    method: str
    entered: bool
    """The interpreter accepted the text; whether it ran shows in the handshake."""
    reason: str = ""
    action: str = ""
    stops: tuple[Stop, ...] = ()
    took_ns: int = 0

    @property
    def stopped_ns(self) -> int:
        return sum(stop.stopped_ns for stop in self.stops)


class Method(Protocol):
    """One way in."""

    name: str
    handshake_s: float
    """How long to wait for the agent after the text was accepted."""
    needs_main_thread: bool
    """The text waits until the main thread evaluates bytecode."""

    def enter(self, process: Process, text: str, place: Place, limit_s: float) -> Attempt:
        """Makes the trainer's interpreter run `text`, or says why it cannot be done.

        Raises:
            CollectorError: No method can work: the process is gone, or nobody lets us in.
        """
        ...
