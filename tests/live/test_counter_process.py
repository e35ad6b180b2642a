"""Hardware counters live in a process of their own: what they bring arrives, what kills them kills nothing else."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from brrrtop.sources.live import Feeds
from collectors.gpu.counters import process as counter_process
from collectors.gpu.counters.process import CounterProcess, worker_command
from collectors.gpu.devices import tenants
from collectors.process.proc import end_with
from collectors.protocol.frames import OBSERVED, Frame, Kind
from collectors.vocabulary import Metric
from tests.live.counter_hardware import MS, until

ROOT = Path(__file__).resolve().parents[2]
WORKER = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from collectors.gpu.counters.process import serve
from collectors.gpu.counters.sampler import CounterThread
from collectors.process.proc import end_with
from tests.live.counter_hardware import Hardware
end_with(int(sys.argv[1]))
counters = CounterThread(Hardware(), lambda: {{"aa-bb": 3}}, interval_ns={MS})
serve(counters, sys.stdin.buffer, sys.stdout.buffer)
"""

HANGS = f"""
import ctypes, sys
sys.path.insert(0, {str(ROOT)!r})
from collectors.gpu.counters import process as counter_worker
class Hangs:
    def start(self):
        print("hangs", file=sys.stderr, flush=True)
        while True:
            ctypes.PyDLL(None).usleep(900_000)  # as in a driver, with the interpreter's lock
counter_worker.CounterThread = Hangs
counter_worker.main()
"""
MONITOR = f"""
import os, subprocess, sys, threading, time
sys.path.insert(0, {str(ROOT)!r})
from collectors.gpu.counters import process as counter_process
counter_process.subprocess.DEVNULL = None  # its stderr is heard of
counters = counter_process.CounterProcess([sys.executable, "-c", {HANGS!r}, str(os.getpid())])
counters.start()
print(counters.worker, file=sys.stderr, flush=True)
time.sleep(60)
"""

Start = Callable[[], CounterProcess]


@pytest.fixture
def started() -> Iterator[Start]:
    made = []

    def start() -> CounterProcess:
        one = CounterProcess([sys.executable, "-c", WORKER, str(os.getpid())])
        made.append(one)
        one.start()
        one.match({0: "GPU-aa-bb"})
        return one

    yield start
    for one in made:
        assert one.close(10.0)


def test_gauges_and_the_samples_of_a_burst_arrive(started):
    counters = started()
    assert counters.settling and not counters.active
    until(lambda: counters.active and not counters.settling)
    assert counters.worker is not None and Feeds([counters]).workers == [counters.worker]
    assert "are on, every" in counters.remarks[0]
    low = time.time_ns()
    counters.expect(low + 1_000 * MS)
    time.sleep(0.15)
    counters.traced(np.array([(low, low + 100 * MS, -1, 0)], OBSERVED))
    frames: list[Frame] = []

    def both() -> bool:
        frames.extend(counters.drain())
        return {Kind.GAUGES, Kind.SAMPLES} <= {frame.kind for frame in frames}

    until(both)
    samples = next(frame.body for frame in frames if frame.kind == Kind.SAMPLES)
    assert 90 <= len(samples) <= 160 and set(samples["sm"].tolist()) == {0.5}
    assert Metric.SM_ACTIVE in next(f.body for f in frames if f.kind == Kind.GAUGES)["metric"]


def test_their_process_is_nobodys_neighbour_on_the_gpu(started):
    counters = started()
    mine = counters._process.pid
    trainer = 1  # nobody that this worker descends from, as far as can be told
    assert tenants([trainer, mine], trainer).foreign_count == 0
    assert counters.close(10.0)
    assert tenants([trainer, mine], trainer).foreign_count == 1, "the pid may be another's then"


def test_a_crash_of_theirs_is_told_and_costs_nothing_else(started):
    counters = started()
    until(lambda: counters.active)
    os.kill(counters._process.pid, signal.SIGSEGV)
    until(lambda: not counters.active)
    until(lambda: "died of SIGSEGV" in counters.remarks[0])
    assert tenants([1, counters._process.pid], 1).foreign_count == 1, "may be another's now"
    assert "most likely in CUPTI" in counters.remarks[0] and not counters.settling
    counters.expect(0)
    counters.traced(np.zeros(1, OBSERVED))
    counters.match({0: "GPU-aa-bb"})


def test_nobody_waits_for_ever_for_a_worker_that_says_nothing(monkeypatch):
    counters = CounterProcess([sys.executable, "-c", "import sys; sys.stdin.read()"])
    counters.start()
    assert counters.settling
    monkeypatch.setattr(counter_process, "SETTLES_S", 0.0)
    assert not counters.settling and counters.close(10.0)


def test_a_worker_that_hangs_and_reads_nothing_holds_the_monitor_neither_while_watching_nor_at_the_end() -> (
    None
):
    counters = CounterProcess([sys.executable, "-c", "import time; time.sleep(60)"])
    counters.start()
    spans = np.zeros(20, OBSERVED)

    def tell() -> None:
        for _ in range(1_000):  # more than a pipe holds
            counters.traced(spans)
        counters.close(0.1)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    teller.join(10.0)
    assert not teller.is_alive()
    assert counters.worker is None


def test_a_worker_that_reads_late_reads_whole_lines():
    reads = "import json, sys, time; time.sleep(0.5); [json.loads(line) for line in sys.stdin]"
    counters = CounterProcess([sys.executable, "-c", reads])
    counters.start()
    spans = np.array([(time.time_ns(), time.time_ns(), -1, 0)] * 400, OBSERVED)
    for _ in range(40):  # each more than a pipe takes as one, all of them more than it holds
        counters.traced(spans)
    assert counters.close(10.0)
    assert "exit code 0" in counters.remarks[0]


def test_a_worker_that_hangs_in_its_end_is_told_and_ended(monkeypatch):
    monkeypatch.setattr(counter_process, "ENDS_S", 0.2)
    hangs = "import os, time; os.close(1); time.sleep(60)"
    counters = CounterProcess([sys.executable, "-c", hangs])
    counters.start()
    worker = counters.worker
    assert worker is not None
    until(lambda: counters.worker is None)
    assert "does not end" in counters.remarks[0] and not counters.settling
    until(lambda: not alive(worker))
    assert counters.close()


def test_counters_that_are_switched_on_late_are_waited_for_all_the_same(monkeypatch):
    """A trainer that loads its model first says late which GPU it uses."""
    monkeypatch.setattr(counter_process, "SETTLES_S", 1.0)
    counters = CounterProcess([sys.executable, "-c", "import sys; sys.stdin.read()"])
    counters.start()
    until(lambda: not counters.settling)
    counters.match({})
    assert not counters.settling
    counters.match({0: "GPU-aa-bb"})
    assert counters.settling
    time.sleep(0.6)
    counters.match({0: "GPU-aa-bb", 1: "GPU-cc-dd"})
    until(lambda: not counters.settling, 0.9)
    assert counters.close(10.0)


def test_where_it_cannot_be_started_that_is_said():
    counters = CounterProcess(["/nowhere/python"])
    counters.start()
    assert "off" in counters.remarks[0] and not counters.settling and counters.close()
    assert counters.worker is None


def test_the_real_worker_says_why_there_are_none_and_heeds_no_folder(tmp_path, monkeypatch):
    """Neither a GPU nor cupti-python here; a `collectors` in the current folder is not ours."""
    (tmp_path / "collectors").mkdir()
    (tmp_path / "collectors" / "__init__.py").write_text("raise SystemExit('taken')\n")
    monkeypatch.chdir(tmp_path)
    counters = CounterProcess()
    assert worker_command()[0] == sys.executable
    counters.start()
    try:
        counters.match({0: "GPU-aa-bb"})
        until(lambda: bool(counters.remarks))
        assert "hardware counters" in counters.remarks[0] and not counters.active
        assert "exit code" not in counters.remarks[0]
    finally:
        assert counters.close(10.0)


def test_a_monitor_that_is_killed_leaves_no_worker_behind(started):
    counters = started()
    until(lambda: counters.active)
    process = counters._process
    process.stdin.write(b'{"expect": 1')
    process.stdin.close()
    until(lambda: process.poll() is not None)


def alive(pid: int) -> bool:
    """Neither gone nor a zombie that nobody fetches."""
    try:
        return " Z " not in f" {Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2]} "
    except FileNotFoundError:
        return False


def test_a_worker_that_hangs_with_the_interpreter_dies_with_a_monitor_that_is_killed():
    monitor = subprocess.Popen([sys.executable, "-c", MONITOR], stderr=subprocess.PIPE, text=True)
    assert monitor.stderr is not None
    worker = 0
    try:
        with monitor.stderr as message:
            lines = {message.readline().strip(), message.readline().strip()}
        worker = int((lines - {"hangs"}).pop())
        assert len(lines) == 2 and alive(worker)
        monitor.kill()
        monitor.wait(10.0)
        until(lambda: not alive(worker))
        worker = 0
    finally:
        monitor.kill()
        monitor.wait(10.0)
        if worker:
            os.kill(worker, signal.SIGKILL)


def test_a_worker_outlives_the_thread_that_switched_it_on(started):
    made = []
    active = threading.Event()

    def switch_on() -> None:
        made.append(started())
        active.wait(20.0)

    starter = threading.Thread(target=switch_on)
    starter.start()
    until(lambda: bool(made) and made[0].active)
    active.set()
    starter.join(10.0)
    worker = made[0].worker
    assert worker is not None
    time.sleep(0.3)
    assert alive(worker) and made[0].active


def test_a_worker_whose_monitor_ended_before_it_began_samples_nothing():
    stranger = os.getppid()
    command = [sys.executable, "-c", HANGS, "1", str(stranger)]
    done = subprocess.run(command, capture_output=True, timeout=30)
    assert done.returncode == 1 and done.stderr == b""


@pytest.mark.parametrize("lacks", [OSError, AttributeError, TypeError])
def test_where_the_kernel_has_no_such_request_a_worker_runs_all_the_same(lacks, monkeypatch):
    def refuses(name: object) -> None:
        raise lacks

    monkeypatch.setattr(ctypes, "CDLL", refuses)
    end_with(os.getppid())
