"""What a JAX profile holds, whichever of its two files it came from → the columns that all traces have.

Streams of `/device:GPU:N` are kernels and copies (lines beside them, such as "XLA Ops", are made from
those again); calls of CUDA's driver or HIP on the host carry their correlation; an event with
`step_num` is a step. Other events are kept on threads that run Python: TraceAnnotations are among
them, and XLA's own work is not. Python frames (`$file.py:12 f`) are left out: JAX launches from threads of
its own, so where Python waits says nothing of why the GPU does.

`*.xplane.pb` is read by the part of protobuf and of XSpace that this takes: field numbers are those of
xplane.proto (tsl/profiler/protobuf). A library would need the compiled schema; the encoding is a list of
(field, value), described in protobuf's "Encoding" page. `*.trace.json.gz` is made from the same file, for
browsers: times in microseconds, and at most a million events.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from brrrtop.sources.importers.trace import columns, reader
from brrrtop.sources.importers.trace.columns import CALL, COPY, KERNEL, RANGE, Collected

DEVICE = re.compile(r"/device:GPU:(\d{1,4})\b")
_STREAM = re.compile(r"Stream #(\d{1,9})")
_CALL = re.compile(r"((?:cuda|cu|hip)[A-Z]\w+)(?: \(CudaGraph:\d+\))?$")
_FRAME = re.compile(r"\$.+?:\d+ ")
_DETAIL = re.compile(r"(\w+):([\w,.]+)")
_COPY = re.compile(r"Memcpy([HDP])2([HDP])|Copy(Host|Device)To(Host|Device)|MemcpyOther|Memset")
_MOST_REGISTERS = 1024
"""Some versions write an address there."""
_SUFFIX = ".kd"
"""Of a kernel's descriptor, which rocprofiler names in its place."""

DETAILS = ("kernel_details", "memcpy_details", "Memset_details", "memset_details")


class Event(Struct, gc=False):
    name: str
    start_ns: int
    span_ns: int
    correlation: int = 0
    details: str = ""
    """`kernel_details`, or `memcpy_details` and the like; empty for what has none."""
    step: int = -1
    """`step_num` of a StepTraceAnnotation; -1 for all else."""


class Line(Struct):
    plane: str
    """`/device:GPU:0`, `/host:CPU`, …: a process of the Chrome trace."""
    name: str
    """`Stream #17(Kernel)`, `python3`, …: a thread of the Chrome trace."""
    key: Any
    """The number the file gives it; unique in its plane."""
    events: list[Event] = field(default_factory=list)


class Profile(Struct):
    lines: list[Line] = field(default_factory=list)
    planes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Facts by plane: `core_count`, `device_vendor`, …"""
    base_ns: int = 0
    losses: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    broken_off: bool = False


def collect(profile: Profile) -> Collected:
    """All events that are used, on the profile's clock."""
    collected = Collected()
    collected.counts_blocks = True
    for place, count in profile.losses.items():
        collected.lose(place, count)
    collected.broken_off = profile.broken_off
    for line in profile.lines:
        device, stream = DEVICE.match(line.plane), _STREAM.match(line.name)
        if device and stream:
            _device_line(collected, line, int(device[1]), int(stream[1]))
        elif line.plane.startswith("/host:") and not device:
            _host_line(collected, line)
    return collected


def _device_line(collected: Collected, line: Line, device: int, stream: int) -> None:
    for is_copy in (False, True):
        events = [e for e in line.events if (_COPY.match(e.name) is not None) == is_copy]
        if not events:
            continue
        details = [dict(_DETAIL.findall(event.details)) for event in events]
        names = [event.name.removesuffix(_SUFFIX) for event in events]
        if is_copy:
            names = [_copy_name(e.name, detail) for e, detail in zip(events, details, strict=True)]
        batch: dict[str, Any] = {
            **_times(events),
            "name_id": _numbers(collected.names[name] for name in names),
            "device": np.full(len(events), device),
            "stream": np.full(len(events), stream),
            "correlation": _numbers(event.correlation for event in events),
        }
        if is_copy:
            batch["size_bytes"] = _numbers(_whole(detail.get("size")) for detail in details)
        else:
            registers = _numbers(_whole(detail.get("regs")) for detail in details)
            batch |= {
                "grid": np.array([_three(detail.get("grid")) for detail in details], np.int64),
                "block": np.array([_three(detail.get("block")) for detail in details], np.int64),
                "registers": np.where(registers <= _MOST_REGISTERS, registers, 0),
                "shared_bytes": sum(
                    _numbers(_whole(detail.get(key)) for detail in details)
                    for key in ("static_shared", "dynamic_shared", "group_mem")
                ),
            }
        collected.add_batch(COPY if is_copy else KERNEL, batch)


def _host_line(collected: Collected, line: Line) -> None:
    has_frames = any(_FRAME.match(event.name) for event in line.events)
    by_kind: dict[int, list[Event]] = {CALL: [], RANGE: []}
    for event in line.events:
        if _call_name(event):
            by_kind[CALL].append(event)
        elif event.step >= 0 or (has_frames and not _FRAME.match(event.name)):
            by_kind[RANGE].append(event)
    tid = collected.threads[line.key]
    for kind, events in by_kind.items():
        if not events:
            continue
        names = [
            f"ProfilerStep#{e.step}" if e.step >= 0 else _call_name(e) or e.name for e in events
        ]
        batch = {
            **_times(events),
            "name_id": _numbers(collected.names[name] for name in names),
            "tid": np.full(len(events), tid),
            "pid": np.zeros(len(events), np.int64),
        }
        if kind == CALL:
            batch["correlation"] = _numbers(event.correlation for event in events)
        collected.add_batch(kind, batch)


def _call_name(event: Event) -> str:
    """Of a call of CUDA's or HIP's; newer profiles of NVIDIA GPUs name it by what it launches."""
    if match := _CALL.match(event.name):
        return match[1]
    if not event.correlation:
        return ""
    if _COPY.match(event.name):
        return "cuMemsetAsync" if event.name.startswith("Memset") else "cuMemcpyAsync"
    return "cuLaunchKernel"


def _times(events: list[Event]) -> dict[str, Any]:
    starts = _numbers(event.start_ns for event in events)
    return {"start_ns": starts, "end_ns": starts + _numbers(event.span_ns for event in events)}


def _copy_name(name: str, details: dict[str, str]) -> str:
    match = _COPY.match(name)
    kind = details.get("kind", "Unknown").title()
    if name.startswith("Memset"):
        return f"Memset ({details.get('kind_dst', kind).title()})"
    ends = [end[0] for end in (match.groups() if match else ()) if end] or ["D", "D"]
    memories = []
    for end, key in zip(ends, ("kind_src", "kind_dst"), strict=True):
        memories.append(
            details[key].title() if key in details else "Device" if end == "D" else kind
        )
    return f"Memcpy {'to'.join(ends)} ({' -> '.join(memories)})"


def _whole(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else 0


def _three(text: str | None) -> tuple[int, int, int]:
    numbers = [_whole(one) for one in (text or "").split(",")]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else (0, 0, 0)


def _numbers(values: Any) -> Any:
    return np.fromiter(values, np.int64)


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_BITS = 63
_U64 = 1 << 64
ABSOLUTE_NS = 10**17
"""Times of lines above this are since 1970; below, since the profile began."""
LOOK_EVERY = 1 << 16
"""Entries of planes and events between two looks at the memory: some 10 MB."""
Value = int | memoryview


class Malformed(Exception):
    """The bytes are no message, or break off."""


def fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """Field numbers and values, in order. Raises: Malformed: It is no message."""
    at, size = 0, len(message)
    while at < size:
        tag, at = _varint(message, at)
        wire = tag & 7
        value: Value
        if wire == _VARINT:
            value, at = _varint(message, at)
        elif wire == _BYTES:
            length, at = _varint(message, at)
            value, at = message[at : at + length], at + length
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
            value, at = message[at : at + length], at + length
        else:
            raise Malformed
        if at > size:
            raise Malformed
        yield tag >> 3, value


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    try:
        while True:
            byte = message[at]
            at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number, at
            shift += 7
            if shift > _MOST_BITS:
                raise Malformed
    except IndexError:
        raise Malformed from None


def _text(value: Value) -> str:
    return "" if isinstance(value, int) else bytes(value).decode("utf-8", "replace")


def _int(value: Value) -> int:
    if not isinstance(value, int):
        return 0
    return value - _U64 if value >= 1 << 63 else value


def read_xplane(data: bytes, check: Callable[[], None] = lambda: None) -> Profile:
    """The profile; of a file that breaks off, the planes before.

    Args:
        check: Called now and then; raises where the profile takes too much memory. Two bytes can be an event.

    Raises:
        Malformed: There is none.
    """
    profile = Profile()
    try:
        for number, value in fields(memoryview(data)):
            if number == 1 and not isinstance(value, int):
                _plane(value, profile, check)
    except Malformed:
        if not profile.planes:
            raise
        profile.broken_off = True
        profile.notes.append("the file breaks off: what came after is missing")
    return profile


def _looked(message: memoryview, check: Callable[[], None]) -> Iterator[tuple[int, Value]]:
    """The fields of a message with many entries."""
    for count, one in enumerate(fields(message)):
        if count % LOOK_EVERY == 0:
            check()
        yield one


def _plane(message: memoryview, profile: Profile, check: Callable[[], None]) -> None:
    name, lines, stats = "", [], []
    event_names: dict[int, str] = {}
    stat_names: dict[int, str] = {}
    for number, value in _looked(message, check):
        if isinstance(value, int):
            continue
        if number == 2:
            name = _text(value)
        elif number == 3:
            lines.append(value)
        elif number in (4, 5):
            key, text = _metadata(value)
            (event_names if number == 4 else stat_names)[key] = text
        elif number == 6:
            stats.append(value)
    facts = dict(_stat(stat, stat_names) for stat in stats)
    profile.planes[name] = facts
    start = facts.get("profile_start_time")
    if isinstance(start, int):
        profile.base_ns = start
    if name.startswith(("/device:", "/host:")):
        profile.lines += [_line(line, name, event_names, stat_names, check) for line in lines]


def _metadata(entry: memoryview) -> tuple[int, str]:
    """Key and name of an entry of a map of metadata."""
    key, name = 0, ""
    for number, value in fields(entry):
        if number == 1:
            key = _int(value)
        elif number == 2 and not isinstance(value, int):
            name = next((_text(v) for n, v in fields(value) if n == 2), "")
    return key, name


def _stat(message: memoryview, names: dict[int, str]) -> tuple[str, Any]:
    name = ""
    decoded: Any = None
    for number, value in fields(message):
        if number == 1:
            name = names.get(_int(value), "")
        elif number in (3, 4):
            decoded = _int(value)
        elif number == 5:
            decoded = _text(value)
        elif number == 7:
            decoded = names.get(_int(value), "")
    return name, decoded


def _line(
    message: memoryview, plane: str, event_names: dict[int, str], stat_names: dict[int, str],
    check: Callable[[], None],
) -> Line:  # fmt: skip
    key, name, start_ns = 0, "", 0
    for number, value in fields(message):
        if number == 1:
            key = _int(value)
        elif number == 2 or (number == 11 and not name):
            name = _text(value)
        elif number == 3:
            start_ns = _int(value)
    line = Line(plane, name, key)
    for number, value in _looked(message, check):
        if number == 4 and isinstance(value, memoryview) and len(value):
            line.events.append(_event(value, start_ns, event_names, stat_names))
    return line


def _event(
    message: memoryview, start_ns: int, event_names: dict[int, str], stat_names: dict[int, str]
) -> Event:
    metadata = offset_ps = span_ps = 0
    stats: dict[str, Any] = {}
    for number, value in fields(message):
        if number == 1:
            metadata = _int(value)
        elif number == 2:
            offset_ps = _int(value)
        elif number == 3:
            span_ps = _int(value)
        elif number == 4 and not isinstance(value, int):
            stat, result = _stat(value, stat_names)
            stats[stat] = result
    return Event(
        event_names.get(metadata, ""),
        start_ns + offset_ps // 1000,
        span_ps // 1000,
        _number(stats.get("correlation_id"), 0),
        next((str(stats[d]) for d in DETAILS if stats.get(d)), ""),
        _number(stats.get("step_num"), -1),
    )


def _number(value: Any, default: int) -> int:
    return value if isinstance(value, int) else default


MOST_EVENTS = 1_000_000
"""More the writer leaves out, and does not say so (xprof's trace viewer)."""


def read_chrome(path: Path, force: bool = False) -> Profile:
    """The profile. Raises: BadInput: It is no such trace, or too large without `force`."""
    builder = _Builder()
    with reader.open_runs(path, force) as (runs, inflater):
        runs.start()
        events = reader.Events(builder.take, lambda: builder.count)
        events.read(runs, inflater)
    profile = builder.profile()
    profile.broken_off, profile.notes = events.are_torn, events.notes + profile.notes
    return profile


class _Builder:
    def __init__(self) -> None:
        self._profile = Profile()
        self._planes: dict[int | str, str] = {}
        self._names: dict[tuple[int | str, int | str], str] = {}
        self._lines: dict[tuple[int | str, int | str], Line] = {}
        self.count = 0

    def take(self, run: bytes) -> None:
        """Adds the events of a run. Raises: Torn: It is no list of whole values."""
        events, odd = columns.decode_run(run)
        if odd:
            losses = self._profile.losses
            losses["not understood"] = losses.get("not understood", 0) + odd
        for event in events:
            if event.ph == "X":
                self._add(event)
            elif event.ph == "M" and event.name == "process_name":
                self._planes[event.pid] = str(event.args.get("name", ""))
            elif event.ph == "M" and event.name == "thread_name":
                self._names[event.pid, event.tid] = str(event.args.get("name", ""))

    def _add(self, event: columns.Event) -> None:
        self.count += 1
        if columns.BAD_NS in (event.start_ns, event.span_ns):
            return
        key = event.pid, event.tid
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line("", "", event.tid)
        args = event.args
        details = next((str(args[key]) for key in DETAILS if args.get(key)), "")
        times = event.start_ns, max(event.span_ns, 0)
        numbers = _whole_or(args.get("correlation_id"), 0), _whole_or(args.get("step_num"), -1)
        line.events.append(Event(event.name, *times, numbers[0], details, numbers[1]))

    def profile(self) -> Profile:
        for (pid, tid), line in self._lines.items():
            line.plane = self._planes.get(pid, "")
            line.name = self._names.get((pid, tid), "")
        self._profile.lines = list(self._lines.values())
        self._profile.planes = {name: {} for name in self._planes.values()}
        if self.count >= MOST_EVENTS:
            self._profile.notes.append(
                f"{self.count:,} events: such a file holds no more, and may lack some; give the xplane.pb "
                "beside it"
            )
        return self._profile


def _whole_or(value: Any, default: int) -> int:
    """A number, which some versions write as text."""
    good = isinstance(value, (int, str)) and len(str(value)) < 19
    return int(value) if good and str(value).isdecimal() else default
