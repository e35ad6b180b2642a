"""Which thread of the trainer to stop: one that sleeps in the kernel, so that nobody notices."""

import os
import time
from pathlib import Path

_APART_S = 0.002


def thread_ids(pid: int) -> list[int]:
    return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))


def place(pid: int, tid: int) -> str:
    """Where a thread waits in the kernel (call, arguments, stack), `running`, or empty: unknown."""
    try:
        return Path(f"/proc/{pid}/task/{tid}/syscall").read_text().strip()
    except OSError:
        return ""


def system_call(pid: int, tid: int) -> int:
    """The number of the call in which a thread sleeps; -1: it runs, or nobody may look."""
    number = place(pid, tid).split(" ", 1)[0]
    return int(number) if number.isdigit() else -1


def standing(pid: int, tid: int) -> tuple[str, ...] | None:
    """Where a thread sleeps and how often it has slept; None: it runs, or nobody may look.

    While two answers are equal the thread has not run. Not so its system call's number and arguments:
    a sleep that a tracer interrupts goes on under another number.
    """
    fields = place(pid, tid).split()
    if not fields or not fields[0].isdigit():
        return None
    try:
        status = Path(f"/proc/{pid}/task/{tid}/status").read_text().splitlines()
    except OSError:
        return None
    switches = [line.split()[-1] for line in status if "_ctxt_switches:" in line]
    return (*fields[-2:], *switches)


def _driver_owned(pid: int, tid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/task/{tid}/comm").read_text().startswith(("cuda", "nv"))
    except OSError:
        return True


def _reads_on(pid: int, descriptor: int) -> bool:
    try:
        target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
    except OSError:
        return False
    return target.startswith(("pipe:", "socket:", "/dev/pts/", "/dev/tty"))


def parked_threads(
    pid: int, calls: tuple[int, ...], reads: tuple[int, ...] = (), at_most: int = 6
) -> list[int]:
    """Threads that wait in one of the system calls `calls`, best first, the main thread last.

    A thread counts when two looks 2 ms apart find it at the same place with the same arguments.
    The CUDA driver's own threads come after all others but main. A read (`reads`, its descriptor the
    first argument) counts where it goes on after an interruption: of a pipe, a terminal, a socket, not
    of a file, which some file systems then end early.
    """
    calls += reads
    before = {tid: place(pid, tid) for tid in thread_ids(pid)}
    time.sleep(_APART_S)
    threads = []
    for tid, first in before.items():
        number = first.split(" ", 1)[0]
        if not number.isdigit() or int(number) not in calls or place(pid, tid) != first:
            continue
        if int(number) not in reads or _reads_on(pid, int(first.split()[1], 16)):
            threads.append((_driver_owned(pid, tid), calls.index(int(number)), tid))
    others = [tid for *_, tid in sorted(threads) if tid != pid][:at_most]
    return others + [tid for *_, tid in threads if tid == pid]
