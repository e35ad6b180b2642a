"""Checks whether a process can be watched, and how far; if not, names the command that fixes it."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from collectors.attach import access as attach_access
from collectors.attach import by_ptrace
from collectors.attach import files as attach_files
from collectors.attach.access import why_not_remote
from collectors.attach.agent_library import COUNTERS_ALONE
from collectors.attach.attach import find_agent
from collectors.attach.files import AgentFiles, cupti_option
from collectors.errors import RUN_INSTEAD, CollectorError, NotPermitted, NotTheTrainer
from collectors.gpu.sampler_thread import GaugeThread
from collectors.process import candidates, proc
from collectors.process import process as processes
from collectors.process.process import Process, has_ptrace_capability, yama_scope
from collectors.protocol.frames import Kind

_FILE_VERSION = re.compile(r"libcupti\.so\.(\d+)")
_CUDA_MAJORS, _YEARS = (12, 13), (2024, 2026)
"""From 2024.1 on, which came with CUDA 12.4; CUPTI files carry a CUDA major or a year."""
_INJECTIONS = (
    "CUDA_INJECTION64_PATH",
    "CUDA_INJECTION32_PATH",
    "NVTX_INJECTION64_PATH",
    "NSYS_PROFILING_SESSION_ID",
    "NV_NSIGHT_INJECTION_PORT_BASE",
    "NV_TPS_LAUNCH_TOKEN",
    "NV_SANITIZER_INJECTION_PORT_BASE",
)
"""Variables by which Nsight tools and the like get into a CUDA program.

Source: CUDA driver and NVTX documentation for the first three; the rest as seen in processes that
these tools started.
"""
_NVML_LIMIT_S = 5.0


class Status(str, Enum):
    FINE = "fine"
    NOTE = "note"
    """Works, and there is something to know."""
    WAIT = "wait"
    """Passes by itself."""
    BAD = "bad"
    """Attaching, or tracing kernels, does not work until this is mended."""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: Status
    message: str
    fix: str = ""
    """The command or change that helps; empty when there is nothing to mend."""
    blocks: str = ""
    """What it prevents while it is bad, or to be waited for: `attach`, `kernels` or `counters`."""
    denied: bool = False
    """It is bad for want of a permission."""


def fine(name: str, message: str) -> Check:
    return Check(name, Status.FINE, message)


def note(name: str, message: str, fix: str = "") -> Check:
    return Check(name, Status.NOTE, message, fix)


def wait(name: str, message: str, fix: str = "", blocks: str = "") -> Check:
    return Check(name, Status.WAIT, message, fix, blocks)


def bad(
    name: str, message: str, fix: str, blocks: str = "attach", *, denied: bool = False
) -> Check:
    return Check(name, Status.BAD, message, fix, blocks, denied)


@dataclass(frozen=True, slots=True)
class Report:
    pid: int | None
    checks: tuple[Check, ...]

    def _blocking_checks(self, *what: str) -> list[Check]:
        hindering = (Status.BAD, Status.WAIT)
        return [c for c in self.checks if c.status in hindering and c.blocks in what]

    @property
    def can_attach(self) -> bool:
        return not self._blocking_checks("attach")

    @property
    def can_trace(self) -> bool:
        return not self._blocking_checks("attach", "kernels")

    @property
    def can_count(self) -> bool:
        return not self._blocking_checks("counters")

    @property
    def tier(self) -> str:
        """`kernels`, `steps` (an agent without kernel records), `counters` (no agent) or `nothing`."""
        if self.can_attach:
            return "kernels" if self.can_trace else "steps"
        return "counters" if self.can_count else "nothing"

    @property
    def command(self) -> str:
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
    yield nvml(None)


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
    if os.path.exists("/dev/nvidiactl") or os.path.exists("/proc/driver/nvidia/version"):
        return fine("driver", "an NVIDIA driver is loaded")
    return bad(
        "driver",
        "no NVIDIA driver is loaded here",
        "run brrrtop on the GPU host; in a container pass the GPU in (docker run --gpus all)",
        "kernels",
    )


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
    scope = yama_scope()
    if not scope:
        return fine("yama", "no Yama restriction on tracing")
    message = f"kernel.yama.ptrace_scope is {scope}: the kernel "
    message += attach_access.YAMA_SAYS.get(scope, "restricts tracing")
    if scope < 3 and has_ptrace_capability():
        return note("yama", f"{message}, and we are one")
    fix = RUN_INSTEAD if scope >= 3 else f"{processes.as_root('PID')}, or {RUN_INSTEAD}"
    return bad("yama", message, fix, denied=True)


def _process(process: Process, files: AgentFiles | None) -> Iterator[Check]:
    yield _machine()
    yield _agent(files)
    owner = processes.user_name(process.uid)
    where = ", in a container" if process.in_container else ""
    count = f"{process.threads} thread{'s' * (process.threads != 1)}"
    yield fine("process", f"{process.name}, user {owner}, {count}{where}")
    try:
        candidates.check_trains(process)
    except NotTheTrainer as fault:
        yield bad("trainer", fault.message, fault.action)
    access = _access(process)
    yield access
    python = _python(process)
    if access.status is Status.BAD:
        yield _yama()
    else:
        yield python
    if Status.BAD not in (access.status, python.status):
        yield _way_in(process)
        if files is not None:
            yield _place(process, files)
        yield _there_already(process)
        yield from cuda_checks(process)
    yield nvml(process.pid)


def _access(process: Process) -> Check:
    """Seizes the process for a moment, which stops nobody."""
    if process.state == "T":
        message = f"process {process.pid} is stopped by a signal"
        return bad("access", message, f"kill -CONT {process.pid}")
    fault = by_ptrace.probe(process)
    if fault is None:
        return fine("access", "the kernel lets us trace it (tried)")
    denied = isinstance(fault, NotPermitted)
    return bad("access", fault.message, fault.action or RUN_INSTEAD, denied=denied)


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
            "python", f"{python.description} on musl: torch has no builds for it; never tried"
        )
    if python.free_threaded:
        return note(
            "python",
            f"{python.description}, without the GIL: attaching was tried there, torch was not",
            RUN_INSTEAD,
        )
    return fine("python", python.description)


def _way_in(process: Process) -> Check:
    try:
        by_ptrace.make_plan(process)
    except CollectorError as fault:
        if not why_not_remote(process):
            return fine("way in", f"sys.remote_exec, which stops nothing ({fault.message})")
        return bad("way in", fault.message, fault.action or RUN_INSTEAD)
    return fine("way in", "ptrace, for less than a millisecond")


def _place(process: Process, files: AgentFiles) -> Check:
    try:
        place = attach_files.prepare(process, files)
    except CollectorError as fault:
        return bad("folder", fault.message, fault.action)
    message = f"a private folder can be made in {os.path.dirname(place.inside)}"
    copied = place.agent_inside != str(files.folder)
    place.remove()
    return fine("folder", f"{message}; the agent is copied there" if copied else message)


def _there_already(process: Process) -> Check:
    try:
        agent = find_agent(process)
    except CollectorError as fault:
        return bad("agent inside", fault.message, fault.action)
    if agent is None:
        return fine("agent inside", "no agent is in the process yet")
    agent.close()
    return note("agent inside", "an agent is there already and will be shared")


def nvml(pid: int | None) -> Check:
    """Whether the GPU's own counters can be read: asked as the monitor asks, for as long as a person waits.

    Args:
        pid: The trainer, whose GPUs are meant; None: all of them.
    """
    feed = GaugeThread(pid)
    feed.start()
    answered = feed.ready.wait(_NVML_LIMIT_S)
    names = [str(frame.body.get("name")) for frame in feed.drain() if frame.kind == Kind.DEVICE]
    feed.close()
    if not answered:
        message = f"the NVIDIA driver has not answered NVML for {_NVML_LIMIT_S:g} s"
        return bad("nvml", message, "see `dmesg` for what its driver is busy with", "counters")
    if feed.unavailable is not None:
        return bad("nvml", feed.unavailable.message, feed.unavailable.action, "counters")
    if not names:
        message = next(iter(feed.remarks), "NVML sees no GPU that it may read")
        return bad(
            "nvml", message, "see `nvidia-smi -L`; in a container pass the GPU in", "counters"
        )
    gpm = "with GPM" if feed.has_gpm else "without GPM, which Hopper and newer have"
    return fine("nvml", f"{', '.join(names)}: its counters can be read (tried), {gpm}")


def cuda_checks(process: Process) -> Iterator[Check]:
    """Findings on CUDA in a process that we may look into."""
    yield _torch(process)
    yield _context(process)
    yield _cupti(process)
    yield _other_tools(process)


def _torch(process: Process) -> Check:
    if process.has_torch:
        return fine("torch", "torch is loaded")
    if process.has_cuda_driver:
        return _without_torch(process)
    return wait(
        "torch",
        "torch is not loaded (yet), and without it there is no training here",
        "attach once torch is loaded, or name the process that trains",
        "attach",
    )


def _without_torch(process: Process) -> Check:
    """Its kernels are traced while the agent, from inside, holds all its threads for each switch."""
    if os.uname().machine != "x86_64":
        return bad(
            "torch",
            "torch is not loaded: kernels of other programs are traced on x86-64 only",
            COUNTERS_ALONE,
            "kernels",
        )
    scope = yama_scope()
    if scope == 3 or (scope == 2 and not has_ptrace_capability(process.pid)):
        return bad(
            "torch",
            "torch is not loaded: kernels of other programs are traced while all their threads are held, "
            f"and kernel.yama.ptrace_scope {scope} forbids that",
            "sudo sysctl kernel.yama.ptrace_scope=1" if scope == 2 else COUNTERS_ALONE,
            "kernels",
            denied=True,
        )
    return note(
        "torch",
        "torch is not loaded: kernels are traced all the same, and all threads are held outside CUDA for "
        "some 0.5 ms at each switch (--no-trace-graphs leaves that out)",
    )


def _context(process: Process) -> Check:
    if process.has_cuda_context:
        return fine("cuda", "a CUDA context is in use")
    if process.has_cuda_driver:
        return wait("cuda", "the CUDA driver is loaded and no context made yet")
    if process.has_cpu_torch:
        message = "this torch is built for the CPU alone: it never touches a GPU"
        return wait("cuda", message, blocks="kernels")
    return wait("cuda", "no CUDA yet: the agent waits until the trainer touches its GPU")


def _age(path: str) -> int:
    """-1: too old for the agent, 1: newer than any it knows; 0: neither, or nobody knows."""
    match = _FILE_VERSION.search(path)
    if match is None:
        return 0
    number = int(match[1])
    oldest, newest = _CUDA_MAJORS if number < 100 else _YEARS
    return (number > newest) - (number < oldest)


def _cupti(process: Process) -> Check:
    libraries = proc.cupti_libraries(process.files)
    if not libraries:
        if process.has_cuda_driver and not process.has_torch:
            return _own_cupti(process)
        if process.has_cuda_driver:
            return bad(
                "cupti",
                "no CUPTI is loaded: this torch was built without Kineto, or is no CUDA build",
                "install torch from PyPI, or watch the GPU's counters alone: brrrtop --gpu 0",
                "kernels",
            )
        build = "this is not" if process.has_cpu_torch else "is not loaded yet"
        return wait("cupti", f"CUPTI comes with torch's CUDA build, which {build}")
    if len(libraries) > 1:
        return note(
            "cupti",
            f"two CUPTI libraries are loaded, and they can disturb each other: {', '.join(libraries)}",
            "kernels are traced through torch's own, and not at all where neither is torch's for "
            "certain; end the tool that brought the other (Proton, a profiler)",
        )
    age = _age(libraries[0])
    if age < 0:
        return bad(
            "cupti",
            f"{libraries[0]} is too old: the agent reads records from CUPTI 12.4 on",
            "use a torch built for CUDA 12.4 or newer",
            "kernels",
        )
    if age > 0:
        message = f"{libraries[0]} is newer than any we know: its records are checked before use"
        return note("cupti", message)
    return fine("cupti", libraries[0])


def _own_cupti(process: Process) -> Check:
    brought = cupti_option(process).removeprefix("cupti=")
    if brought:
        return fine("cupti", f"{brought} is loaded with the first kernels that are traced")
    return bad(
        "cupti",
        "no CUPTI is loaded, and none that the program can read is on this host",
        "install CUDA's toolkit, or nvidia-cuda-cupti beside brrrtop",
        "kernels",
    )


def _other_tools(process: Process) -> Check:
    libraries = proc.foreign_tools(process.files)
    variables = [name for name in _INJECTIONS if process.environ.get(name)]
    if libraries:
        name = libraries[0].rsplit("/", 1)[-1]
        return bad(
            "other tools",
            f"another tracing tool is in the process ({name}): it holds CUPTI",
            "start the training without nsys, ncu or compute-sanitizer to see kernels",
            "kernels",
        )
    if variables:
        return note(
            "other tools",
            f"{variables[0]} is set: a tracing tool may come into the process",
            f"unset {variables[0]} before the start to keep CUPTI free",
        )
    return fine("other tools", "no other tracing tool is in the process")
