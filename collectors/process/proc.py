"""What /proc says of a process, as it stands there now, what is mapped into it, and how one ended.

Raises OSError or ValueError where the process is gone or may not be looked into, unless said otherwise.
"""

import fcntl
import os
import re
import signal
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from collectors.printable import printable

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_GET_INFO = 0xC040FF0B
"""`_IOWR(0xFF, 11, struct pidfd_info)` with the 64 bytes of its first version: linux/pidfd.h."""
_INFO = struct.Struct("<QQ11Ii")
"""mask, cgroup, eleven numbers of process and users, wait status."""
_EXIT = 1 << 3
"""PIDFD_INFO_EXIT: asked for, and answered when the wait status is there."""


def read(path: str) -> str:
    """A file of /proc; empty where its process is gone or hidden."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none where it is gone or hidden.

    The name before them may hold anything.
    """
    text = read(f"/proc/{pid}/stat")
    return text[text.rfind(")") + 2 :].split()


def has_ended(fields: list[str]) -> bool:
    """A zombie, by its `stat`, or on its way there: it has given its memory back already."""
    return fields[0] in "ZX" or int(fields[20]) == 0


def status(pid: int) -> dict[str, str]:
    lines = read(f"/proc/{pid}/status").splitlines()
    return {k: v.strip() for k, _, v in (line.partition(":") for line in lines)}


def name_of(pid: int) -> str:
    return printable(status(pid).get("Name", "?"))


def cmdline(pid: int) -> tuple[str, ...]:
    line = Path(f"/proc/{pid}/cmdline").read_bytes()
    return tuple(
        word.decode("utf-8", "replace") for word in line.rstrip(b"\0").split(b"\0") if line
    )


def environ(pid: int) -> dict[str, str]:
    """The environment it was started with; later changes do not show."""
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    texts = (pair.decode("utf-8", "surrogateescape") for pair in pairs if b"=" in pair)
    return dict(text.split("=", 1) for text in texts)


def cpu_s(fields: list[str]) -> float:
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def age_s(start_ticks: int) -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / TICKS_PER_S


class ProcessEnd:
    """Asks how process `pid`, which is not our child, ended: its exit code or signal.

    A descriptor of the process is held until this is closed; from Linux 6.15 on it still answers when
    the process is gone and its parent has heard of it. Before that /proc has the code of a zombie.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._descriptor: int | None = None
        try:
            self._descriptor = os.pidfd_open(pid)
        except (OSError, AttributeError):  # gone already, or a libc without the call
            return

    def describe(self) -> str | None:
        """`exit code 1`, `killed by SIGKILL`; None while it runs, and where nobody can know."""
        status = self._ask()
        if status is None:
            status = _zombie_status(self._pid)
        return None if status is None else status_text(status)

    def _ask(self) -> int | None:
        if self._descriptor is None:
            return None
        room = bytearray(_INFO.size)
        struct.pack_into("<Q", room, 0, _EXIT)
        try:
            fcntl.ioctl(self._descriptor, _GET_INFO, room)
        except OSError:
            return None
        answer = _INFO.unpack(room)
        return int(answer[-1]) if answer[0] & _EXIT else None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _zombie_status(pid: int) -> int | None:
    """The wait status of a process that has ended and that its parent has not asked after yet.

    None: it is none, or may not be looked into, which reads the same as exit code 0.
    """
    now = stat(pid)
    return (int(now[49]) or None) if len(now) > 49 and now[0] == "Z" else None


def status_text(status: int) -> str:
    number = status & 0x7F
    if not number:
        return f"exit code {status >> 8}"
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"


_PR_SET_PDEATHSIG = 1
_OUTSIDE = 0
"""What `getppid` says of a parent in another pid namespace."""


def end_with(parent: int) -> None:
    """This process is killed when its parent ends, and ends here if that was before.

    To the kernel the thread that started a process is its parent: it must stay until this one has
    ended. Where there is no prctl, only a parent that has ended already is heeded.

    Args:
        parent: The process that started this one, by its own `getpid`.
    """
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (ImportError, OSError, AttributeError, TypeError):  # TypeError: a libc without a name
        pass
    # Asked afterwards: whoever ends from here on is noticed by the kernel.
    if os.getppid() not in (parent, _OUTSIDE):
        os._exit(1)


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
