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
from collections.abc import Callable, Iterator

MARK = "BRRRTOP_TRIAL"
"""In the environment of each process of a trial: the folder that belongs to it."""
TEMPORARY = "tmp"
"""In the folder: a link to what stands in for /tmp, where killed programs leave their sockets and queues."""
INTERRUPT_S, TERMINATE_S, KILL_S = 10.0, 3.0, 5.0
"""How long a program may take to leave by each signal; writing a last checkpoint takes seconds."""
_LOOK_EVERY_S = 0.05


def processes(folder: str) -> Iterator[int]:
    """Those that run and carry the mark of `folder`."""
    mark = os.fsencode(f"{MARK}={folder}")
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        yield int(name)
            except OSError:
                continue


def end(folder: str, first: Callable[[], None] | None = None) -> bool:
    """Ends all processes of `folder`: `first` or SIGINT, then SIGTERM, then SIGKILL.

    Returns:
        Whether none is left.
    """
    for number, limit_s in (
        (signal.SIGINT, INTERRUPT_S), (signal.SIGTERM, TERMINATE_S), (signal.SIGKILL, KILL_S),
    ):  # fmt: skip
        if number == signal.SIGINT and first is not None:
            first()
        else:
            for pid in processes(folder):
                _send(pid, number)
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if not any(True for _ in processes(folder)):
                return True
            time.sleep(_LOOK_EVERY_S)
            if number == signal.SIGKILL:  # what was started meanwhile
                for pid in processes(folder):
                    _send(pid, number)
    return False


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


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
