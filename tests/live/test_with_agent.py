"""The whole live path but the GPU: the native agent over its socket, governed, judged, recorded."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from brrrtop.model.estimate import Regime
from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.session.controller import Controller
from brrrtop.session.live import Live, alone
from brrrtop.session.session import Session
from brrrtop.sources.live import LiveSource
from brrrtop.sources.recording import RecordingSource, RecordingWriter
from collectors.attach.client import connect
from collectors.protocol.frames import Kind
from tests.agent.conftest import built, trainer
from tests.agent.rig import Trainer

__all__ = ["built", "trainer"]

FILE = "run.brrr"


@pytest.fixture
def watching(trainer: Trainer, tmp_path: Path) -> Iterator[Live]:
    """A driver on a trainer that trains in a thread of its own: 20 kernels a step, 2 ms a step."""
    trainer.load().start()
    trainer.do(
        "threading.Thread(target=train, args=(cupti, lib, 100_000, 20), daemon=True).start()"
    )
    client = connect(str(trainer.socket_path), pid=trainer.process.pid, uid=os.getuid())
    writer = RecordingWriter(tmp_path / FILE)
    source = LiveSource(client, trainer.process.pid, sink=writer)
    driver = Live([alone(Controller(source))])
    yield driver
    driver.close()


def until(driver: Live, done: Callable[[Snapshot], bool], limit_s: float = 15.0) -> Snapshot:
    """Advances four times a second until `done`."""
    deadline = time.monotonic() + limit_s
    while not done(snapshot := driver.advance()):
        assert time.monotonic() < deadline, snapshot.source
        time.sleep(0.25)
    return snapshot


def test_a_verdict_comes_within_seconds_and_the_cost_after_it(watching: Live) -> None:
    began = time.monotonic()
    first = until(watching, lambda s: s.estimate is not None)
    assert time.monotonic() - began < 5
    assert first.freshness is Freshness.LIVE
    assert first.source.tier == "bursts"
    later = until(watching, lambda s: s.overhead.step_cost_share is not None)
    assert later.overhead.step_cost_error_share is not None
    assert later.estimate.steps.count
    assert later.overhead.monitor_rss_bytes is not None


def test_steps_longer_than_the_first_look_have_their_verdict_within_seconds_too(
    trainer: Trainer,
) -> None:
    """One that waits for its data: a look of 200 ms holds the kernels of one step of 300 ms."""
    trainer.load().start()
    trainer.do(
        "slow = lambda: [(time.sleep(0.3), train(cupti, lib, 1, 20)) for _ in range(1000)]\n"
        "threading.Thread(target=slow, daemon=True).start()"
    )
    client = connect(str(trainer.socket_path), pid=trainer.process.pid, uid=os.getuid())
    source = LiveSource(client, trainer.process.pid)
    driver = Live([alone(Controller(source))])
    try:
        began = time.monotonic()
        judged = until(driver, lambda s: s.estimate is not None)
        assert time.monotonic() - began < 5
        assert judged.estimate is not None and judged.estimate.steps.count
        assert judged.estimate.regime is Regime.OVERHEAD
        bursts = [f.body["burst"] for f in source.tee.ring.frames()
                  if f.kind == Kind.STATUS and "burst" in f.body]  # fmt: skip
        assert bursts[0] == "the first look" and len(bursts) <= 2
    finally:
        driver.close()


def test_bursts_are_counted_alike_on_both_sides(watching: Live, trainer: Trainer) -> None:
    controller = watching.shown
    source = controller.source
    until(
        watching, lambda s: trainer.stats()["bursts"] >= 2 and not controller.governor.tracing, 60
    )
    time.sleep(0.6)
    watching.advance()
    frames = source.tee.ring.frames()
    arrived = sum(len(frame.body) for frame in frames if frame.kind == Kind.KERNELS)
    traced = [f.body["traced"]["kernels"] for f in frames
              if f.kind == Kind.STATUS and "traced" in f.body]  # fmt: skip
    assert sum(traced) <= arrived == trainer.stats()["kernels"]
    assert trainer.stats()["lost"] == 0


def test_a_reader_that_sleeps_does_not_lose_the_agent(watching: Live) -> None:
    until(watching, lambda s: s.estimate is not None)
    time.sleep(3.5)  # longer than the agent waits for a ping
    watching.advance()
    assert watching.shown.tier == "bursts"
    assert not watching.shown.source.ended


def test_what_was_recorded_replays(watching: Live, tmp_path: Path) -> None:
    until(watching, lambda s: s.overhead.step_cost_share is not None)
    timeline = watching.members[0].session.timeline
    last = until(watching, lambda s: s.now_ns - timeline.traced[-1].t1_ns > 1_000_000_000)
    now_ns = last.now_ns
    watching.close()
    replayed = RecordingSource(tmp_path / FILE)
    session = Session(replayed)
    times = np.arange(now_ns - 3_000_000_000, now_ns, 250_000_000)
    for t_ns in [*times.tolist(), now_ns]:
        again = session.advance(t_ns)
    assert again.estimate.account == last.estimate.account
    assert again.gauges == last.gauges
    assert replayed.info.notes == ()
    replayed.close()


def test_leaving_leaves_the_trainer_untraced(watching: Live, trainer: Trainer) -> None:
    until(watching, lambda s: s.estimate is not None)
    watching.continuous(True)
    time.sleep(0.5)
    watching.advance()
    assert watching.shown.tier == "continuous"
    watching.close()
    time.sleep(0.5)
    before = trainer.stats()
    time.sleep(0.5)
    after = trainer.stats()
    assert after["clients"] == 0
    assert after["kernels"] == before["kernels"]


def test_the_trainers_death_ends_the_source(watching: Live, trainer: Trainer) -> None:
    until(watching, lambda s: s.estimate is not None)
    trainer.process.kill()
    trainer.process.wait()
    ended = until(watching, lambda s: s.freshness is Freshness.ENDED, 5)
    assert ended.estimate is not None
    assert any("exited" in event.says for event in ended.events)
    assert threading.active_count() < 10


def test_what_is_undecided_about_graphs_holds_bursts_back_until_it_is_known(
    trainer: Trainer,
) -> None:
    trainer.load().start(graphs=True)
    trainer.do(
        "threading.Thread(target=train, args=(cupti, lib, 100_000, 20), daemon=True).start()"
    )
    client = connect(str(trainer.socket_path), pid=trainer.process.pid, uid=os.getuid())
    source = LiveSource(client, trainer.process.pid)
    driver = Live([alone(Controller(source))])
    try:
        waiting = until(driver, lambda s: s.source.tier == "nvml")
        assert any("--no-trace-graphs" in note for note in waiting.source.notes)
        trainer.do("lib.brrr_graphs(0)")
        judged = until(driver, lambda s: s.estimate is not None, 8)
        assert judged.source.tier == "bursts"
        assert not any("--no-trace-graphs" in note for note in judged.source.notes)
    finally:
        driver.close()
