"""Trace events → plain columns, one set a kind of event. The only pass over single events.

The native scanner makes such columns of plain text; here is the forgiving way, for what it declines, and
for all where it cannot be had.
"""

import contextlib
import re
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Raw, Struct

from brrrtop.model.tables import I8
from brrrtop.sources.importers.trace import names as kineto_names
from collectors.protocol.bodies import FAULTS
from collectors.protocol.frames import LONGEST_NS

_LARGEST_US = 9.0e15
LATEST_NS = 1000 * int(_LARGEST_US)
BAD_NS = int(np.iinfo(np.int64).min)
"""Stands for a time that is no time; `Collected.add_batch` drops it."""
_INTEGERS = {
    "external": ("External id", 0),
    "old_external": ("external id", 0),
    "device": ("device", -1),
    "stream": ("stream", 0),
    "correlation": ("correlation", 0),
    "registers": ("registers per thread", 0),
    "shared_bytes": ("shared memory", 0),
    "size_bytes": ("bytes", 0),
    "graph": ("graph id", 0),
    "graph_node": ("graph node id", 0),
    "channel": ("channel", 0),
    "sequence": ("Sequence number", -1),  # of the autograd node that an op made or runs
    "forward_tid": ("Fwd thread id", 0),  # not 0: an op of the backward pass
    "device_type": ("Device Type", 0),
    "memory_device": ("Device Id", -1),
    "address": ("Addr", 0),
    "memory_bytes": ("Bytes", 0),
    "allocated": ("Total Allocated", -1),
    "reserved": ("Total Reserved", -1),
}
INTEGERS = {name: default for name, (_, default) in _INTEGERS.items()}
"""Arguments that are integers, with what stands where one is absent."""
_RAW = {
    "dims": "Input Dims",
    "types": "Input type",
    "concrete": "Concrete Inputs",
    "strides": "Input Strides",
    "elements": "In msg nelems",  # this and the next two: of a collective whose shapes nobody recorded
    "element_type": "dtype",
    "collective": "Collective name",
}
KEYS = {name: key for name, (key, _) in _INTEGERS.items()} | _RAW
"""By the name of an argument here: its key in a trace."""
RAW = tuple(_RAW)
UNSHAPED = (b"",) * len(RAW)
"""The raw arguments of a call that says nothing of its tensors."""
THREES = ("grid", "block")


class Event(Struct, gc=False):
    ph: str
    cat: str
    name: str
    pid: int | str
    tid: int | str
    start_ns: int
    span_ns: int
    """Negative where it has no duration."""
    args: dict[str, Any]

    def integer(self, name: str) -> int:
        key, default = _INTEGERS[name]
        value: Any = self.args.get(key)
        return value if _fits(value) else default

    def three(self, key: str) -> tuple[int, int, int]:
        value: Any = self.args.get(key)
        if isinstance(value, list) and len(value) == 3 and all(map(_fits, value)):
            return value[0], value[1], value[2]
        return 0, 0, 0

    def signature(self) -> tuple[Any, ...]:
        raw = [msgspec.json.encode(self.args[k]) if k in self.args else b"" for k in _RAW.values()]
        dims, types, _, _, elements, *_ = raw
        return (self.name, *raw) if dims or types or elements else name_alone(self.name)


def name_alone(name: str) -> tuple[Any, ...]:
    """A call of which nothing but its name is known."""
    return (name, *UNSHAPED)


_values = msgspec.json.Decoder(list[Any], float_hook=Decimal)
_anything = msgspec.json.Decoder()
_parts = msgspec.json.Decoder(dict[str, Raw])

# What json.dumps writes for numbers JSON does not have; only tried on text that does not parse.
_NOT_A_NUMBER = re.compile(rb"(?<=[:\[,\s])-?(?:NaN|nan|Infinity|inf)(?=\s*[,\]}])")
_BYTE = re.compile(r"\(byte (\d+)\)")
"""Where msgspec's fault in a text is; it names none where all is sound up to the end of the text."""
_LONE_HIGH = re.compile(rb"(?<!\\)((?:\\\\)*)\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_LONE_LOW = re.compile(
    rb"(?<!\\u[dD][89abAB][0-9a-fA-F]{2})(?<!\\)((?:\\\\)*)\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


class Torn(Exception):
    """The text is not a list of whole events: it ends too early, or is damaged."""

    def __init__(self, is_damaged: bool = False) -> None:
        super().__init__()
        self.is_damaged = is_damaged


def decode_run(run: bytes) -> tuple[list[Event], int]:
    """The events of a run, and how many could not be understood.

    Raises:
        Torn: Not a list of whole values, even with odd encodings and numbers put right.
    """
    text = b"[" + run + b"]"
    try:
        values = _values.decode(text)
    except FAULTS as fault:
        if type(fault) is msgspec.DecodeError and _BYTE.search(str(fault)) is None:
            raise Torn from fault
        try:
            values = _values.decode(repair(text))
        except FAULTS as again:
            raise Torn(_BYTE.search(str(again)) is not None) from again
    events = list(filter(None, map(_event, values)))
    return events, len(values) - len(events)


def first_end(text: bytes) -> int:
    """Where the first value of a text ends; where it is damaged before that, any place."""
    try:
        _anything.decode(text)
    except FAULTS as fault:
        place = _BYTE.search(str(fault))
        return int(place[1]) - 1 if place else 0
    return len(text)


def _event(value: Any) -> Event | None:
    """The event, with what it gets wrong of its arguments left out; None where its core makes no sense."""
    if not isinstance(value, dict):
        return None
    ph, cat, name = (str(value.get(key) or "") for key in ("ph", "cat", "name"))
    pid, tid = (v if isinstance(v := value.get(key), (int, str)) else 0 for key in ("pid", "tid"))
    try:
        times = _ns(value.get("ts", BAD_NS)), _ns(value.get("dur", -1))
    except (ArithmeticError, TypeError, ValueError):
        return None
    args = value.get("args")
    return Event(ph, cat, name, pid, tid, *times, args if isinstance(args, dict) else {})


def _ns(value_us: Any) -> int:
    """Exact for any decimal."""
    time_us = Decimal(value_us)
    if not time_us.is_finite() or abs(time_us) >= _LARGEST_US:
        return BAD_NS
    return int((time_us * 1000).to_integral_value(ROUND_HALF_UP))


def _fits(value: Any) -> bool:
    return type(value) is int and abs(value) < 1 << 63


def decode_object(text: bytes) -> dict[str, Any]:
    """A JSON object of any shape.

    Raises:
        Torn: It is none.
    """
    try:
        value = _anything.decode(repair(text))
    except FAULTS as fault:
        raise Torn from fault
    if not isinstance(value, dict):
        raise Torn
    return value


def repair(text: bytes) -> bytes:
    """The text with bytes that are not UTF-8, lone surrogates and NaNs replaced."""
    text = text.decode("utf-8", "replace").encode()
    if any(word in text for word in (b"NaN", b"nan", b"Inf", b"inf")):
        text = _NOT_A_NUMBER.sub(b"null", text)
    if b"\\ud" in text or b"\\uD" in text:
        text = _LONE_LOW.sub(rb"\1\\ufffd", _LONE_HIGH.sub(rb"\1\\ufffd", text))
    return text


def decode_rest(rest: bytes) -> tuple[bytes, dict[str, Any]]:
    """Decodes the end of a file.

    Returns:
        The last run of events, and what follows `traceEvents`.

    Raises:
        Torn: The file does not end where it should.
    """
    text = b'{"traceEvents":[' + rest
    try:
        parts = _parts.decode(text)
    except FAULTS:
        try:
            parts = _parts.decode(repair(text))
        except FAULTS as fault:
            raise Torn from fault
    run = bytes(parts.pop("traceEvents")).strip()
    facts: dict[str, Any] = {}
    for key, raw in parts.items():
        with contextlib.suppress(*FAULTS):
            facts[key] = _anything.decode(repair(bytes(raw)))
    return run[1:-1], facts


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
        self.counts_blocks = False
        """Grids are of blocks, whatever call they are of."""
        self.event_count = 0
        self.losses: dict[str, int] = {}
        self._codes = _Codes({name: code for code, names in CATEGORIES.items() for name in names})

    @property
    def categories(self) -> tuple[str, ...]:
        return tuple(self._codes)

    def add_category(self, name: str) -> None:
        """One that events had and that is not used."""
        self._codes[name]

    def lose(self, place: str, count: int) -> None:
        if count:
            self.losses[place] = self.losses.get(place, 0) + count

    def add(self, events: list[Event]) -> None:
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

    def concat(self, code: int) -> Columns:
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
