"""CUPTI is only switched where the trainer launches nothing: anything else kills real ones."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collectors.attach.ptrace import calls
from collectors.protocol import requests
from collectors.protocol.frames import Kind
from tests.agent.rig import PATIENCE_S, Monitor, Trainer

Connect = Callable[[Trainer], Monitor]
ENABLE, FINALIZE = 4, 13
GIVEN_UP_S = 1.6
"""The agent waits 1.3 s for a trainer that it leaves."""
ON = "answer = sum(cupti.fake_enabled(k) for k in (1, 2, 4, 5, 10))"


START = f"began = cupti.fake_calls({ENABLE})"


class Doors:
    """Where the trainer waits for the test: files that it looks for, and calls into C."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def until(self, name: str) -> str:
        """Python that says whether the test has let the trainer go on."""
        return f"(lambda: os.path.exists({str(self._folder / name)!r}))"

    def open(self, name: str) -> None:
        (self._folder / name).touch()

    def tell(self, name: str) -> str:
        """Python that tells the test so."""
        return f"open({str(self._folder / name)!r}, 'w').close()"

    def wait(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not (self._folder / name).exists():
            assert time.monotonic() < deadline, f"it never told {name}"
            time.sleep(0.005)

    def call(self, name: str) -> str:
        """Python that stays in one call into C until the test ends it."""
        os.mkfifo(self._folder / name)
        return f"wait_in_c({str(self._folder / name)!r})"

    def end_call(self, name: str) -> None:
        os.close(os.open(self._folder / name, os.O_WRONLY))


@pytest.fixture
def doors(tmp_path) -> Doors:
    return Doors(tmp_path)


@contextmanager
def working(trainer: Trainer, code: str) -> Iterator[Future[Any]]:
    """The trainer does `code` meanwhile; nobody else may talk to it."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(trainer.do, code, 40)


def start(trainer: Trainer, connect: Connect, options: str = "") -> Monitor:
    trainer.hurry()
    monitor = connect(trainer.load().start(options)).ready()
    return monitor


def wait_until_it_sleeps(trainer: Trainer) -> None:
    """Until the trainer is in a call into C that lasts: it has not run for a while."""
    pid, deadline = trainer.process.pid, time.monotonic() + PATIENCE_S
    before = None
    while (now := calls.standing(pid, pid)) is None or now != before:
        assert time.monotonic() < deadline, "it does not come to rest"
        before = now
        time.sleep(0.05)


def some_bursts(monitor: Monitor, steps: int = 3) -> None:
    for turn in range(6):
        monitor.burst(steps=steps, longest_s=0.1)
        monitor.traced(turn + 1)


@pytest.mark.parametrize(
    "code",
    [
        "answer = work(cupti, lib, DONE, True)",
        "answer = work(cupti, lib, DONE, False)",
        "t = threading.Thread(target=work, args=(cupti, lib, DONE, True)); t.start(); t.join()",
    ],
    ids=["between steps", "between bytecodes", "between steps of another thread"],
)
def test_bursts_begin_and_end_while_nothing_is_launched(trainer, connect, doors, code):
    monitor = start(trainer, connect)
    with working(trainer, code.replace("DONE", doors.until("done"))) as done:
        if "Thread" in code:
            monitor.until(lambda m: m.count(Kind.MARKS))
        some_bursts(monitor)
        monitor.trace_all()
        monitor.until(lambda m: m.count(Kind.KERNELS) > 100)
        monitor.send(requests.continuous(False))
        monitor.in_state("ready")
        doors.open("done")
        took = done.result(10)
    assert trainer.do("answer = cupti.fake_beside()") == 0
    trainer.until(f"answer = cupti.fake_calls({FINALIZE}) >= 1", True)
    if took is not None and trainer.in_hurry:
        assert sorted(took)[-8] < 20, "held for a moment only"
    held_us = [burst["held_us"] for burst in monitor.bursts]
    assert all(buffered["on"] > 0 and buffered["off"] > 0 for buffered in held_us)


@pytest.mark.parametrize("way", ["detach", "gone"])
def test_leaving_meets_the_trainer_too(trainer, connect, doors, way):
    monitor = start(trainer, connect)
    monitor.send(requests.continuous(True))
    out = f"(lambda: cupti.fake_calls({FINALIZE}))"
    code = f"work(cupti, lib, {doors.until('traced')}, True); work(cupti, lib, {out}, True)"
    with working(trainer, code) as done:
        monitor.until(lambda m: m.count(Kind.KERNELS))
        if way == "detach":
            monitor.send(requests.detach())
        else:
            monitor.close()
        doors.open("traced")
        done.result(40)
    assert trainer.do("answer = cupti.fake_beside()") == 0
    assert trainer.do(ON) == 0
    assert trainer.do(f"answer = cupti.fake_calls({FINALIZE})") == 1


def test_yielding_meets_the_trainer_at_once(trainer, connect, doors):
    monitor = start(trainer, connect)
    monitor.send(requests.continuous(True))
    with working(
        trainer,
        f"work(cupti, lib, {doors.until('traced')}, True); began = time.monotonic()\n"
        "lib.brrr_yield(b'torch.profiler'); took = time.monotonic() - began\n"
        f"{ON}; answer = [answer, took]",
    ) as done:
        monitor.in_state("tracing")
        doors.open("traced")
        on, took = done.result(40)
    assert on == 0
    assert took < 0.6 or not trainer.in_hurry
    assert trainer.do("answer = cupti.fake_beside()") == 0


@pytest.mark.parametrize("way", ["detach", "gone"])
def test_what_is_on_stays_on_until_the_trainer_can_be_met(trainer, connect, doors, way):
    """A call into C, which may well launch and lasts longer than the agent waits."""
    monitor = start(trainer, connect)
    monitor.send(requests.continuous(True))
    out = f"(lambda: cupti.fake_calls({FINALIZE}))"
    code = (
        f"def look():\n    {doors.call('look')}; seen.append(cupti.fake_enabled(10))\n"
        f"    {doors.tell('looked')}\n"
        f"seen, looks = [], threading.Thread(target=look)\n"
        f"work(cupti, lib, {doors.until('traced')}, True); looks.start()\n"
        f"{doors.call('call')}; looks.join(); work(cupti, lib, {out}, False, 2); answer = seen"
    )
    with working(trainer, code) as done:
        monitor.until(lambda m: m.count(Kind.KERNELS))
        doors.open("traced")
        wait_until_it_sleeps(trainer)
        if way == "detach":
            monitor.send(requests.detach())
        else:
            monitor.close()
        time.sleep(GIVEN_UP_S)
        doors.end_call("look")
        doors.wait("looked")
        doors.end_call("call")
        assert done.result(40) == [1], "not switched off beside launches"
    assert trainer.do("answer = cupti.fake_beside()") == 0
    assert trainer.do(ON) == 0


def test_nothing_begins_where_nobody_can_be_met(trainer, connect, doors):
    monitor = start(trainer, connect)
    call = doors.call("call")
    with working(trainer, call) as done:
        wait_until_it_sleeps(trainer)
        monitor.burst(longest_s=0.2)
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            monitor.read()
        assert monitor.status()["state"] == "ready"
        doors.end_call("call")
        done.result(10)
    assert monitor.traced(), "and begins when it can be"


def test_a_capture_is_no_place_to_meet(trainer, connect, doors):
    monitor = start(trainer, connect)
    with working(
        trainer,
        f"lib.brrr_capture(1); {START}; lib.brrr_step(1, threading.get_native_id())\n"
        f"work(cupti, lib, {doors.until('asked')}, True); work(cupti, lib, after(0.5), True)\n"
        f"answer = cupti.fake_calls({ENABLE}) - began; lib.brrr_capture(0)",
    ) as done:
        monitor.until(lambda m: m.count(Kind.MARKS))
        monitor.burst(longest_s=0.2)
        doors.open("asked")
        assert done.result(10) == 0
    assert monitor.traced()


def test_an_agent_that_hangs_holds_a_step_up_once_and_shortly(trainer, connect):
    monitor = start(trainer, connect, "flush_ms=20")
    if not trainer.in_hurry:
        pytest.skip("other processes may hold a step up as well")
    monitor.trace_all()
    monitor.send(requests.continuous(False))
    with working(
        trainer, "cupti.fake_slow_flush(1500); answer = work(cupti, lib, after(1.2), True)"
    ) as done:
        took = sorted(done.result(10))
    assert took[-2] < 15 and took[-1] < 60


def test_a_switch_that_waits_for_some_long_steps_on_the_device_is_waited_for(
    trainer, connect, doors
):
    monitor = start(trainer, connect)
    code = f"cupti.fake_slow_switch(300); answer = work(cupti, lib, {doors.until('done')}, True, 30, 250)"
    with working(trainer, code) as done:
        monitor.until(lambda m: m.count(Kind.MARKS) > 1)
        for turn in range(2):
            monitor.burst(steps=2, longest_s=1)
            monitor.traced(turn + 1)
        doors.open("done")
        done.result(20)
    assert trainer.do("answer = cupti.fake_beside()") == 0
    assert max(burst["held_us"]["on"] for burst in monitor.bursts) > 310_000
