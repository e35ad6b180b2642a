"""Rates a GPU cannot exceed: dense datasheet peaks by name.

`data/peaks.csv` holds one part a row with its source and how sure it is; `match` is searched in
the NVML name, first hit wins. All tensor figures are dense (no structured sparsity).
"""

import csv
import re
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from brrrtop.model.tables import Device

PRECISIONS = ("fp64", "fp64_tensor", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")

ATTAINABLE_COMPUTE = {7: 0.85, 8: 0.87, 9: 0.80, 10: 0.78, 12: 0.80}
"""Measured matmul maxima over datasheet peak by compute capability (stas00/ml-engineering,
accelerator README: A100 86.9 %, H100 80.3 %, B200 77.6 %; Volta and GeForce Blackwell estimated)."""
ATTAINABLE_MEMORY = 0.90
"""A 4.3 TB/s copy on a 4.8 TB/s H200."""
LEAST_CLOCK_RATIO, MOST_CLOCK_RATIO = 0.3, 1.2
"""Clocks read while the GPU idled are no denominators."""

_RUNS_AS = {
    "tf32": ("fp32",),
    "bf16": ("fp32",),
    "int8": ("fp8", "fp16"),
    "fp8": ("fp16",),
    "fp4": ("fp8", "fp16"),
}
"""Before Ampere there are no units for bf16 or TF32: fp32 units do it. What has no figure of its own
is measured against the next wider one."""


class Ceilings(Struct, frozen=True):
    """What one GPU can do at most."""

    part: str
    flop_per_s: dict[str, float]
    """By precision; a missing key means the unit does not exist or nobody says."""
    bytes_per_s: float | None
    source: str
    sm_count: int | None = None
    capability: tuple[int, int] | None = None
    tensor_clock_hz: float | None = None
    """Clock at which the tensor figures hold."""
    memory_bytes: float | None = None
    """Of the whole part."""
    cache_bytes: float | None = None
    """Of the level-2 cache of the whole part."""

    @property
    def attainable_compute(self) -> float:
        """Share of a compute ceiling that a good kernel reaches."""
        return ATTAINABLE_COMPUTE.get(self.capability[0] if self.capability else 0, 0.8)

    def clock_ratio(self, sm_clock_hz: float | None) -> float:
        """Clock over the one the tensor figures hold at; 1 where either is unknown.

        Arithmetic ceilings move with the SM clock, the bandwidth does not: a throttled kernel at
        80 % of the datasheet may be at 100 % of what the clock allows.
        """
        if not sm_clock_hz or not self.tensor_clock_hz:
            return 1.0
        return min(MOST_CLOCK_RATIO, max(LEAST_CLOCK_RATIO, sm_clock_hz / self.tensor_clock_hz))

    def rate(self, precision: str, tensor_cores: bool | None = None) -> float | None:
        """FLOP/s of the units that a precision runs on; of those it falls back to where none do it."""
        if precision == "fp64" and tensor_cores and "fp64_tensor" in self.flop_per_s:
            return self.flop_per_s["fp64_tensor"]
        units = (precision, *_RUNS_AS.get(precision, ()))
        return next((self.flop_per_s[unit] for unit in units if unit in self.flop_per_s), None)


def _number(text: str, unit: float = 1.0) -> float | None:
    return float(text) * unit if text else None


def _row_ceilings(row: dict[str, str]) -> Ceilings:
    major, _, minor = row["cc"].partition(".")
    return Ceilings(
        part=row["part"],
        flop_per_s={p: rate for p in PRECISIONS if (rate := _number(row[p], 1e12))},
        bytes_per_s=_number(row["mem_gbs"], 1e9),
        sm_count=int(row["sm"]) if row["sm"] else None,
        capability=(int(major), int(minor or 0)) if major else None,
        tensor_clock_hz=_number(row["mhz_tensor"], 1e6),
        source=row["source"],
        memory_bytes=_number(row["mem_gb"], 1e9),
        cache_bytes=_number(row["l2_mb"], 1e6),
    )


@lru_cache(maxsize=1)
def table() -> tuple[tuple[re.Pattern[str], Ceilings], ...]:
    """The shipped parts, in order of matching."""
    text = (Path(__file__).parents[1] / "data" / "peaks.csv").read_text("utf-8")
    return tuple(
        (re.compile(row["match"]), _row_ceilings(row)) for row in csv.DictReader(text.splitlines())
    )


_OF_CLASS = {
    (6, 0): "P100 SXM2", (6, 1): "GeForce GTX 1080 Ti", (7, 0): "V100 PCIe", (7, 5): "T4",
    (8, 0): "A100 SXM4 40GB", (8, 6): "GeForce RTX 3060", (8, 9): "GeForce RTX 4070",
    (9, 0): "H100 PCIe 80GB", (10, 0): "B200 (HGX/DGX)", (12, 0): "GeForce RTX 5070",
}  # fmt: skip
"""A usual part of each compute capability."""


def guessed(capability: tuple[int, int] | None) -> Ceilings | None:
    """Ceilings of a usual part of a compute capability, for a GPU that nobody named: a guess."""
    name = _OF_CLASS.get(capability) if capability else None
    row = next((ceilings for _, ceilings in table() if ceilings.part == name), None)
    if row is None:
        return None
    return replace(row, source=f"a guess: as of {row.part}, by compute capability")


@lru_cache(maxsize=1)
def highest() -> Ceilings:
    """The highest figure of any shipped part: what no GPU does more of, for one that nobody knows."""
    parts = [ceilings for _, ceilings in table()]
    return Ceilings(
        part="any",
        flop_per_s={
            precision: max(part.flop_per_s.get(precision, 0.0) for part in parts)
            for precision in PRECISIONS
        },
        bytes_per_s=max(part.bytes_per_s or 0.0 for part in parts),
        source="the highest of all parts",
    )


@lru_cache(maxsize=64)
def ceilings_for(device: Device) -> Ceilings | None:
    """The ceilings of a device; None when the table does not know it, nor of a MIG device, a part of a GPU.

    Laptop parts have rows of their own, before those of desktop parts of the same name.
    """
    name = device.name or "no name"
    published = next((ceilings for pattern, ceilings in table() if pattern.search(name)), None)
    if published is not None and ("Laptop" in name) != ("Laptop" in published.part):
        return None
    return None if " MIG " in name else published
