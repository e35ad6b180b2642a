"""What is said of the counters: why there are none and what would help, and what their samples cover."""

from __future__ import annotations

from collections import deque

from collectors.gpu.counters.cupti_python import loaded_cupti

BACK_S = 10.0
"""How far back it is looked."""
LEAST_S = 2.0
"""After less than that the share says little: one reading is full and the next one empty."""
WHOLE, STEP = 0.9, 0.1
"""From the first on nothing is said; a share is told anew when it is off by the second."""
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


class Coverage:
    """Fed with the time of all samples so far; times are CLOCK_MONOTONIC in seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._last_share: float | None = None

    def add(self, now_s: float, covered_ns: int) -> None:
        """What all samples that were read until now cover together, of one device."""
        self._seen.append((now_s, covered_ns))
        while len(self._seen) > 2 and self._seen[1][0] < now_s - BACK_S:
            self._seen.popleft()

    @property
    def share(self) -> float | None:
        """0..1 of late; None: too early to say."""
        if not self._seen:
            return None
        (low_s, low_ns), (high_s, high_ns) = self._seen[0], self._seen[-1]
        if high_s - low_s < LEAST_S:
            return None
        return min(1.0, (high_ns - low_ns) / 1e9 / (high_s - low_s))

    def is_news(self) -> bool:
        """Whether `reported_share` would say something else than it did."""
        share = self.share
        last_share = 1.0 if self._last_share is None else self._last_share
        return share is not None and abs(share - last_share) >= STEP

    def reported_share(self) -> float | None:
        """The share to tell in tenths, at least one; None: nothing is missing, or too early to say."""
        share = self.share
        if share is None:
            return None
        self._last_share = share
        return None if share >= WHOLE else max(0.1, round(share, 1))
