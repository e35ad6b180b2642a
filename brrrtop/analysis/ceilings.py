"""Rates a GPU cannot exceed: dense datasheet peaks by name, or what a calibration reached.

`data/peaks.csv` holds one part a row with its source and how sure it is; `match` is searched in
the NVML name, first hit wins. All tensor figures are dense (no structured sparsity).

What `brrrtop calibrate` measured on this machine's GPUs, kept between runs as one JSON file.
"""

from __future__ import annotations

import csv
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, MsgspecError, Struct, field, json
from msgspec.structs import replace

from brrrtop.errors import BrrrtopError
from brrrtop.model.tables import Device
from collectors.own_files import own_folder, replace_file

PRECISIONS = ("fp64", "fp64_tensor", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")

ATTAINABLE_COMPUTE = {7: 0.85, 8: 0.87, 9: 0.80, 10: 0.78, 12: 0.80}
"""Measured matmul maxima over datasheet peak by compute capability (stas00/ml-engineering,
accelerator README: A100 86.9 %, H100 80.3 %, B200 77.6 %; Volta and GeForce Blackwell estimated)."""
ATTAINABLE_MEMORY = 0.90
"""A 4.3 TB/s copy on a 4.8 TB/s H200."""
LEAST_CLOCK_RATIO, MOST_CLOCK_RATIO = 0.3, 1.2
"""Clocks read while the GPU idled are no denominators."""
LEAST_ATTAINED = 0.3
"""A calibration below this share of the datasheet was not made on an idle GPU, or not on this part."""

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
    compute_attained: float | None = None
    """Share of a compute ceiling that a calibration reached."""
    memory_attained: float | None = None
    memory_bytes: float | None = None
    """Of the whole part."""
    cache_bytes: float | None = None
    """Of the level-2 cache of the whole part."""

    @property
    def attainable_compute(self) -> float:
        """Share of a compute ceiling that a good kernel reaches."""
        return self.compute_attained or _usual_share(self.capability)

    @property
    def attainable_memory(self) -> float:
        """Share of the bandwidth that a good copy reaches."""
        return self.memory_attained or ATTAINABLE_MEMORY

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


def _usual_share(capability: tuple[int, int] | None) -> float:
    return ATTAINABLE_COMPUTE.get(capability[0] if capability else 0, 0.8)


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


_MIG_NAME = re.compile(r"\bMIG \d+g\.(\d+)gb")
"""As CUDA names an instance: `NVIDIA A100-SXM4-80GB MIG 1g.10gb` (MIG User Guide, "Profiles")."""
_TENSOR = frozenset({"tf32", "fp16", "bf16", "fp8", "fp4", "int8"})


@lru_cache(maxsize=64)
def ceilings_for(device: Device) -> Ceilings | None:
    """The ceilings of a device; None when neither the table nor a calibration knows it.

    Laptop parts have rows of their own, before those of desktop parts of the same name. A MIG instance
    has its part of the GPU's.
    """
    name = device.name or "no name"
    published = next((ceilings for pattern, ceilings in table() if pattern.search(name)), None)
    if published is not None and ("Laptop" in name) != ("Laptop" in published.part):
        published = None
    if published is not None and (device.mig or _MIG_NAME.search(name)):
        published = _slice_of(device, published)
    made = calibration_of(device)
    if made is None:
        return published
    return _from_measurement(device, made) if published is None else _attainable(published, made)


def _slice_of(device: Device, whole: Ceilings) -> Ceilings | None:
    """Ceilings of a MIG instance: its SMs of the part's, and its eighths of the memory."""
    if not whole.sm_count or not device.sm_count:
        return None
    sms = min(1.0, device.sm_count / whole.sm_count)
    named = _MIG_NAME.search(device.name or "")
    # From its profile's name where nobody measured it.
    slice_bytes = device.memory_bytes or (float(named.group(1)) * 1e9 if named else None)
    eighths = 0
    if slice_bytes and whole.memory_bytes:
        eighths = min(8, max(1, round(8 * slice_bytes / whole.memory_bytes)))

    def part(amount: float | None) -> float | None:
        return amount * eighths / 8 if amount and eighths else None

    return replace(
        whole,
        part=f"{whole.part}, MIG",
        flop_per_s={precision: rate * sms for precision, rate in whole.flop_per_s.items()},
        bytes_per_s=part(whole.bytes_per_s),
        cache_bytes=part(whole.cache_bytes),
        sm_count=device.sm_count,
        source=f"{whole.source}; MIG: {device.sm_count} of {whole.sm_count} SMs"
        + (f", {eighths}/8 of the memory" if eighths else ""),
    )


def _attainable(ceilings: Ceilings, made: Calibration) -> Ceilings:
    """Datasheet ceilings with what good kernels were measured to reach of them."""
    reached = [
        rate / ceilings.flop_per_s[precision]
        for precision, rate in made.flop_per_s.items()
        if precision in ceilings.flop_per_s and precision in _TENSOR
    ]
    compute = max(reached, default=0.0)
    memory = made.bytes_per_s / ceilings.bytes_per_s if ceilings.bytes_per_s else 0.0
    return replace(
        ceilings,
        bytes_per_s=ceilings.bytes_per_s or made.bytes_per_s / ATTAINABLE_MEMORY,
        compute_attained=compute if LEAST_ATTAINED <= compute <= 1 else None,
        memory_attained=memory if LEAST_ATTAINED <= memory <= 1 else None,
        source=f"{ceilings.source}; attainable share measured {made.date}",
    )


def _from_measurement(device: Device, made: Calibration) -> Ceilings:
    """Ceilings of a part nobody published: what was reached, over what is usually reached."""
    share = _usual_share(device.capability)
    return Ceilings(
        part=made.name,
        flop_per_s={precision: rate / share for precision, rate in made.flop_per_s.items()},
        bytes_per_s=made.bytes_per_s / ATTAINABLE_MEMORY,
        sm_count=device.sm_count,
        capability=device.capability,
        tensor_clock_hz=device.sm_clock_max_hz,
        source=f"measured by brrrtop calibrate, {made.date}",
    )


SCHEMA: Literal["brrrtop.calibration/1"] = "brrrtop.calibration/1"
Rate = Annotated[float, Meta(gt=0)]


class Calibration(Struct, frozen=True, forbid_unknown_fields=True):
    """Rates reached on one idle GPU."""

    name: str
    uuid: str | None
    bytes_per_s: Rate
    """Read plus written by a large copy on the device."""
    flop_per_s: dict[str, Rate] = field(default_factory=dict)
    """By precision, of a large square matrix product."""
    date: str = ""
    torch: str = ""

    def fits(self, device: Device) -> bool:
        """The same GPU; by name where either side has no UUID."""
        if device.uuid and self.uuid:
            return _bare(device.uuid) == _bare(self.uuid)
        return bool(device.name) and device.name == self.name and not device.mig


class _File(Struct, frozen=True):
    schema: Literal["brrrtop.calibration/1"]
    gpus: tuple[Calibration, ...]


def _bare(uuid: str) -> str:
    return uuid.removeprefix("GPU-").lower()


def path() -> Path:
    """Where calibrations are kept; need not exist."""
    import platformdirs

    folder = Path(platformdirs.user_data_dir("brrrtop"))
    return own_folder(folder, ".local/share/brrrtop") / "calibration.json"


def calibration_of(device: Device) -> Calibration | None:
    """The newest calibration of a device; None where nobody made one."""
    return next((one for one in reversed(_kept()) if one.fits(device)), None)


@lru_cache(maxsize=1)
def _kept() -> tuple[Calibration, ...]:
    """All calibrations; a file that makes no sense counts as none."""
    with suppress(OSError, MsgspecError):
        return json.decode(path().read_bytes(), type=_File).gpus
    return ()


def keep(made: Calibration) -> Path:
    """Adds a calibration in place of an older one of the same GPU.

    Raises:
        BrrrtopError: The file cannot be written.
    """
    _kept.cache_clear()
    device = Device(0, made.name, uuid=made.uuid)
    others = [one for one in _kept() if not one.fits(device)]
    document = json.format(json.encode(_File(SCHEMA, (*others, made))), indent=1)
    where = path()
    try:
        replace_file(where, document + b"\n")
    except OSError as fault:
        raise BrrrtopError(
            f"{where} cannot be written: {fault.strerror}",
            "make the folder writable, or set XDG_DATA_HOME to one that is",
        ) from fault
    _kept.cache_clear()
    return where
