"""A table that grows a chunk at a time, and is asked for what lies between two times."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from msgspec import Struct, field

from brrrtop.model.tables import I8, Columns
from brrrtop.timeline import columns

SMALL, MANY = 256, 16
"""Chunks of fewer rows are made one as soon as there are so many: a frame of marks or gauges has a few,
and each chunk is gone through for each frame and each window."""


Table = TypeVar("Table", bound=Columns)


class Track(Struct, Generic[Table]):
    """Chunks of one table, each with the times it spans."""

    kind: type[Table]
    chunks: list[tuple[int, int, Table]] = field(default_factory=list)
    small: int = 0
    """How many of the last chunks are."""

    def add(self, table: Table, starts: I8, ends: I8) -> None:
        if not len(starts):
            return
        self.chunks.append((int(starts.min()), int(ends.max()), table))
        self.small = self.small + 1 if len(table) < SMALL else 0
        if self.small == MANY:
            self.chunks[-MANY:] = [self._one(self.chunks[-MANY:])]
            self.small = int(len(self.chunks[-1][2]) < SMALL)

    def forget(self, before_ns: int) -> None:
        self.chunks = [chunk for chunk in self.chunks if chunk[1] >= before_ns]

    def _one(self, chunks: list[tuple[int, int, Table]]) -> tuple[int, int, Table]:
        """The chunks as one; they are let go."""
        first, last = min(c[0] for c in chunks), max(c[1] for c in chunks)
        tables = [table for _, _, table in chunks]
        chunks.clear()
        return first, last, columns.joined(tables, self.kind)

    def between(self, low: int, high: int) -> Table:
        """Rows of chunks that touch `[low, high)`, unsorted."""
        return columns.joined([t for a, b, t in self.chunks if b >= low and a < high], self.kind)

    def settle(self, key: str) -> None:
        """Makes one chunk of all, in the order of a column: nothing will be added, and whoever asks for
        all of it in that order gets it without a copy."""
        if self.chunks:
            first, last, table = self._one(self.chunks)
            self.chunks = [(first, last, in_order(table, slice(None), getattr(table, key)))]


def in_order(table: Table, keep: Any, key: I8) -> Table:
    """The rows to keep, by their key; the table itself where that is all of it, as it is."""
    whole = isinstance(keep, slice) or bool(keep.all())
    picked, order_key = (table, key) if whole else (table.take(keep), key[keep])
    if len(order_key) > 1 and (order_key[1:] < order_key[:-1]).any():
        picked = picked.take(np.argsort(order_key, kind="stable"))
    return picked
