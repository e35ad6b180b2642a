"""The host's load, and what the monitor has of it."""

import os
import signal
import subprocess
import time

import numpy as np

from collectors.process.load import HostLoad
from collectors.vocabulary import Metric


def test_a_process_that_a_signal_stopped_is_seen() -> None:
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


def test_the_hosts_load_is_measured() -> None:
    load = HostLoad(os.getpid())
    sum(range(2_000_000))
    rows = load.sample()
    result = {Metric(row["metric"]): float(row["value"]) for row in rows}
    assert result[Metric.MONITOR_RSS_BYTES] > 1 << 20
    assert result[Metric.TRAINER_CPU_SHARE] > 0.0, "however little a loaded host leaves it"
    assert set(rows["device"].tolist()) == {-1}
    assert load.trainer_running is True
    gone = HostLoad(2**22 - 1)
    assert gone.trainer_running is False
    assert Metric.TRAINER_CPU_SHARE not in {int(m) for m in gone.sample()["metric"]}
    assert np.isfinite(rows["value"]).all()
