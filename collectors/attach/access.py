"""Ways into a process: what one is, the interpreter's own, and why a process cannot be entered, by what is
known before anything is tried and by the kernel's refusal.
"""

import errno
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from collectors.attach.files import Place
from collectors.errors import (
    CollectorError,
    NoSuchProcess,
    NoTorch,
    NotPermitted,
    NotPython,
    TrainerStopped,
    Unsupported,
)
from collectors.process import proc
from collectors.process.process import (
    Process,
    as_root,
    has_ptrace_capability,
    user_name,
    yama_scope,
)

OLDEST_PYTHON = (3, 9)
YAMA_SAYS = {
    1: "lets only its ancestors trace a process",
    2: "lets only administrators trace a process",
    3: "lets no process be traced until the next boot",
}


def check(process: Process, need_torch: bool = True) -> None:
    """Nothing, or the first reason why an attach cannot work.

    Raises:
        CollectorError: With the reason and what helps.
    """
    if process.state == "T":
        raise TrainerStopped(
            f"process {process.pid} is stopped by a signal", f"kill -CONT {process.pid}"
        )
    for fault in (debugged(process), _python(process, need_torch)):
        if fault is not None:
            raise fault


def _python(process: Process, need_torch: bool) -> CollectorError | None:
    python, pid = process.python, process.pid
    if python is None and process.has_cuda_driver:
        return None
    if python is None:
        shown = process.name or process.exe
        return NotPython(
            f"process {pid} ({shown}) is not Python",
            "name the Python process itself; brrrtop without arguments lists the trainers",
        )
    if python.version is not None and python.version < OLDEST_PYTHON:
        number = ".".join(map(str, python.version))
        return Unsupported(
            f"process {pid} runs Python {number}, and the agent needs 3.9 or newer",
            "brrrtop alone still shows the GPU's own counters",
        )
    if need_torch and not process.has_torch and not process.has_cuda_driver:
        return NoTorch(
            f"process {pid} is Python and has loaded neither torch nor CUDA's driver",
            "attach again once it has, or name the process that trains",
        )
    return None


def debugged(process: Process) -> NotPermitted | None:
    tracer = int(proc.status(process.pid).get("TracerPid") or 0)
    if not tracer:
        return None
    name = proc.name_of(tracer)
    return NotPermitted(
        f"another debugger holds process {process.pid}: {name} (pid {tracer})",
        f"end {name}, then: brrrtop attach {process.pid}",
    )


def refusal(process: Process, number: int) -> CollectorError:
    """The refusal of a trace request as a sentence with what helps.

    Args:
        process: Who was to be traced.
        number: The errno that the kernel gave.
    """
    pid = process.pid
    if number == errno.ESRCH or not process.still_the_same():
        return NoSuchProcess(f"process {pid} exited meanwhile", "`brrrtop` lists the trainers")
    debugger = debugged(process)
    if debugger is not None:
        return debugger
    scope = yama_scope()
    if scope == 3:
        return NotPermitted(
            f"kernel.yama.ptrace_scope is 3: the kernel {YAMA_SAYS[3]}",
            "start the training with: brrrtop run -- CMD",
        )
    if process.uid != os.geteuid() and not has_ptrace_capability():
        return _other_user(process)
    if scope in YAMA_SAYS and not has_ptrace_capability():
        return NotPermitted(
            f"kernel.yama.ptrace_scope is {scope}: the kernel {YAMA_SAYS[scope]}",
            f"{as_root(pid)}, or start the training with: brrrtop run -- CMD",
        )
    if has_ptrace_capability() or process.in_container or _is_confined():
        return NotPermitted(
            f"the kernel or a container's security profile forbids tracing process {pid} "
            f"({os.strerror(number)})",
            f"attach from the host as root: {as_root('PID')}, or start the container with "
            "--cap-add SYS_PTRACE, or start the training with: brrrtop run -- CMD",
        )
    return NotPermitted(
        f"process {pid} has closed itself to other processes of its user "
        f"(not dumpable, or it runs with more rights than you have)",
        as_root(pid),
    )


def _other_user(process: Process) -> NotPermitted:
    owner = user_name(process.uid)
    if os.geteuid() == 0:
        return NotPermitted(
            f"process {process.pid} belongs to user {owner}, and root here lacks CAP_SYS_PTRACE",
            f"run brrrtop as {owner}, or give the container --cap-add SYS_PTRACE",
        )
    return NotPermitted(
        f"process {process.pid} belongs to user {owner}",
        f"{as_root(process.pid)}, or run brrrtop as {owner}",
    )


def _is_confined() -> bool:
    return proc.status(os.getpid()).get("Seccomp", "0") != "0"


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
