"""Reads NVML field values: several counters of one device in one call, each with its own fate."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from collectors.gpu.nvidia.devices import NvmlDevice
from collectors.gpu.nvidia.nvml import DUTY_SHARE, Questions

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


class FieldReader:
    """One batch of fields of one device."""

    def __init__(
        self,
        nvml: Any,
        device: NvmlDevice,
        questions: Questions,
        name: str,
        fields: list[int],
    ) -> None:
        self._nvml = nvml
        self._handle = device.board.handle
        self._ask = questions
        self._key = f"fields {name}"
        self._fields = fields

    def values(self, without: Collection[int] = ()) -> dict[int, float]:
        """What the fields say now; those without an answer are left out."""
        due = [one for one in self._fields if one not in without and self._ask.may(_key(one))]
        if not due:
            return {}
        wanted = [(one, _SCOPES.get(one, 0)) for one in due]
        got = self._ask.ask(
            self._key, lambda: self._nvml.nvmlDeviceGetFieldValues(self._handle, wanted)
        )
        if got is None:
            return {}
        result: dict[int, float] = {}
        for one in got:
            value = self._value(one)
            if value is not None:
                result[int(one.fieldId)] = value
        return result

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
    """Turns a counter that only grows into a rate."""

    def __init__(self) -> None:
        self._before: tuple[int, float] | None = None

    def per_s(self, at_ns: int, count: float) -> float | None:
        """Growth per second since the call before; None for the first and after a reset."""
        before, self._before = self._before, (at_ns, count)
        if before is None or at_ns <= before[0] or count < before[1]:
            return None
        return (count - before[1]) * 1e9 / (at_ns - before[0])
