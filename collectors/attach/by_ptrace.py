"""Two ways in by ptrace, both to a thread of our own beside the trainer's: it is started by a pending
call of the interpreter, or from a thread that sleeps.

What can be found out from files is found out here, before anything is stopped; the stopping is
done by the short-lived process of `collectors.attach.ptrace.worker`.
"""

import contextlib
import errno
import json
import platform
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from collectors.attach import access, bootstrap, elf
from collectors.attach.access import Attempt, Method, Stop
from collectors.attach.files import Place
from collectors.attach.ptrace import x86_64
from collectors.errors import RUN_INSTEAD, CollectorError, Unsupported
from collectors.process import process as processes
from collectors.process.process import Process

_WANTED = frozenset(
    "Py_IsInitialized Py_AddPendingCall PyGILState_Ensure PyGILState_Release PyDict_New "
    "PyRun_StringFlags PyErr_Clear Py_DecRef pthread_create pthread_self pthread_detach symlink".split()
)
_NATIVE = frozenset("dlopen dlsym pthread_create pthread_self pthread_detach symlink".split())
"""For a program that is not Python."""
_BINDS = ("_PyThreadState_Init", "_PyThreadState_SetCurrent")
_HANDING = frozenset(
    "PyInterpreterState_Main _PyThreadState_Prealloc PyEval_AcquireThread PyThreadState_Clear "
    "PyThreadState_Delete PyThreadState_DeleteCurrent".split()
)
_MACHINE = "x86_64"
_C_LIBRARIES = ("libc.so", "libdl", "libc-2", "ld-musl", "libpthread", "ld-linux", "ld-2")
_RESIDENT = ("libc.so", "libm.so", "libstdc++", "libgcc_s", "libcuda.so", "libcudart")
"""Nobody unloads these while a program runs."""
_FOR = {
    "syscall": "makes a system call and returns",
    "restore": "returns from a signal",
    "keep": "stores a call's result and returns",
}
"""What a piece of code is for."""
_CHECKED_BYTES = 16
_USER_ADDRESSES = 1 << 48
"""The addresses below are a program's own, whatever the machine; [vsyscall] is not."""
_GRACE_S = 5.0
_NO_THREAD = "no thread of the trainer could be used"
_ASLEEP = "no thread of the trainer sleeps in a system call from which one could be started"
_WORKER = (
    "import sys; ours = type(sys)('collectors'); ours.__path__ = [{folder!r}]; "
    "sys.modules['collectors'] = ours; from collectors.attach.ptrace.worker import main; main()"
)
"""Our package comes by its own path: the folder it lies in, mostly site-packages, holds packages of
any name and is never searched, least of all before the standard library."""


@dataclass(slots=True)
class Plan:
    """Addresses in the trainer, and the bytes that must be found there before they are used."""

    process: Process
    functions: dict[str, int] = field(default_factory=dict)
    gadgets: dict[str, int] = field(default_factory=dict)
    expected: dict[int, str] = field(default_factory=dict)

    @property
    def lacking(self) -> list[str]:
        return sorted(x86_64.GADGETS.keys() - self.gadgets.keys())

    def search(self, path: str, wanted: frozenset[str] = frozenset()) -> None:
        """Takes functions, and pieces of code that are lacking, from a mapped file."""
        mapping = next((m for m in self.process.maps if m.path == path and m.executable), None)
        if mapping is None:
            return
        ours = self.process.outside(path)
        try:
            image = elf.read(ours, wanted)
            if image.machine != _MACHINE:
                raise Unsupported(
                    f"the trainer is built for {image.machine}, this machine's brrrtop for {_MACHINE}",
                    "use a brrrtop of the trainer's architecture",
                )
            bias = image.bias(mapping.start, mapping.offset)
            for name, address in image.symbols.items():
                self.functions.setdefault(name, address + bias)
                code = elf.code_at(ours, image, address, _CHECKED_BYTES)
                self.expected[address + bias] = code.hex()
            for name in self.lacking:
                for form in x86_64.GADGETS[name]:
                    at = elf.gadget(ours, form)
                    if at is not None:
                        self.gadgets[name] = at + bias
                        if name == "keep":
                            self.gadgets["kept above"] = x86_64.KEPT_ABOVE.get(form, 0)
                        self.expected[at + bias] = form.hex()
                        break
        except OSError:
            return


def make_plan(process: Process) -> Plan:
    """Where the functions and the pieces of C library code that we need lie in the trainer.

    Raises:
        Unsupported: Another machine, hardware shadow stacks, or a build without these symbols.
        NotPermitted: We may not look.
    """
    machine, python = platform.machine(), process.python
    if machine != _MACHINE:
        raise Unsupported(f"ptrace cannot enter a running process on {machine}", RUN_INSTEAD)
    if process.shadow_stack:
        raise Unsupported("the trainer runs with hardware shadow stacks", RUN_INSTEAD)
    plan = Plan(process)
    wanted = _NATIVE if python is None else _WANTED
    for path in _in_order(process, process.exe if python is None else python.path):
        plan.search(path, wanted | _HANDING | {*_BINDS})
    for path in _others(process):
        if not plan.lacking:
            break
        plan.search(path)
    missing = sorted(wanted - plan.functions.keys())
    if missing:
        whose = "the C library" if python is None else python.description
        raise Unsupported(
            f"{whose} of this trainer does not show {missing[0]}: stripped, or replaced on "
            "disk since it started",
            RUN_INSTEAD,
        )
    if plan.lacking:
        raise Unsupported(
            f"no library of the trainer has the code that {_FOR[plan.lacking[0]]}", RUN_INSTEAD
        )
    plan.functions |= _bind(None if python is None else python.version, plan.functions)
    return plan


def _bind(version: tuple[int, int] | None, functions: dict[str, int]) -> dict[str, int]:
    """What tells a thread which state is its own, where that state can be made by another thread.

    Only up to 3.11, where it is needed: the lock of the list of states is held by whoever makes one,
    and a child that was forked meanwhile, by a thread with the GIL, waits for it without end. From
    3.12 on such a child frees the lock first.

    Source: CPython `Modules/_threadmodule.c`, 3.8-3.10 `thread_bootstrap` and 3.11 `thread_run`;
    `PyOS_AfterFork_Child`. The wrong one of the two ends the process with a fatal error.
    """
    if version is None or version >= (3, 12) or not functions.keys() >= _HANDING:
        return {}
    by_init, by_current = (functions.get(name, 0) for name in _BINDS)
    if version == (3, 11):
        return {"bind": by_current} if by_current else {}
    return {"bind": by_init} if by_init and not by_current else {}


def _in_order(process: Process, python: str) -> list[str]:
    """Files worth searching: the interpreter, then C libraries, each once."""
    names = {path: path.rsplit("/", 1)[-1] for path in process.files}
    libraries = [p for start in _C_LIBRARIES for p, n in names.items() if n.startswith(start)]
    return list(dict.fromkeys((python, *libraries)))


def _others(process: Process) -> list[str]:
    """Every other mapped library, first those that stay, then the smaller ones: code that some C
    libraries lack is in most.
    """
    libraries = {m.path: m for m in process.maps if m.executable and ".so" in m.path}

    def rank(path: str) -> tuple[bool, int]:
        stays = path.rsplit("/", 1)[-1].startswith(_RESIDENT)
        return not stays, libraries[path].end - libraries[path].start

    return sorted(libraries, key=rank)


def run_worker(job: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """The answer of a worker process, which always ends.

    An interrupt of ours does not reach it: a stop once begun is finished first.
    """
    folder, pid = str(Path(__file__).resolve().parents[1]), str(job.get("pid", 0))
    command = [sys.executable, "-I", "-S", "-c", _WORKER.format(folder=folder), pid]
    worker = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = worker.communicate(json.dumps(job).encode(), timeout=limit_s + _GRACE_S)
    except subprocess.TimeoutExpired:
        worker.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.communicate(timeout=_GRACE_S)
        return {"ok": False, "tries": [{"says": "the tracing process hung", "errno": 0}]}
    except BaseException:
        try:
            worker.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            worker.kill()
        raise
    try:
        answer: dict[str, Any] = json.loads(out)
    except ValueError:
        last = err.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no answer"]
        message = f"the tracing process failed: {last[0]}"
        return {"ok": False, "tries": [{"says": message, "errno": 0}]}
    return answer


def make_job(
    process: Process, plan: Plan, do: str, text: str, place: Place | None
) -> dict[str, Any]:
    """What the worker is to know: `do` is `pending`, `thread` or `library`."""
    suffix = bootstrap.REFUSED_SUFFIX
    return {
        "do": do,
        "pid": process.pid,
        "own_pid": process.pids_inside[-1],
        "text": text,
        "refusal": f"{place.socket_inside}{suffix}" if place is not None else "",
        "library": place.library_inside if place is not None else "",
        "below": _room(process),
        "functions": plan.functions,
        "gadgets": plan.gadgets,
        "expected": [[address, code] for address, code in plan.expected.items()],
    }


def _room(process: Process) -> int:
    """Where the widest gap of the trainer's addresses ends, below its libraries."""
    maps = sorted((m.start, m.end) for m in process.maps)
    gaps = [
        (above - end, above) for (_, end), (above, _) in pairwise(maps) if above < _USER_ADDRESSES
    ]
    return max(gaps)[1] if gaps else _USER_ADDRESSES >> 2


def is_entered(pid: int) -> bool:
    """A tracing process of some monitor, on this host, has `pid` for its trainer at this moment."""
    word = str(pid).encode()
    for one in processes.pids():
        try:
            words = Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[-2:-1] == [word] and any(
            b"collectors.attach.ptrace.worker import" in w for w in words
        ):
            return True
    return False


def probe(process: Process) -> CollectorError | None:
    """Why the process may not be traced, by trying; None: it may. Nothing is stopped."""
    answer = run_worker({"do": "probe", "pid": process.pid}, 2.0)
    if answer["ok"]:
        return None
    first = answer["tries"][0]
    if first["errno"]:
        return access.refusal(process, first["errno"])
    return CollectorError(first["says"])


def _enter(
    name: str, do: str, process: Process, text: str, place: Place | None, limit_s: float
) -> Attempt:
    try:
        plan = make_plan(process)
    except Unsupported as fault:
        if not process.still_the_same():
            raise access.refusal(process, errno.ESRCH) from fault
        return Attempt(name, False, fault.message, fault.action)
    job = {
        **make_job(process, plan, do, text, place),
        "limit_s": limit_s,
        "main_only": do == "pending" and _wakes_no_main(process),
    }
    answer = run_worker(job, limit_s)
    tries = answer["tries"]
    stops = tuple(
        Stop(t["tid"], t["stopped_ns"], t["says"], t.get("awaited_ns", 0))
        for t in tries
        if "tid" in t
    )
    if answer["ok"]:
        return Attempt(name, True, stops=stops)
    none = _NO_THREAD if do == "pending" else _ASLEEP
    last: dict[str, Any] = tries[-1] if tries else {"says": none, "errno": 0}
    if last["errno"] or not process.still_the_same():
        raise access.refusal(process, last["errno"])
    return Attempt(name, False, last["says"], last.get("action", ""), stops=stops)


def _wakes_no_main(process: Process) -> bool:
    """Before 3.13 a call queued by another thread does not wake the main one.

    Source: CPython 3.9-3.12 `Python/ceval*.c`, `COMPUTE_EVAL_BREAKER`: pending calls count only
    when the thread that computes it may run them.
    """
    python = process.python
    return python is None or python.version is None or python.version < (3, 13)


PENDING_CALL = Method(
    "pending call", partial(_enter, "pending call", "pending"), needs_main_thread=True
)
"""Queues the start of the thread with the interpreter, for when its main thread comes by."""
PARKED_THREAD = Method("parked thread", partial(_enter, "parked thread", "thread"))
"""Starts the thread from one that sleeps in the kernel, never from a running one.

Nobody has the GIL for us there, so that the thread makes its state without. Up to Python 3.11 a
child that another thread forks in those microseconds hangs, and so does who waits for it.
"""
LOADED_LIBRARY = Method("loaded library", partial(_enter, "loaded library", "library"))
"""Into a program that is not Python: a thread of ours, started as in `PARKED_THREAD`, loads the
library and starts the agent."""
