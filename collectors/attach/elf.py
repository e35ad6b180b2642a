"""Finds symbols and byte patterns in ELF64 files. Knows nothing of processes beyond a load bias.

By searches of the mapped bytes: for the five symbols of an attach pyelftools takes 1.5 s (libpython and
libc, every symbol an object), this 17 ms.

Source of the layouts: System V ABI, "Object Files" (ELF-64), sections 4-7.
"""

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from collectors.errors import Unsupported

_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR = struct.Struct("<IIQQQQQQ")
_SHDR = struct.Struct("<IIQQQQIIQQ")
_SYM = struct.Struct("<IBBHQQ")
_PT_LOAD = 1
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_ET_EXEC = 2
_EXECUTABLE = 1
MACHINES = {62: "x86_64", 183: "aarch64"}


@dataclass(frozen=True, slots=True)
class Segment:
    flags: int
    offset: int
    address: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Image:
    machine: str
    fixed: bool
    """ET_EXEC: linked for one address, so its bias is 0."""
    segments: tuple[Segment, ...]
    symbols: dict[str, int]
    """Wanted names that the file defines → address before the bias."""

    def bias(self, map_start: int, map_offset: int) -> int:
        """What to add to this file's addresses, from an executable mapping of it.

        Args:
            map_start: First address of the mapping, as /proc/PID/maps gives it.
            map_offset: File offset of that mapping.
        """
        if self.fixed:
            return 0
        code = [s for s in self.segments if s.flags & _EXECUTABLE] or list(self.segments)
        # Two segments may share a file page, so the one that begins on it comes before one that
        # merely reaches into it.
        for segment in sorted(code, key=lambda s: s.offset & ~(mmap.PAGESIZE - 1) != map_offset):
            first_page = segment.offset & ~(mmap.PAGESIZE - 1)
            if first_page <= map_offset < segment.offset + max(segment.file_bytes, 1):
                return map_start - map_offset - (segment.address - segment.offset)
        return map_start - map_offset


def _loaded(data: mmap.mmap, at: int, size: int, count: int) -> tuple[Segment, ...]:
    headers = (_PHDR.unpack_from(data, at + index * size) for index in range(count))
    return tuple(
        Segment(flags, offset, address, file_bytes)
        for kind, flags, offset, address, _, file_bytes, _, _ in headers
        if kind == _PT_LOAD
    )


def _find_definition(
    data: mmap.mmap, name: bytes, table: tuple[int, ...], texts: tuple[int, int]
) -> int:
    """The address of `name`, 0 if undefined; by way of the string table, not of every symbol.

    Linkers let one name end another, so every place where the text occurs is a candidate.
    """
    offset, size = table[4], table[5]
    at = data.find(name + b"\0", *texts)
    while at >= 0:
        needle = struct.pack("<I", at - texts[0])
        entry = data.find(needle, offset, offset + size)
        while entry >= 0:
            if (entry - offset) % _SYM.size == 0:
                _, _, _, section, value, _ = _SYM.unpack_from(data, entry)
                if section and value:
                    return int(value)
            entry = data.find(needle, entry + 1, offset + size)
        at = data.find(name + b"\0", at + 1, texts[1])
    return 0


def _symbols(data: mmap.mmap, header: tuple[int, ...], wanted: frozenset[str]) -> dict[str, int]:
    sections_at, entry, count = header[6], header[11], header[12]
    sections = [_SHDR.unpack_from(data, sections_at + i * entry) for i in range(count)]
    symbols: dict[str, int] = {}
    for table in sections:
        if table[1] not in (_SHT_DYNSYM, _SHT_SYMTAB) or table[6] >= count:
            continue
        strings = sections[table[6]]
        texts = (strings[4], strings[4] + strings[5])
        for name in wanted - symbols.keys():
            value = _find_definition(data, name.encode(), table, texts)
            if value:
                symbols[name] = value
    return symbols


_cache: dict[tuple[int, int, int, int, frozenset[str]], Image] = {}


def read(path: str | Path, wanted: frozenset[str] = frozenset()) -> Image:
    """The image of the ELF file at `path`, with the addresses of `wanted`.

    Cached by device, inode, size and change time, so a second trainer of the same Python costs
    nothing.

    Raises:
        Unsupported: Not a little-endian ELF64 file, or cut short.
        OSError: Not readable.
    """
    with open(path, "rb") as file:
        stat = os.fstat(file.fileno())
        key = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, wanted)
        if key in _cache:
            return _cache[key]
        if stat.st_size < _EHDR.size:
            raise Unsupported(f"{path} is too short for an ELF file")
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            try:
                image = _parse(data, str(path), wanted)
            except (struct.error, IndexError, OverflowError, ValueError) as fault:
                raise Unsupported(f"{path} is a damaged ELF file: {fault}") from fault
    _cache[key] = image
    return image


def _parse(data: mmap.mmap, path: str, wanted: frozenset[str]) -> Image:
    header = _EHDR.unpack_from(data, 0)
    if header[0][:6] != b"\x7fELF\x02\x01":
        raise Unsupported(f"{path} is not a 64-bit little-endian ELF file")
    return Image(
        machine=MACHINES.get(header[2], f"machine {header[2]}"),
        fixed=header[1] == _ET_EXEC,
        segments=_loaded(data, header[5], header[9], header[10]),
        symbols=_symbols(data, header, wanted) if wanted else {},
    )


def gadget(path: str | Path, pattern: bytes) -> int | None:
    """The address, before the bias, of the first `pattern` in the file's code; None: not there."""
    image = read(path)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
        for segment in image.segments:
            if segment.flags & _EXECUTABLE:
                at = data.find(pattern, segment.offset, segment.offset + segment.file_bytes)
                if at >= 0:
                    return at + segment.address - segment.offset
    return None


def code_at(path: str | Path, image: Image, address: int, size: int) -> bytes:
    """Bytes of the file that lie at `address`, before the bias, in memory; empty: none do."""
    for segment in image.segments:
        offset = address - segment.address + segment.offset
        if segment.offset <= offset < segment.offset + segment.file_bytes:
            with open(path, "rb") as file:
                file.seek(offset)
                return file.read(size)
    return b""
