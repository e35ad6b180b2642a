"""What the agent can say of its trainer without asking anybody: the hello and the devices."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Sequence
from typing import Any

from .probes.pauses import devices_in_use
from .probes.probe import find_imported

VERSION = "0.1.0"
WIRE = 1

_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_JOB = ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
"""What all ranks of one start of a job have in common."""
_PROPERTIES = {
    "name": "name",
    "sm_count": "multi_processor_count",
    "memory_bytes": "total_memory",
    "max_threads_per_sm": "max_threads_per_multi_processor",
    "registers_per_sm": "regs_per_multiprocessor",
    "shared_bytes_per_sm": "shared_memory_per_multiprocessor",
}


def hello() -> dict[str, Any]:
    facts = {
        "wire": WIRE,
        "agent": VERSION,
        "pid": os.getpid(),
        "rank": from_environment(_RANK),
        "world": from_environment(_WORLD),
        "job": job(),
        "hostname": socket.gethostname(),
        "cmdline": command_line(),
        "python": platform.python_version(),
        "torch": find_imported("torch", "__version__"),
        "cuda": find_imported("torch.version", "cuda"),
    }
    return {name: value for name, value in facts.items() if value is not None}


def job() -> str | None:
    """Which start of which job this is a rank of; None for a job of one, and where nothing says it."""
    values = [os.environ.get(name, "")[:128] for name in _JOB]
    alone = (from_environment(_WORLD) or 1) < 2
    return None if alone or not any(values) else " ".join(value or "-" for value in values)


def from_environment(names: Sequence[str]) -> int | None:
    values = [os.environ.get(name, "") for name in names]
    return next((int(value) for value in values if value.isdigit()), None)


def command_line() -> list[str]:
    """The trainer's command line, at most 64 words of 512 letters."""
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read(1 << 16).decode("utf-8", "replace").split("\0")
    return [word[:512] for word in words[:64] if word]


def devices() -> list[dict[str, Any]]:
    """A DEVICE frame for each GPU in use, with the field names of `brrrtop.model.Device`."""
    properties = find_imported("torch.cuda", "get_device_properties")
    known_devices = []
    if properties is None:
        return []
    for device in devices_in_use():
        props = properties(device)
        facts = {ours: getattr(props, theirs, None) for ours, theirs in _PROPERTIES.items()}
        facts["capability"] = [props.major, props.minor]
        if hasattr(props, "uuid"):
            facts["uuid"] = f"GPU-{props.uuid}"
        known = {name: value for name, value in facts.items() if value is not None}
        known_devices.append({"device_id": device, **known})
    return known_devices
