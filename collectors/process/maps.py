"""What /proc/PID/maps tells: the Python in a process, torch, CUDA, other tools."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ (\d+) *(.*)")
_LIBPYTHON = re.compile(r"/libpython(\d)\.(\d+)(t?)(d?)\.so")
_PYTHON_EXE = re.compile(r"/python(\d)\.(\d+)(t?)(d?)$")
_STDLIB = re.compile(r"/lib/python(\d)\.(\d+)(t?)/lib-dynload/|\.cpython-(\d)(\d+)(t?)-[^/]*\.so$")
_CUPTI = re.compile(r"/libcupti\.so[^/]*$")
_OTHER_TOOLS = re.compile(
    r"/(libToolsInjection\S*|libcuda-injection\S*|TreeLauncher\S*|libsanitizer-collection\S*"
    r"|libcudadebugger\S*|libnvperf_host_injection\S*|lib\S*nsys\S*|libnvtx\S*inject\S*)\.so"
)
"""File names of Nsight Systems, Nsight Compute, compute-sanitizer and cuda-gdb.

Source: CUPTI documentation and the installed trees of these tools; names change between releases,
so absence proves nothing.
"""


@dataclass(frozen=True, slots=True)
class Mapping:
    start: int
    end: int
    flags: str
    offset: int
    inode: int
    path: str

    @property
    def executable(self) -> bool:
        return "x" in self.flags


@dataclass(frozen=True, slots=True)
class PythonBuild:
    path: str
    """libpython, or the executable where that holds the interpreter; as the trainer sees it."""
    version: tuple[int, int] | None
    static: bool
    free_threaded: bool

    @property
    def description(self) -> str:
        number = "3.?" if self.version is None else f"{self.version[0]}.{self.version[1]}"
        kind = "static" if self.static else "shared"
        return f"CPython {number}{'t' if self.free_threaded else ''} ({kind})"


def parse(text: str) -> tuple[Mapping, ...]:
    """The mappings of a maps file; lines that make no sense are left out."""
    mappings = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match:
            start, end, flags, offset, inode, path = match.groups()
            mappings.append(
                Mapping(int(start, 16), int(end, 16), flags, int(offset, 16), int(inode), path)
            )
    return tuple(mappings)


def files(mappings: Iterable[Mapping]) -> tuple[str, ...]:
    """Paths mapped from files, each once, in address order."""
    return tuple(dict.fromkeys(m.path for m in mappings if m.inode and m.path.startswith("/")))


def python_build(paths: Iterable[str], exe: str) -> PythonBuild | None:
    """The interpreter among the mapped files; None: this is no CPython.

    A static build is known by the executable's name, or by extension modules built for it.
    """
    seen = tuple(paths)
    for path in seen:
        match = _LIBPYTHON.search(path)
        if match:
            version = (int(match[1]), int(match[2]))
            return PythonBuild(path, version, static=False, free_threaded=match[3] == "t")
    match = _PYTHON_EXE.search(exe.removesuffix(" (deleted)"))
    if match:
        return PythonBuild(exe, (int(match[1]), int(match[2])), True, match[3] == "t")
    for path in seen:
        match = _STDLIB.search(path)
        if match:
            major, minor = match[1] or match[4], match[2] or match[5]
            free = (match[3] or match[6]) == "t"
            return PythonBuild(exe, (int(major), int(minor)), True, free)
    return None


def ends_with(paths: Iterable[str], pattern: str) -> tuple[str, ...]:
    """The mapped files whose name matches the regular expression `pattern` at its start."""
    wanted = re.compile(pattern)
    return tuple(p for p in paths if wanted.match(p.rsplit("/", 1)[-1]))


def cupti_libraries(paths: Iterable[str]) -> tuple[str, ...]:
    """The CUPTI libraries in the process. Two of them fight, whoever brought the second."""
    return tuple(p for p in paths if _CUPTI.search(p))


def foreign_tools(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(p for p in paths if _OTHER_TOOLS.search(p))
