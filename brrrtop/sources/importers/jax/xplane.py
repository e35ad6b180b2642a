"""`*.xplane.pb` of jax.profiler → a profile: the part of protobuf and of XSpace that this takes.

Field numbers are those of xplane.proto (tsl/profiler/protobuf). A library would need the compiled schema;
the encoding is a list of (field, value), described in protobuf's "Encoding" page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from brrrtop.sources.importers.jax.columns import DETAILS, Event, Line, Profile

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_BITS = 63
_U64 = 1 << 64
ABSOLUTE_NS = 10**17
"""Times of lines above this are since 1970; below, since the profile began."""
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


def read(data: bytes) -> Profile:
    """The profile; of a file that breaks off, the planes before. Raises: Malformed: There is none."""
    profile = Profile()
    try:
        for number, value in fields(memoryview(data)):
            if number == 1 and not isinstance(value, int):
                _plane(value, profile)
    except Malformed:
        if not profile.planes:
            raise
        profile.broken_off = True
    return profile


def _plane(message: memoryview, profile: Profile) -> None:
    name, lines, stats = "", [], []
    event_names: dict[int, str] = {}
    stat_names: dict[int, str] = {}
    for number, value in fields(message):
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
    facts = dict(_stat(one, stat_names) for one in stats)
    profile.planes[name] = facts
    start = facts.get("profile_start_time")
    if isinstance(start, int):
        profile.base_ns = start
    if name.startswith(("/device:", "/host:")):
        profile.lines += [_line(line, name, event_names, stat_names) for line in lines]


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
    message: memoryview, plane: str, event_names: dict[int, str], stat_names: dict[int, str]
) -> Line:
    key, name, start_ns, events = 0, "", 0, []
    for number, value in fields(message):
        if number == 1:
            key = _int(value)
        elif number == 2 or (number == 11 and not name):
            name = _text(value)
        elif number == 3:
            start_ns = _int(value)
        elif number == 4 and not isinstance(value, int):
            events.append(value)
    line = Line(plane, name, key)
    for event in events:
        metadata = offset_ps = span_ps = 0
        stats: dict[str, Any] = {}
        for number, value in fields(event):
            if number == 1:
                metadata = _int(value)
            elif number == 2:
                offset_ps = _int(value)
            elif number == 3:
                span_ps = _int(value)
            elif number == 4 and not isinstance(value, int):
                stat, result = _stat(value, stat_names)
                stats[stat] = result
        line.events.append(
            Event(
                event_names.get(metadata, ""),
                start_ns + offset_ps // 1000,
                span_ps // 1000,
                _number(stats.get("correlation_id"), 0),
                next((str(stats[d]) for d in DETAILS if stats.get(d)), ""),
                _number(stats.get("step_num"), -1),
            )
        )
    return line


def _number(value: Any, default: int) -> int:
    return value if isinstance(value, int) else default
