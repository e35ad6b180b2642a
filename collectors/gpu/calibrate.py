"""Measures what an idle GPU reaches, in a process of its own that has torch. Only ever on request."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.errors import CollectorError, NoTorch
from collectors.gpu.devices import NvmlDevice, list_devices
from collectors.gpu.nvml import NvmlUnavailable, Questions, close_nvml, open_nvml

PROGRAM = Path(__file__).with_name("calibration_program.py")
LIMIT_S = 120.0
BUSY_SHARE = 5
"""nvidia-smi's percent of time with a kernel; more means that somebody works there."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one GPU reached."""

    name: str
    uuid: str | None
    torch: str
    bytes_per_s: float
    flop_per_s: dict[str, float]


def calibrate(uuid: str, python: str | None = None) -> Measured:
    """Runs the measurement: seconds of full load.

    Args:
        uuid: Of the GPU, from `check_idle`.
        python: An interpreter with torch; without one, this one, then `python3` and `python`.

    Raises:
        CollectorError: No torch, no memory left, or the measurement failed.
    """
    document: dict[str, Any] = {"error": "torch"}
    for interpreter in [python] if python else _interpreters():
        document = _ran([interpreter, str(PROGRAM)], uuid)
        if document.get("error") != "torch":
            break
    if "error" in document:
        raise _fault(document, python)
    try:
        return Measured(**document)
    except TypeError as fault:
        raise CollectorError(f"the measurement said something else: {document}") from fault


def _interpreters() -> list[str]:
    """This interpreter, then those that a shell would find."""
    interpreters = [sys.executable, shutil.which("python3"), shutil.which("python")]
    return list(dict.fromkeys(one for one in interpreters if one))


def check_idle(gpu: int) -> str:
    """Refuses a GPU that somebody uses: the measurement would be wrong, and slow them down.

    Args:
        gpu: The device's number in `nvidia-smi`.

    Returns:
        Its UUID.

    Raises:
        CollectorError: There is no GPU, or it is in use.
    """
    try:
        nvml = open_nvml()
    except NvmlUnavailable as fault:
        raise CollectorError(
            f"there is no GPU to calibrate: {fault.message}", fault.action
        ) from fault
    try:
        boards = [one for one in list_devices(nvml)[0] if not one.mig]
        if gpu >= len(boards):
            raise CollectorError(
                f"there is no GPU {gpu} here: {len(boards)} found", "see `nvidia-smi -L`"
            )
        users = _users(nvml, boards[gpu])
    finally:
        close_nvml(nvml)
    if users:
        raise CollectorError(
            f"GPU {gpu} is in use: {users}", "calibrate when it is idle, or another with `--gpu N`"
        )
    return boards[gpu].uuid


def _users(nvml: Any, device: NvmlDevice) -> str | None:
    """Who is at work on a device; None when nobody is seen."""
    ask = Questions(nvml)
    running = ask.ask("processes", lambda: nvml.nvmlDeviceGetComputeRunningProcesses(device.handle))
    if running:
        return "process " + ", ".join(str(one.pid) for one in running[:4])
    used = ask.ask("utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(device.handle))
    return f"{used.gpu} % busy" if used is not None and used.gpu > BUSY_SHARE else None


def _ran(command: list[str], uuid: str) -> dict[str, Any]:
    """The document the program prints, run so that it sees one GPU only."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": uuid}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired as fault:
        raise CollectorError(
            f"the measurement did not end within {LIMIT_S:.0f} s",
            "see with `nvidia-smi` whether the GPU answers",
        ) from fault
    except OSError as fault:
        raise CollectorError(
            f"{command[0]} cannot be started: {fault.strerror}",
            "give an interpreter with torch: `brrrtop calibrate --python PATH`",
        ) from fault
    try:
        document = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        document = None
    if isinstance(document, dict):
        return document
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    raise CollectorError(f"the measurement failed: {last}", f"try `{' '.join(command)}`")


def _fault(document: dict[str, Any], python: str | None) -> CollectorError:
    where = document.get("python") or python or sys.executable
    if document["error"] == "torch":
        return NoTorch(
            f"there is no torch in {where}",
            "give an interpreter that has it: `brrrtop calibrate --python PATH`",
        )
    if document["error"] == "cuda":
        return CollectorError(f"the torch in {where} finds no CUDA device", "see `nvidia-smi`")
    return CollectorError("the GPU has no memory left", "calibrate when it is idle")
