"""Frames to bytes and back. Knows nothing of sockets, files or what a frame means.

A frame is a 16-byte header and a payload, little-endian::

    u32 payload bytes | u16 kind | u16 flags | i64 sent_ns

Record payloads are arrays of the packed structs below, so that the native agent writes them
without conversion and `numpy.frombuffer` reads them without a copy. Every time is integer
nanoseconds of the trainer's CLOCK_REALTIME, which is CUPTI's clock on Linux.

Readers skip kinds they do not know. A `wire` number in the hello that is larger than
`WIRE_VERSION` is refused: layouts only change with that number.
"""

import struct
import time
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from collectors.printable import is_printable_json, printable, printable_data
from collectors.protocol import bodies

WIRE_VERSION = 1
HEADER = struct.Struct("<IHHq")
MAX_PAYLOAD_BYTES = 64 << 20
"""A longer payload is a sign of garbage: the agent's batches stay under 4 MiB."""

MOST_EMPTY_FRAMES = 100_000
"""More in a row that carry nothing are no stream of ours: zeros read as such frames without end."""
LATEST_NS = 1 << 62
"""A later time (of the year 2116) is none; twice as much still fits an i64."""
LONGEST_NS = 86_400 * 10**9
"""A longer kernel, copy, call or mark is a broken one."""
FARTHEST_NS = 30 * LONGEST_NS
"""A record farther than this from when it was sent has a broken time."""
Records = npt.NDArray[np.void]
_NAME = struct.Struct("<II")


class Kind(IntEnum):
    """What a frame carries. JSON kinds hold one object; the others are arrays of a dtype."""

    HELLO = 1
    """JSON: wire, agent, pid, rank, world, cmdline, torch, python, clock pair."""
    NAMES = 2
    """Repeated `u32 id, u32 bytes, utf-8`. An id is defined before it is used; 0 is the empty name."""
    DEVICE = 3
    """JSON: what is known of one GPU (`brrrtop.model.Device` by field name)."""
    KERNELS = 4
    COPIES = 5
    CALLS = 6
    MARKS = 7
    OPS = 8
    """JSON: list of `[id, name, dims, types, concrete]`, nested lists; `strides` sixth where told."""
    LINKS = 9
    GAUGES = 10
    OBSERVED = 11
    """Spans in which device activity was traced; without any, the whole source was."""
    LOSS = 12
    """JSON: running totals `{place: count}` of what existed and did not arrive."""
    STATUS = 13
    """JSON: `{tier, state, code, says, ...}`: what the agent or monitor wants on the status line, and
    the code to decide by (`status.StatusCode`; absent: of no use to a program)."""
    END = 14
    """JSON: `{reason}`; nothing follows from this side."""
    SAMPLES = 15  # of hardware counters, around traced spans


KERNEL = np.dtype(
    [
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("correlation", "<u4"),
        ("name_id", "<u4"),
        ("device", "<i4"),
        ("stream", "<u4"),
        ("grid", "<i4", (3,)),
        ("block", "<i4", (3,)),
        ("shared_bytes", "<u4"),
        ("registers", "<u2"),
        ("flags", "<u2"),
        ("graph", "<u4"),
        ("channel", "<u4"),
        ("graph_node", "<u8"),
    ]
)
"""One execution of a device function, 80 bytes. `correlation` 0: no launch known."""

COPY = np.dtype(
    [
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("size_bytes", "<i8"),
        ("correlation", "<u4"),
        ("device", "<i4"),
        ("stream", "<u4"),
        ("copy_kind", "u1"),
        ("src_kind", "u1"),
        ("dst_kind", "u1"),
        ("flags", "u1"),
        ("graph", "<u4"),
        ("reserved", "<u4"),
    ]
)
"""A memcpy, or with `copy_kind` 0 a memset, 48 bytes. Codes are CUPTI's (`CopyKind`, `MemoryKind`)."""

CALL = np.dtype(
    [
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("correlation", "<u4"),
        ("tid", "<u4"),
        ("name_id", "<u4"),
        ("call_class", "<u2"),
        ("flags", "<u2"),
    ]
)
"""A CUDA runtime or driver call on the host, 32 bytes."""

MARK = np.dtype(
    [
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("value", "<i8"),
        ("tid", "<u4"),
        ("name_id", "<u4"),
        ("mark_class", "<u2"),
        ("flags", "<u2"),
        ("reserved", "<u4"),
    ]
)
"""Something seen in the trainer, 40 bytes; a point event has `end_ns == start_ns`."""

LINK = np.dtype([("correlation", "<u4"), ("op_id", "<u4")])
"""Which framework op launched what, 8 bytes."""

GAUGE = np.dtype([("time_ns", "<i8"), ("value", "<f8"), ("device", "<i4"), ("metric", "<u4")])
"""One reading of one counter, 24 bytes; `metric` is a `Metric`. Absent readings are not sent."""

OBSERVED = np.dtype([("start_ns", "<i8"), ("end_ns", "<i8"), ("device", "<i4"), ("flags", "<u4")])
"""A traced span, 24 bytes; device -1: all. Flag bit 0: records of it were lost."""

SAMPLE_COLUMNS = ("sm", "tensor", "dram", "dram_read", "dram_write", "gr", "warps", "issue")
"""Shares of peak 0..1 (`collectors.gpu.counters.device.COUNTERS`); NaN: not sampled."""
SAMPLE = np.dtype(
    [
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("offset_ns", "<i8"),
        ("device", "<i4"),
        ("flags", "<u4"),
        *((column, "<f4") for column in SAMPLE_COLUMNS),
    ]
)
"""One interval of one device's hardware counters, 64 bytes, on the GPU's own clock. `offset_ns` is what
reading it showed of the distance to CLOCK_REALTIME: too large by the delay of the quickest reading so far
where it is not 0 (`collectors.gpu.counters.device`). `device` is the trainer's number."""


FINEST_SHARE = 1 / 1024
"""Shares are rounded to it: noise below that would fill half of a recording."""


def rounded_share(share: float) -> float:
    return round(share / FINEST_SHARE) * FINEST_SHARE


def time_of_gauges() -> int:
    """Now, to a millisecond (2^20 ns): gauges know no finer, and what jitters fills recordings."""
    return time.time_ns() >> 20 << 20


def on_host_clock(samples: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.int64], ...]:
    """Starts and ends on CLOCK_REALTIME, some milliseconds late where the clocks are two."""
    offsets = samples["offset_ns"]
    return samples["start_ns"] + offsets, samples["end_ns"] + offsets


DTYPES: dict[int, np.dtype[Any]] = {
    Kind.KERNELS: KERNEL,
    Kind.COPIES: COPY,
    Kind.CALLS: CALL,
    Kind.MARKS: MARK,
    Kind.LINKS: LINK,
    Kind.GAUGES: GAUGE,
    Kind.OBSERVED: OBSERVED,
    Kind.SAMPLES: SAMPLE,
}
_JSON: dict[int, msgspec.json.Decoder[Any]] = {
    Kind.HELLO: msgspec.json.Decoder(bodies.Hello),
    Kind.DEVICE: msgspec.json.Decoder(bodies.DeviceFacts),
    Kind.OPS: msgspec.json.Decoder(list[bodies.Op]),
    Kind.LOSS: msgspec.json.Decoder(bodies.Loss),
    Kind.STATUS: msgspec.json.Decoder(bodies.Status),
    Kind.END: msgspec.json.Decoder(bodies.End),
}


class WireError(Exception):
    """The bytes of the other side make no sense. `action` says what a person can do."""

    def __init__(self, message: str, action: str = "") -> None:
        super().__init__(message)
        self.action = action


class NewerWire(WireError):
    """The other side speaks a wire version that came after ours."""


class Frame(Struct, frozen=True, eq=False):
    """One message. `body` is an array for record kinds, `dict[int, str]` for NAMES, else JSON data."""

    kind: int
    body: Any
    sent_ns: int = 0
    flags: int = 0


def _pack_names(names: dict[int, str]) -> bytes:
    parts: list[bytes] = []
    for name_id, name in names.items():
        text = name.encode("utf-8", "surrogateescape")
        parts += (_NAME.pack(name_id, len(text)), text)
    return b"".join(parts)


def _unpack_names(payload: bytes) -> dict[int, str]:
    names: dict[int, str] = {}
    at = 0
    while at + _NAME.size <= len(payload):
        name_id, size = _NAME.unpack_from(payload, at)
        at += _NAME.size
        if at + size > len(payload):
            raise WireError("a name runs past the end of its frame")
        names[name_id] = printable(payload[at : at + size].decode("utf-8", "replace"))
        at += size
    return names


Turn = Callable[[int, bytes], bytes]
"""The payload of a frame of this kind, in another order of its bytes."""


def encode(frame: Frame, turned: Turn | None = None) -> bytes:
    if frame.kind in DTYPES:
        payload = np.ascontiguousarray(frame.body, DTYPES[frame.kind]).tobytes()
    elif frame.kind == Kind.NAMES:
        payload = _pack_names(frame.body)
    elif frame.kind in _JSON:
        payload = msgspec.json.encode(frame.body)
    else:
        payload = bytes(frame.body)
    if turned is not None:
        payload = turned(frame.kind, payload)
    return HEADER.pack(len(payload), frame.kind, frame.flags, frame.sent_ns) + payload


def _decode(kind: int, flags: int, sent_ns: int, payload: bytes) -> Frame | None:
    if kind in DTYPES:
        dtype = DTYPES[kind]
        if len(payload) % dtype.itemsize:
            raise WireError(f"a frame of kind {kind} is not a whole number of records")
        return Frame(kind, np.frombuffer(payload, dtype), sent_ns, flags)
    if kind == Kind.NAMES:
        return Frame(kind, _unpack_names(payload), sent_ns, flags)
    if kind in _JSON:
        try:
            body = bodies.decode(payload, _JSON[kind])
        except ValueError as fault:
            what = Kind(kind).name
            raise WireError(f"a frame of kind {kind} ({what}) makes no sense: {fault}") from fault
        if not is_printable_json(payload):
            body = printable_data(body)
        if kind == Kind.STATUS:
            bodies.add_codes(body)
        return Frame(kind, body, sent_ns, flags)
    return None


class Decoder:
    """Bytes in any pieces → whole frames, in order."""

    def __init__(self, turned: Turn | None = None) -> None:
        """`turned` has each payload first."""
        self._turned = turned
        self._buffered = bytearray()
        self._empty_count = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that became whole with `data`.

        Raises:
            WireError: A header or payload makes no sense, or the sender speaks a newer wire.
        """
        for kind, flags, sent_ns, payload in self._whole(data):
            if self._turned is not None:
                payload = self._turned(kind, payload)
            frame = _decode(kind, flags, sent_ns, payload)
            self._count_empty(not payload or frame is None)
            if frame is None:
                continue
            if frame.kind == Kind.HELLO:
                check_hello(frame.body)
            yield frame

    def times(self, data: bytes) -> Iterator[int]:
        """`sent_ns` of every frame that became whole with `data`, by the headers alone. Raises as `feed`."""
        for _, _, sent_ns, payload in self._whole(data):
            self._count_empty(not payload)
            yield sent_ns

    def _whole(self, data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
        self._buffered += data
        at, buffered = 0, self._buffered
        try:
            while len(buffered) - at >= HEADER.size:
                size, kind, flags, sent_ns = HEADER.unpack_from(buffered, at)
                if size > MAX_PAYLOAD_BYTES:
                    raise WireError(f"a frame claims {size} bytes: this is not our wire format")
                if not 0 <= sent_ns <= LATEST_NS:
                    raise WireError(f"a frame is stamped {sent_ns} ns, which is no time")
                if len(buffered) - at - HEADER.size < size:
                    break
                payload = bytes(buffered[at + HEADER.size : at + HEADER.size + size])
                at += HEADER.size + size
                yield kind, flags, sent_ns, payload
        finally:
            del buffered[:at]

    def _count_empty(self, empty: bool) -> None:
        self._empty_count = self._empty_count + 1 if empty else 0
        if self._empty_count > MOST_EMPTY_FRAMES:
            raise WireError("nothing comes but empty frames: this is not our wire format")


def check_hello(hello: Any) -> None:
    """Refuses a sender we cannot understand.

    Raises:
        WireError: Not a hello, or one of a newer wire version.
    """
    version = hello.get("wire") if isinstance(hello, dict) else None
    if not isinstance(version, int) or version < 1:
        raise WireError("the hello has no wire version")
    if version > WIRE_VERSION:
        raise NewerWire(
            f"wire version {version} is newer than {WIRE_VERSION}, the newest this brrrtop reads",
            "upgrade brrrtop",
        )


def plausible(
    rows: Records, sent_ns: int, key: str = "start_ns", longest_ns: int = LONGEST_NS
) -> Records:
    """The rows whose times can be: none ends before it starts, lasts days, or is of another year.

    Args:
        sent_ns: When they were sent; 0 where nobody says.
        key: Of the start; rows without an end are points.
        longest_ns: What one may last.
    """
    starts = rows[key]
    ends = rows["end_ns"] if "end_ns" in (rows.dtype.names or ()) else starts
    good = (starts >= 0) & (starts <= LATEST_NS) & (ends >= starts) & (ends <= LATEST_NS)
    good &= np.where(good, ends - starts, 0) <= longest_ns
    if sent_ns:
        good &= np.abs(np.where(good, starts, 0) - sent_ns) <= FARTHEST_NS
    return rows if good.all() else rows[good]
