"""Can this process be watched, how far, and if not, which command mends it. Tries, then tells."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collectors.attach import access as attach_access
from collectors.attach import by_ptrace
from collectors.attach import files as attach_files
from collectors.attach.attach import find_agent
from collectors.attach.files import AgentFiles
from collectors.attach.method import why_not_remote
from collectors.attach.ptrace import calls
from collectors.attach.ptrace import threads as ptrace_threads
from collectors.doctor import cuda
from collectors.doctor.cuda import Check, Status, bad, fine, note, wait
from collectors.errors import RUN_INSTEAD, CollectorError, NotPermitted, NotTheTrainer
from collectors.process import candidates
from collectors.process import process as processes
from collectors.process.process import Process


@dataclass(frozen=True, slots=True)
class Report:
    """What was found, in the order in which it matters."""

    pid: int | None
    checks: tuple[Check, ...]

    def _blocking_checks(self, *what: str) -> list[Check]:
        hindering = (Status.BAD, Status.WAIT)
        return [c for c in self.checks if c.status in hindering and c.blocks in what]

    @property
    def can_attach(self) -> bool:
        """Now: what passes by itself may stand in the way too."""
        return not self._blocking_checks("attach")

    @property
    def can_trace(self) -> bool:
        return not self._blocking_checks("attach", "kernels")

    @property
    def can_count(self) -> bool:
        """The GPU's own counters can be read."""
        return not self._blocking_checks("counters")

    @property
    def tier(self) -> str:
        """`kernels`, `steps` (an agent without kernel records), `counters` (no agent) or `nothing`."""
        if self.can_attach:
            return "kernels" if self.can_trace else "steps"
        return "counters" if self.can_count else "nothing"

    @property
    def command(self) -> str:
        """What to do next: mend the first thing that is in the way, or attach."""
        for check in self._blocking_checks("attach", "kernels"):
            if check.fix:
                return check.fix
        return "brrrtop" if self.pid is None else f"brrrtop attach {self.pid}"

    @property
    def exit_code(self) -> int:
        """0: all is well. 4: what is in the way of attaching, or else of anything, is permission alone."""
        bad = [check for check in self.checks if check.status is Status.BAD]
        reasons = [check for check in bad if check.blocks == "attach"] or bad
        if reasons and all(check.denied for check in reasons):
            return NotPermitted.exit_code
        return 1 if bad or not self.can_attach else 0


def doctor(pid: int | None, files: AgentFiles | None = None) -> Report:
    """The findings on process `pid`, or on this host when `pid` is None.

    Args:
        pid: Who is to be watched.
        files: The agent; None: this installation has none (its check then says so).

    Raises:
        NoSuchProcess: There is no such process.
    """
    if pid is None:
        return Report(None, tuple(_host(files)))
    process = processes.read(pid)
    return Report(pid, tuple(_process(process, files)))


def _host(files: AgentFiles | None) -> Iterator[Check]:
    yield _machine()
    yield _driver()
    yield _agent(files)
    yield _tracing_here()
    yield _yama()
    yield cuda.nvml(None)


def _machine() -> Check:
    machine, system = platform.machine(), platform.system()
    if system != "Linux":
        return bad(
            "machine", f"attaching needs Linux, this is {system}", "run brrrtop on the GPU host"
        )
    if machine == "x86_64":
        return fine("machine", f"Linux on {machine}")
    if machine == "aarch64":
        return note(
            "machine",
            "Linux on aarch64: only CPython 3.14 and newer lets a debugger in",
            RUN_INSTEAD,
        )
    return bad("machine", f"the agent is not built for {machine}", RUN_INSTEAD)


def _driver() -> Check:
    version = Path("/proc/driver/nvidia/version")
    try:
        first = version.read_text().splitlines()[0]
    except (OSError, IndexError):
        if Path("/dev/nvidiactl").exists():
            return fine("driver", "an NVIDIA driver is there, its version is hidden")
        return bad(
            "driver",
            "no NVIDIA driver is loaded here",
            "run brrrtop on the GPU host; in a container pass the GPU in (docker run --gpus all)",
            "kernels",
        )
    return fine("driver", first.removeprefix("NVRM version:").strip())


def _agent(files: AgentFiles | None) -> Check:
    if files is None or not files.library.is_file():
        return bad(
            "agent",
            "this installation has no agent library: it was built without a C compiler",
            "install gcc, then install brrrtop again",
        )
    return fine("agent", str(files.library))


def _tracing_here() -> Check:
    """Traces a child of our own, which nothing but a container's profile or Yama 3 forbids."""
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        fault = by_ptrace.probe(processes.read(child.pid))
    except CollectorError as failure:
        fault = failure
    finally:
        child.kill()
        child.communicate()
    if fault is None:
        return fine("ptrace", "this system lets us trace processes")
    denied = isinstance(fault, NotPermitted)
    return bad("ptrace", fault.message, fault.action or RUN_INSTEAD, denied=denied)


def _yama() -> Check:
    scope = processes.yama_scope()
    if not scope:
        return fine("yama", "no Yama restriction on tracing")
    says = f"kernel.yama.ptrace_scope is {scope}: the kernel "
    says += attach_access.YAMA_SAYS.get(scope, "restricts tracing")
    if scope < 3 and processes.has_ptrace_capability():
        return note("yama", f"{says}, and we are one")
    fix = RUN_INSTEAD if scope >= 3 else f"{processes.as_root('PID')}, or {RUN_INSTEAD}"
    return bad("yama", says, fix, denied=True)


def _process(process: Process, files: AgentFiles | None) -> Iterator[Check]:
    yield _machine()
    yield _agent(files)
    yield _known_check(process)
    try:
        candidates.check_trains(process)
    except NotTheTrainer as fault:
        yield bad("trainer", fault.message, fault.action)
    access = _access(process)
    yield access
    if access.status is Status.BAD:
        yield _yama()
        yield cuda.nvml(process.pid)
        return
    yield _memory(process)
    python = _python(process)
    yield python
    if python.status is Status.BAD:
        yield cuda.nvml(process.pid)
        return
    yield _way_in(process)
    yield _threads(process)
    if files is not None:
        yield _place(process, files)
    yield _there_already(process)
    yield from cuda.checks(process)
    yield cuda.nvml(process.pid)


def _known_check(process: Process) -> Check:
    owner = processes.user_name(process.uid)
    where = ", in a container" if process.in_container else ""
    return fine("process", f"{process.name}, user {owner}, {_threads_of(process.threads)}{where}")


def _threads_of(count: int) -> str:
    return f"{count} thread{'s' * (count != 1)}"


def _access(process: Process) -> Check:
    """Seizes the process for a moment, which stops nobody."""
    if process.state == "T":
        says = f"process {process.pid} is stopped by a signal"
        return bad("access", says, f"kill -CONT {process.pid}")
    fault = by_ptrace.probe(process)
    if fault is None:
        return fine("access", "the kernel lets us trace it (tried)")
    denied = isinstance(fault, NotPermitted)
    return bad("access", fault.message, fault.action or RUN_INSTEAD, denied=denied)


def _memory(process: Process) -> Check:
    try:
        first = next(m for m in process.maps if m.flags.startswith("r"))
        calls.read_memory(process.pid, first.start, 1)
    except (OSError, StopIteration, CollectorError) as fault:
        says = f"its memory cannot be read: {fault}"
        denied = isinstance(fault, (PermissionError, NotPermitted))
        return bad("memory", says, processes.as_root(process.pid), denied=denied)
    return fine("memory", "its memory can be read (tried)")


def _python(process: Process) -> Check:
    try:
        attach_access.check(process, need_torch=False)
    except CollectorError as fault:
        return bad("python", fault.message, fault.action)
    python = process.python
    if python is None:  # the check lets only a program on CUDA pass without one
        return fine("python", "none: the agent enters the program as a library")
    if process.is_musl:
        return note(
            "python", f"{python.says} on musl: torch has no builds for it, nobody tried this"
        )
    if python.free_threaded:
        return note(
            "python",
            f"{python.says}, without the GIL: attaching was tried there, torch was not",
            RUN_INSTEAD,
        )
    return fine("python", python.says)


def _way_in(process: Process) -> Check:
    try:
        by_ptrace.make_plan(process)
    except CollectorError as fault:
        if not why_not_remote(process):
            return fine("way in", f"sys.remote_exec, which stops nothing ({fault.message})")
        return bad("way in", fault.message, fault.action or RUN_INSTEAD)
    return fine("way in", "ptrace, for less than a millisecond")


def _threads(process: Process) -> Check:
    """Whether a sleeping thread can be used, so that the main thread is not stopped at all."""
    try:
        place = ptrace_threads.place(process.pid, process.pid)
        count = len(ptrace_threads.thread_ids(process.pid))
    except OSError:
        return note("threads", "its threads cannot be listed")
    if process.state == "D":
        return wait("threads", "its main thread waits inside the kernel and cannot be interrupted")
    sleeping = ", its main thread asleep in a system call" if place[:1].isdigit() else ""
    return fine("threads", f"{_threads_of(count)}{sleeping}")


def _place(process: Process, files: AgentFiles) -> Check:
    try:
        place = attach_files.prepare(process, files)
    except CollectorError as fault:
        return bad("folder", fault.message, fault.action)
    says = f"a private folder can be made in {os.path.dirname(place.inside)}"
    copied = place.agent_inside != str(files.folder)
    place.remove()
    return fine("folder", f"{says}; the agent is copied there" if copied else says)


def _there_already(process: Process) -> Check:
    try:
        agent = find_agent(process)
    except CollectorError as fault:
        return bad("agent inside", fault.message, fault.action)
    if agent is None:
        return fine("agent inside", "no agent is in the process yet")
    agent.close()
    return note("agent inside", "an agent is there already and will be shared")
