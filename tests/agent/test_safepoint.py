"""CUPTI is only switched where the trainer launches nothing: anything else kills real ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from brrrtop.protocol import requests
from brrrtop.protocol.frames import Kind
from tests.agent.rig import Monitor, Trainer

Connect = Callable[[Trainer], Monitor]
ENABLE, FINALIZE = 4, 13
ON = "answer = sum(cupti.fake_enabled(k) for k in (1, 2, 4, 5, 10))"


@contextmanager
def working(trainer: Trainer, code: str) -> Iterator[Future[Any]]:
    """The trainer does `code` meanwhile; nobody else may talk to it."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(trainer.do, code, 30)


def start(trainer: Trainer, connect: Connect, options: str = "") -> Monitor:
    trainer.load().start(options)
    monitor = connect(trainer)
    monitor.in_state("ready")
    return monitor


def some_bursts(monitor: Monitor, steps: int = 3) -> None:
    for turn in range(6):
        monitor.burst(steps=steps, longest_s=0.1)
        monitor.traced(turn + 1)


@pytest.mark.parametrize(
    "code",
    [
        "answer = work(cupti, lib, 3.0, True)",
        "answer = work(cupti, lib, 3.0, False)",
        "t = threading.Thread(target=work, args=(cupti, lib, 3.0, True)); t.start(); "
        "time.sleep(0.2); t.join()",
    ],
    ids=["between steps", "between bytecodes", "between steps of another thread"],
)
def test_bursts_begin_and_end_while_nothing_is_launched(
    trainer: Trainer, connect: Connect, code: str
) -> None:
    monitor = start(trainer, connect)
    with working(trainer, code) as done:
        if "Thread" in code:
            monitor.until(lambda m: m.count(Kind.MARKS))
        some_bursts(monitor)
        monitor.send(requests.continuous(True))
        monitor.in_state("tracing")
        monitor.send(requests.continuous(False))
        monitor.in_state("ready")
        took = done.result(10)
    assert trainer.do("answer = cupti.fake_beside()") == 0
    assert trainer.do(f"answer = cupti.fake_calls({FINALIZE})") >= 1
    assert monitor.count(Kind.KERNELS) > 100
    assert took is None or sorted(took)[-8] < 20, "held for a moment only"
    held_us = [burst["held_us"] for burst in monitor.bursts]
    assert all(held["on"] > 0 and held["off"] > 0 for held in held_us)


@pytest.mark.parametrize("way", ["detach", "gone", "yield"])
def test_leaving_meets_the_trainer_too(trainer: Trainer, connect: Connect, way: str) -> None:
    monitor = start(trainer, connect)
    monitor.send(requests.continuous(True))
    code = "work(cupti, lib, 0.7, True)"
    if way == "yield":
        code += "; began = time.monotonic(); lib.brrr_yield(b'torch.profiler'); "
        code += "answer = time.monotonic() - began; " + ON.replace("answer", "on")
    else:
        code += "; work(cupti, lib, 1.5, True)"
    with working(trainer, code) as done:
        monitor.in_state("tracing")
        if way == "detach":
            monitor.send(requests.detach())
            monitor.until(lambda m: m.ended)
        elif way == "gone":
            monitor.close()
        took = done.result(10)
    assert way != "yield" or took < 0.6
    assert trainer.do("answer = cupti.fake_beside()") == 0
    assert trainer.do(ON) == 0
    if way != "yield":
        assert trainer.do(f"answer = cupti.fake_calls({FINALIZE})") == 1


@pytest.mark.parametrize("way", ["detach", "gone"])
def test_what_is_on_stays_on_until_the_trainer_can_be_met(
    trainer: Trainer, connect: Connect, way: str
) -> None:
    """A call into C of four seconds, which may well launch."""
    monitor = start(trainer, connect)
    monitor.send(requests.continuous(True))
    code = (
        "seen = []; look = lambda: seen.append(cupti.fake_enabled(10))\n"
        "work(cupti, lib, 0.5, True); threading.Timer(3.7, look).start(); time.sleep(4.0)\n"
        "work(cupti, lib, 1.5, False); answer = seen"
    )
    with working(trainer, code) as done:
        monitor.in_state("tracing")
        time.sleep(1.0)
        if way == "detach":
            monitor.send(requests.detach())
        else:
            monitor.close()
        assert done.result(12) == [1], "not switched off beside launches"
    assert trainer.do("answer = cupti.fake_beside()") == 0
    assert trainer.do(ON) == 0


def test_nothing_begins_where_nobody_can_be_met(trainer: Trainer, connect: Connect) -> None:
    monitor = start(trainer, connect)
    with working(trainer, "time.sleep(1.0)") as done:
        monitor.burst(longest_s=0.2)
        done.result(10)
    assert monitor.status()["state"] == "ready"
    assert monitor.traced(), "and begins when it can be"


def test_a_capture_is_no_place_to_meet(trainer: Trainer, connect: Connect) -> None:
    monitor = start(trainer, connect)
    with working(
        trainer,
        f"lib.brrr_capture(1); before = cupti.fake_calls({ENABLE}); work(cupti, lib, 0.5, True); "
        f"answer = cupti.fake_calls({ENABLE}) - before; lib.brrr_capture(0)",
    ) as done:
        monitor.burst(longest_s=0.2)
        assert done.result(10) == 0
    assert monitor.traced()


def test_an_agent_that_hangs_holds_a_step_up_once_and_shortly(
    trainer: Trainer, connect: Connect
) -> None:
    monitor = start(trainer, connect, "flush_ms=20")
    monitor.send(requests.continuous(True))
    monitor.in_state("tracing")
    monitor.send(requests.continuous(False))
    with working(
        trainer, "cupti.fake_slow_flush(1500); answer = work(cupti, lib, 1.2, True)"
    ) as done:
        took = sorted(done.result(10))
    assert took[-2] < 15 and took[-1] < 60


def test_a_step_nobody_asks_for_costs_next_to_nothing(trainer: Trainer, connect: Connect) -> None:
    start(trainer, connect)
    took = trainer.do(
        "began = time.perf_counter()\n"
        "for _ in range(10000): lib.brrr_step(1, 1)\n"
        "answer = (time.perf_counter() - began) / 10000"
    )
    assert took < 20e-6
