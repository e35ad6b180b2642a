"""One stopped thread of a child, driven step by step in a process of its own, as the worker does it."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from collectors.attach import by_ptrace
from collectors.process import process as processes
from tests.attach import children
from tests.attach.children import Child, python

pytestmark = pytest.mark.usefixtures("tracing")

ROOT = Path(__file__).resolve().parents[2]
_TRACER = """
import json, os, random, signal, sys, time
sys.path.insert(0, sys.argv[1])
from collectors.attach.ptrace import calls, injection
from collectors.attach.ptrace.injection import Injection, InjectionFailed
job = json.loads(sys.argv[2])
pid, functions = job["pid"], job["functions"]
calls.block_signals()
def visit(tid=pid):
    return Injection(pid, tid, job["gadgets"], 2.0)
def others():
    return [tid for tid in calls.thread_ids(pid) if tid != pid]
answer = None
exec(sys.argv[3])
print(json.dumps(answer))
"""
GETPID = 39


def trace(one: Child, code: str, limit_s: float = 60) -> Any:
    """What `code` left in `answer`, run in a process that may trace the child."""
    plan = by_ptrace.make_plan(processes.read(one.pid))
    job = {"pid": one.pid, "functions": plan.functions, "gadgets": plan.gadgets}
    command = [sys.executable, "-I", "-S", "-c", _TRACER, str(ROOT), json.dumps(job), code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def settles_in(one: Child, states: str) -> bool:
    until = time.monotonic() + 20
    while one.state not in states and time.monotonic() < until:
        time.sleep(0.002)
    return one.state in states


HANDLING = f"""
import signal
signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
{children.BUSY}
"""


def test_signals_that_come_while_a_thread_is_held_are_its_own_afterwards():
    with python(HANDLING) as one:
        assert settles_in(one, "R")
        mask = one.status("SigBlk")
        *results, held = trace(
            one,
            f"""
with visit() as v:
    answer = [v.syscall({GETPID})]
    os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGUSR1)
    answer += [v.syscall({GETPID}), v.syscall({GETPID})]
    answer += [v.call(functions["Py_IsInitialized"]) for _ in range(2)]
    answer += [open(f"/proc/{{pid}}/status").read().split("SigBlk:")[1].split()[0]]
""",
        )
        assert results == [*[one.pid] * 3, 1, 1], "a held thread goes on with what is asked of it"
        assert held == "fffffffffffbfeff", "a handler would run on a borrowed state"
        assert settles_in(one, "T"), "the SIGSTOP got lost"
        assert b"handled" not in one.output
        children.resume(one)
        assert settles_in(one, "R") and one.hears(b"handled")
        assert one.status("SigBlk") == mask and int(mask, 16)


def test_a_signal_that_comes_before_the_stop_is_handled_though_the_visit_fails():
    code = """
kill, again = os.kill, []
os.kill = lambda *given: again.append(given)
calls.system_call = lambda *_: (kill(pid, signal.SIGUSR1), time.sleep(0.1), -1)[-1]
try:
    Injection(pid, pid, job["gadgets"], 0.0).__enter__()
except calls.TimedOut as fault:
    answer = str(fault), again
"""
    with python(HANDLING) as one:
        assert settles_in(one, "R")
        assert trace(one, code) == ["signals came instead of the stop", []]
        assert one.hears(b"handled") and one.status("TracerPid") == "0"


@pytest.mark.parametrize("waits", [10_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_no_wait_lasts_longer_than_its_limit(waits):
    """An alarm that ends a wait can come between two steps of it and get lost: 6 hangs in 5,000 waits."""
    with python(children.SLEEPING) as one:
        most_s, ended = trace(
            one,
            f"""
calls.request(calls.SEIZE, pid, 0, calls.O_TRACESYSGOOD)
most_s = ended = 0
for _ in range({waits}):
    limit_s = random.uniform(1e-6, 40e-6)
    began = time.monotonic()
    try: calls.wait(pid, began + limit_s)
    except calls.TimedOut: ended += 1
    most_s = max(most_s, time.monotonic() - began)
answer = most_s, ended
""",
        )
        assert ended == waits
        assert most_s < 2


SPINNING = """
import ctypes, threading, time
library = ctypes.CDLL(None)
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
def tick():
    while True: print("tick", flush=True); time.sleep(0.01)
threading.Thread(target=tick, daemon=True).start()
"""


@pytest.mark.parametrize(
    "code", ["b827000000 0f05 ebf7", "b822000000 0f05 c3"], ids=["loop", "pause"]
)
@pytest.mark.parametrize("tid", ["pid", "others()[0]"], ids=["main thread", "another thread"])
def test_a_call_that_does_not_return_is_given_up_in_time(tid, code):
    """`mov eax, getpid; syscall; jmp back` has each of its stops in time; `mov eax, pause; syscall; ret` none."""
    with python(SPINNING + "time.sleep(600)") as one:
        took_s, says, free = trace(
            one,
            f"""
began, wait = time.monotonic(), calls.wait
if "eb" in {code!r}:  # however soon its stops come
    calls.wait = lambda tid, deadline: wait(tid, deadline + 60)
try:
    with visit({tid}) as v:
        code = v.map(4096)
        v.write_code(code, bytes.fromhex({code!r}.replace(" ", "")))
        v.call(code)
except InjectionFailed as fault:
    status = open(f"/proc/{{pid}}/task/{{{tid}}}/status").read()
    answer = time.monotonic() - began, str(fault), "TracerPid:\\t0\\n" in status
""",
        )
        assert 0.4 < took_s < 1.5
        assert "did not return in time" in says and free
        assert one.status("TracerPid") == "0"
        one.output = b""
        assert one.hears(b"tick") and one.alive
        # The main thread is back where it was; another is left to end the call by itself.
        assert len(busy(one)) == (tid != "pid" and "eb" in code)
        assert one.pid not in busy(one)


def busy(one: Child) -> set[int]:
    """Threads that run, at each of a few looks."""
    tids = {int(path.name) for path in Path(f"/proc/{one.pid}/task").iterdir()}
    for _ in range(8):
        tids = {tid for tid in tids if _state(one, tid) == "R"}
        time.sleep(0.01)
    return tids


def _state(one: Child, tid: int) -> str:
    text = Path(f"/proc/{one.pid}/task/{tid}/stat").read_text()
    return text[text.rindex(")") + 2]


def test_a_thread_whose_stack_has_no_room_is_let_go_at_once_and_its_hold_is_measured():
    code = """
def refuse(*_):
    raise OSError(14, "Bad address")
request, calls.request = calls.request, lambda *given: (refuse if given[0] == calls.DETACH else request)(*given)
try:
    with visit(): pass
except OSError as fault:
    request(calls.DETACH, pid)
    answer = [fault.errno]
calls.request = request
with visit() as held:
    pass
read, calls.read_memory = calls.read_memory, refuse
try:
    visit().__enter__()
except InjectionFailed as fault:
    with open(f"/proc/{pid}/status") as status:
        answer += [str(fault), "TracerPid:\\t0\\n" in status.read(), held.stopped_ns, held.awaited_ns]
"""
    with python(children.BUSY) as one:
        errno, says, free, *held_ns = trace(one, code)
        assert errno == 14, "a trainer that is not as it was is never told as left in peace"
        assert "no room" in says and free
        assert all(0 < ns < 1_000_000_000 for ns in held_ns)
        assert settles_in(one, "RS")


def test_an_address_that_was_refused_is_not_written_to():
    code = """
try:
    with visit() as v: v.write_code(v.map(0), b"code")
except injection.CodeRefused as fault:
    answer = [str(fault)]
try:
    with visit() as v: v.write_code(0, b"code")
except injection.CodeRefused as fault:
    answer += [str(fault)]
try:
    with visit() as v: v.call(8)
except InjectionFailed as fault:
    answer += [str(fault)]
"""
    with python(children.BUSY) as one:
        mapped, written, called = trace(one, code)
        assert called == "a call in the trainer ended in SIGSEGV"
        assert mapped == "the trainer may not map code: Invalid argument"
        assert "refuses to write code" in written and settles_in(one, "RS")


def test_a_visit_that_fails_loses_no_signal_and_stops_no_thread_that_closes_a_file():
    code = """
def refuse(*_): raise OSError(14, "Bad address")
calls.system_call = lambda *_: (os.kill(pid, signal.SIGUSR1), time.sleep(0.1), -1)[-1]
calls.read_memory, answer, looks = refuse, [], []
for _ in range(2):
    try: visit().__enter__()
    except (InjectionFailed, calls.TimedOut) as fault: answer += [f"{fault} {fault.__context__}"]
    calls.system_call = lambda *_: looks.append(1) or 3
answer.append(len(looks))
"""
    with python(HANDLING) as one:
        assert settles_in(one, "R")
        no_room, closing, looks = trace(one, code)
        assert "no room" in no_room and "closing a file" in closing
        assert looks < 600, "a millisecond apart"
        assert one.hears(b"handled")
