"""Says why the hardware counters cannot be had, and what would help."""

from __future__ import annotations

from collectors.gpu.counters.library import loaded_cupti

_ADMIN = (
    "hardware counters are for administrators on this machine: run brrrtop as root, or load the "
    "driver with NVreg_RestrictProfilingToAdminUsers=0"
)
_TAKEN = (
    "another tool samples this GPU's hardware counters (DCGM, nsys, ncu or a second brrrtop): "
    "stop it and start brrrtop again"
)

# Parts of CUPTI result names and of cupti-python's sentences → ours.
_KNOWN: tuple[tuple[str, str], ...] = (
    ("INSUFFICIENT_PRIVILEGES", _ADMIN),
    ("already enabled", _TAKEN),
    ("HARDWARE_BUSY", _TAKEN),
    ("MULTIPLE_SUBSCRIBERS", _TAKEN),
    ("VIRTUALIZED", "hardware counters are not to be had inside this virtual GPU"),
    ("MIG", "hardware counters cannot be sampled on a MIG device"),
    ("CONFIDENTIAL", "hardware counters are off in confidential computing mode"),
    ("nvperf", "CUPTI's libnvperf libraries are missing: reinstall nvidia-cuda-cupti"),
    ("libcuda.so.1", "hardware counters need the NVIDIA driver, which is not here"),
    (
        "INVALID_PARAMETER",
        "the CUPTI library that was loaded is older than cupti-python expects: "
        "`pip install --upgrade cupti-python nvidia-cuda-cupti` where brrrtop is installed",
    ),
    (
        "not supported",
        "this GPU has no counters that can be sampled by time (Ampere GA10x and newer)",
    ),
    (
        "NOT_SUPPORTED",
        "this GPU has no counters that can be sampled by time (Ampere GA10x and newer)",
    ),
)


def sentence(fault: BaseException) -> str:
    """One sentence for whatever stopped the counters."""
    if isinstance(fault, ImportError):
        return "hardware counters need the package cupti-python: `pip install cupti-python`"
    if isinstance(fault, PermissionError):
        return _ADMIN
    text = str(fault)
    for part, sentence in _KNOWN:
        if part in text:
            return sentence + (_loaded_libraries() if part == "INVALID_PARAMETER" else "")
    return f"hardware counters stopped: {type(fault).__name__}: {text}"


def _loaded_libraries() -> str:
    libraries = loaded_cupti()
    return f" (loaded is {', '.join(libraries)})" if libraries else ""
