"""The gauges tell what known loops do. Needs an NVIDIA GPU and torch: `pytest -m gpu`."""

import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from collectors.gpu.counters.sampler import CounterThread
from collectors.gpu.sampler_thread import GaugeThread
from collectors.protocol.frames import OBSERVED, Kind, on_host_clock
from collectors.vocabulary import Metric

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(120),
    pytest.mark.leaves_threads,  # NVML keeps a socket of its own
]
SECOND = 1_000_000_000

LOOP = """
import sys, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
b = torch.empty(1 << 28, device="cuda")
c = torch.empty_like(b)
print("ready", flush=True)
while True:
    for _ in range(20):
        if sys.argv[1] == "matmul":
            a @ a
        else:
            c.copy_(b)
    torch.cuda.synchronize()
"""

Loop = Callable[[str], int]


@pytest.fixture
def loop() -> Iterator[Loop]:
    """`loop("matmul")` or `loop("copy")` starts a trainer; its pid."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    running: list[subprocess.Popen[str]] = []

    def start(kind: str) -> int:
        command = [sys.executable, "-c", LOOP, kind]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        running.append(child)
        ready, _, _ = select.select([child.stdout], [], [], 60)
        assert ready, "the trainer was not ready within 60 s"
        assert child.stdout.readline() == "ready\n", f"exit code {child.poll()}"
        time.sleep(1)
        return child.pid

    yield start
    for child in running:
        child.kill()
        child.wait(10)
        if child.stdout is not None:
            child.stdout.close()


def means(feed: GaugeThread | CounterThread, seconds: float) -> dict[int, float]:
    """The mean of each metric over that time."""
    feed.drain()
    time.sleep(seconds)
    bodies = [frame.body for frame in feed.drain() if frame.kind == Kind.GAUGES]
    assert bodies, feed.remarks
    rows = np.concatenate(bodies)
    return {int(m): float(rows["value"][rows["metric"] == m].mean()) for m in set(rows["metric"])}


@pytest.fixture
def gauges() -> Iterator[Callable[[int], GaugeThread]]:
    started: list[GaugeThread] = []

    def start(pid: int) -> GaugeThread:
        feed = GaugeThread(pid)
        started.append(feed)
        feed.start()
        assert feed.ready.wait(20)
        time.sleep(1)
        return feed

    yield start
    for feed in started:
        assert feed.close(5)


def test_a_matmul_loop_is_compute(loop, gauges):
    result = means(gauges(loop("matmul")), 6)
    assert result[Metric.SMI_UTIL] > 0.9
    if Metric.SM_ACTIVE not in result:
        pytest.skip("this GPU has no GPM counters")
    assert result[Metric.SM_ACTIVE] > 0.8
    assert result[Metric.TENSOR_ACTIVE] > 0.6
    assert result[Metric.DRAM_ACTIVE] < 0.5
    assert result[Metric.FOREIGN_PROCESS_COUNT] == 0


def test_a_copy_loop_is_memory(loop, gauges):
    result = means(gauges(loop("copy")), 3)
    if Metric.DRAM_ACTIVE not in result:
        pytest.skip("this GPU has no GPM counters")
    assert result[Metric.DRAM_ACTIVE] > 0.6
    assert result[Metric.TENSOR_ACTIVE] < 0.05


def test_hardware_counters_agree_with_gpm(loop, gauges):
    pid = loop("matmul")
    feed = gauges(pid)
    facts = [frame.body for frame in feed.drain() if frame.kind == Kind.DEVICE]
    counters = CounterThread()
    counters.start()
    try:
        counters.match({facts[0]["device_id"]: facts[0]["uuid"]})
        deadline = time.monotonic() + 20
        while not counters.active and not counters.remarks and time.monotonic() < deadline:
            time.sleep(0.1)
        if not counters.active:
            pytest.skip(f"no hardware counters: {counters.remarks}")
        counters.expect(None)
        began_ns = time.time_ns()
        exact, coarse = means(counters, 3), means(feed, 3)
        counters.traced(np.array([(began_ns, began_ns + SECOND, -1, 0)], OBSERVED))
        time.sleep(0.5)
        frames = [f.body for f in counters.drain() if f.kind == Kind.SAMPLES]
    finally:
        counters.close(10)
    for metric in (Metric.SM_ACTIVE, Metric.TENSOR_ACTIVE, Metric.DRAM_ACTIVE):
        assert exact[metric] == pytest.approx(coarse[metric], abs=0.05)
    starts, _ = on_host_clock(np.concatenate(frames))
    assert len(starts) > 1000
    assert abs(int(starts[0]) - began_ns) < 0.05 * SECOND
