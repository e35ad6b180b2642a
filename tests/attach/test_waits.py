"""What the trainer's own system calls return while it is attached to: what they return alone."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.attach import children
from tests.attach.children import Child
from tests.attach.fuse_server import late_file
from tests.attach.test_injection import GETPID, trace
from tests.waits import SOURCE, odd_waits, read_report

pytestmark = [
    pytest.mark.usefixtures("tracing"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86-64 only"),
]
VISITS = 15
IN_SIGNAL_7 = {"open of a FIFO", "read of a pipe"} | set(
    """read readv write writev wait4 waitid accept connect recvfrom recvmmsg recvmsg sendto sendmsg flock
    fcntl mq_timedreceive mq_timedsend futex rt_sigtimedwait epoll_wait epoll_pwait poll ppoll select
    pselect6 msgrcv msgsnd semop semtimedop clock_nanosleep nanosleep io_getevents""".split()
)
"""Its calls that a signal or a stop cuts short, but for `ioctl`, `getrandom` and those that only wait for
signals (`pause`, `sigsuspend`), which the kernel restarts by itself."""


@pytest.fixture
def waiting(tmp_path) -> Iterator[Child]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    words = [compiler, "-O1", "-DPROGRAM", "-o", str(tmp_path / "waits"), str(SOURCE), "-lpthread"]
    subprocess.run([*words, "-lrt"], check=True, timeout=60)
    with children.child([str(tmp_path / "waits")]) as one:
        assert one.hears(b"up\n")
        yield one


def report(one: Child) -> str:
    assert one.process.stdin is not None
    one.output = b""
    one.process.stdin.write(b"\n")
    one.process.stdin.flush()
    assert one.hears(b"up\n")
    return one.output.decode()


@pytest.mark.parametrize(
    "visits", [VISITS, pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(3000)])]
)
def test_no_call_of_a_held_thread_ends_in_eintr_nor_before_its_time(waiting, visits):
    waits = read_report(report(waiting))
    lacking = IN_SIGNAL_7 - waits.keys()
    assert not lacking, "this kernel has them not, or the test lost them"
    finished = trace(
        waiting,
        f"""
answer = 0
injection._WHOLE_CALL_S.clear()  # stops them in the middle all the same
for number in range({visits}):
    for tid in {[wait.tid for wait in waits.values()]}:
        with visit(tid) as v:
            answer += v.syscall({GETPID}) == pid
""",
        limit_s=60 + visits,
    )
    assert finished == visits * len(waits)
    told = report(waiting)
    assert odd_waits(told) == {}
    assert all(wait.calls > 2 for wait in read_report(told).values()), told


CALLS = ("open", "write", "fsync", "read", "close")
WRITING = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
cut = dict.fromkeys(CALLS, 0)
text, rounds = ctypes.create_string_buffer(100), 0
def call(name, *given):
    ctypes.set_errno(0)
    result = getattr(libc, name)(*given)
    if result < 0 and ctypes.get_errno() == 4: cut[name] += 1
    elif result < 0: print("errno", name, ctypes.get_errno(), flush=True)
    return result
while True:
    handle = call("open", PATH, os.O_RDWR)
    if handle < 0: continue
    call("write", handle, text, 100), call("fsync", handle), call("read", handle, text, 100)
    call("close", handle)
    rounds += 1
    print(rounds, cut, flush=True)
"""


def test_calls_on_a_file_system_that_can_be_interrupted_go_on(tmp_path, root):
    code = WRITING.replace("CALLS", repr(CALLS))
    with (
        late_file(tmp_path) as path,
        children.python(code.replace("PATH", repr(os.fsencode(path)))) as one,
    ):
        assert one.hears(b"1 {")
        held = trace(
            one,
            f"""
answer = 0
for number in range(60):
    time.sleep(random.uniform(0.03, 0.06))
    with visit() as v:
        answer += v.syscall({GETPID}) == pid
""",
        )
        assert held == 60
        one.hears(b"nothing", limit_s=0.5)
        assert b"errno" not in one.output
        last = one.output.decode().splitlines()[-2]
    cut = ast.literal_eval(last.split(" ", 1)[1])
    # A close that begins between the look at its thread and the stop, microseconds later, is still cut.
    assert cut.pop("close") <= 1 and not any(cut.values())


SENDING = """
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
reads, writes = os.pipe()
def drain():
    while True:
        time.sleep(0.02)
        left = 1 << 20
        while left: left -= len(os.read(reads, left))
threading.Thread(target=drain, daemon=True).start()
text = ctypes.create_string_buffer(1 << 20)
while True:
    if libc.write(writes, text, 1 << 20) != 1 << 20: print("SHORT", flush=True)
    time.sleep(0.05)
    print("<written>", flush=True)
"""


def test_a_write_that_goes_on_is_seldom_cut_in_two():
    """A thread that runs may be anywhere in it; of those that sleep in it none is stopped."""
    with children.python(SENDING) as one:
        assert one.hears(b"<written>")
        trace(
            one,
            """
for number in range(10):
    while calls.system_call(pid, pid) != 1: time.sleep(0.001)
    with visit(): pass
    time.sleep(0.02)
""",
        )
        one.hears(b"nothing", limit_s=0.3)
        assert one.output.count(b"SHORT") < 7, (
            "each of the ten would be, were a sleeping one stopped"
        )


ENDED = """
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as a monitor's parent may have left it
from collectors.attach.ptrace import calls
child = os.fork()
if child == 0:
    time.sleep(60)
calls.block_signals()
assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, "else the kernel sends none"
calls.request(calls.SEIZE, child)
os.kill(child, signal.SIGKILL)
try:
    calls.wait(child, time.monotonic() + 10)
except calls.Gone as gone:
    print(gone)
"""


def test_a_thread_that_ends_is_gone_whatever_sigchld_was_before():
    command = [sys.executable, "-c", ENDED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert re.fullmatch(r"thread \d+ (ended|is gone)\n", done.stdout)
