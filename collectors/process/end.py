"""How a process ended that is not our child: its exit code or signal, as far as the kernel tells.

A descriptor of the process is held while it lives; from Linux 6.15 on it still answers when the
process is gone and its parent has heard of it. Before that /proc has the code of a zombie.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct

from collectors.process import process as processes

_GET_INFO = 0xC040FF0B
"""`_IOWR(0xFF, 11, struct pidfd_info)` with the 64 bytes of its first version: linux/pidfd.h."""
_INFO = struct.Struct("<QQ11Ii")
"""mask, cgroup, eleven numbers of process and users, wait status."""
_EXIT = 1 << 3
"""PIDFD_INFO_EXIT: asked for, and answered when the wait status is there."""


class ProcessEnd:
    """Asks how process `pid` ended. Holds a descriptor until it is closed."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._descriptor: int | None = None
        try:
            self._descriptor = os.pidfd_open(pid)
        except (OSError, AttributeError):  # gone already, or a libc without the call
            return

    def says(self) -> str | None:
        """`exit code 1`, `killed by SIGKILL`; None while it runs, and where nobody can know."""
        status = self._ask()
        if status is None:
            status = processes.zombie_status(self._pid)
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


def status_text(status: int) -> str:
    """A wait status in words."""
    number = status & 0x7F
    if not number:
        return f"exit code {status >> 8}"
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"
