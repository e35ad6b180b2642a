"""What is known to be wrong before anything is tried on a process."""

from __future__ import annotations

from collectors.errors import (
    CollectorError,
    NoTorch,
    NotPython,
    TrainerStopped,
    Unsupported,
)
from collectors.process import access
from collectors.process.process import Process

OLDEST_PYTHON = (3, 9)


def check(process: Process, need_torch: bool = True) -> None:
    """Nothing, or the first reason why an attach cannot work.

    Raises:
        CollectorError: With the reason and what helps.
    """
    for fault in (_state(process), access.debugged(process), _python(process, need_torch)):
        if fault is not None:
            raise fault


def _state(process: Process) -> CollectorError | None:
    pid = process.pid
    if process.state == "T":
        return TrainerStopped(f"process {pid} is stopped by a signal", f"kill -CONT {pid}")
    return None


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
