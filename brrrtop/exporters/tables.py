"""Every table of a report: as flat rows, and as a file of its own in a folder, CSV or Parquet.

What a report can be written as. A new format is one module and one line here.
"""

import csv
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from brrrtop.errors import BrrrtopError, UsageError
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases
from brrrtop.views import host_tables
from brrrtop.views.json_report import document

Row = dict[str, Any]
_LISTED = (
    "ops op_shapes modules frames stalls loaders copies collectives annotations inference".split()
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Spreadsheets run a cell that begins so; names in a trace are other people's."""


def tables_of(snapshot: Snapshot) -> dict[str, list[Row]]:
    """Rows by table; tables without any are left out. What nobody measured is None."""
    tables = snapshot.tables
    memory = tables.memory
    report = document(snapshot)
    result: dict[str, list[Row]] = {
        "account": _account(snapshot),
        "kernels": [_flat(row) for row in report["kernels"]],
        "whatif": [_flat(row) for row in report["whatif"] or ()],
        "advisories": [_flat(row) for row in report["advisories"] or ()],
        "queue": _rows([tables.queue] if tables.queue else ()),
    }
    listed = host_tables.document(tables, most=None)
    result |= {name: _rows(listed[name] or ()) for name in _LISTED}
    if memory is not None:
        result["memory_alive_at_peak"] = _rows(memory.alive)
        result["memory_timeline"] = [
            {"time_ns": time_ns, "allocated_bytes": used}
            for time_ns, used in zip(memory.times_ns, memory.allocated_bytes, strict=True)
        ]
    return {name: rows for name, rows in result.items() if rows}


def _account(snapshot: Snapshot) -> list[Row]:
    rows = []
    for estimate in snapshot.devices or (() if snapshot.estimate is None else (snapshot.estimate,)):
        whole = estimate.account.duration_ns
        rows += [
            {
                "device_id": estimate.device.device_id,
                "bucket": key,
                "time_ns": int(time_ns),
                "share": time_ns / whole if whole else None,
            }
            for key, time_ns in phrases.buckets(estimate.account)
        ]
    return rows


def _rows(table: Iterable[Any]) -> list[Row]:
    return [_flat(asdict(row)) for row in table]


def _flat(row: Mapping[str, Any]) -> Row:
    """Mappings as a column a key, `sides_ns` as `sides_ns.compute`; all else as text or a number."""
    result: Row = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            result |= {f"{key}.{inner}": _plain(one) for inner, one in value.items()}
        else:
            result[key] = _plain(value)
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Struct):
        return str(value)
    if isinstance(value, tuple):
        return "; ".join(str(_plain(one)) for one in value)
    return value.item() if getattr(value, "ndim", None) == 0 else str(value)


def _columns_of(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def write(snapshot: Snapshot, path: Path, format_id: str) -> None:
    arrow = _arrow() if format_id == "parquet" else None
    path.mkdir()
    for name, rows in tables_of(snapshot).items():
        if arrow is None:
            _write_csv(path / f"{name}.csv", rows)
        else:
            columns = {key: [row.get(key) for row in rows] for key in _columns_of(rows)}
            arrow.parquet.write_table(arrow.table(columns), path / f"{name}.parquet")


def _write_csv(path: Path, rows: list[Row]) -> None:
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _columns_of(rows))
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _arrow() -> Any:
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError:
        raise BrrrtopError(
            "Parquet files are written by pyarrow, which is not installed",
            f"{_install_command('pyarrow')}, or --export csv",
        ) from None


def _install_command(package: str) -> str:
    """Adds a library to this very installation, by the tool that made it.

    brrrtop itself is not named as something to fetch: a stranger could register it in an index that lacks it.
    """
    if Path(sys.prefix, "pipx_metadata.json").is_file():
        return f"`pipx inject {Path(sys.prefix).name} {package}`"
    if find_spec("pip") is None:  # made by uv: a tool, uvx or an environment
        return f"`uv pip install --python {sys.executable} {package}`"
    return f"`{sys.executable} -m pip install {package}`"


class Format(Struct, frozen=True):
    module: str
    """Below `brrrtop.exporters`. Has `write(snapshot, path, format_id)`, which raises BrrrtopError where it
    cannot; one module may write several formats."""
    ending: str
    """Of the file's name; a folder's has no dot."""
    message: str
    """What is written, for `--help`."""


FORMATS = {
    "csv": Format("tables", "-tables", "a folder with one CSV file a table"),
    "parquet": Format("tables", "-tables", "a folder with one Parquet file a table (pyarrow)"),
    "html": Format("html", ".html", "one page with the pictures, to send or to attach"),
}


def default_path(format_id: str, source: str) -> Path:
    """In the working folder, after the file that is reported on."""
    name = Path(source).name
    for ending in (".gz", ".json", ".pt.trace", ".trace", ".brrr"):
        name = name.removesuffix(ending)
    return Path((name or "report") + FORMATS[format_id].ending)


def export(snapshot: Snapshot, format_id: str, path: Path) -> None:
    """Writes a report; never over anything.

    Raises:
        UsageError: There is something at `path`, or no such format.
        BrrrtopError: The format needs what is not installed, or the file cannot be written.
    """
    if format_id not in FORMATS:
        raise UsageError(f"there is no export {format_id!r}", f"one of {', '.join(FORMATS)}")
    if os.path.lexists(path):
        raise UsageError(f"{path} exists already and brrrtop never overwrites", "name another PATH")
    module = import_module(f"brrrtop.exporters.{FORMATS[format_id].module}")
    write: Callable[[Snapshot, Path, str], None] = module.write
    try:
        write(snapshot, path, format_id)
    except OSError as fault:
        raise BrrrtopError(f"{path} cannot be written: {fault.strerror}") from fault
