"""Wire records → the model's columns. One function a table; no state.

A table that grows a chunk at a time, and is asked for what lies between two times.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import asdict

from brrrtop.model.tables import (
    I8,
    Activities,
    ActivityType,
    Calls,
    Columns,
    Device,
    Gauges,
    Links,
    Marks,
    OpSignature,
    Samples,
)
from collectors.protocol import frames
from collectors.protocol.frames import LATEST_NS, LONGEST_NS, Records
from collectors.vocabulary import COPY_NAMES, MEMORY_NAMES, CopyKind

Translate = Callable[[Any], I8]
Table = TypeVar("Table", bound=Columns)

_MOST_BLOCKS = float(1 << 62)
_MOST_THREADS = (1 << 31) - 1
_DEEPEST = 4
"""Of the shapes of an op's inputs: a list of inputs, of tensors, of sizes; nobody goes deeper."""


def plausible_samples(rows: Records) -> Records:
    """The counter samples whose times can be, on the GPU's clock (which may begin anywhere) and on ours."""
    starts, ends, offsets = rows["start_ns"], rows["end_ns"], rows["offset_ns"]
    good = np.ones(len(rows), np.bool_)
    for times in (starts, ends, offsets):
        good &= (times >= -LATEST_NS) & (times <= LATEST_NS)
    spans, middles = (np.where(good, one, 0) for one in (ends - starts, starts + offsets))
    good &= (spans >= 0) & (spans <= LONGEST_NS) & (middles >= 0) & (middles <= LATEST_NS)
    return rows if good.all() else rows[good]


def copy_name(copy_kind: int, src_kind: int, dst_kind: int) -> str:
    """A copy's name as Kineto writes it: `Memcpy HtoD (Pageable -> Device)`."""
    if copy_kind == CopyKind.MEMSET:
        return "Memset (Device)"
    source, target = (MEMORY_NAMES.get(kind, "Unknown") for kind in (src_kind, dst_kind))
    return f"Memcpy {COPY_NAMES.get(copy_kind, '?')} ({source} -> {target})"


def _long(column: Any) -> I8:
    return np.ascontiguousarray(column).astype(np.int64)


def _product(sizes: Any) -> I8:
    """Of each row of three, without negative ones and without running over."""
    sizes = np.maximum(sizes.astype(np.float64), 0.0)
    product = sizes[:, 0] * sizes[:, 1] * sizes[:, 2]
    whole: I8 = np.minimum(product, _MOST_BLOCKS).astype(np.int64)
    return whole


def kernels(rows: Records, names: Translate) -> Activities:
    none = np.zeros(len(rows), np.uint8)
    return Activities(
        starts_ns=_long(rows["start_ns"]),
        ends_ns=_long(rows["end_ns"]),
        types=np.full(len(rows), ActivityType.KERNEL, np.uint8),
        device_ids=rows["device"].astype(np.int32),
        stream_ids=_long(rows["stream"]),
        correlations=_long(rows["correlation"]),
        name_ids=names(rows["name_id"]),
        blocks=_product(rows["grid"]),
        threads=np.minimum(_product(rows["block"]), _MOST_THREADS).astype(np.int32),
        registers=rows["registers"].astype(np.int32),
        shared_bytes=_long(rows["shared_bytes"]),
        graph_ids=_long(rows["graph"]),
        size_bytes=np.full(len(rows), -1, np.int64),
        copy_kinds=none,
        src_kinds=none,
        dst_kinds=none,
    )


def copies(rows: Records, name_of: Callable[[int, int, int], int]) -> Activities:
    kinds, src, dst = rows["copy_kind"], rows["src_kind"], rows["dst_kind"]
    triples = (kinds.astype(np.int64) << 16) | (src.astype(np.int64) << 8) | dst
    unique, inverse = np.unique(triples, return_inverse=True)
    ids = np.array(
        [name_of(int(t) >> 16, (int(t) >> 8) & 255, int(t) & 255) for t in unique], np.int64
    )
    zero = np.zeros(len(rows), np.int64)
    types = np.where(kinds == CopyKind.MEMSET, ActivityType.MEMSET, ActivityType.COPY)
    return Activities(
        starts_ns=_long(rows["start_ns"]),
        ends_ns=_long(rows["end_ns"]),
        types=types.astype(np.uint8),
        device_ids=rows["device"].astype(np.int32),
        stream_ids=_long(rows["stream"]),
        correlations=_long(rows["correlation"]),
        name_ids=ids[inverse] if len(rows) else zero,
        blocks=zero,
        threads=zero.astype(np.int32),
        registers=zero.astype(np.int32),
        shared_bytes=zero,
        graph_ids=_long(rows["graph"]),
        size_bytes=_long(rows["size_bytes"]),
        copy_kinds=np.ascontiguousarray(kinds),
        src_kinds=np.ascontiguousarray(src),
        dst_kinds=np.ascontiguousarray(dst),
    )


def calls(rows: Records, names: Translate) -> Calls:
    return Calls(
        _long(rows["start_ns"]), _long(rows["end_ns"]), _long(rows["correlation"]),
        _long(rows["tid"]), names(rows["name_id"]), rows["call_class"].astype(np.int32),
    )  # fmt: skip


def marks(rows: Records, names: Translate) -> Marks:
    return Marks(
        _long(rows["start_ns"]), _long(rows["end_ns"]), _long(rows["value"]),
        _long(rows["tid"]), names(rows["name_id"]), rows["mark_class"].astype(np.int32),
    )  # fmt: skip


def links(rows: Records) -> Links:
    return Links(_long(rows["correlation"]), _long(rows["op_id"]))


def gauges(rows: Records) -> Gauges:
    rows = rows[np.isfinite(rows["value"])]
    return Gauges(
        _long(rows["time_ns"]), rows["device"].astype(np.int32),
        rows["metric"].astype(np.int32), rows["value"].astype(np.float64),
    )  # fmt: skip


def samples(rows: Records) -> Samples:
    return Samples(
        _long(rows["start_ns"]), _long(rows["end_ns"]), _long(rows["offset_ns"]),
        rows["device"].astype(np.int32), np.full(len(rows), np.nan),
        *(rows[name].astype(np.float64) for name in ("sm", "tensor", "dram")),
    )  # fmt: skip


def device(buffered: Device | None, device_id: int, facts: dict[str, Any]) -> Device:
    """What is known of a GPU: what was held of it, and what a DEVICE frame adds."""
    merged = asdict(buffered) if buffered else {}
    known = set(Device.__struct_fields__)
    merged |= {k: v for k, v in facts.items() if k in known and v is not None}
    if isinstance(merged.get("capability"), list):
        merged["capability"] = tuple(merged["capability"])
    return Device(**{**merged, "device_id": device_id})


def signature(row: Any) -> OpSignature:
    _, name, dims, types, concrete, *strides = row
    return OpSignature(
        str(name), _freeze(dims), tuple(str(t) for t in types), tuple(str(c) for c in concrete),
        strides=_freeze(strides[0]) if strides else (),
    )  # fmt: skip


def _freeze(dims: Any, depth: int = _DEEPEST) -> tuple[Any, ...]:
    if not depth:
        return ()
    return tuple(_freeze(d, depth - 1) if isinstance(d, (list, tuple)) else d for d in dims)


def concat(tables: list[Table], empty: type[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    fields = empty.__struct_fields__
    tables = tables or [_NO_ROWS[empty]()]
    return empty(*(np.concatenate([getattr(t, f) for t in tables]) for f in fields))


_NO_ROWS: dict[type[Columns], Callable[[], Any]] = {
    Activities: lambda: kernels(np.empty(0, frames.KERNEL), _long),
    Calls: lambda: calls(np.empty(0, frames.CALL), _long),
    Marks: lambda: marks(np.empty(0, frames.MARK), _long),
    Links: lambda: links(np.empty(0, frames.LINK)),
    Gauges: lambda: gauges(np.empty(0, frames.GAUGE)),
    Samples: lambda: samples(np.empty(0, frames.SAMPLE)),
}


SMALL, MANY = 256, 16
"""Chunks of fewer rows are made one as soon as there are so many: a frame of marks or gauges has a few,
and each chunk is gone through for each frame and each window."""


class Track(Struct, Generic[Table]):
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
        return first, last, concat(tables, self.kind)

    def between(self, low: int, high: int) -> Table:
        """Rows of chunks that touch `[low, high)`, unsorted."""
        return concat([t for a, b, t in self.chunks if b >= low and a < high], self.kind)

    def sort(self, key: str) -> None:
        """Makes one chunk of all, in the order of a column: nothing will be added, and whoever asks for
        all of it in that order gets it without a copy."""
        if self.chunks:
            first, last, table = self._one(self.chunks)
            self.chunks = [(first, last, in_order(table, slice(None), getattr(table, key)))]


def in_order(table: Table, keep: Any, key: I8) -> Table:
    """The rows to keep, by their key; the table itself where that is all of it, as it is."""
    whole = isinstance(keep, slice) or bool(keep.all())
    rows = np.arange(len(key)) if whole else np.flatnonzero(keep)
    kept = key[rows]
    if len(kept) > 1 and (kept[1:] < kept[:-1]).any():
        rows, whole = rows[np.argsort(kept, kind="stable")], False
    return table if whole else table.take(rows)
