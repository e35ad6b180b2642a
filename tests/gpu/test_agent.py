"""The native agent against torch.profiler and a real CUPTI, in a real training loop."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from collectors.attach import agent_library
from collectors.protocol.frames import Kind
from collectors.vocabulary import CallClass
from tests.agent.rig import STATS, Monitor, Trainer

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]

MODEL = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]).cuda()
adam = torch.optim.AdamW(model.parameters())
x = torch.randn(64, 512, device="cuda")
def step():
    adam.zero_grad(); model(x).square().mean().backward(); adam.step()
    lib.brrr_step(time.time_ns(), threading.get_ident() & 0xFFFFFFFF)
def steps(count):
    for _ in range(count): step()
    torch.cuda.synchronize()
steps(10)
"""
PROFILE = """
from torch.profiler import profile, ProfilerActivity
lib.brrr_yield(b'torch.profiler')
with profile(activities=[ProfilerActivity.CUDA]) as seen:
    steps({count})
lib.brrr_resume()
kernels = [e for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
kernels = [e for e in kernels if not e.name.startswith(('Memcpy', 'Memset'))]
answer = [len(kernels), sum(e.device_time for e in kernels)]
"""
STEPS_ALONE = """
def steps_until(there):
    until = time.monotonic() + 10
    while not there(stats(lib)):
        assert time.monotonic() < until, stats(lib)
        lib.brrr_step(time.time_ns(), threading.get_ident() & 0xFFFFFFFF)
        time.sleep(0.001)
"""
"""Steps that launch nothing, in which the agent meets the trainer: in one that has stepped before it
waits 300 ms for a step before it asks the interpreter, twice a burst."""
STATE, BURSTS, TRACING = STATS.index("state"), STATS.index("bursts"), 3


@pytest.fixture
def watched(tmp_path) -> Iterator[tuple[Trainer, Monitor]]:
    trainer = Trainer({"agent": agent_library.library_path()}, tmp_path)
    monitor = None
    try:
        trainer.do(f"lib = agent({str(agent_library.library_path())!r})")
        trainer.start()
        trainer.do(MODEL, 120)
        monitor = Monitor(trainer.socket_path)
        monitor.in_state("ready")
        yield trainer, monitor
    finally:
        if monitor is not None:
            monitor.close()
        trainer.close()


def test_a_burst_counts_the_kernels_that_torch_profiler_counts(watched):
    trainer, monitor = watched
    count, micros = trainer.do(PROFILE.format(count=10), 60)
    monitor.trace(steps=10, longest_s=20)
    trainer.do("steps(20)", 60)
    assert monitor.traced()["whole"]
    monitor.until(lambda m: m.count(Kind.MARKS) >= 20)
    kernels, calls = monitor.rows(Kind.KERNELS), monitor.rows(Kind.CALLS)
    marks = monitor.rows(Kind.MARKS)["start_ns"]
    inside = [m for m in marks if m >= calls["start_ns"].min()][:11]
    launched = calls[(calls["start_ns"] >= inside[0]) & (calls["start_ns"] < inside[10])]
    ours = kernels[np.isin(kernels["correlation"], launched["correlation"])]
    assert len(ours) == count
    total_us = (ours["end_ns"] - ours["start_ns"]).sum() / 1000
    assert total_us == pytest.approx(micros, rel=0.1), "two runs: the launches are the same"
    assert not monitor.rows(Kind.OBSERVED)["flags"].any()
    assert monitor.losses() == {}
    assert set(calls["call_class"]) >= {CallClass.LAUNCH}


def test_records_come_back_after_torch_profiler_with_and_without_a_hook(watched):
    trainer, monitor = watched
    for turn, hooked in enumerate((True, True, False)):
        code = PROFILE.format(count=3)
        if not hooked:
            code = code.replace("lib.brrr_yield", "len").replace("lib.brrr_resume()", "pass")
        assert trainer.do(code, 60)[0] > 0, "torch.profiler has its records"
        if hooked:
            monitor.burst(steps=3, longest_s=10)
            monitor.until(lambda m: m.status()["state"] == "tracing")
            trainer.do("steps(10)", 60)
            assert monitor.traced(turn + 1)["kernels"] > 100
    for _ in range(2):
        monitor.burst(steps=3, longest_s=2)
        monitor.until(lambda m: m.status()["state"] == "tracing")
        trainer.do("steps(10)", 60)
        monitor.until(lambda m: m.status()["state"] != "tracing")
    assert "owns the callbacks" in monitor.in_state("blocked")["says"]
    monitor.burst(steps=3, longest_s=10)
    monitor.in_state("tracing", 20)
    before = monitor.count(Kind.KERNELS)
    trainer.do("steps(10)", 60)
    monitor.until(lambda m: m.count(Kind.KERNELS) > before)


def test_many_bursts_over_a_captured_graph_leave_the_results_alone(watched):
    trainer, monitor = watched
    trainer.do(
        "graph = torch.cuda.CUDAGraph(); y = torch.zeros(64, device='cuda')\n"
        "with torch.cuda.graph(graph):\n"
        "    for _ in range(100): y.add_(1)\n"
        "y.zero_()"
    )
    trainer.do(STEPS_ALONE)
    replays = 0
    for turn in range(100):
        monitor.burst(longest_s=0.02)
        trainer.do(
            f"steps_until(lambda s: s[{BURSTS}] == {turn} and s[{STATE}] == {TRACING})\n"
            "for _ in range(50): graph.replay()\n"
            "torch.cuda.synchronize()\n"
            f"steps_until(lambda s: s[{STATE}] != {TRACING})",
            30,
        )
        replays += 50
        monitor.traced(turn + 1)
    assert trainer.do("answer = y.cpu().tolist()") == [replays * 100.0] * 64
    kernels = monitor.rows(Kind.KERNELS)
    assert (kernels["graph"] != 0).sum() > 1000 and monitor.losses().get("zero_timestamps", 0) == 0


def test_leaving_in_every_way_keeps_the_trainer_going(watched):
    trainer, _ = watched
    for _ in range(20):
        one = Monitor(trainer.socket_path)
        one.trace_all()
        trainer.do("steps(3)", 60)
        one.close()
    time.sleep(1.0)
    assert trainer.do("answer = lib.brrr_stop()") == 0
    trainer.do("steps(50)", 60)
    assert trainer.end() == 0
