"""What the agent can say of its trainer without asking anybody: the hello, the devices, torch's settings."""

from __future__ import annotations

import os
import platform
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from .allocator import devices_in_use
from .probe import imported

VERSION = "0.1.0"
WIRE = 1
OLDEST_PYTHON = (3, 9)

_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_TELLING = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "TORCH_LOGS",
    "TORCH_DISTRIBUTED_DEBUG",
    "NCCL_DEBUG",
    "OMP_NUM_THREADS",
)
"""Variables that change how fast a trainer runs. No others leave the process: they may be secrets."""


def hello() -> Dict[str, Any]:
    """The HELLO frame; what is not known is left out."""
    found: Dict[str, Any] = {
        "wire": WIRE,
        "agent": VERSION,
        "pid": os.getpid(),
        "rank": from_environment(_RANK),
        "world": from_environment(_WORLD),
        "local_rank": from_environment(_LOCAL_RANK),
        "hostname": socket.gethostname(),
        "cmdline": command_line(),
        "python": platform.python_version(),
        "torch": str_or_none(imported("torch", "__version__")),
        "cuda": str_or_none(imported("torch.version", "cuda")),
        "clock": clock_pair(),
        "main_thread": threading.main_thread().native_id,
        "environment": {name: os.environ[name] for name in _TELLING if name in os.environ},
        "settings": settings(),
    }
    return {name: value for name, value in found.items() if value not in (None, {})}


def from_environment(names: Any) -> Optional[int]:
    """The first of these variables that is a number."""
    for name in names:
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return None


def command_line() -> List[str]:
    """The trainer's command line, at most 64 words of 512 letters."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read(1 << 16).decode("utf-8", "replace").split("\0")
    except OSError:
        words = list(sys.argv)
    return [word[:512] for word in words[:64] if word]


def clock_pair() -> Dict[str, int]:
    """The same moment on CLOCK_REALTIME, which is CUPTI's, and on CLOCK_MONOTONIC."""
    before_ns, real_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return {"realtime_ns": real_ns, "monotonic_ns": (before_ns + after_ns) // 2}


def settings() -> Dict[str, Any]:
    """Switches of torch that decide how fast it may be; read by calls that print and change nothing."""
    found: Dict[str, Any] = {}
    for name, module, path in (
        ("matmul_precision", "torch._C", "_get_float32_matmul_precision"),
        ("cudnn_benchmark", "torch._C", "_get_cudnn_benchmark"),
        ("cudnn_allow_tf32", "torch._C", "_get_cudnn_allow_tf32"),
        ("deterministic", "torch._C", "_get_deterministic_algorithms"),
        ("anomaly_detection", "torch._C", "is_anomaly_enabled"),
    ):
        value = answer(imported(module, path))
        if value is not None:
            found[name] = value
    return found


def answer(call: Optional[Callable[[], Any]]) -> Any:
    """What `call()` says; None where it does not exist or refuses (mixed old and new TF32 switches)."""
    if call is None:
        return None
    try:
        return call()
    except RuntimeError:
        return None


def devices() -> List[Dict[str, Any]]:
    """A DEVICE frame for each GPU in use, with the field names of `brrrtop.model.Device`."""
    properties = imported("torch.cuda", "get_device_properties")
    if properties is None:
        return []
    return [described(device, properties(device)) for device in devices_in_use()]


def described(device: int, props: Any) -> Dict[str, Any]:
    """torch's device properties as a DEVICE frame."""
    clock_khz = getattr(props, "clock_rate", None)
    memory_clock_khz = getattr(props, "memory_clock_rate", None)
    found = {
        "device_id": device,
        "name": getattr(props, "name", None),
        "sm_count": getattr(props, "multi_processor_count", None),
        "capability": [props.major, props.minor] if hasattr(props, "major") else None,
        "memory_bytes": getattr(props, "total_memory", None),
        "max_threads_per_sm": getattr(props, "max_threads_per_multi_processor", None),
        "registers_per_sm": getattr(props, "regs_per_multiprocessor", None),
        "shared_bytes_per_sm": getattr(props, "shared_memory_per_multiprocessor", None),
        "sm_clock_max_hz": clock_khz * 1e3 if clock_khz else None,
        "memory_clock_max_hz": memory_clock_khz * 1e3 if memory_clock_khz else None,
        "bus_width_bits": getattr(props, "memory_bus_width", None),
        "uuid": "GPU-" + str(props.uuid) if hasattr(props, "uuid") else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def str_or_none(value: Any) -> Optional[str]:
    return None if value is None else str(value)
