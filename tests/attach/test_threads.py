"""Which threads of a trainer are held: only such as sleep, seen twice at one place."""

from __future__ import annotations

import pytest

from collectors.attach.ptrace import threads
from tests.attach import children
from tests.attach.children import python

FUTEX, READ = 202, 0


def test_who_sleeps_stands_and_who_computes_does_not() -> None:
    with python(children.SLEEPING) as one:
        while one.state != "S":
            pass
        first = threads.standing(one.pid, one.pid)
        assert first is not None and len(first) == 4
        assert threads.standing(one.pid, one.pid) == first
        assert threads.system_call(one.pid, one.pid) >= 0
    with python(children.BUSY) as one:
        while threads.place(one.pid, one.pid) != "running":
            pass
        assert threads.standing(one.pid, one.pid) is None
    assert threads.standing(2**22 - 1, 2**22 - 1) is None


@pytest.mark.parametrize(
    ("looks", "reads_on", "parked"),
    [
        ([f"{FUTEX} 0x1 0x7f 0x8"] * 2, False, True),
        ([f"{FUTEX} 0x1 0x7f 0x8", f"{FUTEX} 0x2 0x7f 0x8"], False, False),
        (["running"] * 2, False, False),
        (["7 0x1 0x7f 0x8"] * 2, False, False),
        ([f"{READ} 0x3 0x7f 0x8"] * 2, True, True),
        ([f"{READ} 0x3 0x7f 0x8"] * 2, False, False),
    ],
)
def test_a_thread_is_parked_where_two_looks_apart_find_it_in_a_call_that_goes_on(
    looks: list[str], reads_on: bool, parked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, slept = iter(looks), list[float]()
    monkeypatch.setattr(threads, "thread_ids", lambda pid: [5])
    monkeypatch.setattr(threads, "place", lambda pid, tid: next(seen))
    monkeypatch.setattr(threads, "_reads_on", lambda pid, descriptor: reads_on and descriptor == 3)
    monkeypatch.setattr(threads.time, "sleep", slept.append)
    assert threads.parked_threads(5, (FUTEX,), (READ,)) == [5] * parked
    assert slept == [threads._APART_S]
