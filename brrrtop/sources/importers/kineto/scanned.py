"""What the native scanner read → the same columns that `columns.py` makes of typed events."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from brrrtop.model.tables import I8
from brrrtop.protocol.columns import LONGEST_NS
from brrrtop.sources.importers.kineto import scanner
from brrrtop.sources.importers.trace.columns import (
    CALL,
    CATEGORIES,
    COLUMNS,
    FROM_OPS,
    KERNEL,
    MEMORY,
    ON_DEVICE,
    OP,
    Array,
    Collected,
    device_of_pid,
)
from brrrtop.sources.importers.trace.events import INTEGERS, KEYS, RAW, THREES

_MOST_ROWS = 1 << 15
"""Of one table, before they are taken out of the scanner: few enough to stay in the cache."""


def _slots(table: int) -> dict[str, int]:
    """What the scanner keeps of a kind of event, by name; -1: the slot of the argument of that name."""
    slots = {
        "start": scanner.START, "span": scanner.SPAN, "name": scanner.NAME,
        "process": scanner.PROCESS, **dict.fromkeys(COLUMNS[table], -1),
    }  # fmt: skip
    if table not in ON_DEVICE:
        slots["thread"] = scanner.THREAD
    if table in FROM_OPS:
        slots |= {"external": -1, "old_external": -1}
    return slots | {"signature": scanner.SIGNATURE} if table == OP else slots


_TABLES = {table: _slots(table) for table in COLUMNS}
_SMALL = {"name_id", "tid", "signature", "correlation", "external", "device", "stream", "graph",
          "grid", "block", "registers"}  # fmt: skip
"""What has more than 32 bits in few traces, and in none of the others anywhere."""


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

    def of(self, column: I8, size: int, number_of: Any) -> I8:
        """`number_of(n)` for each `n` of the column, all below `size`; called once for each."""
        if size > len(self._known):
            more = np.full(max(size, 2 * len(self._known)) - len(self._known), -1, np.int64)
            self._known = np.concatenate([self._known, more])
        rows: I8 = self._known[column]
        if (rows < 0).any():
            missing, first = np.unique(column[rows < 0], return_index=True)
            for n in missing[np.argsort(first)].tolist():
                self._known[n] = number_of(n)
            rows = self._known[column]
        return rows


class Scanned:
    """Runs of events, read by the scanner, into what was collected."""

    def __init__(self, library: Any, collected: Collected) -> None:
        integers = {KEYS[name]: absent for name, absent in INTEGERS.items()}
        self._scanner = scanner.Scanner(library, integers, THREES, [KEYS[name] for name in RAW])
        self._collected = collected
        self._tokens: list[Any] = []
        self._signatures: list[tuple[Any, ...]] = []
        self._category_count = 0
        self._names, self._threads = _Numbers(), _Numbers()
        self._calls, self._processes = _Numbers(), _Numbers()
        for table, columns in _TABLES.items():
            names = [name for name, code in CATEGORIES.items() if code == table]
            slots = [
                self._scanner.slots[KEYS[name]] if slot < 0 else slot
                for name, slot in columns.items()
            ]
            if table == KERNEL:
                for key in THREES:
                    slots += range(self._scanner.slots[key], self._scanner.slots[key] + 3)
            self._scanner.keep(table, names, slots)
        collected.scan = self.take

    def take(self, run: bytes) -> bool:
        """Whether the scanner read the run; else nothing of it was taken in."""
        count = self._scanner.read(run)
        if count is None:
            self.flush()
            return False
        self._collected.event_count += count
        if any(self._scanner.rows(table) > _MOST_ROWS for table in _TABLES):
            self.flush()
        return True

    def flush(self) -> None:
        """Hands over what was read. Before anybody else adds events."""
        self._tokens += map(msgspec.json.decode, self._scanner.tokens(len(self._tokens)))
        for name, (dims, types, concrete, strides) in self._scanner.signatures(
            len(self._signatures)
        ):
            key = (dims, types, concrete, strides) if dims or types else (b"",) * 4
            self._signatures.append((self._tokens[name], *key))
        for text in self._scanner.categories(self._category_count):
            self._collected.add_category(msgspec.json.decode(text))
            self._category_count += 1
        for table in _TABLES:
            columns = self._scanner.taken(table)
            if columns:
                self._add(table, columns)

    def finish(self) -> None:
        """Hands over the rest; nothing can be read from here on."""
        self.flush()
        self._collected.scan = None

    def _add(self, table: int, columns: list[I8]) -> None:
        rows = dict(zip(_TABLES[table], columns, strict=False))
        starts, spans = rows["start"], rows["span"]
        batch: dict[str, Array] = {
            "name_id": self._ids(self._names, rows["name"], self._collected.names)
        }
        if "thread" in rows:
            batch["tid"] = self._ids(self._threads, rows["thread"], self._collected.threads)
            batch["pid"] = self._ids(self._processes, rows["process"], self._collected.processes)
        batch |= {name: rows[name] for name in COLUMNS[table]}
        if table in FROM_OPS:
            batch["external"] = rows["external"] | rows["old_external"]
        if table in ON_DEVICE and (rows["device"] < 0).any():
            pids = np.array([device_of_pid(token) for token in self._tokens], np.int64)
            batch["device"] = np.where(rows["device"] < 0, pids[rows["process"]], rows["device"])
        if table in (CALL, OP):
            self._collected.pids[self._tokens[int(rows["process"][0])]]
        if table == KERNEL:
            sizes = columns[len(rows) :]
            batch |= {"grid": np.stack(sizes[:3], axis=1), "block": np.stack(sizes[3:], axis=1)}
        elif table == OP:
            batch["signature"] = self._of_signatures(rows["signature"])
        elif table == MEMORY:
            spans = np.zeros_like(spans)  # an allocation is a point
        batch["start_ns"], batch["end_ns"] = starts, starts + spans
        for key in _SMALL & batch.keys():
            batch[key] = _narrow(batch[key])
        self._collected.add_batch(table, batch, (spans >= 0) & (spans <= LONGEST_NS))

    def _ids(self, numbers: _Numbers, column: I8, interned: dict[Any, int]) -> I8:
        return numbers.of(column, len(self._tokens), lambda n: interned[self._tokens[n]])

    def _of_signatures(self, column: I8) -> I8:
        known = self._collected.signatures
        return self._calls.of(column, len(self._signatures), lambda n: known[self._signatures[n]])
