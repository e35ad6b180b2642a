"""Which thread of the trainer to stop, and the kernel calls that hold it still and read or change it.

Thin: one function a request, `OSError` with the kernel's errno. What to do with them, and how the
thread gets back whatever happens to us, is `collectors.attach.ptrace.injection`.

Source: ptrace(2), process_vm_readv(2), Linux UAPI headers `linux/ptrace.h` and `linux/elf.h`.
"""

import ctypes
import os
import signal
import time
from pathlib import Path

CONT, DETACH, SYSCALL = 7, 17, 24
GETREGSET, SETREGSET, SEIZE, INTERRUPT = 0x4204, 0x4205, 0x4206, 0x4207
GETSIGMASK, SETSIGMASK = 0x420A, 0x420B
O_TRACESYSGOOD = 1
EVENT_STOP = 128
"""The event of a stop that is no signal: PTRACE_INTERRUPT took effect, or a group stop."""
NT_PRSTATUS, NT_X86_XSTATE = 1, 0x202
REGSET_BYTES = 16384
"""AMX alone takes more than 8 KiB, and a smaller buffer is cut off without a word."""
_WALL = 0x40000000
_SPINS = 10
"""Polls before sleeping: some stops are there at once."""
_SLEEP_S = 0.01
"""At a time, should a SIGCHLD be lost all the same."""

# PyDLL keeps the GIL: giving it away in the middle costs up to 5 ms while the thread is held.
_libc = ctypes.PyDLL(None, use_errno=True)
_ptrace = _libc.ptrace
_ptrace.argtypes = (ctypes.c_ulong, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_void_p)
_ptrace.restype = ctypes.c_long


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


_pieces = ctypes.POINTER(_Piece), ctypes.c_ulong
_VM_ARGUMENTS = (ctypes.c_int, *_pieces, *_pieces, ctypes.c_ulong)
_read_from = _libc.process_vm_readv
_read_from.argtypes, _read_from.restype = _VM_ARGUMENTS, ctypes.c_ssize_t
_write_to = _libc.process_vm_writev
_write_to.argtypes, _write_to.restype = _VM_ARGUMENTS, ctypes.c_ssize_t


class TimedOut(Exception):
    """A thread did not stop in time."""


class Gone(Exception):
    """The thread ended while it was ours."""


def _fail(what: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, f"{what}: {os.strerror(number)}")


def request(what: int, tid: int, address: int = 0, value: int = 0) -> None:
    if _ptrace(what, tid, address, value) < 0:
        _fail(f"ptrace request {what:#x} on thread {tid}")


# Made once: a thread of the trainer waits while registers are read. One thread of ours uses it.
_regset = ctypes.create_string_buffer(REGSET_BYTES)
_regset_at = ctypes.addressof(_regset)


def registers(tid: int, which: int) -> bytes:
    piece = _Piece(_regset_at, REGSET_BYTES)
    if _ptrace(GETREGSET, tid, which, ctypes.addressof(piece)) < 0:
        _fail(f"reading registers {which:#x}")
    return ctypes.string_at(_regset_at, piece.size)


def set_registers(tid: int, which: int, values: bytes) -> None:
    buffer = ctypes.create_string_buffer(values, len(values))
    piece = _Piece(ctypes.addressof(buffer), len(values))
    if _ptrace(SETREGSET, tid, which, ctypes.addressof(piece)) < 0:
        _fail(f"writing registers {which:#x}")


def signal_mask(tid: int) -> bytes:
    buffer = ctypes.create_string_buffer(8)
    request(GETSIGMASK, tid, 8, ctypes.addressof(buffer))
    return buffer.raw


def set_signal_mask(tid: int, mask: bytes) -> None:
    buffer = ctypes.create_string_buffer(mask, 8)
    request(SETSIGMASK, tid, 8, ctypes.addressof(buffer))


def read_memory(pid: int, address: int, size: int) -> bytes:
    """Bytes of another process, honouring page protection."""
    buffer = ctypes.create_string_buffer(size)
    ours, theirs = _Piece(ctypes.addressof(buffer), size), _Piece(address, size)
    if _read_from(pid, ours, 1, theirs, 1, 0) != size:
        _fail(f"reading {size} bytes at {address:#x}")
    return buffer.raw


def write_memory(pid: int, address: int, content: bytes) -> None:
    """Bytes into another process, honouring page protection: never into a guard page or into code."""
    buffer = ctypes.create_string_buffer(content, len(content))
    ours, theirs = _Piece(ctypes.addressof(buffer), len(content)), _Piece(address, len(content))
    if _write_to(pid, ours, 1, theirs, 1, 0) != len(content):
        _fail(f"writing {len(content)} bytes at {address:#x}")


def block_signals() -> None:
    """Before the first `wait`: SIGCHLD then stays pending until a wait takes it, and nothing disturbs.

    The parent may have ignored SIGCHLD, which would be inherited: the kernel sends none then.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())


def wait(tid: int, deadline: float) -> int:
    """The wait status of the next stop of thread `tid`.

    It cannot wait for ever: each sleep has a time limit of the kernel's, and a stop that came before
    the sleep ends it, as its SIGCHLD is pending (`block_signals`).

    Args:
        tid: A thread that this thread of ours has seized.
        deadline: On `time.monotonic`.

    Raises:
        TimedOut: No stop by then; the thread still runs.
        Gone: It ended.
    """
    polls = 0
    while True:
        try:
            done, status = os.waitpid(tid, os.WNOHANG | _WALL)
        except ChildProcessError as fault:
            raise Gone(f"thread {tid} is gone") from fault
        if done:
            break
        if (polls := polls + 1) <= _SPINS:
            continue
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimedOut("the thread did not stop in time")
        # Sleeping leaves the processor to the thread that we wait for.
        signal.sigtimedwait({signal.SIGCHLD}, min(left_s, _SLEEP_S))
    if not os.WIFSTOPPED(status):
        raise Gone(f"thread {tid} ended")
    return status


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
