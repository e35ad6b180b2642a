"""Typed events → plain columns, one set a kind of event. The only pass over single events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from brrrtop.model.tables import F8, I8, Bool
from brrrtop.sources.importers.trace import names as kineto_names
from brrrtop.sources.importers.trace.events import (
    ABSENT,
    BAD_NS,
    INTEGERS,
    LARGEST_US,
    RAW,
    THREES,
    Args,
    Event,
    name_alone,
)
from collectors.protocol.frames import LONGEST_NS

Array = npt.NDArray[Any]
Columns = dict[str, Array]

KERNEL, COPY, CALL, OP, RANGE, OVERHEAD, FRAME, MEMORY = range(1, 9)
CATEGORIES: dict[int, tuple[str, ...]] = {
    KERNEL: ("kernel", "Kernel"),
    COPY: ("gpu_memcpy", "gpu_memset", "Memcpy", "Memset"),
    CALL: ("cuda_runtime", "cuda_driver", "Runtime", "runtime", "driver"),
    OP: ("cpu_op", "Operator", "operator"),
    RANGE: ("user_annotation", "UserAnnotation"),
    OVERHEAD: ("overhead",),
    FRAME: ("python_function",),
    MEMORY: ("cpu_instant_event",),
}
"""As Kineto names them, now and in the past."""
_MOST_CATEGORIES = 1_000
ON_DEVICE = frozenset({KERNEL, COPY})
FROM_OPS = frozenset({KERNEL, COPY, CALL, OP})
"""What an op launched, or is one itself: these have an external id."""
EXTERNALS = ("external", "old_external")
EXACT_BELOW_US = 2.0**43
"""Doubles below this are less than 0.49 ns off: the nearest nanosecond is the written one. Traces
with a base time stay below it, since the base is moved every three months."""
_LATEST_NS = 1000 * int(LARGEST_US)
_ACTIVITY = ("device", "stream", "correlation", "graph")
COLUMNS: dict[int, tuple[str, ...]] = {
    KERNEL: (*_ACTIVITY, "registers", "shared_bytes", "graph_node", "channel"),
    COPY: (*_ACTIVITY, "size_bytes"),
    CALL: ("correlation",),
    OP: ("sequence", "forward_tid"),
    RANGE: (),
    OVERHEAD: (),
    FRAME: (),
    MEMORY: ("device_type", "memory_device", "address", "memory_bytes", "allocated", "reserved"),
}
"""Integer arguments (`Args`) that become columns of the same name, by kind of event."""

_cat, _name, _tid, _ts, _dur = (attrgetter(a) for a in ("cat", "name", "tid", "ts_us", "dur_us"))
_args, _pid = attrgetter("args"), attrgetter("pid")


class _Codes(dict[str, int]):
    """Category → code; 0 for what is not used."""

    def __missing__(self, key: str) -> int:
        if len(self) < _MOST_CATEGORIES:
            self[key] = 0  # asking a dict twice is cheaper than asking this once
        return 0


class Interned(dict[Any, int]):
    """Key → small number, in order of appearance."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number


class Threads(dict[Any, int]):
    """Thread ids as traces write them (`7`, `"7"`, `"stream 7"`, `"python"`) → u32, distinct."""

    def __init__(self) -> None:
        super().__init__()
        self._used: set[int] = set()
        self._free = (1 << 32) - 1

    def __missing__(self, key: Any) -> int:
        text = str(key).rsplit(" ", 1)[-1]
        wanted = int(text) if text.isascii() and text.isdigit() and len(text) < 11 else -1
        if not 0 <= wanted < 1 << 32 or (str(key) != text and wanted in self._used):
            while self._free in self._used:
                self._free -= 1
            wanted = self._free
        self[key] = wanted
        self._used.add(wanted)
        return wanted


class Collected:
    """Everything a trace said, as columns; times are ns without the trace's base time."""

    def __init__(self) -> None:
        self.names = Interned({"": 0})
        self.threads = Threads()
        self.signatures = Interned()
        """(name, dims, types, concrete, strides), the last four as JSON text."""
        self.pids = Interned()
        self.processes = Interned()
        """Process → number in the columns `pid`."""
        self.tables: dict[int, list[Columns]] = {code: [] for code in COLUMNS}
        """Batches by kind of event; none is empty."""
        self.scan: Callable[[bytes], bool] | None = None
        """Takes in a run without typed events; False: it did not. None: nothing can."""
        self.broken_off = False
        """Its text ends before its events do."""
        self.event_count = 0
        self.losses: dict[str, int] = {}
        self._codes = _Codes({name: code for code, names in CATEGORIES.items() for name in names})

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories that events had, used or not."""
        return tuple(self._codes)

    def add_category(self, name: str) -> None:
        """One that events had and that is not used."""
        self._codes[name]

    def lose(self, place: str, count: int) -> None:
        if count:
            self.losses[place] = self.losses.get(place, 0) + count

    def add(self, events: list[Event], exact: Callable[[], list[tuple[int, int]]]) -> None:
        """Takes in one run; `exact` gives its times by their text, where doubles lose nanoseconds."""
        count = len(events)
        codes = np.fromiter(map(self._codes.__getitem__, map(_cat, events)), np.int8, count)
        starts, spans = _times(events, exact)
        self.event_count += count
        for code in COLUMNS:
            rows = np.flatnonzero(codes == code)
            if len(rows):
                batch = self._batch(code, [events[row] for row in rows.tolist()])
                batch["start_ns"], batch["span_ns"] = starts[rows], spans[rows]
                self.add_events(code, batch)

    def add_events(self, code: int, batch: Columns) -> None:
        """Rows as Kineto writes them: with `span_ns`, and `old_external` beside `external`."""
        spans = batch.pop("span_ns")
        if code == MEMORY:
            spans = np.zeros_like(spans)  # an allocation is a point
        batch["end_ns"] = batch["start_ns"] + spans
        if code in FROM_OPS:
            batch["external"] = batch["external"] | batch.pop("old_external")
        self.add_batch(code, batch)

    def add_batch(self, code: int, batch: Columns) -> None:
        """Rows of one kind, one or more; those with times that cannot be are left out.

        The columns of `COLUMNS`, and grid and block, may be missing: as if the arguments were absent.
        """
        starts, spans = batch["start_ns"], batch["end_ns"] - batch["start_ns"]
        for name in (*COLUMNS[code], *(("external",) if code in FROM_OPS else ())):
            if name not in batch:
                batch[name] = np.full(len(starts), INTEGERS[name])
        for name in THREES if code == KERNEL else ():
            batch.setdefault(name, np.zeros((len(starts), 3), np.int64))
        good = (spans >= 0) & (spans <= LONGEST_NS) & (starts > -_LATEST_NS) & (starts < _LATEST_NS)
        if not good.all():
            bad = int((~good).sum())
            self.lose("impossible time or duration", bad)
            if code in ON_DEVICE:
                self.lose("records", bad)
            batch = {key: column[good] for key, column in batch.items()}
        if good.any():
            self.tables[code].append(batch)

    def joined(self, code: int) -> Columns:
        """Each column of a kind of event in one piece; the batches are let go."""
        batches, self.tables[code] = self.tables[code], []
        if not batches:
            return {}
        return {
            key: np.concatenate([batch.pop(key) for batch in batches]) for key in list(batches[0])
        }

    @property
    def has_gpu_work(self) -> bool:
        return bool(self.tables[KERNEL] or self.tables[COPY])

    def _batch(self, code: int, events: list[Event]) -> Columns:
        """Columns of events of one kind, without their times."""
        args = list(map(_args, events))
        batch: Columns = {"name_id": _numbers(self.names, map(_name, events), len(events))}
        if code not in ON_DEVICE:
            batch["tid"] = _numbers(self.threads, map(_tid, events), len(events))
            batch["pid"] = _numbers(self.processes, map(_pid, events), len(events))
        for name in (*COLUMNS[code], *(EXTERNALS if code in FROM_OPS else ())):
            batch[name] = np.fromiter(map(attrgetter(name), args), np.int64, len(args))
        if code in ON_DEVICE and (batch["device"] < 0).any():
            pids = np.array([device_of_pid(event.pid) for event in events])
            batch["device"] = np.where(batch["device"] < 0, pids, batch["device"])
        if code == KERNEL:
            batch |= {key: np.array([getattr(a, key) for a in args], np.int64) for key in THREES}
        if code in (CALL, OP):
            self.pids[events[0].pid]
        if code == OP:
            batch["signature"] = self._signatures_of(events, args)
        return batch

    def _signatures_of(self, events: list[Event], args: list[Args]) -> I8:
        keys: list[Any] = [name_alone(event.name) for event in events]
        telling = (ABSENT, ABSENT, ABSENT)
        shaped = [(a.dims, a.types, a.elements) != telling for a in args]
        for row in np.flatnonzero(shaped).tolist():
            a = args[row]
            keys[row] = (events[row].name, *(bytes(getattr(a, name)) for name in RAW))
        return _numbers(self.signatures, keys, len(keys))

    def split_ranges(self, ops: Columns) -> tuple[Columns, Columns]:
        """Ops that are ops, and ranges that old traces file under ops."""
        if not ops:
            return ops, {}
        flags = np.fromiter(map(kineto_names.is_annotation, self.names), np.bool_, len(self.names))
        named = flags[ops["name_id"]]
        if not named.any():
            return ops, {}
        ranges = {key: ops[key][named] for key in ("name_id", "tid", "pid", "start_ns", "end_ns")}
        return {key: column[~named] for key, column in ops.items()}, ranges


def device_of_pid(pid: Any) -> int:
    """Old traces tell a device by the process of its events."""
    return pid if isinstance(pid, int) and 0 <= pid < 1024 else 0


def _numbers(known: dict[Any, int], keys: Iterable[Any], count: int) -> I8:
    return np.fromiter(map(known.__getitem__, keys), np.int64, count)


def _times(events: list[Event], exact: Callable[[], list[tuple[int, int]]]) -> tuple[I8, I8]:
    """Starts, and what each lasts: integer nanoseconds of the microseconds that traces write."""
    starts_us = np.fromiter(map(_ts, events), np.float64, len(events))
    spans_us = np.fromiter(map(_dur, events), np.float64, len(events))
    large: Bool = np.abs(starts_us) >= EXACT_BELOW_US
    if (large & (starts_us != np.floor(starts_us))).any():
        pairs = exact()
        if len(pairs) == len(events):
            both = np.array(pairs, np.int64)
            return both[:, 0], both[:, 1]
    return from_us(starts_us), from_us(spans_us)


def from_us(values_us: F8) -> I8:
    """Exact for whole microseconds below 2**53, and for three decimals below `EXACT_BELOW_US`."""
    good = np.abs(values_us) < LARGEST_US
    safe = np.where(good, values_us, 0.0)
    whole = np.floor(safe)
    ns = whole.astype(np.int64) * 1000 + np.rint((safe - whole) * 1000.0).astype(np.int64)
    return np.where(good, ns, BAD_NS)
