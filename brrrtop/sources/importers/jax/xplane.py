"""`*.xplane.pb` of jax.profiler → a profile: the part of protobuf and of XSpace that this takes.

Field numbers are those of xplane.proto (tsl/profiler/protobuf). A library would need the compiled schema;
the encoding is a list of (field, value), described in protobuf's "Encoding" page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from brrrtop.sources.importers.jax.columns import DETAILS, Event, Line, Profile

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


def read(data: bytes, check: Callable[[], None] = lambda: None) -> Profile:
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
    return profile


def _looked(message: memoryview, check: Callable[[], None]) -> Iterator[tuple[int, Value]]:
    """The fields of a message with many entries."""
    for count, field in enumerate(fields(message)):
        if count % LOOK_EVERY == 0:
            check()
        yield field


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
    facts = dict(_stat(one, stat_names) for one in stats)
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
