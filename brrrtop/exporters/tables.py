"""Every table as a file of its own in one folder: CSV, or Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
from importlib import import_module
from pathlib import Path
from typing import Any

from brrrtop.errors import BrrrtopError
from brrrtop.exporters.rows import Row, columns_of, tables_of
from brrrtop.model.snapshot import Snapshot

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Spreadsheets run a cell that begins so; names in a trace are other people's."""


def write(snapshot: Snapshot, path: Path, format_id: str) -> None:
    """A folder at `path` with a file a table.

    Raises:
        BrrrtopError: Parquet without pyarrow.
        OSError: The folder cannot be made, or a file in it.
    """
    arrow = _arrow() if format_id == "parquet" else None
    path.mkdir()
    for name, rows in tables_of(snapshot).items():
        if arrow is None:
            _write_csv(path / f"{name}.csv", rows)
        else:
            columns = {key: [row.get(key) for row in rows] for key in columns_of(rows)}
            arrow.parquet.write_table(arrow.table(columns), path / f"{name}.parquet")


def _write_csv(path: Path, rows: list[Row]) -> None:
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns_of(rows))
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
            "`pip install pyarrow`, or --export csv",
        ) from None
