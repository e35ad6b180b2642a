"""The arithmetic of the GPU benchmarks, on made-up runs: needs no GPU."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from brrrtop.scheduling.governor import Governor
from brrrtop.scheduling.limits import Act
from collectors.protocol.frames import KERNEL, MARK, OBSERVED, Frame, Kind
from collectors.vocabulary import MarkClass

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_bench_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def paired() -> Iterator[ModuleType]:
    yield load("paired")


@pytest.fixture(scope="module")
def comparing() -> Iterator[ModuleType]:
    yield load("soak_compare")


def test_drift_is_no_cost(paired: ModuleType) -> None:
    off = [10 + 0.3 * i for i in range(0, 22, 2)]
    on = [10 + 0.3 * i for i in range(1, 21, 2)]
    assert paired.between(off, on).mean == pytest.approx(0, abs=1e-12)


def test_a_cost_of_two_percent_is_found_within_noise(paired: ModuleType) -> None:
    noise = np.random.default_rng(3)
    off = (10 * (1 + 0.01 * noise.standard_normal(21))).tolist()
    on = (10.2 * (1 + 0.01 * noise.standard_normal(20))).tolist()
    cost = paired.between(off, on)
    assert cost.low < 0.02 < cost.high
    assert cost.low > 0
    assert cost.pairs == 20


def test_two_pairs_are_too_few_to_say(paired: ModuleType) -> None:
    assert paired.between([1.0, 1.0, 1.0], [1.0, 1.0]) is None


def test_a_governor_that_was_away_does_not_hurry() -> None:
    skip_time = load("watched").skip_time
    second, start = 1_000_000_000, 1_790_000_000_000_000_000
    governor = Governor()
    governor.add_steps(start + np.arange(100) * 10_000_000)
    decision = governor.decide(start + second)
    assert decision is not None and decision.act is Act.BURST
    governor.add_observed(start + second, start + second + 60_000_000)
    governor.add_steps(start + second + np.arange(7) * 10_000_000)
    governor.add_traced()
    assert governor.decide(start + second + 100_000_000) is None
    skip_time(governor, 100 * second)
    assert governor.decide(start + 101 * second + 200_000_000) is None
    assert governor.cost.last_step_ns == start + 101 * second + 60_000_000


def burst(missing: bool = False) -> list[Frame]:
    """Four marks 1 ms apart, so three whole steps; two kernels `a` and one `b` in each."""
    at = np.arange(4) * 1_000_000
    kernels = np.zeros(12, KERNEL)
    kernels["start_ns"] = np.repeat(at, 3) + np.tile([100, 200_000, 400_000], 4)
    kernels["end_ns"] = kernels["start_ns"] + np.tile([50_000, 50_000, 100_000], 4)
    kernels["name_id"] = np.tile([1, 1, 2], 4)
    marks = np.zeros(4, MARK)
    marks["end_ns"], marks["mark_class"] = at, MarkClass.STEP
    span = np.array([(-5, 3_000_001, 0, 0)], OBSERVED)
    return [
        Frame(Kind.NAMES, {1: "a", 2: "void b<int, 4>"}, 0),
        Frame(Kind.KERNELS, kernels[1:] if missing else kernels, 0),
        Frame(Kind.MARKS, marks, 0),
        Frame(Kind.OBSERVED, span, 0),
    ]


PROFILED = {"a": [50_000.0] * 6, "void b<int,4>": [100_000.0] * 3}


def test_equal_kernels_are_equal_however_names_are_spaced(comparing: ModuleType) -> None:
    kernels = comparing.kernels(comparing.of_burst(burst()), PROFILED, PROFILED, 3)
    assert kernels["good"], kernels
    assert kernels["kernels"] == 9
    assert not kernels["names_spelled_alike"]
    assert kernels["duration_total"] == pytest.approx(0)


def test_one_missing_kernel_is_a_difference(comparing: ModuleType) -> None:
    kernels = comparing.kernels(comparing.of_burst(burst(missing=True)), PROFILED, PROFILED, 3)
    assert not kernels["good"]
    assert kernels["counts_differ"] == {"a": [5, 6.0]}


def test_a_profiler_that_sees_less_afterwards_is_a_failure(comparing: ModuleType) -> None:
    kernels = comparing.kernels(comparing.of_burst(burst()), PROFILED, {}, 3)
    assert not kernels["good"]
    assert kernels["profiler_after_differs"] == 2


def test_longer_kernels_are_a_failure(comparing: ModuleType) -> None:
    longer = {name: [0.97 * value for value in values] for name, values in PROFILED.items()}
    kernels = comparing.kernels(comparing.of_burst(burst()), longer, longer, 3)
    assert not kernels["good"]
    assert kernels["duration_total"] == pytest.approx(1 / 0.97 - 1)


def test_the_first_loss_that_differs_is_named(comparing: ModuleType, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    values = np.arange(10, dtype="<f4")
    values.tofile(one)
    values[:9].tofile(two)
    assert comparing.losses(one, two)["identical"]
    values[4] = np.nextafter(values[4], 9, dtype="<f4")
    values.tofile(two)
    losses = comparing.losses(one, two)
    assert not losses["identical"]
    assert losses["first_difference"] == 4
