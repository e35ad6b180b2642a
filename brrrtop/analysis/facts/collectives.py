"""Transfers of one rank: collectives as columns (when, of what type, how large, what runs beside them);
copies between host and device, batches that arrive late, and how much of it the device sees.
"""

import math
import re
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct

from brrrtop.analysis.facts.table import READ_BACK_BYTES, Facts
from brrrtop.kernel_names.traits import Role, by_name, role_of
from brrrtop.model import intervals
from brrrtop.model.intervals import Cover
from brrrtop.model.tables import I8, ActivityType, Bool, OpSignature, Window, edges
from collectors.vocabulary import CopyKind, MemoryKind

UNKNOWN_SIZE = -1
SHORT_NS = 50_000
_MOST_BYTES = 1 << 48
"""More than any GPU's memory: larger shapes come of a damaged file, and their sums would not fit a column."""
TYPES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("all-reduce", r"all_?reduce|cross_device_reduce"),
        ("all-gather", r"all_?gather"),
        ("reduce-scatter", r"reduce_?scatter"),
        ("broadcast", r"broadcast"),
        ("reduce", r"(?<!all)(?<!all_)reduce(?!_?scatter)"),
        ("send-recv", r"send_?recv|all_?to_?all|dispatch|combine|deep_ep::"),
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
    "bfloat16": 2, "half": 2, "byte": 1, "char": 1, "short": 2,
    "signed char": 1, "unsigned char": 1, "bool": 1,
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
    correlations: I8
    """Of their launches; 0 where none is known."""
    work: Cover
    """When any other kernel ran on the device."""
    recorded: tuple[I8, I8]
    """Starts and ends of what was recorded, sorted and disjoint."""

    def __len__(self) -> int:
        return len(self.ends_ns)

    @property
    def short(self) -> int:
        """Too little to be worth a launch of its own."""
        return int((self.ends_ns - self.starts_ns < SHORT_NS).sum())

    @property
    def exchanged_share(self) -> float | None:
        """Of the time in which collectives run beside no kernel, the part of sends, receives and
        all-to-alls: activations on their way, which no bucket of gradients holds. None: there is none."""
        alone = self.alone_ns(self.starts_ns, self.ends_ns)
        return int(alone[self.types == EXCHANGE].sum()) / int(alone.sum()) if alone.any() else None

    def alone_ns(self, starts: I8, ends: I8) -> I8:
        """Of each interval, the part with no other kernel; shape of `starts`."""
        return np.asarray(ends - starts - self.work.between(starts, ends))


def collectives_of(window: Window) -> Collectives:
    acts = window.activities
    types = by_name(window.names, acts.name_ids, _type_of)
    comm = types >= 0
    kernels = acts.types == ActivityType.KERNEL
    rows = np.flatnonzero(kernels & comm[acts.name_ids])
    rows = rows[np.argsort(acts.ends_ns[rows], kind="stable")]
    work = kernels & ~comm[acts.name_ids]
    ops = [window.ops.get(i) for i in window.links.ops_of(acts.correlations[rows]).tolist()]
    names = acts.name_ids[rows]
    return Collectives(
        starts_ns=acts.starts_ns[rows],
        ends_ns=acts.ends_ns[rows],
        types=types[names],
        sizes=np.array(
            [
                size_of(op, window.names[name_id]) if op else UNKNOWN_SIZE
                for op, name_id in zip(ops, names.tolist(), strict=True)
            ],
            np.int64,
        ),
        name_ids=names,
        op_names=tuple(op.name if op else "" for op in ops),
        correlations=acts.correlations[rows],
        work=Cover(*intervals.merge_unsorted(acts.starts_ns[work], acts.ends_ns[work])),
        recorded=edges(window.traced),
    )


def _type_of(kernel: str) -> int:
    """Place in `TYPES` of a collective's kernel; -1: it is none."""
    if role_of(kernel) is not Role.COMM:
        return -1
    return next(code for code, (_, pattern) in enumerate(TYPES) if pattern.search(kernel))


@lru_cache(maxsize=4096)
def name_of(code: int, op_name: str) -> str:
    """What a collective is called: sends and receives, and NCCL's kernel for several types, by the op that
    made them, where one is known."""
    if code == EXCHANGE:
        for pattern, name in _OF_EXCHANGES:
            if pattern.search(op_name):
                return name
    if code == len(TYPES) - 1 and op_name:
        return next(name for name, pattern in TYPES if pattern.search(op_name))
    return TYPES[code][0]


@lru_cache(maxsize=4096)
def algorithm_of(kernel: str) -> str | None:
    """`ring, LL` of `ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)`; None where the name does not tell."""
    match = _ALGORITHM.search(kernel)
    return f"{match[1].lower()}, {match[2]}" if match else None


@lru_cache(maxsize=4096)
def size_of(op: OpSignature, kernel: str) -> int:
    """Bytes of the op's largest tensor or list of them; `UNKNOWN_SIZE` without shapes or type."""
    best = UNKNOWN_SIZE
    for place, dims in enumerate(op.dims):
        kind = op.types[place] if place < len(op.types) else ""
        named = (size for pattern, size in _ITEM_IN_NAME if pattern.search(kernel))
        item = _ITEM_BYTES.get(kind.lower()) or next(named, None)
        elements = _elements(dims)
        if elements and item and elements * item <= _MOST_BYTES:
            best = max(best, elements * item)
    return best


def _elements(dims: Any) -> int:
    if not isinstance(dims, (tuple, list)) or not dims:
        return 0
    if any(isinstance(one, (tuple, list)) for one in dims):
        return sum(_elements(one) for one in dims)
    return math.prod(one for one in dims if isinstance(one, int))


FAULT_NS = 50_000
"""A page fault takes tens of microseconds (NVIDIA, "Maximizing Unified Memory Performance in CUDA", 2017)."""


class Copies(Struct, frozen=True):
    count: int = 0
    size_bytes: int = 0
    total_ns: int = 0
    exposed_ns: int = 0
    """With no kernel beside them; of copies to the host, which run beside uploads, no upload either."""
    large: int = 0
    """Copies of more than a few values."""
    after_ns: int = 0
    """Idle right after one of them, until the next activity."""

    @property
    def bytes_per_s(self) -> float | None:
        return self.size_bytes * 1e9 / self.total_ns if self.total_ns else None


class Transfers(Struct, frozen=True):
    """Host copies and memsets of the window."""

    pageable_up: Copies
    pinned_up: Copies
    pageable_down: Copies
    pinned_down: Copies
    saved: Copies
    """To the host within saves: none of the others."""
    pages: Copies
    """Of managed memory, which moves by itself: none of the others."""
    fault_ns: int
    """Idle before a page moves, as far as a fault may take so long: the rest is the host's own work."""
    set_ns: int
    """Memsets."""
    set_bytes: int


def transfers(facts: Facts) -> Transfers:
    activities = facts.window.activities
    kernels = facts.kernels
    gap_rows, gap_starts, gap_ends = facts.gaps
    pageable_source = activities.src_kinds == MemoryKind.PAGEABLE
    pageable_target = activities.dst_kinds == MemoryKind.PAGEABLE
    copied = (
        ~kernels & ~facts.migrations
    )  # pages that move by themselves: nobody wrote these copies
    up = (activities.copy_kinds == CopyKind.HTOD) & copied
    down = (activities.copy_kinds == CopyKind.DTOH) & copied
    saved = down & facts.in_save
    down &= ~saved

    def copies(rows: Bool, others: Bool = kernels) -> Copies:
        cover = intervals.Cover(
            *intervals.merge(activities.starts_ns[others], activities.ends_ns[others])
        )
        hidden = cover.between(activities.starts_ns[rows], activities.ends_ns[rows])
        length = activities.ends_ns[rows] - activities.starts_ns[rows]
        large = rows & (activities.size_bytes > READ_BACK_BYTES)
        follows = np.isin(gap_starts, activities.ends_ns[large])
        return Copies(
            count=int(rows.sum()),
            size_bytes=int(np.maximum(activities.size_bytes[rows], 0).sum()),
            total_ns=int(length.sum()),
            exposed_ns=int((length - hidden).sum()),
            large=int(large.sum()),
            after_ns=int((gap_ends - gap_starts)[follows].sum()),
        )

    sets = activities.types == 2
    return Transfers(
        pageable_up=copies(np.asarray(up & pageable_source)),
        pinned_up=copies(np.asarray(up & ~pageable_source)),
        pageable_down=copies(np.asarray(down & pageable_target), kernels | up),
        pinned_down=copies(np.asarray(down & ~pageable_target), kernels | up),
        saved=copies(np.asarray(saved)),
        pages=copies(facts.migrations),
        fault_ns=int(np.minimum(gap_ends - gap_starts, FAULT_NS)[facts.migrations[gap_rows]].sum()),
        set_ns=facts.total_ns(np.asarray(sets)),
        set_bytes=int(np.maximum(activities.size_bytes[sets], 0).sum()),
    )
