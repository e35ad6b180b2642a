"""Hardware counters: samples become gauges; every refusal is a sentence."""

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from collectors.gpu.counters import sampler as counters
from collectors.gpu.counters.cupti_python import sentence
from collectors.gpu.counters.device import COUNTERS, ClockMatch, DeviceCounters
from collectors.gpu.counters.sampler import MARGIN_NS, CounterThread, bin_means
from collectors.protocol.frames import GAUGE, OBSERVED, SAMPLE, Frame, Kind, on_host_clock
from collectors.vocabulary import Metric
from tests.live.agents import SECOND, FakeFeed
from tests.live.bench import Bench, kinds
from tests.live.counter_hardware import BEHIND_NS, MS, Decoded, Hardware, OneSample, until

Start = Callable[[Hardware], CounterThread]


@pytest.fixture
def started() -> Iterator[Start]:
    threads = []

    def start(hardware: Hardware) -> CounterThread:
        thread = CounterThread(hardware, lambda: {"aa-bb": 3}, interval_ns=MS)
        threads.append(thread)
        thread.start()
        thread.match({0: "GPU-aa-bb"})
        return thread

    yield start
    for thread in threads:
        assert thread.close()


def test_gauges_come_at_ten_a_second_on_the_hosts_clock(started):
    hardware = Hardware()
    thread = started(hardware)
    until(lambda: hardware.calls.count("decode") >= 4)
    now_ns = time.time_ns()
    frames = thread.drain()
    rows = np.concatenate([frame.body for frame in frames])
    assert {frame.kind for frame in frames} == {Kind.GAUGES}
    assert set(rows["value"].tolist()) == {0.5}
    assert {Metric.SM_ACTIVE, Metric.TENSOR_ACTIVE, Metric.DRAM_ACTIVE} <= set(rows["metric"])
    assert set(rows["device"].tolist()) == {0}
    assert abs(int(rows["time_ns"][-1]) - now_ns) < SECOND
    assert hardware.device_index == 3
    times = np.unique(rows["time_ns"] // (100 * MS))
    assert len(rows) == len(times) * len(set(rows["metric"].tolist())), "one reading a bin"


def test_where_no_samples_come_other_gauges_do_until_they_come_again(started, monkeypatch):
    """On an H200 the samples of CUPTI 13.4 ceased, and nobody said so."""
    monkeypatch.setattr(counters, "SILENT_S", 0.5)
    hardware = Hardware()
    thread = started(hardware)
    until(lambda: thread.active)
    assert "are on, every" in thread.remarks[0]
    hardware.silent = True
    until(lambda: not thread.active)
    assert "delivers no samples" in thread.remarks[0]
    hardware.silent = False
    until(lambda: thread.active)
    assert "are on, every" in thread.remarks[0]


def test_where_too_few_samples_come_for_a_reading_other_gauges_are_not_kept_away(
    started, monkeypatch
):
    monkeypatch.setattr(counters, "SILENT_S", 0.6)
    hardware = Hardware(loses=0.95)
    thread = started(hardware)
    until(lambda: thread.active)
    until(lambda: not thread.active)
    assert "are on, every" in thread.remarks[0] and not thread.settling
    hardware.loses = 0.0
    until(lambda: thread.active)


def test_a_stretch_with_few_samples_has_no_reading_for_what_was_lost_is_not_idle():
    rows = np.zeros(160, SAMPLE)
    rows["start_ns"] = np.concatenate((np.arange(99), 205 + np.arange(61))) * MS
    rows["end_ns"], rows["sm"] = rows["start_ns"] + MS, 0.8
    rows = np.concatenate((rows, rows[100:103]))
    rows["start_ns"][-3:] += 100 * MS
    rows["end_ns"][-3:] += 100 * MS
    gauges = bin_means(rows, ["sm"], least=counters.LEAST_IN_BIN)
    assert len(gauges) == 2, "three of a hundred say nothing"
    assert gauges["value"].tolist() == pytest.approx([0.8, 0.8])


def test_a_buffer_that_keeps_the_latest_is_not_started_anew_when_it_ran_over():
    """A start anew is what CUPTI refused then (H200)."""
    hardware = Hardware(keeps_latest=True)
    device = DeviceCounters(hardware, 0, MS)
    assert hardware.mode == "latest"
    decode, hardware.decode = hardware.decode, _overflowing  # type: ignore[method-assign]
    for _ in range(5):
        assert len(device.drain(0)) == 0
    hardware.decode = decode  # type: ignore[method-assign]
    time.sleep(0.01)
    assert len(device.drain(0)) > 0
    assert hardware.calls.count("start") == 1 and "stop" not in hardware.calls
    device.close()


def test_a_sample_that_reaches_over_lost_ones_and_one_that_comes_twice_are_left_out():
    hardware = Hardware()
    device = DeviceCounters(hardware, 0, MS)
    t0 = time.time_ns()
    batches = [[0, 1, 2, 3, 4], [3, 4, 5, 6, 7], [20, 21, 22]]

    class Given(Decoded):
        def __getitem__(self, rows: slice) -> list[OneSample]:
            result = super().__getitem__(rows)
            long = [one for one in result if one.start_timestamp == t0 + 20 * MS]
            for one in long:
                one.start_timestamp -= 12 * MS
            return result

    def decode(max_samples: int) -> Decoded:
        batch = batches.pop(0)
        return Given(hardware, range(t0 + batch[0] * MS, t0 + (batch[-1] + 1) * MS, MS))

    hardware.decode = decode  # type: ignore[method-assign]
    result = [((device.drain(0)["start_ns"] - t0) // MS).tolist() for _ in range(3)]
    assert result == [[1, 2, 3, 4], [5, 6, 7], [21, 22]], "the very first time stamp is bogus"
    device.close()


def test_tracing_waits_for_the_first_samples_and_for_none_that_never_come(started, monkeypatch):
    """A burst that began during the first reading was held for 106 ms (H200)."""
    monkeypatch.setattr(counters, "SILENT_S", 0.8)
    hardware = Hardware(silent=True)
    thread = started(hardware)
    until(lambda: "decode" in hardware.calls)
    assert thread.settling and not thread.active and thread.remarks == []
    until(lambda: not thread.settling)
    assert not thread.active and "delivers no samples" in thread.remarks[0]


def test_nothing_is_traced_while_the_counters_are_being_switched_on():
    """A burst that began then held its trainer for 110 ms (H200)."""
    thread = CounterThread(Hardware(), lambda: {"aa-bb": 3}, interval_ns=MS)
    assert thread.settling
    thread.start()
    thread.match({0: "GPU-aa-bb"})
    until(lambda: not thread.settling)
    assert thread.active and thread.close()


def test_samples_of_a_burst_are_sent_once_and_keep_their_own_times(started):
    hardware = Hardware()
    thread = started(hardware)
    until(lambda: thread.active)
    low = time.time_ns()
    thread.expect(low + SECOND)
    until(lambda: time.time_ns() > low + 120 * MS)
    thread.traced(np.array([(low, low + 100 * MS, -1, 0)], OBSERVED))
    thread.traced(np.array([(low + 90 * MS, low + 110 * MS, -1, 0)], OBSERVED))
    frames: list[Frame] = []

    def come() -> bool:
        frames.extend(f for f in thread.drain() if f.kind == Kind.SAMPLES)
        return sum(len(f.body) for f in frames) >= 105

    until(come)
    rows = np.concatenate([frame.body for frame in frames])
    assert (np.diff(rows["end_ns"]) == MS).all()
    assert set((rows["end_ns"] - rows["start_ns"]).tolist()) == {MS}
    assert abs(int(rows["end_ns"][0]) + BEHIND_NS - low) < 30 * MS
    _, ends = on_host_clock(rows)
    assert (ends > low - MARGIN_NS).all() and (ends < low + 150 * MS).all()
    assert len(rows) < 160


def test_away_from_bursts_few_samples_are_evaluated_and_none_sent(started):
    hardware = Hardware()
    thread = CounterThread(hardware, lambda: {"aa-bb": 3}, interval_ns=MS // 5)
    thread.start()
    thread.match({0: "GPU-aa-bb"})
    until(lambda: hardware.calls.count("decode") >= 4)
    assert thread.close()
    assert {frame.kind for frame in thread.drain()} == {Kind.GAUGES}
    assert 0 < hardware.evaluated < 0.4 * hardware.decoded


def test_metrics_that_do_not_fit_one_pass_are_left_out():
    device = DeviceCounters(Hardware(fits=3), 0, MS)
    time.sleep(0.01)
    rows = device.drain(0)
    assert device.columns == list(COUNTERS)[:3]
    assert np.isfinite(rows["tensor"]).all()
    assert np.isnan(rows["warps"]).all()
    device.close()


def test_counters_are_given_back_without_a_last_decode(started):
    hardware = Hardware()
    thread = started(hardware)
    until(lambda: "decode" in hardware.calls)
    thread.close()
    assert hardware.calls[-2:] == ["stop", "disable"]


def _unknown(max_samples: int) -> Decoded:
    raise RuntimeError("ERROR_UNKNOWN (999)")


def _overflowing(max_samples: int) -> Decoded:
    raise MemoryError("Record overflow in the hardware buffer.")


@pytest.mark.parametrize("fails", [_overflowing, _unknown])
def test_a_decode_that_fails_now_and_then_is_started_anew(fails):
    hardware = Hardware()
    device = DeviceCounters(hardware, 0, MS)
    decode, hardware.decode = hardware.decode, fails  # type: ignore[method-assign]
    assert len(device.drain(0)) == 0
    hardware.decode = decode  # type: ignore[method-assign]
    time.sleep(0.01)
    assert len(device.drain(0)) > 0
    device.close()


def test_a_decode_that_always_fails_is_an_end():
    hardware = Hardware()
    device = DeviceCounters(hardware, 0, MS)
    hardware.decode = _unknown  # type: ignore[method-assign]
    for _ in range(3):
        device.drain(0)
    with pytest.raises(RuntimeError, match="999"):
        device.drain(0)
    device.close()


def test_one_evaluator_serves_all_batches():
    made = []

    class Finalizer:
        def detach(self) -> None:
            made.append("detached")

    class CounterData:
        _chip_name = "GH100"

        def __init__(self) -> None:
            self._initialize_host()

        def _initialize_host(self) -> None:
            made.append("made")
            self._host, self._host_finalizer = object(), Finalizer()

    hardware = Hardware()
    hardware.CounterData = CounterData  # type: ignore[attr-defined]
    for _ in range(2):
        DeviceCounters(hardware, 0, MS).close()
    assert CounterData()._host is CounterData()._host
    assert made == ["made", "detached"]


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        (PermissionError("Insufficient privileges for PM sampling"), "RestrictProfiling"),
        (RuntimeError("PM sampling is already enabled on this device."), "another tool"),
        (RuntimeError("ERROR_INVALID_PARAMETER"), "older than cupti-python"),
        (OSError("CUDA driver is not found (libcuda.so.1: cannot open)"), "NVIDIA driver"),
        (ModuleNotFoundError("No module named 'cupti'"), "cupti-python"),
        (KeyError("whatever"), "stopped"),
    ],
)
def test_a_refusal_is_a_sentence(started, fault, part):
    thread = started(Hardware(refuses=fault))
    until(lambda: bool(thread.remarks))
    assert part in thread.remarks[0]
    assert sentence(fault) == thread.remarks[0]
    assert not thread.active


def test_a_mig_device_is_not_tried():
    hardware = Hardware()
    thread = CounterThread(hardware, dict)
    thread.start()
    thread.match({0: "MIG-aa-bb"})
    assert "MIG" in thread.remarks[0] and not thread.settling
    assert thread.close()
    assert hardware.calls == []


def test_the_clock_match_keeps_the_smallest_delay():
    clock = ClockMatch()
    behind = 9 * SECOND
    assert clock.offset_ns(100, behind + 150) == behind + 50
    assert clock.offset_ns(200, behind + 210) == behind + 10
    assert clock.offset_ns(300, behind + 390) == behind + 10


def test_samples_that_are_merely_read_late_are_on_the_hosts_clock():
    clock = ClockMatch()
    assert clock.offset_ns(5 * SECOND, 5 * SECOND + 8 * MS) == 0
    assert ClockMatch().offset_ns(5 * SECOND, 4 * SECOND) == -SECOND


def test_bins_weigh_samples_by_their_length():
    rows = np.zeros(2, SAMPLE)
    rows["start_ns"], rows["end_ns"] = [0, 10], [10, 40]
    rows["sm"] = [1.0, 0.2]
    gauges = bin_means(rows, ["sm"], bin_ns=100)
    assert gauges["value"].tolist() == pytest.approx([0.4])


def test_gpm_steps_back_where_counters_speak():
    bench = Bench()
    better = FakeFeed()
    better.carries, better.active = frozenset({Metric.SM_ACTIVE}), True
    better.worker = 4712
    bench.source.feeds._feeds.append(better)
    rows = np.array([(bench.now_ns, 0.4, 0, int(Metric.SM_ACTIVE))], GAUGE)
    better.pending.append(Frame(Kind.GAUGES, rows, bench.now_ns))
    frames = bench.read(1)
    bench.source.close()
    assert bench.load.helpers == (4712,), "its work is the monitor's"
    assert Kind.GAUGES in kinds(frames)
    read = np.concatenate([f.body for f in frames if f.kind == Kind.GAUGES])
    assert read["value"][read["metric"] == Metric.SM_ACTIVE].tolist() == [0.4]
    assert Metric.POWER_WATT in read["metric"]


def test_no_burst_is_ordered_while_a_sampler_is_being_switched_on():
    bench, sampler = Bench(), FakeFeed()
    sampler.settling = True
    bench.source.feeds._feeds.append(sampler)
    buffered = [frame.body for frame in bench.read(6) if frame.kind == Kind.STATUS]
    assert not any("burst" in body for body in buffered)
    sampler.settling = False
    freed = [frame.body for frame in bench.read(3) if frame.kind == Kind.STATUS]
    bench.source.close()
    assert any("burst" in body for body in freed)
