"""Which counter samples are evaluated and sent: those of traced spans, each once, within bounds."""

import numpy as np

from collectors.gpu.counters.sampler import DENSE_MOST, KEPT_SAMPLES, MARGIN_NS, PATIENCE_NS, Bursts
from collectors.protocol.frames import OBSERVED, SAMPLE, on_host_clock

MS, SECOND = 1_000_000, 1_000_000_000
T0 = 1_000 * SECOND


def rows(start_ns: int, count: int, device: int = 0) -> np.ndarray:
    result = np.zeros(count, SAMPLE)
    result["start_ns"] = start_ns + np.arange(count) * MS
    result["end_ns"] = result["start_ns"] + MS
    result["device"] = device
    return result


def span(low_ns: int, high_ns: int) -> np.ndarray:
    return np.array([(low_ns, high_ns, -1, 0)], OBSERVED)


def test_everything_is_evaluated_from_an_order_until_the_agent_falls_silent():
    bursts = Bursts(T0)
    assert not bursts.wanted(T0 + 200 * MS)
    bursts.expect(T0 + 400 * MS, T0 + 300 * MS)
    assert bursts.wanted(T0 + 400 * MS)
    bursts.traced(span(T0 + 350 * MS, T0 + 450 * MS), T0 + 500 * MS)
    assert bursts.wanted(T0 + 600 * MS)
    assert bursts.wanted(T0 + 800 * MS), "read late, it still holds what was traced"
    assert not bursts.wanted(T0 + 1000 * MS)


def test_tracing_without_end_is_wanted_until_it_is_called_off():
    bursts = Bursts(T0)
    bursts.expect(None, T0)
    bursts.traced(span(T0, T0 + SECOND), T0 + SECOND)
    assert bursts.wanted(T0 + 60 * SECOND)
    bursts.expect(0, T0 + 60 * SECOND)
    assert not bursts.wanted(T0 + 61 * SECOND)


def test_tracing_without_end_does_not_take_a_whole_core():
    bursts = Bursts(T0)
    bursts.expect(None, T0)
    evaluated = 0
    for tenth in range(1, 601):
        if bursts.wanted(T0 + tenth * 100 * MS):
            bursts.keep(rows(T0 + tenth * 100 * MS, 500))
            evaluated += 500
    assert evaluated / 60 < 1_700
    assert evaluated > DENSE_MOST


def test_a_span_is_sent_once_its_last_samples_are_here_with_a_margin_and_no_sample_twice():
    bursts = Bursts(T0)
    bursts.traced(span(T0 + 50 * MS, T0 + 150 * MS), T0 + 160 * MS)
    bursts.keep(rows(T0, 100))
    assert bursts.due(T0 + 160 * MS) == []
    bursts.keep(rows(T0 + 100 * MS, 100))
    (first,) = bursts.due(T0 + 210 * MS)
    starts, ends = on_host_clock(first)
    assert starts[0] >= T0 + 50 * MS - MARGIN_NS - MS and ends[-1] <= T0 + 150 * MS + MARGIN_NS + MS
    bursts.traced(span(T0 + 140 * MS, T0 + 180 * MS), T0 + 220 * MS)
    (second,) = bursts.due(T0 + 220 * MS)
    assert second["start_ns"][0] == first["end_ns"][-1]
    assert bursts.due(T0 + 230 * MS) == []


def test_devices_are_sent_apart():
    bursts = Bursts(T0)
    bursts.traced(span(T0, T0 + 50 * MS), T0 + 60 * MS)
    bursts.keep(rows(T0, 100))
    bursts.keep(rows(T0, 100, device=1))
    due = bursts.due(T0 + 110 * MS)
    assert [set(one["device"].tolist()) for one in due] == [{0}, {1}]


def test_a_span_whose_samples_never_come_is_forgotten_and_what_is_held_is_bounded():
    bursts = Bursts(T0)
    bursts.traced(span(T0, T0 + 50 * MS), T0)
    assert bursts.due(T0 + PATIENCE_NS + MS) == []
    for second in range(100):
        bursts.keep(rows(T0 + second * SECOND, 1_000))
    assert bursts.due(T0 + 100 * SECOND) == []
    bursts.traced(span(T0, T0 + 200 * SECOND), T0 + 100 * SECOND)
    (result,) = bursts.due(T0 + 104 * SECOND)
    assert len(result) <= KEPT_SAMPLES
