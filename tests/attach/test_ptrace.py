"""A thread of a real child is stopped, used and let go, and nobody notices."""

import ctypes
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.attach import by_ptrace
from collectors.attach.access import Attempt
from collectors.attach.by_ptrace import PARKED_THREAD, PENDING_CALL
from collectors.attach.files import Place
from collectors.attach.ptrace import calls
from collectors.attach.ptrace.calls import thread_ids
from collectors.errors import CollectorError, NoSuchProcess, NotPermitted
from collectors.process import process as processes
from tests.attach import children
from tests.attach.children import Child, appears, python, writes

pytestmark = pytest.mark.usefixtures("tracing")

ROOT = Path(__file__).resolve().parents[2]
INTERPRETERS = children.interpreters()
WAYS = {"pending call": PENDING_CALL, "parked thread": PARKED_THREAD}
NO_PLACE: Place | None = None


def enter(way: str, one: Child, text: str) -> Attempt:
    return WAYS[way].enter(processes.read(one.pid), text, NO_PLACE, 5.0)


def label(path: str) -> str:
    return "/".join(Path(path).parts[-4:])


@pytest.mark.parametrize("interpreter", INTERPRETERS, ids=label)
@pytest.mark.parametrize(
    ("way", "code"),
    [
        ("pending call", children.ALLOCATING),
        ("pending call", children.STORM),
        ("parked thread", children.BLOCKED),
    ],
    ids=["allocating", "dlopen", "blocked"],
)
def test_text_runs_once_per_entry_and_the_child_goes_on(interpreter, way, code, tmp_path):
    mark = tmp_path / "mark"
    with python(code, interpreter) as one:
        assert code != children.BLOCKED or settles(
            lambda: len(thread_ids(one.pid)) == 2 and one.state == "S"
        )
        for count in (1, 2, 3):
            attempt = enter(way, one, writes(mark))
            assert attempt.entered, attempt
            assert appears(mark, count), one.output
        time.sleep(0.05)
        assert one.alive, one.output
        assert one.state in "RSD"
        assert one.status("TracerPid") == "0"
        assert mark.read_text() == "xxx"


@pytest.mark.parametrize("interpreter", INTERPRETERS, ids=label)
def test_a_lonely_busy_main_thread_runs_the_text_with_another_thread_asleep(interpreter, tmp_path):
    code = "import threading, time\n"
    code += "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    with python(code + children.BUSY, interpreter) as one:
        version = processes.read(one.pid).python
        assert version is not None
        assert version.version is not None
        for way in WAYS:
            attempt = enter(way, one, writes(tmp_path / way))
            assert attempt.entered
            assert appears(tmp_path / way)
            undisturbed = way == "parked thread" or version.version >= (3, 13)
            assert [stop.tid != one.pid for stop in attempt.stops] == [undisturbed]


def test_pending_call_waits_for_a_call_that_holds_the_gil(tmp_path):
    with python(children.HOLDING) as one:
        for count in range(1, 6):
            assert enter("pending call", one, writes(tmp_path / "mark")).entered
            assert appears(tmp_path / "mark", count)
        assert one.alive


def test_pending_call_into_a_sleeping_main_thread_stays_pending(tmp_path):
    with python(children.SLEEPING) as one:
        assert enter("pending call", one, writes(tmp_path / "pending")).entered
        assert enter("parked thread", one, writes(tmp_path / "thread")).entered
        assert appears(tmp_path / "thread")
        assert not (tmp_path / "pending").exists()
        assert settles(lambda: one.state == "S")


_DYING = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from collectors.attach.ptrace import calls as ptrace
count = 0
def counted(call):
    def stand_in(*given):
        global count
        count += 1
        if count == int(sys.argv[2]): os.kill(os.getpid(), signal.SIGKILL)
        return call(*given)
    return stand_in
for name in ("request", "registers", "set_registers", "set_signal_mask", "write_memory", "wait"):
    setattr(ptrace, name, counted(getattr(ptrace, name)))
from collectors.attach.ptrace import worker as ptrace_worker
if len(sys.argv) < 4: ptrace_worker._rehearse = lambda *_: None
ptrace_worker.main()
"""


def settles(holds: Callable[[], bool], limit_s: float = 20.0) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.002)
    return False


def kill_at(process: processes.Process, do: str, number: int, *more: str) -> bool:
    """Runs a worker that is killed at its n-th request; False: it needed fewer. `more`: with its
    rehearsal."""
    plan = by_ptrace.make_plan(process)
    job = {**by_ptrace.make_job(process, plan, do, "pass", None), "limit_s": 5, "expected": []}
    command = [sys.executable, "-I", "-S", "-c", _DYING, str(ROOT), str(number), *more]
    done = subprocess.run(command, input=json.dumps(job).encode(), capture_output=True, timeout=20)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


_TICKING = """
import threading, time
def tick():
    n = 0
    while True:
        n += 1
        assert sum(k * 0.5 for k in range(2000)) == 999500.0
        print("<%d>" % n, flush=True)
        time.sleep(0.002)
"""


@pytest.mark.parametrize(
    ("do", "code"),
    [
        ("pending", _TICKING + "tick()"),
        (
            "thread",
            _TICKING + "threading.Thread(target=tick, daemon=True).start(); time.sleep(600)",
        ),
    ],
    ids=["pending", "thread"],
)
def test_killing_the_worker_at_any_request_leaves_the_child_as_it_was(do, code):
    with python(code) as one:
        process = processes.read(one.pid)
        number = 0
        while kill_at(process, do, number := number + 1):
            # The kernel lets go of the child a moment after it has buried the worker.
            assert settles(lambda: int(one.status("SigBlk"), 16) == 0), number
            assert settles(lambda: one.state in "RS"), number
            one.output = one.output[-8:] + b"|"
            assert one.hears(b"|<") or one.hears(b">\n<"), (number, one.output)
            assert number < 200
        assert number > 20
        one.output = b""
        assert one.hears(b">\n<")
        assert b"Error" not in one.output


def still_there(like: str) -> bool:
    """Any process of that command line."""
    for pid in processes.pids():
        try:
            if like.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("number", [3, 10, 25, 40, 10_000])
def test_the_rehearsal_leaves_nobody_behind_even_when_its_worker_is_killed(number):
    with python(_TICKING + "tick()") as one:
        process = processes.read(one.pid)
        killed = kill_at(process, "pending", number, "rehearse")
        assert killed == (number < 10_000)
        assert settles(lambda: not still_there("ptrace_worker.main()"))
        one.output = b""
        assert one.hears(b">\n<")


@pytest.mark.parametrize("way", WAYS)
def test_a_child_whose_python_has_ended_is_not_told_as_starting(way, tmp_path):
    with python(children.EXITING) as one:
        assert one.hears(b"leaving")
        time.sleep(0.5)
        attempt = enter(way, one, writes(tmp_path / "mark"))
        assert one.alive, one.output
    assert not attempt.entered
    assert "or it is exiting" in attempt.reason


def test_children_that_exit_at_any_moment_never_hang_us(tmp_path):
    for pause_ms in range(0, 60, 6):
        code = f"import time; time.sleep({pause_ms} / 1000)"
        with python(code) as one:
            try:
                enter("pending call", one, writes(tmp_path / "mark"))
            except CollectorError as fault:
                assert isinstance(fault, NoSuchProcess), fault
            assert one.process.wait(10) == 0, one.output


def test_a_child_that_is_traced_already_names_its_tracer():
    hold = f"""
import os, sys, time
sys.path.insert(0, {str(ROOT)!r})
from collectors.attach.ptrace import calls as ptrace
ptrace.request(ptrace.SEIZE, int(sys.argv[1]))
print("up", flush=True)
time.sleep(600)
"""
    with (
        python(children.BUSY) as one,
        children.child([sys.executable, "-c", hold, str(one.pid)]) as tracer,
    ):
        assert tracer.hears(b"up")
        with pytest.raises(NotPermitted) as caught:
            enter("pending call", one, "pass")
        assert str(tracer.pid) in caught.value.message
        assert caught.value.action


def test_a_stopped_child_stays_stopped_and_runs_on_when_continued(tmp_path):
    with python(children.BUSY) as one:
        os.kill(one.pid, signal.SIGSTOP)
        while one.state != "T":
            time.sleep(0.01)
        attempt = enter("pending call", one, writes(tmp_path / "mark"))
        assert not attempt.entered
        assert "stopped" in attempt.reason
        # Linux wakes what is detached from for as long as it takes to stop it again.
        until = time.monotonic() + 5
        while one.state != "T" and time.monotonic() < until:
            time.sleep(0.01)
        assert one.state == "T"
        os.kill(one.pid, signal.SIGCONT)
        assert enter("pending call", one, writes(tmp_path / "mark")).entered
        assert appears(tmp_path / "mark")


def test_an_interrupt_of_ours_waits_for_the_worker(tmp_path):
    with python(children.BUSY) as one:
        code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from collectors.process import process
from collectors.attach.by_ptrace import PENDING_CALL
p = process.read({one.pid}); p.maps
print("up", flush=True)
while True: PENDING_CALL.enter(p, "pass", None, 5.0)
"""
        for pause_ms in (0, 10, 20, 30, 40):
            with children.child([sys.executable, "-c", code]) as ours:
                assert ours.hears(b"up")
                time.sleep(pause_ms / 1000)
                os.kill(ours.pid, signal.SIGINT)
                assert ours.process.wait(10) != 0
            assert one.alive
            assert one.state == "R"
        assert one.status("TracerPid") == "0"


def test_a_main_thread_that_cannot_be_interrupted_is_given_up_in_time(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    (tmp_path / "hang.c").write_text(
        "#include <unistd.h>\nvoid hang(void) { if (!vfork()) { sleep(8); _exit(0); } }\n"
    )
    library = tmp_path / "hang.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-w", "-o", str(library), str(tmp_path / "hang.c")],
        check=True,
    )
    code = f"""
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
ctypes.CDLL({str(library)!r}).hang()
print("back", flush=True)
time.sleep(600)
"""
    with python(code) as one:
        assert settles(lambda: one.state == "D")
        began = time.monotonic()
        attempt = enter("pending call", one, writes(tmp_path / "pending"))
        through_another = sys.version_info >= (3, 13)
        assert attempt.entered == through_another
        assert through_another or "kernel" in attempt.reason
        assert time.monotonic() - began < 3
        assert enter("parked thread", one, writes(tmp_path / "mark")).entered
        assert appears(tmp_path / "mark")
        assert one.hears(b"back"), one.output
        assert settles(lambda: one.state == "S")
        assert one.status("TracerPid") == "0"


def test_a_worker_that_hangs_is_not_waited_for_however_long_somebody_keeps_its_pipes(
    tmp_path, monkeypatch
):
    keeper = tmp_path / "keeper"
    hangs = (
        "import os, subprocess, sys, time; "
        "one = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(30)']); "
        f"open({str(keeper)!r}, 'w').write(str(one.pid)); time.sleep(60)"
    )
    monkeypatch.setattr(by_ptrace, "_WORKER", hangs)
    monkeypatch.setattr(by_ptrace, "_GRACE_S", 1.0)
    began = time.monotonic()
    try:
        answer = by_ptrace.run_worker({}, 0.5)
        assert time.monotonic() - began < 10
        assert answer == {"ok": False, "tries": [{"says": "the tracing process hung", "errno": 0}]}
    finally:
        os.kill(int(keeper.read_text()), signal.SIGKILL)


def test_what_cannot_be_written_whole_is_an_error_and_never_passes_for_written():
    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(ctypes.c_void_p(start + page), page, mmap.PROT_READ) == 0
    calls.write_memory(os.getpid(), start + page - 8, b"8 bytes!")
    assert area[page - 8 : page] == b"8 bytes!"
    for address in (start + page, start + page - 8, 0x1000):
        with pytest.raises(OSError, match="writing 16 bytes"):
            calls.write_memory(os.getpid(), address, bytes(16))
    assert area[page:] == bytes(page)


@pytest.mark.parametrize(
    ("name", "given"),
    [("registers", (calls.NT_PRSTATUS,)), ("set_registers", (calls.NT_PRSTATUS, bytes(8))),
     ("signal_mask", ()), ("set_signal_mask", (bytes(8),)), ("read_memory", (0x1000, 8)),
     ("wait", (0.0,))],
)  # fmt: skip
def test_what_the_kernel_refuses_is_an_error_and_never_passes_for_done(name, given):
    with pytest.raises((OSError, calls.Gone)):
        getattr(calls, name)(os.getpid(), *given)
