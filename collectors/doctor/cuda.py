"""What stands between us and a GPU: its driver, and for one trainer CUDA, CUPTI, other tools.

The shape of one finding of the doctor.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from collectors.attach import cupti_file
from collectors.attach.agent_library import COUNTERS_ALONE
from collectors.gpu.nvidia.sampler_thread import GaugeThread
from collectors.process import maps
from collectors.process.process import Process, has_ptrace_capability, yama_scope
from collectors.protocol.frames import Kind

_FILE_VERSION = re.compile(r"libcupti\.so\.(\d+)(?:\.(\d+))?")
_OLDEST_MAJOR, _NEWEST_MAJOR = 12, 13
_OLDEST_YEAR = 2024
"""From 2024.1 on, which came with CUDA 12.4; CUPTI files carry a CUDA major or a year."""
_NEWEST_YEAR = 2026
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


NVML_LIMIT_S = 5.0


def nvml(pid: int | None) -> Check:
    """Whether the GPU's own counters can be read: asked as the monitor asks, for as long as a person waits.

    Args:
        pid: The trainer, whose GPUs are meant; None: all of them.
    """
    feed = GaugeThread(pid)
    feed.start()
    answered = feed.ready.wait(NVML_LIMIT_S)
    names = [str(one.body.get("name")) for one in feed.drain() if one.kind == Kind.DEVICE]
    feed.close()
    if not answered:
        says = f"the NVIDIA driver has not answered NVML for {NVML_LIMIT_S:g} s"
        return bad("nvml", says, "see `dmesg` for what its driver is busy with", "counters")
    if feed.unavailable is not None:
        return bad("nvml", feed.unavailable.message, feed.unavailable.action, "counters")
    if not names:
        says = next(iter(feed.says), "NVML sees no GPU that it may read")
        return bad("nvml", says, "see `nvidia-smi -L`; in a container pass the GPU in", "counters")
    gpm = "with GPM" if feed.has_gpm else "without GPM, which Hopper and newer have"
    return fine("nvml", f"{', '.join(names)}: its counters can be read (tried), {gpm}")


def checks(process: Process) -> Iterator[Check]:
    """Findings on CUDA in a process that we may look into."""
    yield _torch(process)
    yield _context(process)
    yield _cupti(process)
    yield _other_tools(process)
    yield from _sharing(process)


def _torch(process: Process) -> Check:
    if process.has_torch:
        return fine("torch", "torch is loaded")
    if process.has_cuda_driver:
        return _without_torch(process)
    return wait(
        "torch",
        "torch is not loaded (yet), and without it nobody trains here",
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
        says = "this torch is built for the CPU alone: it never touches a GPU"
        return wait("cuda", says, blocks="kernels")
    return wait("cuda", "no CUDA yet: the agent waits until the trainer touches its GPU")


class _Age(Enum):
    KNOWN = auto()
    """To the agent; or nobody knows how old it is."""
    TOO_OLD = auto()
    TOO_NEW = auto()


def _age(path: str) -> _Age:
    match = _FILE_VERSION.search(path)
    if match is None:
        return _Age.KNOWN
    number = int(match[1])
    if number < 100:
        old, new = number < _OLDEST_MAJOR, number > _NEWEST_MAJOR
    else:
        old, new = number < _OLDEST_YEAR, number > _NEWEST_YEAR
    return _Age.TOO_OLD if old else _Age.TOO_NEW if new else _Age.KNOWN


def _cupti(process: Process) -> Check:
    libraries = maps.cupti_libraries(process.files)
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
    if age is _Age.TOO_OLD:
        return bad(
            "cupti",
            f"{libraries[0]} is too old: the agent reads records from CUPTI 12.4 on",
            "use a torch built for CUDA 12.4 or newer",
            "kernels",
        )
    if age is _Age.TOO_NEW:
        says = f"{libraries[0]} is newer than any we know: its records are checked before use"
        return note("cupti", says)
    return fine("cupti", libraries[0])


def _own_cupti(process: Process) -> Check:
    brought = cupti_file.option(process).removeprefix("cupti=")
    if brought:
        return fine("cupti", f"{brought} is loaded with the first kernels that are traced")
    return bad(
        "cupti",
        "no CUPTI is loaded, and none that the program can read is on this host",
        "install CUDA's toolkit, or nvidia-cuda-cupti beside brrrtop",
        "kernels",
    )


def _other_tools(process: Process) -> Check:
    libraries = maps.foreign_tools(process.files)
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


def _sharing(process: Process) -> Iterator[Check]:
    env = process.environ
    if env.get("CUDA_MPS_PIPE_DIRECTORY") or env.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"):
        yield note(
            "mps", "the GPU is shared through MPS: its counters are those of all clients together"
        )
    if "MIG-" in env.get("CUDA_VISIBLE_DEVICES", ""):
        yield note("mig", "the trainer runs on a MIG slice: whole-GPU counters do not describe it")
    if env.get("KINETO_USE_DAEMON"):
        yield note(
            "kineto", "KINETO_USE_DAEMON is set: a daemon may start torch's profiler unasked"
        )


class Status(str, Enum):
    """How a check came out."""

    FINE = "fine"
    NOTE = "note"
    """Works, and there is something to know."""
    WAIT = "wait"
    """Passes by itself."""
    BAD = "bad"
    """Attaching, or tracing kernels, does not work until this is mended."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at or tried."""

    name: str
    status: Status
    says: str
    fix: str = ""
    """The command or change that helps; empty when there is nothing to mend."""
    blocks: str = ""
    """What it prevents while it is bad, or to be waited for: `attach`, `kernels` or `counters`."""
    denied: bool = False
    """It is bad for want of a permission."""


def fine(name: str, says: str) -> Check:
    return Check(name, Status.FINE, says)


def note(name: str, says: str, fix: str = "") -> Check:
    return Check(name, Status.NOTE, says, fix)


def wait(name: str, says: str, fix: str = "", blocks: str = "") -> Check:
    return Check(name, Status.WAIT, says, fix, blocks)


def bad(name: str, says: str, fix: str, blocks: str = "attach", *, denied: bool = False) -> Check:
    return Check(name, Status.BAD, says, fix, blocks, denied)
