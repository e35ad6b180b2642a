"""Text of trace events → events, forgiving: what the native scanner declines, and all where there is none."""

from __future__ import annotations

import contextlib
import re
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw, Struct

from collectors.protocol.bodies import FAULTS

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
    """One entry of `traceEvents`."""

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
        """An argument of `INTEGERS`."""
        key, default = _INTEGERS[name]
        value: Any = self.args.get(key)
        return value if _fits(value) else default

    def three(self, key: str) -> tuple[int, int, int]:
        """A grid or a block."""
        value: Any = self.args.get(key)
        if isinstance(value, list) and len(value) == 3 and all(map(_fits, value)):
            return value[0], value[1], value[2]
        return 0, 0, 0

    def signature(self) -> tuple[Any, ...]:
        """Name and raw arguments, as JSON text."""
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
    """The text is not a list of whole events: it ends too early, or is damaged at byte `at`."""

    def __init__(self, at: int | None = None) -> None:
        super().__init__()
        self.at = at


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
            place = _BYTE.search(str(again))
            raise Torn(min(int(place[1]) - 1, len(run)) if place else None) from again
    events = list(filter(None, map(_event, values)))
    return events, len(values) - len(events)


def broken_at(run: bytes) -> int | None:
    """Where in the run the first thing is that cannot be; None: nowhere, or past its end."""
    try:
        decode_run(run)
    except Torn as torn:
        return torn.at
    return None


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
