"""CUPTI leaves the launch path between bursts, and never where a CUDA graph may exist."""

from collections.abc import Callable

import pytest

from collectors.protocol import requests
from collectors.protocol.frames import Kind
from tests.agent.rig import Monitor, Trainer

Connect = Callable[[Trainer], Monitor]
FINALIZE = 13
FINALIZED = f"answer = cupti.fake_calls({FINALIZE})"


@pytest.fixture(autouse=True)
def _hurried(trainer: Trainer) -> None:
    trainer.hurry()


def traced_burst(trainer: Trainer, monitor: Monitor, launch: str) -> None:
    """A burst that ends when the trainer has launched, however long that took."""
    before = len(monitor.of(Kind.OBSERVED))
    monitor.burst(longest_s=30)
    monitor.until(lambda m: m.status()["state"] == "tracing")
    trainer.do(launch)
    monitor.burst_end()
    monitor.until(lambda m: len(m.of(Kind.OBSERVED)) > before and m.status()["state"] == "ready")


LAUNCH = "cupti.fake_launch(name('k'), 20, 100, 0, 7)"


def test_after_a_burst_cupti_is_taken_out_and_the_next_burst_works(trainer, connect):
    trainer.load().start()
    trainer.do("lib.brrr_graphs(0)")
    monitor = connect(trainer).ready()
    traced_burst(trainer, monitor, LAUNCH)
    trainer.until(FINALIZED, 1)
    traced_burst(trainer, monitor, LAUNCH)
    trainer.until(FINALIZED, 2)
    assert monitor.count(Kind.KERNELS) == 40


@pytest.mark.parametrize(
    ("before", "launch"),
    [
        ("pass", LAUNCH),
        ("lib.brrr_graphs(1); lib.brrr_graphs(0)", LAUNCH),
        ("lib.brrr_graphs(0); lib.brrr_graphs(1)", LAUNCH),
        ("lib.brrr_graphs(0)", "cupti.fake_graph(name('k'), 20, 100, 5)"),
        ("lib.brrr_graphs(0); lib.brrr_yield(b'torch.profiler'); lib.brrr_resume()", LAUNCH),
    ],
    ids=["nobody said", "found", "captured", "replayed in the burst", "torch.profiler was here"],
)
def test_where_a_graph_may_exist_it_stays(trainer, connect, before, launch):
    trainer.load().start(graphs=True)
    trainer.do(before)
    monitor = connect(trainer)
    monitor.send(requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.GRAPHS))
    monitor.in_state("ready")
    traced_burst(trainer, monitor, launch)
    monitor.send(requests.detach())
    monitor.until(lambda m: m.ended)
    assert trainer.do(FINALIZED) == 0


def test_where_nobody_can_tell_nothing_is_traced_unless_asked_for(trainer, connect):
    monitor = connect(trainer.load().start(graphs=True)).ready()
    monitor.burst(longest_s=0.1)
    monitor.until(lambda m: m.status()["code"] == "graphs-unknown")
    assert monitor.status()["state"] == "ready"
    assert trainer.do("answer = [cupti.fake_ever(k) for k in (1, 2, 4, 5, 10)]") == [0] * 5
    monitor.send(requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.GRAPHS))
    monitor.burst(longest_s=0.1)
    monitor.until(lambda m: m.status()["state"] == "tracing")


def test_a_capture_is_not_begun_under_tracing(trainer, connect):
    monitor = connect(trainer.load().start()).ready()
    monitor.trace_all()
    trainer.do(
        "lib.brrr_capture(1); lib.brrr_graphs(1); time.sleep(0.1)\n"
        "answer = [cupti.fake_enabled(k) for k in (1, 2, 4, 5, 10)]"
    )
    assert trainer.do("answer = [cupti.fake_enabled(k) for k in (1, 2, 4, 5, 10)]") == [0] * 5
    trainer.do("lib.brrr_capture(0)")
    monitor.until(lambda m: m.status()["state"] == "tracing")
    assert trainer.do(FINALIZED) == 0
