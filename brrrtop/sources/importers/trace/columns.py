"""Typed events → plain columns, one set a kind of event. The only pass over single events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from brrrtop.model.tables import I8
from brrrtop.sources.importers.trace import names as kineto_names
from brrrtop.sources.importers.trace.events import INTEGERS, LATEST_NS, THREES, Event
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

    def add(self, events: list[Event]) -> None:
        """Takes in one run."""
        self.event_count += len(events)
        by_code: dict[int, list[Event]] = {}
        for event in events:
            by_code.setdefault(self._codes[event.cat], []).append(event)
        for code in COLUMNS:
            if code in by_code:
                self.add_events(code, self._batch(code, by_code[code]))

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
        good = (spans >= 0) & (spans <= LONGEST_NS) & (starts > -LATEST_NS) & (starts < LATEST_NS)
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
        """Columns of events of one kind."""
        batch: Columns = {
            "name_id": _numbers(self.names[event.name] for event in events),
            "start_ns": _numbers(event.start_ns for event in events),
            "span_ns": _numbers(event.span_ns for event in events),
        }
        if code not in ON_DEVICE:
            batch["tid"] = _numbers(self.threads[event.tid] for event in events)
            batch["pid"] = _numbers(self.processes[event.pid] for event in events)
        for name in (*COLUMNS[code], *(EXTERNALS if code in FROM_OPS else ())):
            batch[name] = _numbers(event.integer(name) for event in events)
        if code in ON_DEVICE and (batch["device"] < 0).any():
            pids = _numbers(device_of_pid(event.pid) for event in events)
            batch["device"] = np.where(batch["device"] < 0, pids, batch["device"])
        if code == KERNEL:
            batch |= {key: np.array([e.three(key) for e in events], np.int64) for key in THREES}
        if code in (CALL, OP):
            self.pids[events[0].pid]
        if code == OP:
            batch["signature"] = _numbers(self.signatures[event.signature()] for event in events)
        return batch

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


def _numbers(values: Iterable[int]) -> I8:
    return np.fromiter(values, np.int64)
