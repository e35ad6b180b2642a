"""Which threads of a trainer are held: only such as sleep, seen twice at one place."""

import pytest

from collectors.attach.ptrace import calls
from tests.attach import children
from tests.attach.children import python

FUTEX, READ = 202, 0


def test_who_sleeps_stands_and_who_computes_does_not():
    with python(children.SLEEPING) as one:
        while one.state != "S":
            pass
        first = calls.standing(one.pid, one.pid)
        assert first is not None and len(first) == 4
        assert calls.standing(one.pid, one.pid) == first
        assert calls.system_call(one.pid, one.pid) >= 0
    with python(children.BUSY) as one:
        while calls.place(one.pid, one.pid) != "running":
            pass
        assert calls.standing(one.pid, one.pid) is None
    assert calls.standing(2**22 - 1, 2**22 - 1) is None


@pytest.mark.parametrize(
    ("looks", "reads", "parked"),
    [
        ([f"{FUTEX} 0x1 0x7f 0x8"] * 2, "", True),
        ([f"{FUTEX} 0x1 0x7f 0x8", f"{FUTEX} 0x2 0x7f 0x8"], "", False),
        (["running"] * 2, "", False),
        (["7 0x1 0x7f 0x8"] * 2, "", False),
        ([f"{READ} 0x3 0x7f 0x8"] * 2, "pipe:[4711]", True),
        ([f"{READ} 0x3 0x7f 0x8"] * 2, "/data/train.bin", False),
        ([f"{READ} 0x3 0x7f 0x8"] * 2, "", False),
    ],
)
def test_a_thread_is_parked_where_two_looks_apart_find_it_in_a_call_that_goes_on(
    looks, reads, parked, monkeypatch
):
    seen, slept, files = iter(looks), list[float](), {"/proc/5/fd/3": reads} if reads else {}

    def target(path: str) -> str:
        if path not in files:
            raise PermissionError(path)
        return files[path]

    monkeypatch.setattr(calls, "thread_ids", lambda pid: [5])
    monkeypatch.setattr(calls, "place", lambda pid, tid: next(seen))
    monkeypatch.setattr(calls.os, "readlink", target)
    monkeypatch.setattr(calls.time, "sleep", slept.append)
    assert calls.parked_threads(5, (FUTEX,), (READ,)) == [5] * parked
    assert slept == [calls._APART_S]


def test_the_main_thread_is_the_last_resort_and_the_drivers_own_the_one_before(monkeypatch):
    monkeypatch.setattr(calls, "thread_ids", lambda pid: [5, 6, 7, 8])
    monkeypatch.setattr(calls, "place", lambda pid, tid: f"{FUTEX if tid < 8 else READ} 0x1")
    monkeypatch.setattr(calls, "_driver_owned", lambda pid, tid: tid == 6)
    assert calls.parked_threads(5, (FUTEX, READ)) == [7, 8, 6, 5]
    assert calls.parked_threads(5, (READ, FUTEX), at_most=2) == [8, 7, 5]
