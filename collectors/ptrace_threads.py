"""Which thread of the trainer to stop: one that sleeps in the kernel, so that nobody notices."""

from __future__ import annotations

import os
import time
from pathlib import Path

_APART_S = 0.002


def thread_ids(pid: int) -> list[int]:
    """The threads of `pid`, main thread first."""
    return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))


def place(pid: int, tid: int) -> str:
    """Where a thread waits in the kernel (call, arguments, stack), `running`, or empty: unknown."""
    try:
        return Path(f"/proc/{pid}/task/{tid}/syscall").read_text().strip()
    except OSError:
        return ""


def _driver_owned(pid: int, tid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/task/{tid}/comm").read_text().startswith(("cuda", "nv"))
    except OSError:
        return True


def parked(pid: int, calls: tuple[int, ...], at_most: int = 6) -> list[int]:
    """Threads that wait in one of the system calls `calls`, best first, the main thread last.

    A thread counts when two looks 2 ms apart find it at the same place with the same arguments.
    The CUDA driver's own threads come after all others but main.
    """
    before = {tid: place(pid, tid) for tid in thread_ids(pid)}
    time.sleep(_APART_S)
    found = []
    for tid, first in before.items():
        number = first.split(" ", 1)[0]
        if number.isdigit() and int(number) in calls and place(pid, tid) == first:
            found.append((tid == pid, _driver_owned(pid, tid), calls.index(int(number)), tid))
    ordered = [entry[-1] for entry in sorted(found)]
    main = [tid for tid in ordered if tid == pid]
    return [tid for tid in ordered if tid != pid][:at_most] + main
