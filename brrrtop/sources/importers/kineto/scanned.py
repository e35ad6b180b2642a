"""The native scanner: text of plain trace events → columns, without an object for any of them.

The library is a few files of C (`native/`), built like the agent's and loaded only here. Where it
cannot be had, and for each run that it declines, msgspec reads the events (`trace/events.py`), and
`Collected.add` makes the same columns of them.
"""

import ctypes
import os
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from brrrtop.model.tables import I8
from brrrtop.sources.importers.trace.columns import (
    CALL,
    CATEGORIES,
    COLUMNS,
    EXTERNALS,
    FROM_OPS,
    INTEGERS,
    KERNEL,
    KEYS,
    ON_DEVICE,
    OP,
    RAW,
    THREES,
    UNSHAPED,
    Array,
    Collected,
    device_of_pid,
)

_SLOTS = {"start_ns": 0, "span_ns": 1, "name_id": 2, "pid": 3, "tid": 4, "signature": 5}
"""Of what every event has, as in `native/scan.h`; arguments follow."""
_INTEGER, _THREE, _RAW = range(3)
_TOKEN, _SIGNATURE, _CATEGORY = range(3)
_MOST_ROWS = 1 << 15
"""Of one table, before they are taken out of the scanner: few enough to stay in the cache."""
_SMALL = {"name_id", "tid", "signature", "correlation", *EXTERNALS, "device", "stream", "graph",
          "grid", "block", "registers"}  # fmt: skip
"""What has more than 32 bits in few traces, and in none of the others anywhere."""


def _columns(table: int) -> list[str]:
    """What the scanner keeps of a kind of event; of three numbers, the first's name three times."""
    names = ["start_ns", "span_ns", "name_id", "pid", *COLUMNS[table]]
    names += ["tid"] if table not in ON_DEVICE else []
    names += EXTERNALS if table in FROM_OPS else ()
    names += ["signature"] if table == OP else []
    return names + [key for key in THREES for _ in range(3)] if table == KERNEL else names


_TABLES = {table: _columns(table) for table in COLUMNS}


def _narrow(column: Array) -> Array:
    """The same numbers in half the memory, where they fit."""
    small = np.iinfo(np.int32)
    if len(column) and (column.min() < small.min or column.max() > small.max):
        return column
    return column.astype(np.int32)


class _Numbers:
    """A column of numbers the scanner gave → numbers of ours, for those that were asked for."""

    def __init__(self) -> None:
        self._known = np.full(0, -1, np.int64)

    def of(self, column: I8, keys: list[Any], interned: dict[Any, int]) -> I8:
        """The number of each row's key, in order of appearance."""
        if len(keys) > len(self._known):
            more = np.full(max(len(keys), 2 * len(self._known)) - len(self._known), -1, np.int64)
            self._known = np.concatenate([self._known, more])
        rows: I8 = self._known[column]
        if (rows < 0).any():
            missing, first = np.unique(column[rows < 0], return_index=True)
            for n in missing[np.argsort(first)].tolist():
                self._known[n] = interned[keys[n]]
            rows = self._known[column]
        return rows


class Scanned:
    """Runs of events, read by the scanner, into what was collected.

    Args:
        library: As `scanner_library` gives it.
        collected: Where the columns go.
    """

    def __init__(self, library: ctypes.CDLL, collected: Collected) -> None:
        self._library = library
        self._scan = library.brrr_scan_new(int.from_bytes(os.urandom(8), "little"))
        if not self._scan:
            raise MemoryError
        self._collected = collected
        self._tokens: list[Any] = []
        """Names and ids."""
        self._signatures: list[tuple[Any, ...]] = []
        self._category_count = 0
        self._names, self._threads = _Numbers(), _Numbers()
        self._calls, self._processes = _Numbers(), _Numbers()
        self._say_what_to_keep()
        collected.scan = self.take

    def __del__(self) -> None:
        self._library.brrr_scan_free(self._scan)
        self._scan = None

    def _say_what_to_keep(self) -> None:
        add, slots = self._library.brrr_scan_argument, dict(_SLOTS)
        codes = []
        for name, absent in INTEGERS.items():
            slots[name] = len(slots)
            codes.append(add(self._scan, KEYS[name].encode(), _INTEGER, slots[name], absent))
        for place, key in enumerate(THREES):
            slots[key] = len(slots) + 2 * place  # each takes three
            codes.append(add(self._scan, key.encode(), _THREE, slots[key], 0))
        for place, name in enumerate(RAW):
            codes.append(add(self._scan, KEYS[name].encode(), _RAW, place, 0))
        for table, names in _TABLES.items():
            keep = self._library.brrr_scan_category
            codes += [keep(self._scan, name.encode(), table) for name in CATEGORIES[table]]
            for at, name in enumerate(names):
                slot = slots[name] + names[:at].count(name)
                codes.append(self._library.brrr_scan_column(self._scan, table, slot))
        if any(codes):
            raise ValueError("more than the scanner has room for")

    def take(self, run: bytes) -> bool:
        """Whether the scanner read the run; else it is for others, and nothing of it was taken in.

        Raises:
            MemoryError: There is not enough.
        """
        count = self._library.brrr_scan_run(self._scan, run, len(run))
        if count == -2:
            raise MemoryError
        if count < 0:
            self.flush()
            return False
        self._collected.event_count += count
        if any(self._library.brrr_scan_rows(self._scan, table) > _MOST_ROWS for table in _TABLES):
            self.flush()
        return True

    def flush(self) -> None:
        """Hands over what was read. Before anybody else adds events."""
        self._tokens += map(msgspec.json.decode, self._texts(_TOKEN, len(self._tokens)))
        for text in self._texts(_SIGNATURE, len(self._signatures)):
            self._signatures.append(self._signature(text))
        for text in self._texts(_CATEGORY, self._category_count):
            self._collected.add_category(msgspec.json.decode(text))
            self._category_count += 1
        for table in _TABLES:
            count = self._library.brrr_scan_rows(self._scan, table)
            if count:
                self._add(table, count)

    def finish(self) -> None:
        """Hands over the rest; nothing can be read from here on."""
        self.flush()
        self._collected.scan = None

    def _texts(self, which: int, first: int) -> Iterator[bytes]:
        """JSON texts from number `first` on; categories are of no table, and not very long ones."""
        length = ctypes.c_size_t()
        text, place = self._library.brrr_scan_text, ctypes.byref(length)
        for number in range(first, self._library.brrr_scan_text_count(self._scan, which)):
            address = text(self._scan, which, number, place)
            yield ctypes.string_at(address, length.value)

    def _signature(self, text: bytes) -> tuple[Any, ...]:
        """The name, and the raw arguments as text; nothing of a call that has no shapes."""
        raw, at = [], 4
        for _ in RAW:
            end = at + 4 + int.from_bytes(text[at : at + 4], "little")
            raw.append(text[at + 4 : end])
            at = end
        dims, types, _, _, elements, *_ = raw
        name = self._tokens[int.from_bytes(text[:4], "little")]
        return (name, *(raw if dims or types or elements else UNSHAPED))

    def _add(self, table: int, count: int) -> None:
        """Rows of a table, which is empty afterwards."""
        columns = []
        for place in range(len(_TABLES[table])):
            address = self._library.brrr_scan_values(self._scan, table, place)
            values = (ctypes.c_int64 * count).from_address(address)
            columns.append(np.ctypeslib.as_array(values).copy())
        self._library.brrr_scan_clear(self._scan, table)
        batch: dict[str, Array] = dict(zip(_TABLES[table], columns, strict=True))
        if table == KERNEL:
            sizes = columns[-3 * len(THREES) :]
            batch |= {k: np.stack(sizes[3 * n : 3 * n + 3], axis=1) for n, k in enumerate(THREES)}
        tokens, collected = self._tokens, self._collected
        processes = batch.pop("pid")
        if table in ON_DEVICE and (batch["device"] < 0).any():
            pids = np.array([device_of_pid(token) for token in tokens], np.int64)
            batch["device"] = np.where(batch["device"] < 0, pids[processes], batch["device"])
        if table in (CALL, OP):
            collected.pids[tokens[int(processes[0])]]
        batch["name_id"] = self._names.of(batch["name_id"], tokens, collected.names)
        if "tid" in batch:
            batch["tid"] = self._threads.of(batch["tid"], tokens, collected.threads)
            batch["pid"] = self._processes.of(processes, tokens, collected.processes)
        if table == OP:
            signatures = self._calls.of(batch["signature"], self._signatures, collected.signatures)
            batch["signature"] = signatures
        for key in _SMALL & batch.keys():
            batch[key] = _narrow(batch[key])
        collected.add_events(table, batch)
