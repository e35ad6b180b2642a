"""What `brrrtop calibrate` measured on this machine's GPUs, kept between runs as one JSON file."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, MsgspecError, Struct, field, json

from brrrtop.errors import BrrrtopError
from brrrtop.model.tables import Device

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

    return Path(platformdirs.user_data_dir("brrrtop")) / "calibration.json"


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
    fresh = where.with_suffix(f".{os.getpid()}")
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(document + b"\n")
        fresh.replace(where)
    except OSError as fault:
        raise BrrrtopError(
            f"{where} cannot be written: {fault.strerror}",
            "make the folder writable, or set XDG_DATA_HOME to one that is",
        ) from fault
    finally:
        fresh.unlink(missing_ok=True)
    _kept.cache_clear()
    return where
