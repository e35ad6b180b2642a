"""A trace file as a head, runs of whole events, and a tail. Knows gzip and brackets, not what events say.

A trace is `{..., "traceEvents": [EVENT, EVENT, ...], ...}` or, as Chrome allows, a bare list.
It is never held as a whole: a thread inflates one block ahead while the events of the block
before are decoded. A block is cut where an object ends and another begins. Inside a JSON string
that text would need unescaped quotes, so a cut is never in a string; it can only be too deep
(between objects of a list inside an event). Then the run does not parse, and `Runs.refuse` asks
for a longer one.
"""

import contextlib
import queue
import re
import threading
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard
from zlib_ng import zlib_ng  # three times as fast as zlib

from brrrtop.errors import BadInput
from brrrtop.sources.importers.trace.columns import Torn, decode_rest, first_end
from brrrtop.sources.source import Budget, open_input
from brrrtop.text import units

BLOCK_BYTES = 1 << 19
"""Of text. The events of one block stay in the cache while they are turned into columns."""
MOST_HEAD_BYTES = 64 << 20
"""Nothing before the events of a trace is this long."""
MOST_RUN_BYTES = 16 << 20
"""No event is this long; a file that never shows a cut is not a trace."""
_SALVAGE_READS = 8
"""How often all of a damaged run may be read to find its whole events: some 3 times for one damaged place."""
_CUT = re.compile(rb'\}\s*,\s*(?=\{\s*"[\w ]+"\s*:)')
_EVENTS = re.compile(rb'"traceEvents"\s{0,64}:\s{0,64}\[')
_EVENTS_BYTES = 200
"""More than what `_EVENTS` finds."""
_SPACE = b" \t\r\n"
_UTF8_MARK = b"\xef\xbb\xbf"
HOW_TO_TRACE = (
    "give a trace written by torch.profiler's export_chrome_trace, an SQLite export of Nsight Systems, a "
    "profile of jax.profiler, or a .brrr recording"
)


class Inflater:
    """Blocks of text out of a plain, gzip, zstd or zip file, whatever its name says."""

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self.fault: str | None = None
        """Why the text ends early; None when the file is whole."""

    def blocks(self) -> Iterator[bytes]:
        start = self._file.read(4)
        self._file.seek(0)
        if start[:2] == b"\x1f\x8b":
            yield from self._gzip()
        elif start == b"\x28\xb5\x2f\xfd":
            yield from self._zstd()
        elif start == b"PK\x03\x04":
            yield from self._zip()
        else:
            while block := self._file.read(BLOCK_BYTES):
                yield block

    def _gzip(self) -> Iterator[bytes]:
        inflate = zlib_ng.decompressobj(31)
        data = b""
        try:
            while True:
                if not data:
                    data = self._file.read(BLOCK_BYTES >> 2)
                    if not data:
                        break
                text = inflate.decompress(data, BLOCK_BYTES)
                data = inflate.unconsumed_tail
                if text:
                    yield text
                if inflate.eof:
                    data = inflate.unused_data or self._file.read(BLOCK_BYTES >> 2)
                    if data[:2] != b"\x1f\x8b":
                        return
                    inflate = zlib_ng.decompressobj(31)
        except zlib_ng.error:  # type: ignore[misc]  # its stub takes it for an instance
            self.fault = f"the gzip data is damaged near byte {self._file.tell()}"
            return
        self.fault = f"the gzip data ends early, after {self._size_bytes} bytes"

    def _zstd(self) -> Iterator[bytes]:
        try:
            with zstandard.ZstdDecompressor().stream_reader(
                self._file, read_across_frames=True, closefd=False
            ) as reader:
                while block := reader.read(BLOCK_BYTES):
                    yield block
        except zstandard.ZstdError:
            self.fault = f"the zstd data is damaged or ends early near byte {self._file.tell()}"

    def _zip(self) -> Iterator[bytes]:
        """The one file in an archive, which may be packed again.

        Raises:
            BadInput: It holds several, or a password keeps it.
        """
        try:
            with zipfile.ZipFile(self._file) as archive:
                names = [info.filename for info in archive.infolist() if not info.is_dir()]
                if len(names) != 1:
                    raise BadInput(
                        f"the zip archive holds {len(names)} files",
                        "unpack it, and name the trace in it",
                    )
                with archive.open(names[0]) as member:
                    inner = Inflater(cast("BinaryIO", member), self._size_bytes)
                    yield from inner.blocks()
                    self.fault = inner.fault
        except RuntimeError as fault:  # what zipfile says of passwords
            raise BadInput(f"the zip archive cannot be read: {fault}", "unpack it first") from fault
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
            self.fault = "the zip data is damaged or ends early"


def _ahead(blocks: Iterator[bytes]) -> Generator[bytes, None, None]:
    ready: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=4)
    stop = threading.Event()

    def produce() -> None:
        last: BaseException | None = None
        try:
            for block in blocks:
                if stop.is_set():
                    break
                ready.put(block)
        except BaseException as fault:  # noqa: BLE001  handed to the consumer
            last = fault
        ready.put(last)

    thread = threading.Thread(target=produce, name="brrrtop-inflate", daemon=True)
    thread.start()
    item: bytes | BaseException | None = b""
    try:
        while isinstance(item := ready.get(), bytes):
            yield item
    finally:
        stop.set()
        while isinstance(item, bytes):
            item = ready.get()
        thread.join()
    if item is not None:
        raise item


class Runs:
    """Cuts text into head, runs of whole events, and tail.

    `for run in runs` yields bytes that become a JSON list between `[` and `]`. After a run that
    does not parse, call `refuse`: the next one starts at the same place and is longer. When the
    text is used up, `rest` is what is left: the last events and the tail.
    """

    def __init__(self, blocks: Iterator[bytes], label: str) -> None:
        self._blocks = blocks
        self._label = label
        self.rest = b""
        """What was not cut yet."""
        self._refused = False
        self._try_at_bytes = BLOCK_BYTES
        self.bare = False
        """A list of events with nothing around it."""
        self.head = b""

    def start(self) -> None:
        """Reads up to the first event.

        Raises:
            BadInput: Empty, not JSON, or no `traceEvents`.
        """
        text = bytearray()
        blank_bytes = searched = 0
        for block in self._blocks:
            text += block
            if not searched:
                stripped = bytes(text).removeprefix(_UTF8_MARK).lstrip(_SPACE)
                if not stripped:
                    blank_bytes += len(text)
                    text.clear()
                    if blank_bytes > MOST_HEAD_BYTES:
                        break
                    continue
                if stripped[:1] == b"[":
                    self.bare, self.head, self.rest = True, b"[", stripped[1:]
                    return
                text[:] = stripped
                if stripped[:1] != b"{":
                    break
            if match := _EVENTS.search(text, max(0, searched - _EVENTS_BYTES)):
                self.head, self.rest = bytes(text[: match.end()]), bytes(text[match.end() :])
                return
            searched = len(text)
            if searched > MOST_HEAD_BYTES:
                break
        if not text:
            raise BadInput(f"{self._label} holds no text", HOW_TO_TRACE)
        if text[:1] != b"{":
            raise BadInput(f"{self._label} is not JSON", HOW_TO_TRACE)
        raise BadInput(f"{self._label} is JSON without traceEvents, so not a trace", HOW_TO_TRACE)

    def refuse(self, run: bytes) -> None:
        """`run` was cut too deep: give it again with what follows.

        Raises:
            BadInput: It is longer than any event.
        """
        if len(run) > MOST_RUN_BYTES:
            raise BadInput(f"{self._label} has an event without an end", HOW_TO_TRACE)
        self._refused = True
        self._try_at_bytes = 2 * len(run)

    def __iter__(self) -> Iterator[bytes]:
        pieces = [self.rest]
        size = len(self.rest)
        for block in self._blocks:
            pieces.append(block)
            size += len(block)
            if size < self._try_at_bytes:
                continue
            text = b"".join(pieces)
            cut = last_cut(text)
            if cut is None:
                if size > MOST_RUN_BYTES:
                    raise BadInput(f"{self._label} has no events that end", HOW_TO_TRACE)
                pieces, self._try_at_bytes = [text], 2 * size
                continue
            run, comma_on = text[: cut + 1], text[cut + 1 :]
            self.rest = comma_on[comma_on.index(b",") + 1 :]
            self._try_at_bytes = BLOCK_BYTES
            yield run
            if self._refused:
                self.rest, self._refused = text, False
            pieces, size = [self.rest], len(self.rest)
        self.rest = b"".join(pieces)


@contextmanager
def open_runs(path: Path, force: bool = False) -> Iterator[tuple[Runs, Inflater]]:
    """The runs of a file, and what inflates it.

    Raises:
        BadInput: The file cannot be read, or is too large without `force`.
    """
    file, size_bytes = open_input(path)
    with file:
        inflater = Inflater(file, size_bytes)
        blocks = _ahead(Budget(path.name, file, force).counted(inflater.blocks()))
        try:
            yield Runs(blocks, path.name), inflater
        except OSError as fault:
            raise BadInput(f"{path} cannot be read: {fault.strerror}", "copy it again") from fault
        finally:
            blocks.close()


def last_cut(text: bytes) -> int | None:
    """Index of the `}` that ends the last object followed by another; None: no such place."""
    reach = 1 << 14
    while True:
        start = max(len(text) - reach, 0)
        last = -1
        for match in _CUT.finditer(text, start):
            last = match.start()
        if last >= 0:
            return last
        if start == 0:
            return None
        reach *= 8


def _halves(text: bytes) -> list[bytes]:
    """The text in two, cut between objects next to its middle; empty: there is no such place."""
    cut = _CUT.search(text, len(text) // 2)
    if cut is None and (last := last_cut(text)) is not None:
        cut = _CUT.match(text, last)
    return [] if cut is None else [text[: cut.start() + 1], text[cut.end() :]]


class Events:
    """Reads all events of a file that are whole, also those behind places where it is damaged.

    Args:
        take: Adds the events of a run. Raises: Torn: It is no list of whole values; none was added.
        count: Of the events so far.
    """

    def __init__(self, take: Callable[[bytes], None], count: Callable[[], int]) -> None:
        self._take = take
        self._count = count
        self._lost: list[tuple[int, int]] = []
        """Of each place that could not be read: the events before it, and its bytes."""
        self.are_torn = False
        """Some are missing."""
        self.notes: list[str] = []
        """What is missing, in sentences."""

    def read(self, runs: Runs, inflater: Inflater) -> dict[str, Any]:
        """What follows the events."""
        for run in runs:
            try:
                self._take(run)
            except Torn as torn:
                if torn.is_damaged:
                    self._lose(self._salvage(run))
                else:
                    runs.refuse(run)
        facts: dict[str, Any] = {}
        end = "nothing seems to be missing" if inflater.fault else ""
        try:
            last, facts = (_without_end(runs.rest), facts) if runs.bare else decode_rest(runs.rest)
            self._take(last)
        except Torn:
            tail = self._salvage(runs.rest).lstrip(b"," + _SPACE)
            try:
                facts = decode_rest(tail + b"}" if runs.bare else tail)[1]
            except Torn:
                self.are_torn = True
                end = f"what came after event {self._count():,} is missing"
        if self._lost:
            self.are_torn = True
            self._say_what_is_lost()
        if end:
            self.notes.append(f"{inflater.fault or 'the text breaks off'}: {end}")
        return facts

    def _salvage(self, text: bytes) -> bytes:
        """What does not parse is halved until it does. Returns what follows the last event."""
        parts, left_bytes, tail = [text], _SALVAGE_READS * len(text), b""
        while parts:
            self._lose(tail)
            part, tail = parts.pop(), b""
            left_bytes -= len(part)
            if left_bytes < 0:
                self._lose(b",".join([part, *reversed(parts)]))
                break
            with contextlib.suppress(Torn):
                self._take(part)
                continue
            if halves := _halves(part):
                parts += reversed(halves)
                continue
            end = first_end(part)
            try:
                self._take(part[:end])
            except Torn:
                end = 0
            tail = part[end:]
        return tail

    def _lose(self, text: bytes) -> None:
        if text.strip(b"," + _SPACE):
            self._lost.append((self._count(), len(text)))

    def _say_what_is_lost(self) -> None:
        place = f"after event {self._lost[0][0]:,}"
        if len(self._lost) > 1:
            place = f"in {len(self._lost):,} places, the first {place}"
        size = units.size(sum(size_bytes for _, size_bytes in self._lost))
        self.notes.append(f"the text is damaged {place}: {size} of it could not be read")


def _without_end(text: bytes) -> bytes:
    """A bare list's rest without its bracket or last comma, which Chrome lets writers leave out."""
    text = text.rstrip()
    text = text[:-1].rstrip() if text.endswith(b"]") else text
    return text[:-1] if text.endswith(b",") else text
