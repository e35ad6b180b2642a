"""The short-lived process that touches the trainer: a job on stdin, an answer on stdout, in JSON.

A process of its own, because the monitor has threads that would take the GIL away while a thread
of the trainer is held, and because it can be killed or interrupted at any moment; this one has its
own session, blocks every signal, and ends within seconds whatever happens.
When it ends, the kernel lets go of whatever it still holds.

Started as `python -I -S`: nothing but the standard library and its siblings in this folder.
"""

import contextlib
import gc
import json
import os
import signal
import sys
import time
from typing import Any

from collectors.attach.ptrace import calls, machine_code, x86_64
from collectors.attach.ptrace.injection import CodeRefused, Injection, InjectionFailed
from collectors.errors import RUN_INSTEAD
from collectors.process import proc

_PAGE = 4096
_STARTER_BYTES, _CODE_BYTES = 512, 1024
_REHEARSALS, _REHEARSAL_LIMIT_S = 4, 0.2
_LOOK_LIMIT_S, _LOOK_EVERY_S = 0.7, 0.02
_NO_THREAD = "the trainer could not start a thread: no memory or too many threads"
_REFUSED = "its Python refused to run the agent: an audit hook, or no memory"
_NOT_LOADED = "its C library could not load the agent's library"
_NO_INTERPRETER = "Python does not run in it: it has not started yet, or it is exiting"


def _page(job: dict[str, Any], start: int) -> bytes:
    """What lies at `start` in the trainer: the starter, the thread's code, and what they name."""
    loads = job["do"] == "library"
    sentence = _NOT_LOADED if loads else _REFUSED
    words = [w.encode() + b"\0" for w in (job["refusal"], _NO_THREAD, sentence, job["text"])]
    at = start + _CODE_BYTES
    refusal, no_thread, refused, text = (at + sum(map(len, words[:k])) for k in range(4))
    functions, thread = job["functions"], start + _STARTER_BYTES
    if loads:
        library = at + sum(map(len, words))
        words += [job["library"].encode() + b"\0", b"brrr_inject\0"]
        symbol = library + len(words[-2])
        code = machine_code.library_code(functions, library, symbol, text, refused, refusal)
        return b"\0" * _STARTER_BYTES + bytes(
            code.ljust(_CODE_BYTES - _STARTER_BYTES, b"\0") + b"".join(words)
        )
    handed = job["do"] == "pending" and "bind" in functions
    own_pid = job["own_pid"]
    code = machine_code.starter_code(functions, own_pid, thread, no_thread, refusal, handed)
    code = code.ljust(_STARTER_BYTES, b"\0")
    code += machine_code.thread_code(functions, text, refused, refusal, handed)
    return bytes(code.ljust(_CODE_BYTES, b"\0") + b"".join(words))


def _whole_pages(content: bytes) -> int:
    return -(-len(content) // _PAGE) * _PAGE


def _inject(visit: Injection, job: dict[str, Any], at: int, page: bytes) -> None:
    """Has a thread of our own started, which waits for the GIL, runs the text and ends.

    `page` is made for the address `at`, so that nothing but to write it is left to do now.

    Either by a pending call, where the main thread next evaluates bytecode, or at once from the
    visited thread. No Python of ours runs in the main thread: an error, or an exception of the
    user's own signal handlers, would end up in the middle of the user's code.
    """
    functions = job["functions"]
    if job["do"] != "library" and not visit.call(functions["Py_IsInitialized"]):
        raise InjectionFailed(_NO_INTERPRETER)
    start = visit.map(_whole_pages(page), at)
    visit.write_code(start, page if start == at else _page(job, start))
    if job["do"] == "pending":
        if visit.call(functions["Py_AddPendingCall"], start, 0):
            raise InjectionFailed("the interpreter's queue of pending calls is full")
        return
    failed = visit.call(functions["pthread_create"], visit.slot, 0, start + _STARTER_BYTES, 0)
    if failed:
        raise InjectionFailed(f"the trainer could not start a thread (error {failed})")


def _candidates(job: dict[str, Any]) -> list[int]:
    pid = job["pid"]
    if job.get("main_only"):
        return [pid]
    parked = calls.parked_threads(pid, x86_64.PARKED_CALLS, x86_64.READ_CALLS)
    if job["do"] == "pending":
        return [*parked, pid] if pid not in parked else parked
    deadline = time.monotonic() + _LOOK_LIMIT_S
    while not parked and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)
        parked = calls.parked_threads(pid, x86_64.PARKED_CALLS, x86_64.READ_CALLS)
    return parked


def _rehearse(job: dict[str, Any]) -> None:
    """Visits a child of our own first: what runs for the first time, and what memory is touched for
    the first time, doubles the time a thread is held."""
    ours = os.getpid()
    child = os.fork()
    if child == 0:
        proc.end_with(ours)
        while True:
            time.sleep(1)
    with contextlib.suppress(InjectionFailed, calls.Gone, calls.TimedOut, OSError):
        deadline = time.monotonic() + _REHEARSAL_LIMIT_S
        while not calls.parked_threads(child, x86_64.PARKED_CALLS):
            if time.monotonic() > deadline:
                raise calls.TimedOut
        for _ in range(_REHEARSALS):
            with Injection(child, child, job["gadgets"], _REHEARSAL_LIMIT_S) as visit:
                visit.rehearse()
    with contextlib.suppress(OSError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _change(job: dict[str, Any]) -> str:
    """Why the addresses cannot be trusted: the mapped file is not the one that was searched."""
    for address, code in job["expected"]:
        there = calls.read_memory(job["pid"], address, len(code) // 2)
        if there.hex() != code:
            return "the trainer's Python or C library was replaced on disk since it started"
    return ""


def _enter(job: dict[str, Any]) -> dict[str, Any]:
    try:
        changed = _change(job)
    except OSError as fault:
        return {"ok": False, "tries": [{"says": str(fault), "errno": fault.errno or 0}]}
    if changed:
        return {"ok": False, "tries": [{"says": changed, "errno": 0}]}
    tries: list[dict[str, Any]] = []
    deadline = time.monotonic() + job["limit_s"]
    at = job["below"] - _whole_pages(_page(job, job["below"]))
    page = _page(job, at)
    _rehearse(job)
    for tid in _candidates(job):
        if time.monotonic() > deadline or len(tries) >= 4:
            break
        visit = Injection(job["pid"], tid, job["gadgets"], deadline - time.monotonic())
        report: dict[str, Any] = {"tid": tid, "says": "", "errno": 0}
        last = False
        try:
            with visit:
                _inject(visit, job, at, page)
        except CodeRefused as fault:  # by the process, whichever thread asks
            report["says"], report["action"] = str(fault), RUN_INSTEAD
            last = True
        except (InjectionFailed, calls.Gone) as fault:
            report["says"] = str(fault)
        except calls.TimedOut:
            # It would stop as soon as it can, for as long as this process lives: so end.
            report["says"] = "the thread could not be stopped: it waits inside the kernel"
            report["stopped_ns"] = 0
            tries.append(report)
            break
        except OSError as fault:
            report["says"], report["errno"] = str(fault), fault.errno or 0
        report["stopped_ns"], report["awaited_ns"] = visit.stopped_ns, visit.awaited_ns
        tries.append(report)
        if not report["says"]:
            return {"ok": True, "tries": tries}
        if last or report["errno"]:
            break
    return {"ok": False, "tries": tries}


def _probe(job: dict[str, Any]) -> dict[str, Any]:
    """May we trace it? Seizing stops nobody, and ends with this process."""
    try:
        calls.request(calls.SEIZE, job["pid"])
    except OSError as fault:
        return {"ok": False, "tries": [{"says": str(fault), "errno": fault.errno or 0}]}
    return {"ok": True, "tries": []}


def _hurry() -> None:
    """Goes before other processes of this host where we may: a thread of the trainer is waiting.

    Not on a single processor, which the trainer needs in order to answer.
    """
    if len(os.sched_getaffinity(0)) > 1:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def main() -> None:
    calls.block_signals()
    gc.disable()
    job = json.load(sys.stdin)
    _hurry()
    answer = _probe(job) if job["do"] == "probe" else _enter(job)
    json.dump(answer, sys.stdout)
