"""What the trainer's own system calls return while it is attached to: what they return alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attach import children
from tests.attach.children import Child
from tests.attach.test_injection import GETPID, trace
from tests.waits import SOURCE, Wait, read_report

pytestmark = [
    pytest.mark.usefixtures("tracing"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86-64 only"),
]
VISITS = 40
IN_SIGNAL_7 = {
    *("read", "readv", "write", "writev", "open of a FIFO", "read of a pipe", "wait4", "waitid"),
    *(
        "accept",
        "connect",
        "recvfrom",
        "recvmmsg",
        "recvmsg",
        "sendto",
        "sendmsg",
        "flock",
        "fcntl",
    ),
    *("mq_timedreceive", "mq_timedsend", "futex", "rt_sigtimedwait", "epoll_wait", "epoll_pwait"),
    *("poll", "ppoll", "select", "pselect6", "msgrcv", "msgsnd", "semop", "semtimedop"),
    *("clock_nanosleep", "nanosleep", "io_getevents"),
}
"""Its calls that a signal or a stop cuts short, but for `ioctl`, `getrandom` and those that only wait for
signals (`pause`, `sigsuspend`), which the kernel restarts by itself."""


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Child]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    words = [compiler, "-O1", "-DPROGRAM", "-o", str(tmp_path / "waits"), str(SOURCE), "-lpthread"]
    subprocess.run([*words, "-lrt"], check=True, timeout=60)
    with children.child([str(tmp_path / "waits")]) as one:
        assert one.hears(b"up\n")
        yield one


def report(one: Child) -> dict[str, Wait]:
    assert one.process.stdin is not None
    one.output = b""
    one.process.stdin.write(b"\n")
    one.process.stdin.flush()
    assert one.hears(b"up\n")
    return read_report(one.output.decode())


@pytest.mark.parametrize(
    "visits", [VISITS, pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(3000)])]
)
def test_no_call_of_a_held_thread_ends_in_eintr_nor_before_its_time(
    waiting: Child, visits: int
) -> None:
    waits = report(waiting)
    lacking = IN_SIGNAL_7 - waits.keys()
    assert not lacking, "this kernel has them not, or the test lost them"
    finished = trace(
        waiting,
        f"""
answer = 0
for number in range({visits}):
    for tid in {[wait.tid for wait in waits.values()]}:
        with visit(tid) as v:
            answer += v.syscall({GETPID}) == pid
""",
        limit_s=60 + visits,
    )
    assert finished == visits * len(waits)
    waits = report(waiting)
    assert {name: wait.cut_short for name, wait in waits.items() if wait.cut_short} == {}
    assert {name: wait for name, wait in waits.items() if wait.early or wait.odd} == {}
    assert all(wait.calls > 5 for wait in waits.values()), waits
