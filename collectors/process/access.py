"""Why the kernel refused to let us into a process, told after it did."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from brrrtop.text.printable import printable
from collectors.errors import CollectorError, NoSuchProcess, NotPermitted
from collectors.process.process import (
    Process,
    as_root,
    has_ptrace_capability,
    user_name,
    yama_scope,
)

YAMA_SAYS = {
    1: "lets only its ancestors trace a process",
    2: "lets only administrators trace a process",
    3: "lets nobody trace a process until the next boot",
}


def name_of(pid: int) -> str:
    try:
        return printable(Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip())
    except OSError:
        return "?"


def current_tracer(pid: int) -> int:
    """The debugger that holds `pid` right now; 0: none."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("TracerPid")))
    except (OSError, StopIteration, ValueError, IndexError):
        return 0


def refused(process: Process, number: int) -> CollectorError:
    """The refusal of a trace request as a sentence with what helps.

    Args:
        process: Who was to be traced.
        number: The errno that the kernel gave.
    """
    pid = process.pid
    if number == errno.ESRCH or not process.still_the_same():
        return NoSuchProcess(f"process {pid} exited meanwhile", "`brrrtop` lists the trainers")
    tracer = current_tracer(pid)
    if tracer:
        return NotPermitted(
            f"another debugger holds process {pid}: {name_of(tracer)} (pid {tracer})",
            f"end {name_of(tracer)}, then: brrrtop attach {pid}",
        )
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
    if has_ptrace_capability() or process.in_container or _confined():
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


def _confined() -> bool:
    """A seccomp filter lies on ourselves."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return False
    return any(line.startswith("Seccomp:") and line.split()[1] != "0" for line in lines)
