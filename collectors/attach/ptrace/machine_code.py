"""The x86-64 machine code of what starts a thread of ours in the trainer, and of that thread.

What a function returned is passed on as the next one's first argument by the piece `pass on`; `kept` is
what survives calls: the thread's state, or the number that `PyGILState_Ensure` gave.
"""

import struct
from collections.abc import Callable

Functions = dict[str, int]

_PIECES = {
    "pass on": b"\x48\x89\xc7",  # mov rdi, rax
    "null": b"\x31\xc0",  # xor eax, eax
    "starter begins": b"\x48\x83\xec\x18"  # sub rsp, 24
    b"\xb8\x27\x00\x00\x00\x0f\x05",  # mov eax, 39; syscall = getpid
    "starter ends": b"\x31\xc0\x48\x83\xc4\x18\xc3",  # xor eax, eax; add rsp, 24; ret
    "make": b"\x48\x89\x44\x24\x08",  # mov [rsp + 8], rax
    "made": b"\x48\x8b\x7c\x24\x08",  # mov rdi, [rsp + 8]
    "made to it": b"\x48\x8b\x4c\x24\x08",  # mov rcx, [rsp + 8]
    "nothing to it": b"\x31\xc9",  # xor ecx, ecx
    "new thread": b"\x48\x89\xe7\x31\xf6",  # mov rdi, rsp; xor esi, esi
    "thread begins": b"\x53\x55\x48\x83\xec\x08"  # push rbx; push rbp; sub rsp, 8
    b"\x48\x89\xfb",  # mov rbx, rdi
    "thread ends": b"\x31\xc0\x48\x83\xc4\x08\x5d\x5b\xc3",  # xor eax, eax; add rsp, 8; pops; ret
    "kept": b"\x48\x89\xdf",  # mov rdi, rbx
    "keep int": b"\x89\xc3",  # mov ebx, eax
    "kept int": b"\x89\xdf",  # mov edi, ebx
    "as names": b"\x48\x89\xc5\x48\x89\xc2\x48\x89\xc1",  # mov rbp, rax; mov rdx, rax; mov rcx, rax
    "names": b"\x48\x89\xef",  # mov rdi, rbp
    "file input": b"\xbe\x01\x01\x00\x00"  # mov esi, 257 = Py_file_input
    b"\x45\x31\xc0",  # xor r8d, r8d
}
_TESTS = {
    "int is 0": b"\x85\xc0\x0f\x84",  # test eax, eax; jz
    "null": b"\x48\x85\xc0\x0f\x84",  # test rax, rax; jz
    "not null": b"\x48\x85\xc0\x0f\x85",  # test rax, rax; jnz
}


def _load(argument: int, value: int) -> bytes:
    """mov rdi, rsi or rdx, value"""
    return (b"\x48\xbf", b"\x48\xbe", b"\x48\xba")[argument] + struct.pack("<Q", value)


def _call(function: int) -> bytes:
    return b"\x48\xb8" + struct.pack("<Q", function) + b"\xff\xd0"  # mov rax, function; call rax


def _skip(test: str, skipped: bytes) -> bytes:
    """A branch over `skipped` where the last call's result passes the test."""
    return _TESTS[test] + struct.pack("<I", len(skipped))


def _skip_in_others(pid: int, skipped: bytes) -> bytes:
    """cmp eax, pid; jne past `skipped`"""
    return b"\x3d" + struct.pack("<I", pid) + b"\x0f\x85" + struct.pack("<I", len(skipped))


def _calls(functions: Functions) -> Callable[[str], bytes]:
    return lambda name: _call(functions[name])


def _refuse(functions: Functions, reason: int, refusal: int) -> bytes:
    """symlink(reason, refusal)"""
    return _load(0, reason) + _load(1, refusal) + _call(functions["symlink"])


def starter_code(
    functions: Functions, pid: int, thread: int, reason: int, refusal: int, handed: bool
) -> bytes:
    """`int starter(void *)`, a pending call: starts a thread at `thread` in process `pid`.

    In any other process, a forked child, it does nothing. It always returns 0. With `handed` it makes
    the thread's state, as the interpreter does for threads of its own: it holds the GIL, so that no
    thread forks meanwhile.
    """
    pieces, call = _PIECES, _calls(functions)
    refusing = _refuse(functions, reason, refusal)
    make, drop = b"", b""
    if handed:
        own = pieces["made"]
        drop = own + call("PyThreadState_Clear") + own + call("PyThreadState_Delete")
    create = pieces["new thread"] + _load(2, thread)
    create += pieces["made to it" if handed else "nothing to it"] + call("pthread_create")
    create += _skip("int is 0", drop + refusing) + drop
    if handed:
        make = call("PyInterpreterState_Main") + pieces["pass on"]
        make += call("_PyThreadState_Prealloc") + pieces["make"]
        make += _skip("null", create)  # to the refusal
    start = make + create + refusing
    begin = pieces["starter begins"] + _skip_in_others(pid, start)
    return begin + start + pieces["starter ends"]


def thread_code(functions: Functions, text: int, reason: int, refusal: int, handed: bool) -> bytes:
    """Machine code of a thread that nobody joins, which runs `text` under the GIL and ends.

    The text runs in names of its own. What it raises is dropped, not printed: `reason` becomes the
    target of a link at `refusal` instead. With `handed` its argument is its state; without, it makes
    one before it has the GIL: a child that another thread forks at that moment can hang in its first
    steps, up to Python 3.11.
    """
    pieces, call = _PIECES, _calls(functions)
    refusing = call("PyErr_Clear") + _refuse(functions, reason, refusal) + pieces["null"]
    enter = call("PyGILState_Ensure") + pieces["keep int"]
    leave = pieces["kept int"] + call("PyGILState_Release")
    if handed:
        own = pieces["kept"]
        enter = own + call("bind") + own + call("PyEval_AcquireThread")
        leave = own + call("PyThreadState_Clear") + call("PyThreadState_DeleteCurrent")
    run = enter + call("PyDict_New") + pieces["as names"] + _load(0, text)
    run += pieces["file input"] + call("PyRun_StringFlags")
    run += _skip("not null", refusing) + refusing
    run += pieces["pass on"] + call("Py_DecRef") + pieces["names"] + call("Py_DecRef") + leave
    begin = pieces["thread begins"] + call("pthread_self") + pieces["pass on"]
    begin += call("pthread_detach") + call("Py_IsInitialized") + _skip("int is 0", run)
    return begin + run + pieces["thread ends"]


def library_code(
    functions: Functions, library: int, symbol: int, argument: int, reason: int, refusal: int
) -> bytes:
    """Machine code of a thread that nobody joins, which loads a library and calls `symbol` of it.

    Where that cannot be, `reason` becomes the target of a link at `refusal`.
    """
    refusing = _refuse(functions, reason, refusal)
    start = _load(0, argument) + b"\xff\xd3"  # call rbx
    start += b"\xe9" + struct.pack("<I", len(refusing))  # jmp past the refusal
    find = _PIECES["pass on"] + _load(1, symbol) + _call(functions["dlsym"])
    find += b"\x48\x89\xc3" + _skip("null", start)  # mov rbx, rax; to the refusal
    begin = b"\x53" + _call(functions["pthread_self"])  # push rbx
    begin += _PIECES["pass on"] + _call(functions["pthread_detach"])
    begin += _load(0, library) + b"\xbe\x02\x00\x00\x00"  # mov esi, RTLD_NOW
    begin += _call(functions["dlopen"]) + _skip("null", find + start)  # to the refusal
    return begin + find + start + refusing + b"\x31\xc0\x5b\xc3"  # xor eax, eax; pop rbx; ret
