"""The whole live path but the GPU: the native agent over its socket, governed, judged, recorded."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from brrrtop.model.estimate import Regime
from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.session.controller import Controller
from brrrtop.session.live import Live, alone
from brrrtop.sources.live import LiveSource
from collectors.attach.client import connect
from collectors.protocol.frames import Frame, Kind
from tests.agent.conftest import built, trainer
from tests.agent.rig import PATIENCE_S, Trainer

FILE = "run.brrr"

__all__ = ["built", "trainer"]

SLOW_STEPS = "lambda: [(time.sleep(0.3), train(cupti, lib, 1, 20)) for _ in range(1000)]"
"""Each waits for its data: a look of 200 ms holds the kernels of one."""
QUICK_STEPS = "lambda: train(cupti, lib, 100_000, 20)"


KEPT: list[Frame] = []
"""What the watched trainer sent."""


@contextmanager
def watched(trainer: Trainer, steps: str) -> Iterator[Live]:
    """A driver on a trainer that trains in a thread of its own."""
    trainer.load().start()
    trainer.do(f"threading.Thread(target={steps}, daemon=True).start()")
    client = connect(str(trainer.socket_path), pid=trainer.process.pid, uid=os.getuid())
    driver = Live([alone(Controller(LiveSource(client, trainer.process.pid)))])
    KEPT.clear()
    driver.shown.source.tee.add = KEPT.append  # type: ignore[method-assign]
    try:
        yield driver
    finally:
        driver.close()


def until(driver: Live, done: Callable[[Snapshot], bool]) -> Snapshot:
    """Advances four times a second until `done`."""
    deadline = time.monotonic() + PATIENCE_S
    while not done(snapshot := driver.advance()):
        assert time.monotonic() < deadline, snapshot.source
        time.sleep(0.25)
    return snapshot


def test_a_verdict_comes_the_cost_after_it_and_bursts_are_counted_alike_on_both_sides(trainer):
    with watched(trainer, QUICK_STEPS) as driver:
        first = until(driver, lambda s: s.estimate is not None)
        assert first.freshness is Freshness.LIVE
        assert first.source.tier == "bursts"
        later = until(driver, lambda s: s.overhead.step_cost_share is not None)
        assert later.overhead.step_cost_error_share is not None
        assert later.estimate.steps.count
        assert later.overhead.monitor_rss_bytes is not None
        controller = driver.shown
        until(driver, lambda s: trainer.stats()["bursts"] >= 2 and not controller.governor.tracing)

        def arrived() -> int:
            return sum(len(frame.body) for frame in KEPT if frame.kind == Kind.KERNELS)

        until(
            driver, lambda s: controller.governor.tracing or arrived() == trainer.stats()["kernels"]
        )
        traced = [f.body["traced"]["kernels"] for f in KEPT
                  if f.kind == Kind.STATUS and "traced" in f.body]  # fmt: skip
        assert sum(traced) <= arrived() and trainer.stats()["lost"] == 0


def test_steps_longer_than_the_first_look_have_their_verdict_after_the_second(trainer):
    with watched(trainer, SLOW_STEPS) as driver:
        judged = until(driver, lambda s: s.estimate is not None)
        assert judged.estimate is not None and judged.estimate.steps.count
        assert judged.estimate.regime is Regime.OVERHEAD
        bursts = [f.body["burst"] for f in KEPT
                  if f.kind == Kind.STATUS and "burst" in f.body]  # fmt: skip
        assert bursts[0] == "the first look" and len(bursts) <= 2
