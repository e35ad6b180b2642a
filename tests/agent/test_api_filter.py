"""The driver's API has rows only where they tell what the runtime's do not, and what lacks is said."""

from collections.abc import Callable
from typing import Any

import pytest

from collectors.protocol import requests
from collectors.protocol.frames import Kind
from tests.agent.rig import Monitor, Trainer

Connect = Callable[[Trainer], Monitor]
RUNTIME = "cupti.fake_launch(name('r'), 200, 100, 0, 7)"
DRIVER = "cupti.fake_launch_driver(name('d'), 40, 100)"
TAKES_DRIVER = "answer = cupti.fake_enabled(4)"


class Bursts:
    """One burst after another; `last` is what was told of the newest."""

    def __init__(self, trainer: Trainer, monitor: Monitor) -> None:
        self.trainer, self.monitor, self.count = trainer, monitor, 0
        monitor.in_state("ready")

    def run(self, launch: str, longest_s: float = 10.0) -> tuple[bool, dict[str, Any]]:
        """Whether the driver's kind was on, and what was told at the end."""
        self.monitor.burst(longest_s=longest_s)
        self.monitor.until(lambda m: m.status()["state"] == "tracing")
        on = bool(self.trainer.do(TAKES_DRIVER))
        self.trainer.do(launch)
        self.monitor.send(requests.control(requests.Op.BURST_END))
        self.count += 1
        message = self.monitor.traced(self.count)
        self.monitor.until(lambda m: m.status()["state"] == "ready")
        return on, message


@pytest.fixture
def bursts(trainer: Trainer, connect: Connect) -> Bursts:
    trainer.load().start("drain_ms=60")
    return Bursts(trainer, connect(trainer))


def driver_rows(monitor: Monitor) -> int:
    calls = monitor.rows(Kind.CALLS)
    return 0 if calls is None else int((calls["flags"] & 1).sum())


@pytest.mark.parametrize("inside", [0, 1], ids=["runtime alone", "runtime through the driver"])
def test_the_drivers_rows_are_given_up_when_each_kernel_has_one_of_the_runtime(bursts, inside):
    bursts.trainer.do(f"cupti.fake_driver_inside({inside})")
    on, message = bursts.run(RUNTIME)
    assert on and message["whole"] and message["launches"], "the first burst looks at both"
    rows = driver_rows(bursts.monitor)
    assert rows == 200 * inside
    for _ in range(2):
        on, message = bursts.run(RUNTIME)
        assert not on
        assert message == {"kernels": 200, "steps": 0, "whole": True, "launches": True}
    assert driver_rows(bursts.monitor) == rows
    calls, kernels = bursts.monitor.rows(Kind.CALLS), bursts.monitor.rows(Kind.KERNELS)
    assert set(kernels["correlation"]) == set(calls["correlation"])


def test_where_triton_launches_they_stay(bursts):
    for _ in range(3):
        on, message = bursts.run(f"{RUNTIME}; {DRIVER}; {RUNTIME}")
        assert on and message["launches"]
    assert driver_rows(bursts.monitor) == 120


def test_kernels_without_a_row_bring_them_back_and_their_burst_is_not_called_complete(bursts):
    bursts.run(RUNTIME)
    on, message = bursts.run(f"{RUNTIME}; {DRIVER}; {RUNTIME}")
    assert not on
    assert message == {"kernels": 440, "steps": 0, "whole": True, "launches": False}
    on, message = bursts.run(f"{RUNTIME}; {DRIVER}; {RUNTIME}")
    assert on and message["launches"]
    assert driver_rows(bursts.monitor) == 40


def test_a_few_kernels_do_without_so_that_the_others_need_not_pay(bursts):
    few = f"{RUNTIME}; cupti.fake_launch_driver(name('d'), 4, 100); {RUNTIME}"
    on, message = bursts.run(few)
    assert on and message["launches"]
    for _ in range(2):
        on, message = bursts.run(few)
        assert not on and not message["launches"], "and that is said"


def test_waits_in_the_driver_alone_keep_them(bursts):
    for _ in range(2):
        on, _ = bursts.run(f"{RUNTIME}; cupti.fake_call(126, 1, 50000, 0); {RUNTIME}")
        assert on


def test_waits_are_looked_for_again_after_many_bursts(bursts):
    taken = [bursts.run(RUNTIME)[0] for _ in range(34)]
    assert [at for at, on in enumerate(taken) if on] == [0, 32]


def test_a_few_kernels_are_no_evidence(bursts):
    for _ in range(2):
        assert bursts.run("cupti.fake_launch(name('r'), 20, 100, 0, 7)")[0]


def test_a_launch_whose_kernel_never_came_is_not_made_up_for_by_other_kernels(bursts):
    bursts.run(RUNTIME)
    _, message = bursts.run(f"{DRIVER}; {RUNTIME}; cupti.fake_call(211, 0, 1000, 0); {RUNTIME}")
    assert not message["whole"]


def test_continuous_tracing_gives_them_up_and_takes_them_again(trainer, connect):
    monitor = connect(trainer.load().start("flush_ms=20")).ready()
    monitor.trace_all()
    both = f"{RUNTIME}; {DRIVER}; {RUNTIME}"
    until_driver(trainer, monitor, RUNTIME, 0)
    assert driver_rows(monitor) == 0
    until_driver(trainer, monitor, both, 1)
    trainer.do(both)
    monitor.send(requests.continuous(False))
    message = monitor.traced()
    assert message["whole"] and not message["launches"], "some kernels came before the rows did"
    assert driver_rows(monitor) >= 40
    assert monitor.count(Kind.KERNELS) == trainer.stats()["kernels"]


def until_driver(trainer: Trainer, monitor: Monitor, launch: str, on: int) -> None:
    for _ in range(300):
        trainer.do(launch)
        monitor.read(0.02)
        if trainer.do(TAKES_DRIVER) == on:
            return
    raise AssertionError(f"the driver's kind never became {on}")
