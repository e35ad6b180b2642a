"""Text of trace events → typed events. The fast way first, then the forgiving one."""

from __future__ import annotations

import contextlib
import re
from decimal import ROUND_HALF_UP, Decimal
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Raw, Struct, field

from collectors.protocol.bodies import FAULTS

ABSENT = Raw()
LARGEST_US = 9.0e15
BAD_NS = int(np.iinfo(np.int64).min)
"""Stands for a time that is no time; `Collected.add_batch` drops it."""


Id = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Args(Struct, frozen=True, gc=False):
    """The arguments of an event that brrrtop uses; old traces write `external id` small."""

    external: Id = field(name="External id", default=0)
    old_external: Id = field(name="external id", default=0)
    device: Id = field(name="device", default=-1)
    stream: Id = field(name="stream", default=0)
    correlation: Id = field(name="correlation", default=0)
    registers: Id = field(name="registers per thread", default=0)
    shared_bytes: Id = field(name="shared memory", default=0)
    grid: tuple[Id, Id, Id] = (0, 0, 0)
    block: tuple[Id, Id, Id] = (0, 0, 0)
    size_bytes: Id = field(name="bytes", default=0)
    graph: Id = field(name="graph id", default=0)
    graph_node: Id = field(name="graph node id", default=0)
    channel: Id = field(name="channel", default=0)
    sequence: Id = field(name="Sequence number", default=-1)
    """Of the autograd node that an op made or runs."""
    forward_tid: Id = field(name="Fwd thread id", default=0)
    """Not 0: an op of the backward pass."""
    device_type: Id = field(name="Device Type", default=0)
    memory_device: Id = field(name="Device Id", default=-1)
    address: Id = field(name="Addr", default=0)
    memory_bytes: Id = field(name="Bytes", default=0)
    allocated: Id = field(name="Total Allocated", default=-1)
    reserved: Id = field(name="Total Reserved", default=-1)
    dims: Raw = field(name="Input Dims", default=ABSENT)
    types: Raw = field(name="Input type", default=ABSENT)
    concrete: Raw = field(name="Concrete Inputs", default=ABSENT)
    strides: Raw = field(name="Input Strides", default=ABSENT)
    elements: Raw = field(name="In msg nelems", default=ABSENT)
    """This and the next two: of a collective whose shapes nobody recorded."""
    element_type: Raw = field(name="dtype", default=ABSENT)
    collective: Raw = field(name="Collective name", default=ABSENT)


class Event(Struct, gc=False):
    """One entry of `traceEvents`. Times are microseconds; `dur_us` is negative when absent."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts_us: float = field(name="ts", default=-1.0)
    dur_us: float = field(name="dur", default=-1.0)
    args: Args = Args()


def name_alone(name: str) -> tuple[Any, ...]:
    """A call of which nothing but its name is known."""
    return (name, *UNSHAPED)


class _Times(Struct, gc=False):
    """The times of an event to the last digit."""

    ts: Decimal | None = None
    dur: Decimal | None = None


_events = msgspec.json.Decoder(list[Event])
_loose = msgspec.json.Decoder(list[Raw])
_event = msgspec.json.Decoder(Event)
_anything = msgspec.json.Decoder()
_parts = msgspec.json.Decoder(dict[str, Raw])
_times = msgspec.json.Decoder(list[_Times])

# What json.dumps writes for numbers JSON does not have; only tried on text that does not parse.
_NOT_A_NUMBER = re.compile(rb"(?<=[:\[,\s])-?(?:NaN|nan|Infinity|inf)(?=\s*[,\]}])")
_BYTE = re.compile(r"\(byte (\d+)\)")
"""Where msgspec's fault in a text is; it names none where all is sound up to the end of the text."""
_LONE_HIGH = re.compile(rb"(?<!\\)((?:\\\\)*)\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_LONE_LOW = re.compile(
    rb"(?<!\\u[dD][89abAB][0-9a-fA-F]{2})(?<!\\)((?:\\\\)*)\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_FIELDS = msgspec.structs.fields(Args)
KEYS = {f.name: f.encode_name for f in _FIELDS}
"""By the name of an argument here: its key in a trace."""
INTEGERS: dict[str, int] = {f.name: f.default for f in _FIELDS if f.type == Id}
"""Arguments that are integers, with what stands where one is absent."""
UNSHAPED = (b"",) * sum(f.type is Raw for f in _FIELDS)
"""The raw arguments of a call that says nothing of its tensors."""
RAW = tuple(f.name for f in _FIELDS if f.type is Raw)
THREES = ("grid", "block")


class Torn(Exception):
    """The text is not a list of whole events. Without `damaged` it merely ends too early."""

    def __init__(self, damaged: bool = False) -> None:
        super().__init__()
        self.damaged = damaged


def decode_run(run: bytes) -> tuple[list[Event], int]:
    """The events of a run, and how many could not be understood.

    Raises:
        Torn: Not a list of whole values, even with odd encodings and numbers put right.
    """
    text = b"[" + run + b"]"
    try:
        return _events.decode(text), 0
    except FAULTS as fault:
        if type(fault) is msgspec.DecodeError and _BYTE.search(str(fault)) is None:
            raise Torn from fault
        text = repair(text)
    try:
        return _events.decode(text), 0
    except FAULTS:
        pass
    try:
        raws = _loose.decode(text)
    except FAULTS as fault:
        raise Torn(damaged=_BYTE.search(str(fault)) is not None) from fault
    return _one_by_one(raws)


def broken_at(run: bytes) -> int | None:
    """Where in the run the first thing is that cannot be; its length if it ends too early.

    None: it is a list of whole values.
    """
    try:
        _loose.decode(b"[" + run + b"]")
    except FAULTS as fault:
        match = _BYTE.search(str(fault))
        return min(int(match[1]) - 1, len(run)) if match else len(run)
    return None


def decode_times(run: bytes) -> list[tuple[int, int]]:
    """Start of every event of a run and what it lasts, in ns, exact for any decimal; -1: no duration.

    Nothing where not all are events.
    """
    text = b"[" + run + b"]"
    for mend in (bytes, repair):
        with contextlib.suppress(*FAULTS):
            return [(_ns(row.ts, BAD_NS), _ns(row.dur, -1)) for row in _times.decode(mend(text))]
    return []


def _ns(value_us: Decimal | None, absent: int) -> int:
    if value_us is None:
        return absent
    if not value_us.is_finite() or abs(value_us) >= LARGEST_US:
        return BAD_NS
    return int((value_us * 1000).to_integral_value(ROUND_HALF_UP))


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


def _one_by_one(raws: list[Raw]) -> tuple[list[Event], int]:
    events: list[Event] = []
    odd = 0
    for raw in raws:
        try:
            events.append(_event.decode(raw))
            continue
        except FAULTS:
            pass
        event = _tidy(raw)
        if event is None:
            odd += 1
        else:
            events.append(event)
    return events, odd


def _tidy(raw: Raw) -> Event | None:
    """The event with the arguments it got wrong left out; None when its core makes no sense."""
    try:
        event = _anything.decode(raw)
        texts: dict[str, Any] = {key: str(event.get(key) or "") for key in ("ph", "cat", "name")}
        ids = {key: event[key] for key in ("pid", "tid") if type(event.get(key)) in (int, str)}
        times: dict[str, Any] = {
            key + "_us": float(event[key]) for key in ("ts", "dur") if key in event
        }
        return Event(**texts, **ids, **times, args=_tidied_args(event.get("args")))
    except (*FAULTS, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _fits(value: Any) -> bool:
    return type(value) is int and abs(value) < 1 << 63


def _tidied_args(args: Any) -> Args:
    if not isinstance(args, dict):
        return Args()
    good: dict[str, Any] = {
        name: value for name in INTEGERS if _fits(value := args.get(KEYS[name]))
    }
    for key in THREES:
        value = args.get(key)
        if isinstance(value, list) and len(value) == 3 and all(map(_fits, value)):
            good[key] = tuple(value)
    for name in RAW:
        if isinstance(args.get(KEYS[name]), list):
            good[name] = Raw(msgspec.json.encode(args[KEYS[name]]))
    return Args(**good)


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
