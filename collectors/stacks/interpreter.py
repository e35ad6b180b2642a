"""Reads where a thread of a running CPython stands, from outside: it is not stopped, asked or written to.

The memory is read while the thread runs, so every value may be torn or stale: a pointer is followed only to
an object of the type that must be there, and a stack that does not end where it ended before is no sample.

Source of the layouts: `offsetof` in CPython's headers (3.11, 3.12), `_Py_DebugOffsets` at the head of
`_PyRuntime` (3.13), `Objects/locations.md` (line tables).
"""

import os
import struct
from dataclasses import dataclass, replace

from collectors.attach import elf
from collectors.errors import CollectorError
from collectors.process.process import Process

_SYMBOLS = frozenset({"_PyRuntime", "PyCode_Type", "PyUnicode_Type", "PyBytes_Type"})
_STATE_BYTES, _FRAME_BYTES, _CODE_BYTES = 320, 72, 200
_STACK_BYTES = 1 << 18
"""Of frames that are read in one call; deeper ones are read one by one."""
_MOST_FRAMES, _MOST_THREADS = 1000, 4096
_MOST_TEXT, _MOST_LINE_TABLE = 4096, 1 << 17
_MOST_READ, _MOST_KEPT = 2 << 20, 4 << 20
"""Bytes that one stack takes, and those of code that are kept: a trainer decides how much there is."""
_TRIES = 5
_OWNED_BY_GENERATOR, _OWNED_BY_C = 1, 3
"""The latter is a frame that only marks where C called Python."""
_POINTER = struct.Struct("<Q")
_FIELDS = struct.Struct("<8Q8s")
"""Of a frame: pointers, and flags as bytes."""


class Torn(Exception):
    """What was read cannot be, or not any more."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets in bytes within CPython's structs."""

    interpreters: int
    threads: int
    thread_id: int
    native_id: int
    frame: int
    """In a thread's state: its frame, or what holds that (`held_frame`)."""
    held_frame: int | None
    data_stack: int
    executable: int
    previous: int
    instruction: int
    owner: int
    filename: int
    qualname: int
    line_table: int
    first_line: int
    code: int
    text: int
    """Of a string of ASCII: where its characters are."""
    wide_text: int


_3_11 = Layout(
    interpreters=40, threads=16, thread_id=152, native_id=160, frame=56, held_frame=8, data_stack=296,
    executable=32, previous=48, instruction=56, owner=69, filename=112, qualname=128, line_table=136,
    first_line=72, code=184, text=48, wide_text=72,
)  # fmt: skip
_3_12 = replace(
    _3_11, threads=72, thread_id=136, native_id=144, held_frame=0, data_stack=232, executable=0,
    previous=8, owner=70, first_line=68, code=192, text=40, wide_text=56,
)  # fmt: skip
_PUBLISHED = struct.Struct("<8s45Q")
"""Up to the code object; numbers below count in it."""


def _published(head: bytes) -> Layout:
    """Of CPython 3.13."""
    cookie, *at = _PUBLISHED.unpack(head)
    if cookie != b"xdebugpy" or at[0] >> 16 != 0x030D or at[1] or at[32] // 8 != 8:
        raise Torn("another build of Python than 3.13 with its lock")
    return replace(
        _3_12, interpreters=at[4], threads=at[8], frame=at[22], thread_id=at[23], native_id=at[24],
        data_stack=at[25], held_frame=None, previous=at[28], executable=at[29], instruction=at[30],
        owner=at[32], filename=at[34], qualname=at[36], line_table=at[37], first_line=at[38], code=at[42],
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    co_filename: str
    co_qualname: str
    first_line: int
    start: int
    line_table: bytes

    @property
    def co_name(self) -> str:
        return self.co_qualname

    def line(self, instruction: int) -> int:
        """Of an instruction, by its address; the first one where nobody knows."""
        line, left = self.first_line, (instruction - self.start) // 2
        if left < 0:
            return line
        table, at = self.line_table, 0
        while at < len(table):
            kind, length = table[at] >> 3 & 15, (table[at] & 7) + 1
            at += 1
            if kind in (13, 14):
                delta, at = _signed(table, at)
                line += delta
            elif 10 <= kind < 13:
                line += kind - 10
            while at < len(table) and not table[at] & 128:
                at += 1
            left -= length
            if left < 0:
                break
        return line


def _signed(table: bytes, at: int) -> tuple[int, int]:
    """A number of the line table, in groups of six bits, and where the next one begins."""
    number = shift = 0
    while at < len(table):
        byte = table[at]
        at += 1
        number |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return (-(number >> 1) if number & 1 else number >> 1), at


Spot = tuple[Code, int]
"""A line of some code."""


class Interpreter:
    """The main interpreter of one process.

    Raises:
        CollectorError, OSError, Torn: It cannot be read; the message says why.
    """

    def __init__(self, process: Process) -> None:
        build = process.python
        version = build.version if build is not None and not build.free_threaded else None
        if build is None or version not in ((3, 11), (3, 12), (3, 13)):
            raise Torn("the trainer's Python is none of 3.11, 3.12 and 3.13 with its lock")
        at = _addresses(process, build.path)
        self._types = {name: at[name] for name in _SYMBOLS - {"_PyRuntime"}}
        # A handle holds to the memory that it was opened on: no later process is read instead.
        self._memory = os.open(f"{process.folder}/mem", os.O_RDONLY | os.O_CLOEXEC)
        self._codes: dict[int, Code | None] = {}
        self._lines: dict[tuple[int, int], Spot] = {}
        self._kept, self._left = 0, _MOST_READ
        self._bottoms: dict[int, int] = {}
        """The outermost code of each thread's stack."""
        try:
            runtime = at["_PyRuntime"]
            known = {(3, 11): _3_11, (3, 12): _3_12}.get(version)
            self._layout = known or _published(self._read(runtime, _PUBLISHED.size))
            self._interpreter = self._pointer(runtime + self._layout.interpreters)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._memory)

    def forget(self) -> None:
        """What was read of code: another may lie there by now."""
        self._codes.clear()
        self._lines.clear()
        self._kept = 0

    def find_thread(self, number: int) -> int:
        """The state of the thread with this number, as marks have it.

        Raises:
            Torn: There is none.
        """
        self._left = _MOST_READ
        state = self._pointer(self._interpreter + self._layout.threads)
        for _ in range(_MOST_THREADS):
            if not state:
                break
            if self._number(self._read(state, _STATE_BYTES)) == number:
                return state
            state = self._pointer(state + 8)
        raise Torn(f"no thread {number}")

    def stack(self, state: int, number: int) -> list[Spot]:
        """Where a thread stands, innermost first.

        Raises:
            Torn: Its stack changed too quickly, or it has ended.
        """
        bottoms = []
        self._left = _MOST_READ
        for _ in range(_TRIES):
            try:
                codes = self._walk(state, number)
                known = self._lines.get
                spots = [s for code in codes if (s := known(code) or self._spot(*code))]
            except Torn:
                continue
            bottoms.append(codes[-1][0])
            if bottoms[-1] == self._bottoms.get(number) and spots:
                return spots
        if len(bottoms) == _TRIES and len(set(bottoms)) == 1:
            self._bottoms[number] = bottoms[0]
        raise Torn("no whole stack")

    def _number(self, state: bytes) -> int:
        """The low half of `pthread_self()`, as CUPTI numbers threads."""
        return int.from_bytes(state[self._layout.thread_id :][:4], "little")

    def _walk(self, state: int, number: int) -> list[tuple[int, int]]:
        """Addresses of each frame's code and instruction, innermost first."""
        layout = self._layout
        thread = self._read(state, _STATE_BYTES)
        if self._number(thread) != number:
            raise Torn("another thread's state")
        frame: int = _POINTER.unpack_from(thread, layout.frame)[0]
        chunk, top = struct.unpack_from("<QQ", thread, layout.data_stack)
        if layout.held_frame is not None:
            frame = self._pointer(frame + layout.held_frame)
        size = min(max(top - chunk, 0) + 1024, _STACK_BYTES)
        data = self._read_some(chunk, size)
        codes: list[tuple[int, int]] = []
        owner, fields, last = None, _FIELDS.unpack_from, len(data) - _FRAME_BYTES
        executable, instruction, previous, owned = (
            layout.executable // 8, layout.instruction // 8, layout.previous // 8, layout.owner - 64,
        )  # fmt: skip
        for _ in range(_MOST_FRAMES):
            if not frame:
                break
            at, source = frame - chunk, data
            if not 0 <= at <= last:
                at, source = 0, self._read(frame, _FRAME_BYTES)
            held = fields(source, at)
            owner = held[8][owned]
            if owner != _OWNED_BY_C:
                codes.append((held[executable], held[instruction]))
            frame = held[previous]
        if frame or not codes or owner == _OWNED_BY_GENERATOR:  # one that nobody runs any more
            raise Torn("a stack without an end")
        return codes

    def _spot(self, code: int, instruction: int) -> Spot | None:
        """None: code of the interpreter's own that has no file."""
        if code not in self._codes:
            if self._kept > _MOST_KEPT:
                self.forget()
            before = self._left
            self._codes[code] = self._code(code)
            self._kept += 1000 + before - self._left
        read = self._codes[code]
        if read is not None:
            self._lines[code, instruction] = read, read.line(instruction)
        return self._lines.get((code, instruction))

    def _code(self, address: int) -> Code | None:
        layout = self._layout
        body = self._object(address, "PyCode_Type", _CODE_BYTES)
        filename, qualname, table = (
            _POINTER.unpack_from(body, at)[0]
            for at in (layout.filename, layout.qualname, layout.line_table)
        )
        if not filename:
            return None
        return Code(
            self._text(filename),
            self._text(qualname),
            struct.unpack_from("<i", body, layout.first_line)[0],
            address + layout.code,
            self._bytes(table),
        )

    def _object(self, address: int, kind: str, size: int) -> bytes:
        body = self._read(address, size)
        if _POINTER.unpack_from(body, 8)[0] != self._types[kind]:
            raise Torn(f"no {kind}")
        return body

    def _bytes(self, address: int) -> bytes:
        size = _POINTER.unpack_from(self._object(address, "PyBytes_Type", 24), 16)[0]
        return self._read(address + 32, min(size, _MOST_LINE_TABLE))

    def _text(self, address: int) -> str:
        body = self._object(address, "PyUnicode_Type", 40)
        length, state = _POINTER.unpack_from(body, 16)[0], body[32]
        width, compact, is_ascii = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        encoding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}.get(width)
        if not compact or encoding is None or length > _MOST_TEXT:
            raise Torn("no plain text")
        at = self._layout.text if is_ascii else self._layout.wide_text
        return self._read(address + at, length * width).decode(encoding, "replace")

    def _pointer(self, address: int) -> int:
        return int(_POINTER.unpack(self._read(address, 8))[0])

    def _read(self, address: int, size: int) -> bytes:
        data = self._read_some(address, size)
        if len(data) < size:
            raise Torn("cut short")
        return data

    def _read_some(self, address: int, size: int) -> bytes:
        self._left -= size
        if self._left < 0:
            raise Torn("more than a stack takes")
        try:
            return os.pread(self._memory, size, address)
        except (OSError, OverflowError) as fault:
            raise Torn(str(fault)) from fault


def _addresses(process: Process, path: str) -> dict[str, int]:
    image = elf.read(process.outside(path), _SYMBOLS)
    mapping = next((m for m in process.maps if m.path == path and m.executable), None)
    if mapping is None or image.symbols.keys() != _SYMBOLS:
        raise CollectorError(f"{path} does not show where its state is")
    bias = image.bias(mapping.start, mapping.offset)
    return {name: address + bias for name, address in image.symbols.items()}
