"""Collectives of one rank as columns: when, of what type, how large, and what runs beside them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from brrrtop.analysis.kernels.traits import Role, role_of, used
from brrrtop.model import intervals
from brrrtop.model.intervals import Cover
from brrrtop.model.tables import I8, ActivityType, OpSignature, Window, edges

UNKNOWN_SIZE = -1
TYPES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("all-reduce", r"all_?reduce|cross_device_reduce"),
        ("all-gather", r"all_?gather"),
        ("reduce-scatter", r"reduce_?scatter"),
        ("broadcast", r"broadcast"),
        ("reduce", r"(?<!all)(?<!all_)reduce(?!_?scatter)"),
        ("send-recv", r"send_?recv|all_?to_?all|dispatch|combine"),
        ("collective", r""),
    )
)
"""What a kernel does, first match; NCCL makes all-to-alls of sends and receives."""
EXCHANGE = next(code for code, (name, _) in enumerate(TYPES) if name == "send-recv")
_ALGORITHM = re.compile(r"_(RING|TREE|COLLNET\w*?|NVLS\w*?|PAT)_(LL128|LL|SIMPLE)", re.IGNORECASE)
_OF_EXCHANGES = (
    (re.compile(r"all_?to_?all", re.IGNORECASE), "all-to-all"),
    (re.compile(r"(^|::|_)i?(send|recv)", re.IGNORECASE), "send-recv"),
)
_ITEM_BYTES = {
    "float": 4, "int": 4, "double": 8, "long": 8, "long int": 8, "c10::bfloat16": 2, "c10::half": 2,
    "short": 2, "signed char": 1, "unsigned char": 1, "bool": 1,
}  # fmt: skip
_ITEM_IN_NAME = (
    (re.compile(r"_(bf16|f16|half|__nv_bfloat16)(_|$|\()"), 2),
    (re.compile(r"_(f32|float|u32|int32_t)(_|$|\()"), 4),
    (re.compile(r"_(f64|double|u64|int64_t)(_|$|\()"), 8),
)


class Collectives(Struct, frozen=True, eq=False):
    """Collectives of one rank, by their ends. Columns of shape (n,), times of its own clock."""

    starts_ns: I8
    ends_ns: I8
    types: I8
    """Places in `TYPES`."""
    sizes: I8
    """Bytes; `UNKNOWN_SIZE` where no op tells."""
    name_ids: I8
    op_names: tuple[str, ...]
    """Of each, empty where none is known."""
    work: Cover
    """When any other kernel ran on the device."""
    recorded: tuple[I8, I8]
    """Starts and ends of what was recorded, sorted and disjoint."""

    def __len__(self) -> int:
        return len(self.ends_ns)

    def alone_ns(self, starts: I8, ends: I8) -> I8:
        """Of each interval, the part with no other kernel; shape of `starts`."""
        return np.asarray(ends - starts - self.work.between(starts, ends))


def collectives_of(window: Window) -> Collectives:
    """All collectives of a window; copies by the driver are none."""
    acts = window.activities
    comm, types = np.zeros(len(window.names), np.bool_), np.zeros(len(window.names), np.int64)
    for name_id in used(acts.name_ids):
        name = window.names[name_id]
        if role_of(name) is Role.COMM:
            comm[name_id], types[name_id] = True, type_of(name)
    kernels = acts.types == ActivityType.KERNEL
    rows = np.flatnonzero(kernels & comm[acts.name_ids])
    rows = rows[np.argsort(acts.ends_ns[rows], kind="stable")]
    work = kernels & ~comm[acts.name_ids]
    ops = _ops_of(window, rows)
    names = acts.name_ids[rows]
    return Collectives(
        starts_ns=acts.starts_ns[rows],
        ends_ns=acts.ends_ns[rows],
        types=types[names],
        sizes=_sizes(window, names, ops),
        name_ids=names,
        op_names=tuple(op.name if op else "" for op in ops),
        work=Cover(*intervals.merge_unsorted(acts.starts_ns[work], acts.ends_ns[work])),
        recorded=edges(window.traced),
    )


def type_of(kernel: str) -> int:
    """Place in `TYPES` of a collective's kernel."""
    return next(code for code, (_, pattern) in enumerate(TYPES) if pattern.search(kernel))


def name_of(code: int, op_name: str) -> str:
    """What a collective is called: sends and receives by the op that made them, where one is known."""
    if code == EXCHANGE:
        for pattern, name in _OF_EXCHANGES:
            if pattern.search(op_name):
                return name
    return TYPES[code][0]


def algorithm_of(kernel: str) -> str | None:
    """`ring, LL` of `ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)`; None where the name does not tell."""
    match = _ALGORITHM.search(kernel)
    return f"{match[1].lower()}, {match[2]}" if match else None


def _ops_of(window: Window, rows: I8) -> list[OpSignature | None]:
    ids = window.links.ops_of(window.activities.correlations[rows])
    return [window.ops.get(op_id) for op_id in ids.tolist()]


def _sizes(window: Window, name_ids: I8, ops: Sequence[OpSignature | None]) -> I8:
    """Bytes of each; the few different pairs of kernel and op are worked out once."""
    known: dict[tuple[int, int], int] = {}
    sizes = np.full(len(ops), UNKNOWN_SIZE, np.int64)
    for place, (name_id, op) in enumerate(zip(name_ids.tolist(), ops, strict=True)):
        if op is None:
            continue
        key = (name_id, id(op))
        if key not in known:
            known[key] = size_of(op, window.names[name_id])
        sizes[place] = known[key]
    return sizes


def size_of(op: OpSignature, kernel: str) -> int:
    """Bytes of the op's largest tensor or list of them; `UNKNOWN_SIZE` without shapes or type."""
    best = UNKNOWN_SIZE
    for place, dims in enumerate(op.dims):
        kind = op.types[place] if place < len(op.types) else ""
        item = _ITEM_BYTES.get(kind.lower()) or _item_in(kernel)
        elements = _elements(dims)
        if elements and item:
            best = max(best, elements * item)
    return best


def _item_in(kernel: str) -> int | None:
    return next((size for pattern, size in _ITEM_IN_NAME if pattern.search(kernel)), None)


def _elements(dims: Any) -> int:
    if not isinstance(dims, (tuple, list)) or not dims:
        return 0
    if any(isinstance(one, (tuple, list)) for one in dims):
        return sum(_elements(one) for one in dims)
    return math.prod(one for one in dims if isinstance(one, int))
