"""Whatever CUPTI does, the trainer goes on and the monitor hears one sentence."""

from collections.abc import Callable

import pytest

from collectors.protocol import requests
from collectors.protocol.frames import Kind
from tests.agent.rig import Monitor, Trainer

Connect = Callable[[Trainer], Monitor]
(VERSION, TIMESTAMP, REGISTER, CLOCK, ENABLE, DISABLE, RUNTIME, DRIVER, FLUSH, DROPPED) = range(10)
GET, SET, NEXT, FINALIZE, SUBSCRIBE = range(10, 15)


@pytest.mark.parametrize("code", [39, 14, 26])
def test_cupti_in_other_hands_is_said_and_tried_again_later(trainer, connect, code):
    monitor = connect(trainer.load().start()).ready()
    trainer.do(f"cupti.fake_fail({ENABLE}, {code}, 1)")
    monitor.burst()
    status = monitor.in_state("blocked")
    assert status["tier"] == "nvml"
    assert "another profiler holds CUPTI" in status["says"] and "10 s" in status["says"]
    assert trainer.do("answer = [cupti.fake_enabled(k) for k in (1, 2, 10)]") == [0, 0, 0]
    assert trainer.do("answer = cupti.fake_attribute(2)") == 250, "attributes as they were found"


@pytest.mark.parametrize("code", [27, 35, 40])
def test_what_is_not_permitted_stays_off(trainer, connect, code):
    monitor = connect(trainer.load().start()).ready()
    trainer.do(f"cupti.fake_fail({ENABLE}, {code}, -1)")
    monitor.burst()
    assert "not permitted or not supported" in monitor.in_state("off")["says"]
    monitor.burst()
    trainer.do("train(cupti, lib, 3)")
    assert trainer.do(f"answer = cupti.fake_calls({ENABLE})") == 1, "asked once"


def test_silence_while_steps_pass_means_somebody_owns_the_callbacks(trainer, connect):
    monitor = connect(trainer.load().start("drain_ms=0", graphs=True))
    monitor.send(requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.GRAPHS))
    monitor.in_state("ready")
    monitor.trace_all()
    trainer.do("train(cupti, lib, 3)")
    monitor.send(requests.continuous(False))
    monitor.in_state("ready")
    trainer.do("cupti.fake_take_callbacks()")
    for _ in range(2):
        monitor.trace(steps=2, longest_s=1.0)
        trainer.do("train(cupti, lib, 6)")
        monitor.until(lambda m: m.status()["state"] != "tracing")
    assert "owns the callbacks" in monitor.in_state("blocked")["says"]


def test_zero_timestamps_are_counted_and_in_graphs_end_the_tracing(trainer, connect):
    monitor = connect(trainer.load().start("flush_ms=20"))
    monitor.send(requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.GRAPHS))
    monitor.in_state("ready")
    monitor.trace_all()
    trainer.do("cupti.fake_zero_timestamps(5); cupti.fake_launch(name('k'), 20, 100, 0, 7)")
    monitor.until(lambda m: m.losses().get("zero_timestamps") == 5)
    assert monitor.count(Kind.KERNELS) == 15 and monitor.status()["state"] == "tracing"
    trainer.do("cupti.fake_zero_timestamps(1000); cupti.fake_graph(name('k'), 150, 100, 2)")
    assert "CUDA graphs" in monitor.in_state("off")["says"]
    assert trainer.do("answer = cupti.fake_enabled(10)") == 0
    assert monitor.count(Kind.KERNELS) == 15


def test_the_cap_on_buffers_pauses_tracing_and_never_withholds_one_from_an_old_cupti(
    trainer, connect
):
    monitor = connect(trainer.load(version=24).start("max_buffers=2;buffer_bytes=8192")).ready()
    monitor.trace_all()
    trainer.do("cupti.fake_launch(name('k'), 3000, 400_000, 0, 7)")
    monitor.until(lambda m: m.losses().get("pool"))
    assert trainer.do("answer = cupti.fake_no_buffer()") == 0
    monitor.send(requests.continuous(False))
    assert trainer.stats()["pool_mapped"] < 8 << 20


def test_a_newer_cupti_is_given_none_beyond_the_cap(trainer, connect):
    monitor = connect(trainer.load(version=130001).start("max_buffers=2;buffer_bytes=8192")).ready()
    monitor.trace_all()
    trainer.do("cupti.fake_launch(name('k'), 3000, 400_000, 0, 7)")
    monitor.until(lambda m: m.losses().get("pool") and m.losses().get("cupti_dropped"))
    assert trainer.do("answer = cupti.fake_no_buffer()") > 0
    assert trainer.stats()["pool_mapped"] == 2 * 8192


def test_a_foreign_buffer_is_counted_and_left_alone(trainer, connect):
    monitor = connect(trainer.load().start()).ready()
    monitor.trace(longest_s=0.1)
    trainer.do("cupti.fake_foreign_buffer()")
    monitor.traced()
    monitor.until(lambda m: m.losses().get("foreign_buffers") == 1)


def test_a_clock_that_torch_profiler_left_behind_is_put_right(trainer, connect):
    trainer.load().start()
    trainer.do("cupti.fake_clock_shift(-10**18)")
    monitor = connect(trainer).ready()
    monitor.trace(longest_s=0.1)
    assert trainer.do("answer = cupti.fake_has_own_clock()")
    trainer.do("cupti.fake_launch(name('k'), 20, 100, 0, 7)")
    assert monitor.traced()["kernels"] == 20


def test_records_of_another_clock_are_counted_not_sent(trainer, connect):
    monitor = connect(trainer.load().start()).ready()
    monitor.trace(longest_s=0.1)
    trainer.do("cupti.fake_clock_shift(-10**18); cupti.fake_launch(name('k'), 4, 100, 0, 7)")
    assert monitor.traced()["kernels"] == 0
    monitor.until(lambda m: m.losses().get("wrong_clock") == 8)


def test_nothing_dangerous_is_ever_called(trainer, connect):
    monitor = connect(trainer.load().start(graphs=True))
    monitor.send(requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.GRAPHS))
    monitor.in_state("ready")
    for turn in range(1, 4):
        monitor.burst(steps=2, longest_s=0.5)
        trainer.do("train(cupti, lib, 20)")
        monitor.traced(turn)
    trainer.do("lib.brrr_stop()")
    assert trainer.do("answer = [cupti.fake_ever(k) for k in (3, 38, 51)]") == [0] * 3
    for call in (FINALIZE, SUBSCRIBE):
        assert trainer.do(f"answer = cupti.fake_calls({call})") == 0
    assert trainer.do("answer = cupti.fake_forced()") == 0
    assert trainer.do("answer = cupti.fake_attribute(2)") == 250
