"""An SQLite file that may be anybody's, as numpy columns: read only, whole columns, within bounds.

The file is opened immutable: no lock is taken, no journal replayed, nothing written. Only plain
tables are read, and none of their generated columns: a view may run for ever, an expression take all
memory. A file whose pages lead in circles has rows without end, so rows and work are bounded by the
size of the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from brrrtop.errors import BadInput

MAGIC = b"SQLite format 3\x00"
MOST_TEXT = 4_096
"""Characters of a name that are kept."""
_LEAST_ROW_BYTES = 8
"""A row of a table with times takes at least so much of the file."""
_STEPS = 10_000
"""Instructions of SQLite's machine between two looks at what was spent."""
_STEPS_A_BYTE = 20
"""Real exports take 1 to 4."""
_FREE_STEPS = 10_000_000
_INTEGERS = "coalesce(cast({} as integer), {})"

Array = npt.NDArray[Any]


class Database:
    """Tables of an SQLite file. Use as a context manager: `with opened(path) as database`."""

    def __init__(self, connection: sqlite3.Connection, label: str, size_bytes: int):
        self._connection = connection
        self._label = label
        self._most_rows = size_bytes // _LEAST_ROW_BYTES
        self.tables = self._schema()
        """Names of plain tables, with those of their columns."""

    def _schema(self) -> dict[str, frozenset[str]]:
        rows = self._connection.execute(  # virtual tables have no page
            "select name from sqlite_master where type = 'table' and rootpage > 0"
        )
        plain = [str(name) for (name,) in rows.fetchmany(10_000)]
        return {
            name: frozenset(
                str(row[1])
                for row in self._connection.execute("select * from pragma_table_info(?)", (name,))
            )
            for name in plain
        }

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is such a table with all of these columns."""
        return set(columns) <= self.tables.get(table, frozenset())

    def integers(self, table: str, columns: dict[str, int], where: str = "1") -> dict[str, Array]:
        """Columns of whole numbers by name, all of one length; empty where there is no such table.

        Args:
            columns: With what stands for a missing column or an empty field. SQLite's own `rowid` too.
            where: Of SQL; on columns that the table has.
        """
        here = self.tables.get(table)
        if here is None:
            return {name: np.zeros(0, np.int64) for name in columns}
        wanted = [
            _INTEGERS.format(f'"{name}"', default)
            if name in here or name == "rowid"
            else str(default)
            for name, default in columns.items()
        ]
        dtype = np.dtype([(name, np.int64) for name in columns])
        rows = self._connection.execute(f'select {", ".join(wanted)} from "{table}" where {where}')
        fromiter = np.fromiter(self._counted(rows), dtype)
        return {name: np.ascontiguousarray(fromiter[name]) for name in columns}

    def texts(
        self, table: str, key: str, value: str, where: str = "1"
    ) -> Iterator[tuple[int, str]]:
        """Key and text of each row; nothing where there is no such table."""
        if self.has(table, value) and (key == "rowid" or self.has(table, key)):
            yield from self._counted(
                self._connection.execute(
                    f"select {_INTEGERS.format(_quoted(key), 0)}, "
                    f"substr(cast({_quoted(value)} as text), 1, {MOST_TEXT}) "
                    f'from "{table}" where {_quoted(value)} is not null and {where}'
                )
            )

    def _counted(self, rows: sqlite3.Cursor) -> Iterator[Any]:
        """The rows, as many as the file has room for."""
        left = self._most_rows
        while batch := rows.fetchmany(10_000):
            left -= len(batch)
            if left < 0:
                raise BadInput(
                    f"{self._label} has more rows than it has room for", "export the report again"
                )
            yield from batch


def _quoted(name: str) -> str:
    return f'"{name}"'


@contextmanager
def open_database(path: Path, size_bytes: int, force: bool = False) -> Iterator[Database]:
    """The database of a file.

    Raises:
        BadInput: It is none, is damaged, or takes more work than its size explains.
    """
    connection = None
    looks = iter(range((_FREE_STEPS + _STEPS_A_BYTE * size_bytes) // _STEPS))
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
        )
        connection.execute("pragma query_only = on")
        connection.execute("pragma trusted_schema = off")
        connection.execute("pragma cell_size_check = on")
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        if not force:
            connection.set_progress_handler(lambda: next(looks, None) is None, _STEPS)
        yield Database(connection, path.name, size_bytes)
    except UnicodeDecodeError as fault:  # of the sentence in which SQLite names what is broken
        raise BadInput(
            f"{path.name} is a damaged SQLite file", "export the report again"
        ) from fault
    except sqlite3.Error as fault:
        if next(looks, None) is None:
            raise BadInput(
                f"{path.name} takes more work than its size explains",
                "--force reads it all the same",
            ) from fault
        raise BadInput(
            f"{path.name} is a damaged SQLite file: {fault}", "export the report again"
        ) from fault
    finally:
        if connection is not None:
            connection.close()
