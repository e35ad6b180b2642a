"""What the GPU's counters may add to names and grids, and what they may not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brrrtop.estimator.estimate import estimate
from brrrtop.estimator.mixes import equations
from brrrtop.estimator.solving import MOST_CONDITION, condition_of, solve
from brrrtop.model import Regime, Side
from brrrtop.tables import Gauges, Span, Window
from collectors.wire import Metric
from tests.estimator.build import ADD, K, window

US, MS = 1_000, 1_000_000


def with_readings(w: Window, readings: dict[Metric, float | list[float]], period: int) -> Window:
    """The window with readings every `period` ns, constant or one value each."""
    times = np.arange(w.span.t0_ns + period, w.span.t1_ns, period)
    rows = [
        (int(t), int(metric), values[i] if isinstance(values, list) else values)
        for metric, values in readings.items()
        for i, t in enumerate(times)
    ]
    rows.sort()
    gauges = Gauges(
        np.array([r[0] for r in rows], np.int64), np.zeros(len(rows), np.int32),
        np.array([r[1] for r in rows], np.int32), np.array([r[2] for r in rows]),
    )  # fmt: skip
    return replace(w, gauges=gauges)


def products(count: int = 20, length: int = 500 * US) -> Window:
    return window([K(i * length, (i + 1) * length - US, corr=i + 1) for i in range(count)])


def test_counters_that_agree_with_the_labels_leave_them_and_add_evidence() -> None:
    w = with_readings(products(), {Metric.TENSOR_ACTIVE: 0.7, Metric.DRAM_ACTIVE: 0.2}, MS)
    plain, found = estimate(products()).estimate, estimate(w).estimate
    assert found.regime is Regime.COMPUTE
    assert found.counters is not None and found.counters.suspect is None
    assert found.kernels[0].evidence == "L3"
    assert found.confidence >= plain.confidence


def test_products_that_leave_the_tensor_cores_idle_are_not_called_compute() -> None:
    w = with_readings(products(), {Metric.TENSOR_ACTIVE: 0.05, Metric.DRAM_ACTIVE: 0.85}, MS)
    found = estimate(w).estimate
    assert found.counters is not None
    assert found.counters.suspect == "gemm"
    assert found.kernels[0].side is Side.MEMORY


def test_a_contradiction_lowers_the_confidence_even_of_what_cannot_be_blamed() -> None:
    kernels = [K(i * 500 * US, (i * 500 + 499) * US, ADD, i + 1, blocks=200_000) for i in range(20)]
    plain = window(kernels)
    agreed = estimate(plain)
    share = agreed.labels.groups[0].memory_share_of_roof
    assert share is not None
    w = with_readings(plain, {Metric.TENSOR_ACTIVE: 0.5, Metric.DRAM_ACTIVE: min(1.0, share)}, MS)
    assert estimate(w).estimate.confidence < agreed.estimate.confidence


def test_an_idle_gpu_is_no_evidence() -> None:
    kernels = [K(i * 500 * US, i * 500 * US + 5 * US, corr=i + 1) for i in range(40)]
    w = with_readings(
        window(kernels), {Metric.TENSOR_ACTIVE: 0.0, Metric.DRAM_ACTIVE: 0.0}, 250 * US
    )
    assert estimate(w).estimate.counters is None


def test_counters_say_what_a_kernel_of_no_known_name_does() -> None:
    kernels = [K(i * 500 * US, (i * 500 + 499) * US, "_mine", i + 1) for i in range(20)]
    blind = estimate(window(kernels)).estimate
    w = with_readings(window(kernels), {Metric.TENSOR_ACTIVE: 0.0, Metric.DRAM_ACTIVE: 0.9}, MS)
    found = estimate(w).estimate
    assert blind.regime is Regime.UNKNOWN
    assert found.kernels[0].side is Side.MEMORY


def test_an_average_over_kernels_of_no_known_name_speaks_for_none_of_them() -> None:
    kernels = [
        K(i * 500 * US, (i * 500 + 499) * US, f"_mine_{i % 4}", i + 1, blocks=1000 + i % 4)
        for i in range(40)
    ]
    readings: dict[Metric, float | list[float]] = {
        Metric.TENSOR_ACTIVE: 0.3, Metric.DRAM_ACTIVE: 0.6
    }  # fmt: skip
    found = estimate(with_readings(window(kernels), readings, MS)).estimate
    assert found.regime is Regime.UNKNOWN


def test_windows_that_differ_are_solved_for_each_family() -> None:
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.ones(3), 60)
    truth = np.array([0.8, 0.1, 0.3])
    readings = shares @ truth + rng.normal(0, 0.01, 60)
    found = solve(shares, readings, np.full(3, 0.5), np.full(3, 0.3), 0.03)
    assert found.free
    assert np.abs(found.rates - truth).max() < 0.05
    assert (found.left < 0.2).all()


def test_windows_that_are_alike_are_refused_and_only_their_mean_is_used() -> None:
    shares = np.tile([0.5, 0.3, 0.2], (60, 1)) + np.random.default_rng(0).normal(0, 1e-4, (60, 3))
    assert condition_of(shares) > MOST_CONDITION
    found = solve(shares, np.full(60, 0.4), np.full(3, 0.5), np.full(3, 0.3), 0.03)
    assert not found.free
    assert shares.mean(axis=0) @ found.rates == pytest.approx(0.4, abs=0.02)
    assert found.left.max() > 0.9


def test_rates_stay_within_their_bounds() -> None:
    shares = np.random.default_rng(2).dirichlet(np.ones(4), 40)
    for readings in (np.zeros(40), np.ones(40) * 3):
        found = solve(shares, readings, np.full(4, 0.5), np.full(4, 0.5), 0.03)
        assert ((found.rates >= 0) & (found.rates <= 1)).all()


def test_readings_of_spans_that_were_not_traced_are_not_held_against_the_kernels() -> None:
    w = products(40)
    half = Span(w.span.t0_ns, w.span.t1_ns // 2)
    seen = replace(
        w,
        activities=w.activities.take(w.activities.starts_ns < half.t1_ns),
        observed=(half,),
    )
    found = estimate(
        with_readings(seen, {Metric.TENSOR_ACTIVE: 0.7, Metric.DRAM_ACTIVE: 0.2}, MS)
    ).estimate
    assert found.counters is not None and found.counters.suspect is None


def test_a_reading_after_lost_ones_is_not_taken_for_all_the_time_since_the_one_before() -> None:
    w = with_readings(products(40), {Metric.TENSOR_ACTIVE: 0.7}, MS)
    kept = np.ones(len(w.gauges.times_ns), np.bool_)
    kept[6:12] = False
    gappy = replace(w, gauges=w.gauges.take(kept))
    families = np.zeros(len(w.activities), np.int64)
    found, read = equations(gappy, families, 1, Metric.TENSOR_ACTIVE)
    assert len(found) == len(read) == kept.sum() - 2
    assert len(equations(w, families, 1, Metric.TENSOR_ACTIVE)[1]) == len(kept) - 1
