"""What a way into a running interpreter is: it makes it run a text, or says why not. And its own door."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from collectors.attach.files import Place
from collectors.errors import NoSuchProcess
from collectors.process.process import Process

_REMOTE_SINCE = (3, 14)
_SCRIPT = "boot.py"


@dataclass(frozen=True, slots=True)
class Stop:
    tid: int
    stopped_ns: int
    """From when it was seen to stand to its release, measured by who held it."""
    says: str
    """Empty: what was to be done there was done."""
    awaited_ns: int = 0
    """Before that, from the interrupt: it was on its way out of the kernel, or had no processor."""


@dataclass(frozen=True, slots=True)
class Attempt:
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


@dataclass(frozen=True, slots=True)
class Method:
    name: str
    enter: Callable[[Process, str, Place, float], Attempt]
    """Makes the trainer's interpreter run a text within a time, in seconds, or says why it cannot be done.

    Raises:
        CollectorError: No method can work: the process is gone, or nobody lets us in.
    """
    handshake_s: float = 6.0
    """How long to wait for the agent after the text was accepted."""
    needs_main_thread: bool = False
    """The text waits until the main thread evaluates bytecode."""


def why_not_remote(process: Process) -> str:
    """Why `sys.remote_exec` of CPython 3.14 and newer (PEP 768) cannot be tried; empty: it can."""
    theirs = process.python.version if process.python else None
    if theirs is None or theirs < _REMOTE_SINCE:
        return "the trainer's Python has no remote execution (3.14 and newer do)"
    ours = sys.version_info[:2]
    if theirs != ours or not hasattr(sys, "remote_exec"):
        return (
            f"brrrtop runs on Python {ours[0]}.{ours[1]} and the trainer on "
            f"{theirs[0]}.{theirs[1]}: they must be the same"
        )
    if process.environ.get("PYTHON_DISABLE_REMOTE_DEBUG"):
        return "PYTHON_DISABLE_REMOTE_DEBUG is set in the trainer"
    return ""


def _enter_remotely(process: Process, text: str, place: Place, limit_s: float) -> Attempt:
    name = "remote_exec"
    reason = why_not_remote(process)
    if reason:
        return Attempt(name, False, reason)
    place.write(_SCRIPT, text)
    try:
        sys.remote_exec(process.pid, f"{place.inside}/{_SCRIPT}")  # type: ignore[attr-defined]
    except ProcessLookupError as fault:
        raise NoSuchProcess(f"process {process.pid} exited during the attach") from fault
    except (OSError, RuntimeError) as fault:
        return Attempt(name, False, f"the interpreter refused: {fault}")
    return Attempt(name, True)


REMOTE_EXEC = Method("remote_exec", _enter_remotely, 4.0, needs_main_thread=True)
"""Leaves the path of a script in the trainer; its main thread runs it. Stops nobody."""
