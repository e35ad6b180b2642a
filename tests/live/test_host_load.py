"""The host's load, and what the monitor has of it."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from collectors.process import load as hostload
from collectors.process.load import HostLoad
from collectors.vocabulary import Metric


def test_a_process_that_a_signal_stopped_is_seen():
    child = subprocess.Popen(["sleep", "20"])
    try:
        load = HostLoad(child.pid)
        assert load.trainer_stopped is None
        child.send_signal(signal.SIGSTOP)
        while load.trainer_stopped is None:
            time.sleep(0.01)
        assert f"kill -CONT {child.pid}" in str(load.trainer_stopped)
        load.close()
    finally:
        child.kill()
        child.wait(10)


def test_the_hosts_load_is_measured():
    load = HostLoad(os.getpid())
    sum(range(2_000_000))
    rows = load.sample()
    result = {Metric(row["metric"]): float(row["value"]) for row in rows}
    assert result[Metric.MONITOR_RSS_BYTES] > 1 << 20
    assert result[Metric.TRAINER_CPU_SHARE] > 0.0, "however little a loaded host leaves it"
    assert result[Metric.TRAINER_CORES] == len(os.sched_getaffinity(0))
    assert set(rows["device"].tolist()) == {-1}
    assert load.trainer_running is True
    gone = HostLoad(2**22 - 1)
    assert gone.trainer_running is False
    left = {int(m) for m in gone.sample()["metric"]}
    assert not left & {Metric.TRAINER_CPU_SHARE, Metric.TRAINER_CORES}
    assert np.isfinite(rows["value"]).all()


def test_a_process_that_does_a_part_of_the_work_is_counted_as_the_monitor_while_it_lives():
    busy = "print(flush=True)\nwhile True: pass"
    child = subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline()
        load = HostLoad()
        alone = _measured(load)
        first, both = _measured(load, child.pid), _measured(load, child.pid)
        assert both[Metric.MONITOR_CPU_SHARE] > max(0.1, 2 * alone[Metric.MONITOR_CPU_SHARE])
        assert first[Metric.MONITOR_RSS_BYTES] > alone[Metric.MONITOR_RSS_BYTES] + (1 << 20)
    finally:
        child.kill()
        child.wait(10)
    left = _measured(load, child.pid)
    assert left[Metric.MONITOR_CPU_SHARE] < 0.5 * both[Metric.MONITOR_CPU_SHARE]
    assert left[Metric.MONITOR_RSS_BYTES] < first[Metric.MONITOR_RSS_BYTES] - (1 << 20)


def test_a_helper_has_no_share_before_its_second_reading(monkeypatch):
    """A tick of 10 ms that falls between two looks at it within 50 us would be 200 cores."""

    class Share:
        rss_bytes = 1 << 20

        def __init__(self, pid: int | None = None) -> None:
            self.is_helper = pid == 77

        def share(self) -> float:
            return 200.0 if self.is_helper else 0.1

    monkeypatch.setattr(hostload, "CpuShare", Share)
    load = HostLoad()
    assert _measured(load, 77)[Metric.MONITOR_CPU_SHARE] == 0.1
    assert _measured(load, 77)[Metric.MONITOR_CPU_SHARE] == pytest.approx(200.1)


def _measured(load: HostLoad, *helpers: int) -> dict[Metric, float]:
    time.sleep(0.2)
    return {Metric(row["metric"]): float(row["value"]) for row in load.sample(helpers)}
