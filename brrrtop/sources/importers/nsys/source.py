"""A report of Nsight Systems, exported as SQLite, as a `Source`."""

from __future__ import annotations

from typing import Any

from brrrtop.errors import BadInput
from brrrtop.sources.files import open_input
from brrrtop.sources.importers.nsys import columns
from brrrtop.sources.importers.nsys.database import Database, open_database
from brrrtop.sources.importers.trace.source import TraceSource
from collectors.protocol import bodies
from collectors.protocol.frames import Frame

_HOW_TO_RECORD = "profile with nsys profile --trace=cuda,nvtx, and export it again"


class NsysSource(TraceSource):
    """A trace of Nsight Systems (`nsys export --type sqlite`)."""

    kind = "nsys"

    def _read(self) -> list[Frame]:
        file, size_bytes = open_input(self._path)
        file.close()
        with open_database(self._path, size_bytes, self._force) as database:
            if columns.TABLES.isdisjoint(database.tables):
                raise BadInput(
                    f"{self._path.name} is an SQLite file, but none with GPU work that Nsight Systems "
                    "exported",
                    _HOW_TO_RECORD,
                )
            collected, notes = columns.collect(database)
            if not collected.has_gpu_work:
                raise BadInput(f"{self._path.name} has no GPU activity in it", _HOW_TO_RECORD)
            known, _ = columns.devices(database)
            hello = {"notes": notes}
            base_ns = _start_ns(database)

        def devices(active: list[int]) -> list[dict[str, Any]]:
            return [
                bodies.plausible_device({"device_id": gpu, **known.get(gpu, {})}) for gpu in active
            ]

        return self._framed(collected, base_ns, hello, devices)


def _start_ns(database: Database) -> int:
    """Time of day at the export's time 0; 0 where it is not told."""
    integers = database.integers("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": 0}, "rowid = 1")
    start = int(integers["utcEpochNs"][0]) if len(integers["utcEpochNs"]) else 0
    return start if 0 < start < 1 << 62 else 0
