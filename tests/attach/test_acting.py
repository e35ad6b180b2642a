"""Work with another user's rights: in one thread, and nowhere else."""

import ctypes
import os
import threading
from pathlib import Path

import pytest

from collectors.errors import NotPermitted
from collectors.own_files import run_as

STRANGER = 6666


def ids(tid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/self/task/{tid}/status").read_text().splitlines()
    pairs = (line.split(":", 1) for line in lines)
    return {name: text.split() for name, text in pairs}


def test_only_the_effective_ids_of_only_that_thread_change(root):
    before = ids(os.getpid())
    inside, beside = run_as(
        STRANGER, STRANGER + 1, lambda: (ids(threading.get_native_id()), ids(os.getpid()))
    )
    # Real, effective, saved, and that of file accesses: with root's own real and saved ones the
    # user can neither signal nor trace the thread.
    assert inside["Uid"] == ["0", "6666", "0", "6666"]
    assert inside["Gid"] == ["0", "6667", "0", "6667"]
    assert inside["Groups"] == [] and int(inside["CapEff"][0], 16) == 0
    names = ("Uid", "Gid", "Groups", "CapEff")
    assert [beside[name] for name in names] == [before[name] for name in names]
    assert [ids(os.getpid())[name] for name in names] == [before[name] for name in names]
    assert os.geteuid() == 0


def test_the_user_cannot_do_what_only_root_can(root, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    tmp_path.chmod(0o755)
    with pytest.raises(PermissionError):
        run_as(STRANGER, STRANGER, secret.read_text)
    assert secret.read_text() == "root's"


def test_the_result_and_the_fault_come_back():
    assert run_as(os.geteuid(), os.getegid(), lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        run_as(STRANGER, STRANGER, lambda: 1 // 0)


def test_work_for_ourselves_starts_no_thread():
    assert run_as(os.geteuid(), os.getegid(), threading.get_ident) == threading.get_ident()


def test_an_interrupt_waits_for_the_work_and_comes_then(root, monkeypatch):
    """What it works on must not be taken away under it."""
    done, join, interrupts = threading.Event(), threading.Thread.join, iter([KeyboardInterrupt])

    def interrupted(thread: threading.Thread, timeout: float | None = None) -> None:
        for fault in interrupts:
            raise fault
        join(thread, timeout)

    def work() -> None:
        done.wait(0.3)
        done.set()

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_as(STRANGER, STRANGER, work)
    assert done.is_set()


def test_root_without_the_right_to_change_users_says_so(root):
    """Of a container without CAP_SETUID; the bounding set is of a child, and not given back."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            drop_capabilities()
            run_as(STRANGER, STRANGER, lambda: os.write(writing, b"it ran"))
        except NotPermitted as fault:
            os.write(writing, f"{fault.message}|{fault.action}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, "rb") as pipe:
        decode = pipe.read().decode()
    assert (
        decode.startswith("root here may not act as user 6666 (Operation not permitted)|")
        and "--cap-add SETUID" in decode
    )


def drop_capabilities() -> None:
    """Empties all sets of this process, and it is root still (capset(2), version 3)."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    empty = (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, empty) == 0
