"""Counter samples against Nsight Compute: those a GPU took, and simulated ones where none did.

The recordings under `tests/recordings/sampled` hold real PM samples of an H200 beside the kernels
of a running script, most of them live watches with `--counters`; Nsight Compute counted the same
scripts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.truth.runs import runs, sampled_runs, window_of, without_shapes
from benchmarks.truth.sampled import (
    Study,
    mean_errors,
    measurement,
    rates_of,
    simulated,
    simulation,
)
from benchmarks.truth.scoring import score
from benchmarks.truth.sets import PARTS, held_out, part_of
from brrrtop.estimator.estimate import estimate
from brrrtop.estimator.labels import label
from brrrtop.estimator.samples import Expected, measured
from brrrtop.session.sampled import SampleClock


@pytest.fixture(scope="module")
def studies() -> list[Study]:
    return [measurement(run) for run in sampled_runs()]


def test_real_samples_bring_the_split_within_5_points(studies: list[Study]) -> None:
    # Not whether nearer than names: those are judged by trees grown on these scripts.
    for many, held in ((4, False), (9, True)):
        some = [one for one in studies if held_out(one.run.name) is held]
        assert len(some) == many and mean_errors(some)[1] <= 5
    # The splits of `windows` and `clickrate` are others than they were built to be, by the counters as well.
    wrong = {one.run.name for one in studies if not one.sampled.regime_right}
    assert wrong <= {"windows", "clickrate", "volume", "diffusion"}


def test_real_samples_find_their_place_beside_kernels_to_a_twentieth_of_their_length(
    studies: list[Study],
) -> None:
    for one in studies:
        found = one.sampled.judged.estimate.sampled
        assert found is not None and found.error_ns is not None, one.run.name
        assert found.error_ns < found.interval_ns / 20
        assert found.placed > 0.85 * found.count


def test_rates_of_single_kernels_are_within_3_points_of_those_counted(
    studies: list[Study],
) -> None:
    near = 0
    for one in studies:
        found = rates_of(one.run)
        assert set(found) == {"tensor", "dram"}
        for rate in found.values():
            assert rate.told > 0.75
            # Live and counted are different runs; item_sync's kernels are short and far apart.
            assert abs(rate.sampled - rate.counted) < 0.05 and rate.off < 0.08, one.run.name
        near += all(rate.off < 0.03 for rate in found.values())
    assert near >= 9


def test_simulated_samples_make_no_script_much_worse_and_the_mean_better() -> None:
    counted = [run for run in runs() if run.counters]
    parts: dict[str, list[Study]] = {part: [] for part in PARTS[:2]}
    for run in counted:
        parts[part_of(run.name)].append(simulation(run, 200_000, 0.03))
    for part in parts:
        names, both = mean_errors(parts[part])
        assert both < names + 0.5, part
    found = parts[PARTS[0]]
    # Names were judged by trees that saw these kernels. 6.5 points are of `graph`, whose dearest kernel waits
    # for latency, at 10 % of one throughput beside 16 % of the other.
    assert all(s.sampled.split_error < s.names.split_error + 7 for s in found)
    off = [abs(s.offset_error_ns) for s in found if s.offset_error_ns is not None]
    assert len(off) >= 8
    assert max(off) < 40_000


def test_gaps_between_samples_are_neither_idle_nor_zero(studies: list[Study]) -> None:
    """Beside a process that computes, CUPTI loses samples in stretches (H200). A burst of a watch is
    too short to lose two thirds of them and still be measured: there, nothing is said."""
    study = max(studies, key=lambda study: len(study.run.window.samples or ()))
    window = study.run.window
    samples = window.samples
    assert samples is not None
    few = samples.take(np.flatnonzero(np.arange(len(samples)) % 60 < 20))
    parts = replace(window, samples=few)
    group_of = label(window, None).group_of
    wide = Expected(np.full(group_of.max() + 1, 0.3), np.full(group_of.max() + 1, 0.3))
    whole, found = (
        measured(one, group_of, {"tensor": wide, "dram": wide}) for one in (window, parts)
    )
    assert whole is not None and found is not None
    for column in ("tensor", "dram"):
        sure = (found[column].errors < 0.08) & (whole[column].errors < 0.08)
        off = np.abs(found[column].rates - whole[column].rates)[sure]
        assert sure.any() and off.max() < 0.1 and off.mean() < 0.03, (study.run.name, off)
    again = score(study.run, parts)
    assert again.split_error < study.sampled.split_error + 3


def test_a_kernel_that_ran_only_where_samples_are_missing_is_not_judged_by_them(
    studies: list[Study],
) -> None:
    window = studies[0].run.window
    samples = window.samples
    assert samples is not None
    low, high = samples.starts_ns + samples.offsets_ns, samples.ends_ns + samples.offsets_ns
    acts = window.activities
    group_of = np.zeros(len(acts), np.int64)
    group_of[len(acts) // 2] = 1
    lone = slice(len(acts) // 2, len(acts) // 2 + 1)
    beside = (high <= acts.starts_ns[lone]) | (low >= acts.ends_ns[lone])
    assert not beside.all()
    wide = Expected(np.full(2, 0.3), np.full(2, 0.25))
    parts = replace(window, samples=samples.take(np.flatnonzero(beside)))
    found = measured(parts, group_of, {"tensor": wide, "dram": wide})
    assert found is not None
    assert found["dram"].rates[1] == pytest.approx(0.3)
    assert found["dram"].errors[1] == pytest.approx(0.25) and found["dram"].errors[0] < 0.05


def test_samples_with_gaps_find_their_place_as_well() -> None:
    found = 0
    for run in runs():
        if run.name not in ("bert", "llama", "lora", "vision"):
            continue
        plain = without_shapes(run.window)
        samples, true = simulated(run, 200_000, 0.03)
        few = samples.take(np.flatnonzero(np.arange(len(samples)) % 60 < 30))
        placed = SampleClock().placed(few, plain.activities, (plain.span,))
        middle = len(few) // 2
        assert np.isfinite(placed.errors_ns).all(), run.name
        assert abs(placed.offsets_ns[middle] - true) < 20_000, run.name
        found += 1
    assert found >= 3


def test_where_samples_take_the_counters_nobody_reads_the_cuda_cores() -> None:
    """GPM's FP32 activity is missing then: fp32 convolutions were taken for bound by memory."""
    path = Path(__file__).resolve().parents[1] / "recordings" / "counters" / "resnet50_fp32.brrr"
    found = estimate(window_of(path)).estimate
    assert found.regime.value == "compute"
    assert found.split.compute + found.on_chip > 2 * (found.split.memory - found.on_chip)


def test_a_product_whose_rows_are_not_aligned_is_not_called_bound_by_memory_by_idle_tensor_cores(
    studies: list[Study],
) -> None:
    found = next(one for one in studies if one.run.name == "misaligned_gemm")
    assert found.sampled.judged.estimate.regime.value == "compute"
