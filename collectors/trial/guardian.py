"""Ends every process of a trial, whoever started it, and removes what is left of it.

Run as a program, it waits until the other end of its standard input is closed, be it because
`brrrtop try` is done or because somebody killed it. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable

MARK = "BRRRTOP_TRIAL"
"""In the environment of each process of a trial: the folder that belongs to it."""
TEMPORARY = "tmp"
"""In the folder: a link to what stands in for /tmp, where killed programs leave their sockets and queues."""
INTERRUPT_S, TERMINATE_S, KILL_S = 10.0, 3.0, 5.0
"""How long a program may take to leave by each signal; writing a last checkpoint takes seconds."""
_SHARED = "/dev/shm"
_LOOK_EVERY_S, _LOOKS = 0.05, 10
"""None is left when so many looks found none: a program that is being started has no environment yet."""


def processes(folder: str, sessions: set[bytes]) -> list[int]:
    """Those that run and carry the mark of `folder`, and all others of their sessions: a program may write
    over its environment (`setproctitle`), or start another without.

    Args:
        sessions: In which one was seen; grows.
    """
    mark, running = os.fsencode(f"{MARK}={folder}"), {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
            state, *_, session = stat.read().rpartition(b")")[2].split()[:4]
            if state != b"Z":
                with open(f"/proc/{name}/environ", "rb") as environ:
                    if mark in environ.read().split(b"\0"):
                        sessions.add(session)
                running[int(name)] = session
    return [pid for pid, session in running.items() if session in sessions]


def end(folder: str, first: Callable[[], None] | None = None) -> bool:
    """Ends all processes of `folder`: `first` or SIGINT, then SIGTERM, then SIGKILL.

    Returns:
        Whether none is left.
    """
    sessions: set[bytes] = set()
    met, began_s = set[int](), os.lstat(os.path.join(folder, TEMPORARY)).st_mtime
    for number, limit_s in (
        (signal.SIGINT, INTERRUPT_S), (signal.SIGTERM, TERMINATE_S), (signal.SIGKILL, KILL_S),
    ):  # fmt: skip
        left, looks, deadline = processes(folder, sessions), 0, time.monotonic() + limit_s
        if number == signal.SIGINT and first is not None:
            first()
        else:
            _send(left, number)
        while time.monotonic() < deadline:
            met.update(left)
            time.sleep(_LOOK_EVERY_S)
            left = processes(folder, sessions)
            looks = 0 if left else looks + 1
            if looks == _LOOKS:
                _remove_shared_memory(met, began_s)
                return True
            if number == signal.SIGKILL:  # what was started meanwhile
                _send(left, number)
    return False


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _remove_shared_memory(pids: set[int], began_s: float) -> None:
    """Batches that a loader worker of torch was handing over when it was killed. What is older than the trial
    is not its: in /dev/shm that containers share, another's process may have the same number."""
    with contextlib.suppress(OSError):
        for name in os.listdir(_SHARED):
            kind, _, rest = name.partition("_")
            path, of_ours = os.path.join(_SHARED, name), rest.partition("_")[0] in map(str, pids)
            if kind == "torch" and of_ours and os.stat(path).st_mtime >= began_s:
                os.unlink(path)


def main(folder: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    end(folder)
    with contextlib.suppress(OSError):
        shutil.rmtree(os.readlink(os.path.join(folder, TEMPORARY)), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
