"""What both machines bring into the trainer: a frame with the way back of a thread that we stopped,
and the machine code of what starts a thread of ours, and of that thread.

Each piece is written once; a machine's module brings the instructions: `PIECES` by name, `load` (a
value as an argument), `call` (a function by its address), `skip` (a conditional branch over what comes)
and `skip_in_others` (the same in any process but one). What a function returned is passed on as the
next one's first argument by the piece `pass on`; `kept` is what survives calls: the thread's state,
or the number that `PyGILState_Ensure` gave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

Functions = dict[str, int]


@dataclass(frozen=True, slots=True)
class Frame:
    """Where the way back lies on the thread's stack."""

    address: int
    slot: int
    """16 bytes that a call may write to."""
    restore: int
    """The code that takes the way back."""
    content: bytes


def _calls(arch: ModuleType, functions: Functions) -> Callable[[str], bytes]:
    return lambda name: bytes(arch.call(functions[name]))


def refuse(arch: ModuleType, functions: Functions, reason: int, refusal: int) -> bytes:
    """symlink(reason, refusal)"""
    return bytes(arch.load(0, reason) + arch.load(1, refusal) + arch.call(functions["symlink"]))


def starter_code(
    arch: ModuleType,
    functions: Functions,
    pid: int,
    thread: int,
    reason: int,
    refusal: int,
    handed: bool,
) -> bytes:
    """`int starter(void *)`, a pending call: starts a thread at `thread` in process `pid`.

    In any other process, a forked child, it does nothing. It always returns 0. With `handed` it makes
    the thread's state, as the interpreter does for threads of its own: it holds the GIL, so that no
    thread forks meanwhile.
    """
    pieces, call = arch.PIECES, _calls(arch, functions)
    refusing = refuse(arch, functions, reason, refusal)
    make, drop = b"", b""
    if handed:
        own = pieces["made"]
        drop = own + call("PyThreadState_Clear") + own + call("PyThreadState_Delete")
    create = pieces["new thread"] + arch.load(2, thread)
    create += pieces["made to it" if handed else "nothing to it"] + call("pthread_create")
    create += arch.skip("int is 0", drop + refusing) + drop
    if handed:
        make = call("PyInterpreterState_Main") + pieces["pass on"]
        make += call("_PyThreadState_Prealloc") + pieces["make"]
        make += arch.skip("null", create)  # to the refusal
    start = make + create + refusing
    begin = pieces["starter begins"] + arch.skip_in_others(pid, start)
    return bytes(begin + start + pieces["starter ends"])


def thread_code(
    arch: ModuleType, functions: Functions, text: int, reason: int, refusal: int, handed: bool
) -> bytes:
    """Machine code of a thread that nobody joins, which runs `text` under the GIL and ends.

    The text runs in names of its own. What it raises is dropped, not printed: `reason` becomes the
    target of a link at `refusal` instead. With `handed` its argument is its state; without, it makes
    one before it has the GIL: a child that another thread forks at that moment can hang in its first
    steps, up to Python 3.11.
    """
    pieces, call = arch.PIECES, _calls(arch, functions)
    refusing = call("PyErr_Clear") + refuse(arch, functions, reason, refusal) + pieces["null"]
    enter = call("PyGILState_Ensure") + pieces["keep int"]
    leave = pieces["kept int"] + call("PyGILState_Release")
    if handed:
        own = pieces["kept"]
        enter = own + call("bind") + own + call("PyEval_AcquireThread")
        leave = own + call("PyThreadState_Clear") + call("PyThreadState_DeleteCurrent")
    run = enter + call("PyDict_New") + pieces["as names"] + arch.load(0, text)
    run += pieces["file input"] + call("PyRun_StringFlags")
    run += arch.skip("not null", refusing) + refusing
    run += pieces["pass on"] + call("Py_DecRef") + pieces["names"] + call("Py_DecRef") + leave
    begin = pieces["thread begins"] + call("pthread_self") + pieces["pass on"]
    begin += call("pthread_detach") + call("Py_IsInitialized") + arch.skip("int is 0", run)
    return bytes(begin + run + pieces["thread ends"])
