"""What /proc says of a process, as it stands there now, and how one ended. Standard library only.

Raises OSError or ValueError where the process is gone or may not be looked into, unless said otherwise.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import time
from pathlib import Path

from collectors.printable import printable

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_GET_INFO = 0xC040FF0B
"""`_IOWR(0xFF, 11, struct pidfd_info)` with the 64 bytes of its first version: linux/pidfd.h."""
_INFO = struct.Struct("<QQ11Ii")
"""mask, cgroup, eleven numbers of process and users, wait status."""
_EXIT = 1 << 3
"""PIDFD_INFO_EXIT: asked for, and answered when the wait status is there."""


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none where it is gone or hidden.

    The name before them may hold anything.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return []
    return text[text.rfind(")") + 2 :].split()


def has_ended(fields: list[str]) -> bool:
    """A zombie, by its `stat`, or on its way there: it has given its memory back already."""
    return fields[0] in "ZX" or int(fields[20]) == 0


def status(pid: int) -> dict[str, str]:
    """/proc/PID/status; empty where it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
    except OSError:
        return {}
    return {k: v.strip() for k, _, v in (line.partition(":") for line in text.splitlines())}


def name_of(pid: int) -> str:
    """What the kernel calls it; `?` where that cannot be read."""
    return printable(status(pid).get("Name", "?"))


def cmdline(pid: int) -> tuple[str, ...]:
    """The words it was started with; none of a zombie."""
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
    """Since a process was started, by the time of its start in ticks since boot."""
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
