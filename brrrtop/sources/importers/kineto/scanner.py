"""The native scanner: text of plain trace events → columns, without an object for any of them.

The library is a few files of C (`native/`), built like the agent's and loaded only here. Where it
cannot be had, and for each run that it declines, msgspec reads the events (`events.py`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from brrrtop.model.tables import I8

START, SPAN, NAME, PROCESS, THREAD, SIGNATURE, FIRST_ARGUMENT = range(7)
"""Slots of what every event has, as in `native/scan.h`."""
_INTEGER, _THREE, _RAW = range(3)
_TOKEN, _SIGNATURE, _CATEGORY = range(3)


class Scanner:
    """Reads runs of events into columns of 64-bit integers, a set a table."""

    def __init__(
        self,
        library: ctypes.CDLL,
        integers: Mapping[str, int],
        threes: Sequence[str],
        raw: Sequence[str],
    ) -> None:
        """What to keep of the arguments of events.

        Args:
            library: As `load` gives it.
            integers: Keys whose values are integers, and what stands where one is absent.
            threes: Keys whose values are lists of three integers.
            raw: Keys whose values, as text, make up an event's signature together with its name.
        """
        self._library = library
        self._scan = library.brrr_scan_new(int.from_bytes(os.urandom(8), "little"))
        if not self._scan:
            raise MemoryError
        self._raw_count = len(raw)
        self._column_counts: dict[int, int] = {}
        self.slots: dict[str, int] = {}
        """Of each argument; of the first of three."""
        slot = FIRST_ARGUMENT
        for key, absent in integers.items():
            slot = self._argument(key, _INTEGER, slot, 1, absent)
        for key in threes:
            slot = self._argument(key, _THREE, slot, 3)
        for place, key in enumerate(raw):
            self._want(library.brrr_scan_argument(self._scan, key.encode(), _RAW, place, 0))

    def _argument(self, key: str, kind: int, slot: int, width: int, absent: int = 0) -> int:
        add = self._library.brrr_scan_argument
        self._want(add(self._scan, key.encode(), kind, slot, absent))
        self.slots[key] = slot
        return slot + width

    @staticmethod
    def _want(code: int) -> None:
        if code:
            raise ValueError("more than the scanner has room for")

    def __del__(self) -> None:
        self._library.brrr_scan_free(self._scan)
        self._scan = None

    def keep(self, table: int, categories: Sequence[str], slots: Sequence[int]) -> None:
        """Events of these categories become rows of the table, with these slots as its columns."""
        for name in categories:
            self._want(self._library.brrr_scan_category(self._scan, name.encode(), table))
        for slot in slots:
            self._want(self._library.brrr_scan_column(self._scan, table, slot))
        self._column_counts[table] = len(slots)

    def read(self, run: bytes) -> int | None:
        """How many events the run has; None where it is for others to read, and nothing was kept.

        Raises:
            MemoryError: There is not enough.
        """
        count: int = self._library.brrr_scan_run(self._scan, run, len(run))
        if count == -2:
            raise MemoryError
        return count if count >= 0 else None

    def rows(self, table: int) -> int:
        """How many a table holds now."""
        count: int = self._library.brrr_scan_rows(self._scan, table)
        return count

    def taken(self, table: int) -> list[I8]:
        """The columns of a table, which is empty afterwards."""
        count = self.rows(table)
        columns = [
            np.ctypeslib.as_array(
                (ctypes.c_int64 * count).from_address(
                    self._library.brrr_scan_values(self._scan, table, column)
                )
            ).copy()
            for column in range(self._column_counts[table] if count else 0)
        ]
        self._library.brrr_scan_clear(self._scan, table)
        return columns

    def tokens(self, first: int) -> Iterator[bytes]:
        """Names and ids as JSON text, from number `first` on."""
        return self._texts(_TOKEN, first)

    def signatures(self, first: int) -> Iterator[tuple[int, list[bytes]]]:
        """The token of the name and the raw arguments, from number `first` on; absent ones are empty."""
        for text in self._texts(_SIGNATURE, first):
            raw, at = [], 4
            for _ in range(self._raw_count):
                end = at + 4 + int.from_bytes(text[at : at + 4], "little")
                raw.append(text[at + 4 : end])
                at = end
            yield int.from_bytes(text[:4], "little"), raw

    def categories(self, first: int) -> Iterator[bytes]:
        """Categories of no table as JSON text, from number `first` on; very long ones are left out."""
        return self._texts(_CATEGORY, first)

    def _texts(self, which: int, first: int) -> Iterator[bytes]:
        length = ctypes.c_size_t()
        text, place = self._library.brrr_scan_text, ctypes.byref(length)
        for number in range(first, self._library.brrr_scan_text_count(self._scan, which)):
            address = text(self._scan, which, number, place)
            yield ctypes.string_at(address, length.value)


def load_library(path: str | os.PathLike[str]) -> ctypes.CDLL:
    """The library with the types of its functions.

    Raises:
        OSError: It cannot be loaded.
        AttributeError: It is another library.
    """
    library = ctypes.CDLL(os.fspath(path))
    pointer, number, size, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p
    types: dict[str, tuple[Any, list[Any]]] = {
        "brrr_scan_new": (pointer, [ctypes.c_uint64]),
        "brrr_scan_free": (None, [pointer]),
        "brrr_scan_argument": (number, [pointer, text, number, number, ctypes.c_int64]),
        "brrr_scan_category": (number, [pointer, text, number]),
        "brrr_scan_column": (number, [pointer, number, number]),
        "brrr_scan_run": (ctypes.c_int64, [pointer, text, size]),
        "brrr_scan_rows": (size, [pointer, number]),
        "brrr_scan_values": (pointer, [pointer, number, number]),
        "brrr_scan_clear": (None, [pointer, number]),
        "brrr_scan_text_count": (size, [pointer, number]),
        "brrr_scan_text": (pointer, [pointer, number, size, ctypes.POINTER(size)]),
    }
    for name, (result, arguments) in types.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
