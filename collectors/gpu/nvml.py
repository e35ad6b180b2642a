"""Puts questions to NVML, through `pynvml`, from the monitor. Knows nothing of frames or threads.

NVML takes locks in the driver that the trainer's own calls wait for, so two rules hold for every
question: one that is not supported here is asked once and never again, and none may spend more
than `DUTY_SHARE` of wall time inside the driver, however slow this machine turns out to be.
"""

import importlib
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from collectors.errors import CollectorError

T = TypeVar("T")

DUTY_SHARE = 0.005
"""No question is asked again before it has paid for the time it took at this rate."""
REFUSED_RETRY_NS = 60_000_000_000
"""Permissions come and go in containers (NVIDIA/DCGM issue 214): ask again after a minute."""
TRANSIENT_LIMIT = 5
"""This many passing faults in a row rest a question like a refusal."""

# nvmlReturn_t, NVML API reference, "Device Enums".
UNINITIALIZED = 1
NO_PERMISSION = 4
GPU_IS_LOST = 15
RESET_REQUIRED = 16
_NEVER = frozenset({2, 3, 13, 22, 25, 26})
"""Invalid argument, not supported, no such function, vGPU ECC, argument version, deprecated."""
_LOST = frozenset({UNINITIALIZED, GPU_IS_LOST, RESET_REQUIRED, 28})

MEMORY_TEMPERATURE = 82
NVLINK_TX_KIB = 138
NVLINK_RX_KIB = 139
POWER_INSTANT_MILLIWATT = 186
POWER_LIMIT_MILLIWATT = 190
PCIE_TX_BYTES = 197
PCIE_RX_BYTES = 198
ECC_UNCORRECTED = 4
"""Field identifiers of nvml.h, "Field Identifiers". Never 83 (energy): 4.3 ms on an H200."""

ALL_LINKS = 0xFFFFFFFF
_SCOPES = {NVLINK_TX_KIB: ALL_LINKS, NVLINK_RX_KIB: ALL_LINKS}
_SLOW_US = 2_000

# nvmlValueType_t → the member of nvmlValue_t that holds it.
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

_OPENING: dict[int, tuple[str, str]] = {
    4: ("NVML refuses this user", "run brrrtop as a user who may open /dev/nvidiactl"),
    9: (
        "the NVIDIA driver is not loaded",
        "load it with `modprobe nvidia` and see `nvidia-smi`",
    ),
    12: (
        "libnvidia-ml.so.1 is not here: no NVIDIA driver, or a container started without it",
        "start the container with `--gpus all`, or run brrrtop on the host",
    ),
    18: (
        "the NVIDIA driver and its libraries are of different versions",
        "reboot, or reload the driver, after an update",
    ),
    20: ("NVML has no memory left", "see `dmesg`"),
    27: ("the NVIDIA driver is not ready yet", "wait a moment and try again"),
}


class NvmlUnavailable(CollectorError):
    """There is nothing to ask."""


def open_nvml() -> Any:
    """The initialised `pynvml` module; `close_nvml` undoes it.

    Raises:
        NvmlUnavailable: No library, no driver, no permission.
    """
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as fault:
        raise NvmlUnavailable(
            "the Python package nvidia-ml-py is missing",
            "install it: `pip install nvidia-ml-py`",
        ) from fault
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as fault:
        code = code_of(fault)
        message, action = _OPENING.get(code, (f"NVML does not start: {fault}", "try `nvidia-smi`"))
        raise NvmlUnavailable(message, action) from fault
    except (OSError, AttributeError) as fault:
        raise NvmlUnavailable(
            f"libnvidia-ml.so.1 cannot be used: {fault}", "try `nvidia-smi`"
        ) from fault
    return nvml


def close_nvml(nvml: Any) -> None:
    with suppress(nvml.NVMLError):
        nvml.nvmlShutdown()


def code_of(fault: BaseException) -> int:
    """The `nvmlReturn_t` of a `pynvml.NVMLError`; 999 (unknown) for anything else."""
    value = getattr(fault, "value", None)
    return value if isinstance(value, int) else 999


class Questions:
    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._not_before_ns: dict[str, int] = {}
        self._faults: dict[str, int] = {}
        self._took_ns: dict[str, deque[int]] = {}
        self.absent: dict[str, str] = {}
        """Why a question is not asked any more, by its key."""
        self.refused: dict[str, str] = {}
        """What was refused for want of permission, and is tried again."""
        self.lost: str | None = None
        """Why the whole device no longer answers."""

    def may(self, key: str) -> bool:
        if self.lost is not None or key in self.absent:
            return False
        return time.monotonic_ns() >= self._not_before_ns.get(key, 0)

    def ask(self, key: str, question: Callable[[], T]) -> T | None:
        """The answer, or None when there is none now (or never: then this never asks again)."""
        if not self.may(key):
            return None
        began_ns = time.monotonic_ns()
        try:
            answer = question()
        except self._nvml.NVMLError as fault:
            self.remember(key, code_of(fault), str(fault))
            return None
        ended_ns = time.monotonic_ns()
        took = self._took_ns.setdefault(key, deque(maxlen=3))
        took.append(ended_ns - began_ns)
        if len(took) > 1:  # the first may be cold, any one may have been preempted
            self._not_before_ns[key] = ended_ns + int(min(took) / DUTY_SHARE)
        self._faults.pop(key, None)
        self.refused.pop(key, None)
        return answer

    def get(self, function: str, *arguments: Any, key: str = "") -> Any:
        """What the function of NVML with that name answers; None as `ask` has it.

        Args:
            key: Tells the question from others to the same function; empty: it is the only one.
        """
        return self.ask(key or function, lambda: getattr(self._nvml, function)(*arguments))

    def rest(self, key: str, duration_ns: int) -> None:
        self._not_before_ns[key] = time.monotonic_ns() + duration_ns

    def remember(self, key: str, code: int, message: str) -> None:
        """Takes note of a question that got `code` (an `nvmlReturn_t`) for an answer."""
        if code in _NEVER:
            self.absent[key] = message
        elif code in _LOST:
            self.lost = f"the driver no longer answers for this GPU: {message}"
        elif code == NO_PERMISSION:
            self.refused[key] = message
            self.rest(key, REFUSED_RETRY_NS)
        else:
            self._faults[key] = self._faults.get(key, 0) + 1
            if self._faults[key] >= TRANSIENT_LIMIT:
                self.rest(key, REFUSED_RETRY_NS)


class Fields:
    """Several counters of one device in one call, each with its own fate."""

    def __init__(self, questions: Questions, board: Any, name: str, fields: Iterable[int]) -> None:
        self._ask, self._board = questions, board
        self._key = f"fields {name}"
        self._fields = list(fields)

    def values(self, without: Collection[int] = ()) -> dict[int, float]:
        due = [one for one in self._fields if one not in without and self._ask.may(_key(one))]
        if not due:
            return {}
        scoped = [(field_id, _SCOPES.get(field_id, 0)) for field_id in due]
        got = self._ask.get("nvmlDeviceGetFieldValues", self._board, scoped, key=self._key)
        values = {int(value.fieldId): self._value(value) for value in got or ()}
        return {field: value for field, value in values.items() if value is not None}

    def _value(self, one: Any) -> float | None:
        key = _key(one.fieldId)
        if one.nvmlReturn != 0:
            self._ask.remember(key, one.nvmlReturn, f"nvmlReturn {one.nvmlReturn}")
            return None
        if one.latencyUsec > _SLOW_US:
            self._ask.rest(key, int(one.latencyUsec * 1_000 / DUTY_SHARE))
        if not 0 <= one.valueType < len(_MEMBERS):
            return None
        return float(getattr(one.value, _MEMBERS[one.valueType]))


def _key(field: int) -> str:
    return f"field {field}"


class Rate:
    def __init__(self) -> None:
        self._before: tuple[int, float] | None = None

    def per_s(self, at_ns: int, count: float) -> float | None:
        """Growth per second since the call before; None for the first and after a reset."""
        before, self._before = self._before, (at_ns, count)
        if before is None or at_ns <= before[0] or count < before[1]:
            return None
        return (count - before[1]) * 1e9 / (at_ns - before[0])
