"""Our own file: the frames as they came, compressed, readable up to the last whole one.

Layout: `BRRR`, u16 format version, u16 flags (0), then one zstd stream of wire frames, the hello
first; since format 2 with their records column by column (`by_column`). The stream is flushed
at least once a second or megabyte while frames come, so that a file whose writer died, or is still
at work, lacks that much at most. A finished file ends with END.

A trace as a recording that says where it is from.
"""

from __future__ import annotations

import contextlib
import datetime
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import zstandard
from msgspec.structs import replace

from brrrtop.errors import BadInput, BrrrtopError, UsageError
from brrrtop.model.snapshot import SourceInfo
from brrrtop.model.tables import Span
from brrrtop.sources.source import Budget, Source, open_input, with_hello
from brrrtop.text import units
from collectors.printable import printable
from collectors.protocol.frames import (
    DTYPES,
    LONGEST_NS,
    WIRE_VERSION,
    Decoder,
    Frame,
    Kind,
    WireError,
    encode,
)

MAGIC = b"BRRR"
FORMAT_VERSION = 2
_IN_ROWS = 1
"""The format whose frames are those of the wire, byte by byte."""
_START = struct.Struct("<4sHH")
_FLUSH_BYTES = 1 << 20
_FLUSH_S = 1.0
_READ_BYTES = 1 << 20
_MOST_WINDOW_BYTES = 1 << 27
_COUNTED_UPWARDS = frozenset(("start_ns", "time_ns", "offset_ns", "correlation"))


class RecordingWriter:
    """Frames into a new file. Never overwrites one; says so once and stops on a full disk."""

    def __init__(
        self,
        target: str | Path | BinaryIO,
        provenance: Mapping[str, Any] | None = None,
        level: int = 6,
        most_bytes: int | None = None,
    ) -> None:
        """Opens `target`; `provenance` goes into the hello; it ends, whole, once it has `most_bytes`.

        Raises:
            UsageError: The file exists.
            BrrrtopError: It cannot be made.
        """
        self._provenance = dict(provenance or {})
        self._file, self._label = _make_file(target)
        self._zstd = zstandard.ZstdCompressor(level=level).compressobj()
        self._pending_bytes = 0
        self._flushed_s = time.monotonic()
        self._has_frames = False
        self._greeted = False
        self._finished = False
        self._newest_ns = 0
        self._most_bytes = most_bytes
        self.written_bytes = 0
        self.stopped: str | None = None
        """Why nothing is written any more; None while all is well."""
        try:
            self._put(_START.pack(MAGIC, FORMAT_VERSION, 0))
        except BrrrtopError:
            self._let_go()
            if isinstance(target, (str, Path)):
                with contextlib.suppress(OSError):
                    Path(target).unlink()
            raise

    def write(self, frame: Frame) -> None:
        """Appends a frame; does nothing once stopped or closed.

        Raises:
            BrrrtopError: The first time something cannot be written. The file stays readable.
        """
        if self.stopped is not None:
            return
        if not self._greeted and frame.kind != Kind.HELLO:
            self._append(Frame(Kind.HELLO, {"wire": WIRE_VERSION}, frame.sent_ns))
        self._append(frame)
        self._finished = frame.kind == Kind.END
        self.flush_if_due()
        if self._most_bytes is not None and self.written_bytes >= self._most_bytes:
            self.close()
            self.stopped = f"it has the {units.size(self._most_bytes)} that it may have"
            raise BrrrtopError(
                f"recording to {self._label} stopped: {self.stopped}",
                "--record-most SIZE allows more; what was written can be replayed",
            )

    def flush_if_due(self) -> None:
        waited_s = time.monotonic() - self._flushed_s
        if self._pending_bytes and (self._pending_bytes >= _FLUSH_BYTES or waited_s >= _FLUSH_S):
            self._put(self._zstd.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
            self._pending_bytes = 0
            self._flushed_s = time.monotonic()
            self._has_frames = True

    def close(self) -> None:
        try:
            if self.stopped is None:
                if self._greeted and not self._finished:
                    reason = {"reason": "the recording was closed"}
                    self._append(Frame(Kind.END, reason, self._newest_ns))
                self._put(self._zstd.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH))
        finally:
            self._let_go()

    def _let_go(self) -> None:
        before, self.stopped = self.stopped, self.stopped or "closed"
        try:
            self._file.close()
        except OSError as fault:
            if before is None:
                raise self._failure(fault) from fault

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _append(self, frame: Frame) -> None:
        if frame.kind == Kind.HELLO and not self._greeted:
            self._greeted = True
            if self._provenance:
                body = {**frame.body, "provenance": self._provenance}
                frame = Frame(Kind.HELLO, body, frame.sent_ns, frame.flags)
        self._newest_ns = frame.sent_ns
        data = encode(frame, by_column)
        self._pending_bytes += len(data)
        self._put(self._zstd.compress(data))

    def _put(self, data: bytes) -> None:
        if not data:
            return
        try:
            view = memoryview(data)
            while view:
                count = self._file.write(view) or 0
                self.written_bytes += count
                view = view[count:]
        except (OSError, ValueError) as fault:
            raise self._failure(fault) from fault

    def _failure(self, fault: OSError | ValueError) -> BrrrtopError:
        self.stopped = getattr(fault, "strerror", None) or str(fault)
        return BrrrtopError(
            f"recording to {self._label} stopped: {self.stopped}",
            "what was written until now can be replayed"
            if self._has_frames
            else "make room there, or choose another place",
        )


def _make_file(target: str | Path | BinaryIO) -> tuple[BinaryIO, str]:
    if not isinstance(target, (str, Path)):
        return target, getattr(target, "name", "the recording")
    path = Path(target)
    try:
        return path.open("xb", buffering=0), str(path)
    except FileExistsError:
        raise UsageError(
            f"{path} exists already and brrrtop never overwrites",
            f"choose another name, such as {free_name(path)}",
        ) from None
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault)
        raise BrrrtopError(f"{path} cannot be made: {reason}", "choose another place") from fault


def free_name(path: Path) -> str:
    """A name beside `path` that no file has."""
    for number in range(2, 1000):
        other = path.with_name(f"{path.stem}-{number}{path.suffix}")
        if not other.exists():
            return str(other)
    return "another folder"


class RecordingSource:
    """The frames of a recording. What is missing at its end is told in `info.notes`."""

    def __init__(self, path: str | Path, force: bool = False) -> None:
        """Reads the start of the file.

        Args:
            path: The file.
            force: Read it however large it is.

        Raises:
            BadInput: Not a recording, of a newer version, or without a whole frame.
        """
        self._path = Path(path)
        self._force = force
        self._info = SourceInfo(kind="recording", label=printable(self._path.name))
        self._file: BinaryIO | None = None
        self._decoded: Iterator[Frame] = iter(())
        self._ahead: Frame | None = None
        self._span: Span | None = None
        self._fault: str | None = None
        self._closed = False
        try:
            first = self._restart()
            if first is None:
                raise BadInput(
                    f"{self._path.name} contains no complete frame",
                    "if it is still being written, try again in a second",
                )
        except BaseException:
            self.close()
            raise
        hello = first.body if first.kind == Kind.HELLO else {}
        self._info = with_hello(replace(self._info, notes=_origin(hello)), hello)

    @property
    def info(self) -> SourceInfo:
        if self._fault is None:
            return self._info
        return replace(self._info, notes=(*self._info.notes, self._fault))

    @property
    def span(self) -> Span | None:
        """From the first frame to the last there was when it was first asked for."""
        if self._span is None and not self._closed:
            stamps = _Stamps()
            low = high = 0
            file, _ = _open_file(self._path)
            with file:
                for stamp in _frame_times(self._inflate(file)):
                    if time_ns := stamps.plausible(stamp):
                        low, high = min(low or time_ns, time_ns), max(high, time_ns)
            self._span = Span(low, high)
        return self._span

    @property
    def ended(self) -> bool:
        return self._ahead is None

    def frames(self, until_ns: int | None = None) -> Iterator[Frame]:
        """The next frames with `sent_ns <= until_ns`."""
        while (frame := self._ahead) is not None:
            if until_ns is not None and frame.sent_ns > until_ns:
                return
            self._ahead = self._next()
            yield frame

    def seek(self, t_ns: int) -> None:
        self._restart()

    def close(self) -> None:
        self._closed = True
        self._ahead = None
        self._decoded = iter(())
        if self._file is not None:
            self._file.close()

    def _restart(self) -> Frame | None:
        if self._file is not None:
            self._file.close()
        self._fault = None
        self._file, version = _open_file(self._path)
        self._decoded = self._decode(self._file, version)
        self._ahead = self._next()
        return self._ahead

    def _next(self) -> Frame | None:
        return next(self._decoded, None)

    def _decode(self, file: BinaryIO, version: int) -> Iterator[Frame]:
        """Frames up to the last whole one; then notes what is missing."""
        decoder = Decoder(None if version == _IN_ROWS else by_row)
        stamps = _Stamps()
        count = 0
        ended = False
        try:
            for text in self._inflate(file):
                for frame in decoder.feed(text):
                    count += 1
                    ended = frame.kind == Kind.END
                    sent_ns = stamps.plausible(frame.sent_ns)
                    yield frame if sent_ns == frame.sent_ns else replace(frame, sent_ns=sent_ns)
        except WireError as damage:
            if not count:
                action = damage.action or "it may be damaged: copy it again"
                raise BadInput(f"{self._path.name}: {damage}", action) from damage
            self._fault = f"it is damaged after frame {count:,}: {damage}"
        except (zstandard.ZstdError, OSError, ValueError) as damage:
            if not self._closed:
                self._fault = f"it is damaged after frame {count:,}: {damage}"
        else:
            if not ended:
                self._fault = (
                    f"it has no end: still being written, or cut off after frame {count:,}"
                )

    def _inflate(self, file: BinaryIO) -> Iterator[bytes]:
        budget = Budget(self._path.name, file, self._force)
        return budget.counted(_inflate(file))


def _origin(hello: dict[str, Any]) -> tuple[str, ...]:
    """What the provenance says, as a note."""
    provenance = hello.get("provenance")
    if not isinstance(provenance, dict) or not provenance.get("converted_from"):
        return ()
    where = [str(provenance[key]) for key in ("device", "date") if provenance.get(key)]
    torch = [f"torch {provenance['torch']}"] if provenance.get("torch") else []
    return (", ".join([f"converted from {provenance['converted_from']}", *where, *torch]),)


def _open_file(path: Path) -> tuple[BinaryIO, int]:
    """The file at the start of its frames, and its format."""
    file, _ = open_input(path)
    try:
        start = file.read(_START.size)
        magic, version = start[:4], int.from_bytes(start[4:6], "little")
        if magic != MAGIC or len(start) < _START.size:
            raise BadInput(f"{path.name} is not a brrrtop recording", "give a .brrr file")
        if version > FORMAT_VERSION:
            raise BadInput(
                f"{path.name} is a recording of format {version}, newer than {FORMAT_VERSION},"
                " the newest this brrrtop reads",
                "upgrade brrrtop",
            )
        if version < 1:
            raise BadInput(
                f"{path.name} names no recording format", "it may be damaged: copy it again"
            )
    except BaseException:
        file.close()
        raise
    return file, version


def _inflate(file: BinaryIO) -> Iterator[bytes]:
    zstd = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW_BYTES)
    with zstd.stream_reader(file, closefd=False) as reader:
        while text := reader.read(_READ_BYTES):
            yield text


def _frame_times(texts: Iterator[bytes]) -> Iterator[int]:
    """`sent_ns` of every whole frame that a decoder would give."""
    decoder = Decoder()
    with contextlib.suppress(zstandard.ZstdError, OSError, WireError):
        for text in texts:
            yield from decoder.times(text)


class _Stamps:
    """Takes a stamp more than a day from the one before for the same: something is recorded every
    second, so that such a jump is a fault of the file, and nobody plays it back."""

    def __init__(self) -> None:
        self._last_ns = 0

    def plausible(self, sent_ns: int) -> int:
        """`sent_ns`, or the stamp before it; 0 is no stamp."""
        if sent_ns and self._last_ns and abs(sent_ns - self._last_ns) > LONGEST_NS:
            return self._last_ns
        self._last_ns = sent_ns or self._last_ns
        return sent_ns


LEVEL = 19
"""Of zstd: a conversion is written once, with nobody waiting on each frame."""


def convert(source: Source, path: str | Path) -> None:
    """Writes every frame of a finished source to a new recording.

    Args:
        source: Read from where it stands to its end.
        path: Must not exist.
    """
    frames = list(source.frames())
    facts: dict[str, Any] = {
        "converted_from": f"{source.info.label} ({source.info.kind})",
        "date": _date(min((f.sent_ns for f in frames if f.sent_ns), default=0)),
    }
    names = [f.body.get("name") for f in frames if f.kind == Kind.DEVICE]
    if names and names[0]:
        facts["device"] = names[0]
    with RecordingWriter(path, facts, LEVEL) as writer:
        for frame in frames:
            writer.write(frame)


def _date(time_ns: int) -> str | None:
    """The day of a time since 1970; None for clocks that count from elsewhere."""
    if time_ns < 10**18:
        return None
    return (
        datetime.datetime.fromtimestamp(time_ns // 10**9, datetime.timezone.utc).date().isoformat()
    )


def by_column(kind: int, payload: bytes) -> bytes:
    """The payload of a frame of `kind` as a recording has it, half the size; what is no whole records stays.

    The first byte of every row, then the second, and so on. Before that, what counts upwards is taken as
    the difference to the row before, and an end as what its row lasted, modulo the column's width, so
    that any bytes can be turned both ways. Whatever changes here is a new format.
    """
    rows = _rows(kind, payload)
    if rows is None:
        return payload
    table = rows.copy()
    for name in rows.dtype.names or ():
        if name == "end_ns":
            table[name] -= rows["start_ns"]
        elif name in _COUNTED_UPWARDS:
            table[name][1:] -= rows[name][:-1]
    planes = table.view(np.uint8).reshape(len(rows), -1).T
    turned: bytes = planes.tobytes()
    return turned


def by_row(kind: int, payload: bytes) -> bytes:
    """What `by_column` was given."""
    like = _rows(kind, payload)
    if like is None:
        return payload
    planes = np.frombuffer(payload, np.uint8).reshape(-1, len(like))
    rows = planes.T.copy().view(like.dtype)[:, 0]
    for name in rows.dtype.names or ():
        if name == "end_ns":
            rows[name] += rows["start_ns"]
        elif name in _COUNTED_UPWARDS:
            rows[name] = np.cumsum(rows[name], dtype=rows[name].dtype)
    whole: bytes = rows.tobytes()
    return whole


def _rows(kind: int, payload: bytes) -> npt.NDArray[Any] | None:
    dtype = DTYPES.get(kind)
    if dtype is None or not payload or len(payload) % dtype.itemsize:
        return None
    return np.frombuffer(payload, dtype)
