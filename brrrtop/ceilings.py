"""Rates a GPU cannot exceed: dense datasheet peaks by name, else a formula from what the device says.

`data/peaks.csv` holds one part a row with its source and how sure it is; `match` is searched in
the NVML name, first hit wins. All tensor figures are dense (no structured sparsity).
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from brrrtop.model import Device

PRECISIONS = ("fp64", "fp64_tensor", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")

ATTAINABLE_COMPUTE = {7: 0.85, 8: 0.87, 9: 0.80, 10: 0.78, 12: 0.80}
"""Measured matmul maxima over datasheet peak by compute capability (stas00/ml-engineering,
accelerator README: A100 86.9 %, H100 80.3 %, B200 77.6 %; Volta and GeForce Blackwell estimated)."""
ATTAINABLE_MEMORY = 0.90
"""A 4.3 TB/s copy on a 4.8 TB/s H200."""

_RATE_PER_SM_CLOCK: dict[tuple[int, int], dict[str, float]] = {
    (7, 0): {"fp32": 128, "fp64": 64, "fp16": 1024},
    (7, 5): {"fp32": 128, "fp64": 4, "fp16": 1024},
    (8, 0): {"fp32": 128, "fp64": 64, "fp64_tensor": 128, "tf32": 1024, "fp16": 2048},
    (8, 6): {"fp32": 256, "fp64": 4, "tf32": 512, "fp16": 1024},
    (8, 9): {"fp32": 256, "fp64": 4, "tf32": 512, "fp16": 1024, "fp8": 2048},
    (9, 0): {
        "fp32": 256,
        "fp64": 128,
        "fp64_tensor": 256,
        "tf32": 2048,
        "fp16": 4096,
        "fp8": 8192,
    },
    (10, 0): {
        "fp32": 256,
        "fp64": 128,
        "fp64_tensor": 128,
        "tf32": 4096,
        "fp16": 8192,
        "fp8": 16384,
        "fp4": 32768,
    },
    (10, 3): {"fp32": 256, "fp64": 4, "tf32": 4096, "fp16": 8192, "fp8": 16384, "fp4": 49152},
    (12, 0): {"fp32": 256, "fp64": 4, "tf32": 512, "fp16": 1024, "fp8": 2048, "fp4": 4096},
}
"""FLOP per SM and clock, dense; GeForce tensor rates are half. NVIDIA architecture white papers;
every datasheet figure in the table agrees within 2 %."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What one GPU can do at most."""

    part: str
    flop_per_s: dict[str, float]
    """By precision; a missing key means the unit does not exist or nobody says."""
    bytes_per_s: float | None
    sm_count: int | None
    capability: tuple[int, int] | None
    tensor_clock_hz: float | None
    """Clock at which the tensor figures hold."""
    source: str
    confidence: str
    """`high`, `medium`, `low` or `formula`."""

    @property
    def attainable_compute(self) -> float:
        """Share of a compute ceiling that a good kernel reaches."""
        return ATTAINABLE_COMPUTE.get(self.capability[0] if self.capability else 0, 0.8)

    def ridge(self, precision: str) -> float | None:
        """FLOP per byte at which the compute and the memory roof meet."""
        rate = self.flop_per_s.get(precision)
        return rate / self.bytes_per_s if rate and self.bytes_per_s else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _row_ceilings(row: dict[str, str]) -> Ceilings:
    rates = {p: value * 1e12 for p in PRECISIONS if (value := _number(row[p]))}
    bandwidth = _number(row["mem_gbs"])
    clock = _number(row["mhz_tensor"])
    sm = _number(row["sm"])
    major, _, minor = row["cc"].partition(".")
    return Ceilings(
        part=row["part"],
        flop_per_s=rates,
        bytes_per_s=bandwidth * 1e9 if bandwidth else None,
        sm_count=int(sm) if sm else None,
        capability=(int(major), int(minor or 0)),
        tensor_clock_hz=clock * 1e6 if clock else None,
        source=row["source"],
        confidence=row["confidence"],
    )


@lru_cache(maxsize=1)
def table() -> tuple[tuple[re.Pattern[str], Ceilings], ...]:
    """The shipped parts, in order of matching."""
    text = (Path(__file__).with_name("data") / "peaks.csv").read_text("utf-8")
    return tuple(
        (re.compile(row["match"]), _row_ceilings(row)) for row in csv.DictReader(text.splitlines())
    )


def by_formula(device: Device) -> Ceilings | None:
    """SMs × rate × clock, and 2 × memory clock × bus width / 8; None without SMs or clock."""
    rates = _RATE_PER_SM_CLOCK.get(device.capability) if device.capability else None
    if rates is None or not device.sm_count or not device.sm_clock_max_hz:
        return None
    consumer = device.name is not None and "GeForce" in device.name
    flops = {
        p: device.sm_count * r * device.sm_clock_max_hz * (0.5 if consumer and p in _TENSOR else 1)
        for p, r in rates.items()
    }
    if "fp16" in flops and device.capability and device.capability >= (8, 0):
        flops["bf16"] = flops["fp16"]
    bandwidth = None
    if device.memory_clock_max_hz and device.bus_width_bits:
        bandwidth = 2 * device.memory_clock_max_hz * device.bus_width_bits / 8
    return Ceilings(
        part=device.name or "unknown GPU",
        flop_per_s=flops,
        bytes_per_s=bandwidth,
        sm_count=device.sm_count,
        capability=device.capability,
        tensor_clock_hz=device.sm_clock_max_hz,
        source="SM count x rate x max clock",
        confidence="formula",
    )


_TENSOR = frozenset({"tf32", "fp16", "bf16", "fp8", "fp4", "int8"})


@lru_cache(maxsize=64)
def ceilings_for(device: Device) -> Ceilings | None:
    """The ceilings of a device; None when neither the table nor the formula knows it.

    Laptop parts share names with desktop ones but not clocks, so they take the formula.
    """
    name = device.name or ""
    if name and "Laptop" not in name and not device.mig:
        for pattern, ceilings in table():
            if pattern.search(name):
                return ceilings
    return by_formula(device)
