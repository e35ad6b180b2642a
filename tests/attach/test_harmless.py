"""Trainers in which Python of ours in the main thread, or in a forked child, would do harm."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from collectors.attach import agent_library, bootstrap
from collectors.attach.access import Attempt
from collectors.attach.attach import METHODS, attach
from collectors.attach.by_ptrace import PENDING_CALL
from collectors.attach.files import AgentFiles
from collectors.errors import AttachFailed, CollectorError
from collectors.process import process as processes
from tests.attach import children
from tests.attach.children import Child, appears, child, python, writes, writes_pid
from tests.attach.test_injection import trace
from tests.attach.test_ptrace import INTERPRETERS, ROOT, label, settles

pytestmark = pytest.mark.usefixtures("tracing")
everywhere = pytest.mark.parametrize("interpreter", INTERPRETERS, ids=label)


def queue(one: Child, text: str) -> Attempt:
    return PENDING_CALL.enter(processes.read(one.pid), text, None, 5.0)


def moves(one: Child) -> bool:
    """Its main thread gets on."""
    before = one.ticks
    return settles(lambda: one.ticks > before or not one.alive) and one.alive


@everywhere
@pytest.mark.parametrize("code", [children.REFUSING_EXEC, children.EXITING_AT_EXEC])
def test_an_audit_hook_that_refuses_our_text_is_told_and_ends_nobody(code, interpreter, stand_in):
    with python(code, interpreter) as one:
        with pytest.raises(CollectorError, match="an audit hook"):
            attach(one.pid, stand_in, need_torch=False)
        assert moves(one), one.output
        assert one.output == b"up\n", "nothing of ours on its screen"


@everywhere
def test_a_main_thread_at_its_recursion_limit_is_entered(interpreter, tmp_path):
    with python(children.FULL_STACK, interpreter) as one:
        for count in (1, 2):
            assert queue(one, writes(tmp_path / "mark")).entered
            assert appears(tmp_path / "mark", count), one.output
        assert moves(one), one.output


@everywhere
def test_exceptions_of_signal_handlers_reach_the_user_and_nobody_else(interpreter, tmp_path):
    text = bootstrap.payload("/none", "/none.so", str(tmp_path / "s"))
    with python(children.RAISING, interpreter) as one:
        for _ in range(5):
            assert queue(one, text).entered
            one.output = b""
            assert one.hears(b">\n<"), "an exception was lost"
            assert one.alive, one.output
        refusal = tmp_path / ("s" + bootstrap.REFUSED_SUFFIX)
        assert settles(lambda: os.path.lexists(refusal)), "the text did run"


@everywhere
def test_a_forked_child_runs_nothing_of_ours(interpreter, tmp_path):
    mark, go = tmp_path / "mark", tmp_path / "go"
    with python(f"PATH = {str(go)!r}\n{children.FORKING}", interpreter) as one:
        assert queue(one, writes_pid(mark)).entered
        go.touch()
        assert one.hears(b"forked"), one.output
        assert lines(mark) == []
        assert one.alive


FORKING_ON = """
import os, threading
def fork():
    while True:
        child = os.fork()
        if child == 0: os._exit(0)
        os.waitpid(child, 0)
        print("forked", flush=True)
threading.Thread(target=fork, daemon=True).start()
"""
SLOW_UNLOCKING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int PyGILState_Check(void);
void PyThread_release_lock(void *lock) {
    void (*real)(void *) = (void (*)(void *))dlsym(RTLD_NEXT, "PyThread_release_lock");
    if (!PyGILState_Check()) usleep(200000);
    real(lock);
}
"""
"""Whoever holds a lock of the interpreter's but not the GIL holds it for long."""


@everywhere
def test_a_child_that_is_forked_while_we_enter_inherits_no_lock_of_the_interpreter(
    interpreter, tmp_path
):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    source, library, mark = (tmp_path / name for name in ("slow.c", "slow.so", "mark"))
    source.write_text(SLOW_UNLOCKING)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    env = {**os.environ, "LD_PRELOAD": str(library)}
    with python(FORKING_ON + children.BUSY, interpreter, env=env) as one:
        build = processes.read(one.pid).python
        if build is None or build.static:
            pytest.skip("its calls of its own functions cannot be exchanged")
        try:
            for count in range(1, 4):
                assert queue(one, writes(mark)).entered
                assert appears(mark, count), one.output
                one.output = b""
                assert one.hears(b"forked\nforked\n"), "a forked child hangs"
        finally:
            end_children(one)


def end_children(one: Child) -> None:
    """Of every thread."""
    one.process.send_signal(signal.SIGSTOP)
    for tasks in Path(f"/proc/{one.pid}/task").glob("*/children"):
        for pid in tasks.read_text().split():
            os.kill(int(pid), signal.SIGKILL)


CALLING_BACK = """
import ctypes
made = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 7)
with open(%r, "a") as file: file.write("x" * made())
"""


@everywhere
def test_a_destructor_that_asks_for_the_gil_gets_it_in_the_thread_of_ours(interpreter, tmp_path):
    """A garbage collection may strike there, and calls of C libraries back into Python with it."""
    mark = tmp_path / "mark"
    with python(children.BUSY, interpreter) as one:
        assert queue(one, CALLING_BACK % str(mark)).entered
        assert appears(mark, 7), one.output
        assert moves(one), one.output


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def test_the_text_does_nothing_in_another_process(tmp_path):
    for number, pid in enumerate((os.getpid() + 1, 0, os.getpid())):
        path = tmp_path / str(number)
        exec(bootstrap.payload("/none", "/none.so", str(path), pid=pid), {})
        refusal = Path(f"{path}{bootstrap.REFUSED_SUFFIX}")
        assert settles(refusal.is_symlink, 5 if number else 0.3) == bool(number)


READING_SOCKET = """
import socket, struct
ours, theirs = socket.socketpair()
ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 600, 0))
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print("got", libc.recv(ours.fileno(), ctypes.create_string_buffer(8), 8, 0), flush=True)
"""
"""A read with a time limit, which an interruption would end."""
OUT_OF_FILES = """
import resource, os
resource.setrlimit(resource.RLIMIT_NOFILE, (os.dup(0), os.dup(0)))
"""
ONE_MAPPING = """
import resource, threading
threading.stack_size(1 << 20)
with open("/proc/self/statm") as file: pages = int(file.read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + 65536,) * 2)
"""


NO_CODE_FROM_DATA = """
import ctypes
assert ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0, "refused"
"""
"""PR_SET_MDWE: no page that was ever written becomes code."""
NO_CODE_PAGES = """
import ctypes, struct
libc = ctypes.CDLL(None)
rows = [(0x20, 0, 0, 0), (0x15, 0, 5, 9), (0x20, 0, 0, 32), (0x45, 0, 3, 4), (0x20, 0, 0, 40),
        (0x45, 0, 1, 0x20), (0x06, 0, 0, 0x5000D), (0x06, 0, 0, 0x7FFF0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
program = struct.pack("H6xQ", len(rows), ctypes.addressof(filters))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, "refused"
"""
"""mmap of anonymous executable memory answers EACCES, as under SELinux without execmem."""
KILLED_FOR_NO_NUMBER = """
import ctypes, struct
libc = ctypes.CDLL(None)
rows = [(0x20, 0, 0, 0), (0x35, 1, 0, 1000), (0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x80000000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
program = struct.pack("H6xQ", len(rows), ctypes.addressof(filters))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, "refused"
"""
"""A list of allowed system calls that ends the process for all others, as a service manager's."""
LEFT_AT_A_DOOR = """
from collectors.attach.ptrace import x86_64
link = b"/tmp/b%d" % os.getpid()
with visit() as v:
    calls.write_memory(pid, v.slot, link + bytes(1))
    v._aim(x86_64.aim_call(v._state, v._frame, functions["symlink"], (v.slot, v.slot)))
    v._to_syscall(time.monotonic() + 30)
time.sleep(0.1)
answer = os.path.lexists(link)
"""
WAITING_WITH_A_LIMIT = "import time\nwhile True: time.sleep(0.01); sum(range(20000))"


def test_a_trainer_that_may_not_turn_data_into_code_is_entered(stand_in):
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 3):
        pytest.skip("no PR_SET_MDWE before Linux 6.3")
    with python(NO_CODE_FROM_DATA + children.BUSY) as one:
        attached = attach(one.pid, stand_in, need_torch=False)
        attached.client.close()
        attached.place.remove()  # type: ignore[union-attr]
        assert moves(one), one.output


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the filter knows x86-64's numbers")
def test_a_trainer_that_may_have_no_code_pages_is_refused_with_the_command_that_works(stand_in):
    with python(NO_CODE_PAGES + children.BUSY) as one:
        with pytest.raises(AttachFailed, match="may not map code: Permission denied") as caught:
            attach(one.pid, stand_in, need_torch=False, methods=METHODS[:2])
        assert "brrrtop run --" in caught.value.action
        assert moves(one), one.output


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the filter knows x86-64's numbers")
@pytest.mark.parametrize("code", [children.BUSY, WAITING_WITH_A_LIMIT], ids=["busy", "waiting"])
@pytest.mark.parametrize("way", METHODS[:2], ids=lambda way: way.name)
def test_a_trainer_whose_filter_ends_it_at_a_call_without_a_number_lives(way, code, tmp_path):
    main_is_entered = way.needs_main_thread or code != children.BUSY
    with python(KILLED_FOR_NO_NUMBER + code) as one:
        attempt = way.enter(processes.read(one.pid), writes(tmp_path / "mark"), None, 5.0)
        assert attempt.entered == main_is_entered, attempt
        assert not main_is_entered or appears(tmp_path / "mark"), one.output
        assert moves(one), one.output
        called = (
            "with visit() as v: answer = [v.call(functions['Py_IsInitialized']) for _ in range(3)]"
        )
        assert trace(one, called) == [1, 1, 1] and moves(one), one.output
        assert not trace(one, LEFT_AT_A_DOOR) and moves(one), one.output


@pytest.mark.parametrize("code", [children.SLEEPING, children.READING, READING_SOCKET])
def test_a_single_thread_that_waits_for_long_is_entered_at_once(code, stand_in):
    """Not when the time for an answer is over: it is seen to sleep, though our stop moves it."""
    with python(code) as one:
        attached = attach(one.pid, stand_in, need_torch=False, limit_s=60, handshake_s=60)
        assert attached.method == "parked thread"
        assert attached.took_ns < 30e9
        assert one.alive
        assert one.output == b"up\n", "it still waits"
        attached.client.close()
        attached.place.remove()  # type: ignore[union-attr]


def test_a_trainer_without_a_descriptor_left_says_so(tmp_path):
    library = tmp_path / "library.so"
    library.touch()
    files = AgentFiles(agent_library.AGENT_DIR, library)
    with python(OUT_OF_FILES + children.BUSY) as one:
        with pytest.raises(CollectorError, match="Too many open files"):
            attach(one.pid, files, need_torch=False)
        assert moves(one), one.output


@everywhere
def test_a_trainer_that_can_start_no_thread_says_so(interpreter, stand_in):
    with python(ONE_MAPPING + children.BUSY, interpreter) as one:
        with pytest.raises(CollectorError, match="could not start a thread"):
            attach(one.pid, stand_in, need_torch=False)
        assert moves(one), one.output


_MONITOR = """
import os, sys, time
from collectors.attach.attach import attach
from collectors.attach.agent_library import agent_files
files = agent_files()
print("up", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.001)
attached = attach(int(open(sys.argv[1]).read()), files, need_torch=False)
print("by", attached.method, flush=True)
time.sleep(600)
"""


def test_monitors_that_come_at_the_same_instant_all_get_in(tmp_path):
    go, pid = tmp_path / "go", tmp_path / "pid"
    words = [sys.executable, "-c", _MONITOR, str(go)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with ExitStack() as stack:
        # An agent has seats for four.
        monitors = [stack.enter_context(child(words, env)) for _ in range(4)]
        assert all(monitor.hears(b"up", 60) for monitor in monitors)
        one = stack.enter_context(python(children.BUSY))
        pid.write_text(str(one.pid))
        pid.rename(go)
        for monitor in monitors:
            assert monitor.hears(b"by ", 60), monitor.output
        assert one.alive
