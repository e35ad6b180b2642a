"""Samples and kernels are put on one clock by what both say, or not at all."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.model.tables import Activities, Samples, Span
from brrrtop.timeline.clocks import FAR_NS, SampleClock, find_shift
from tests.analysis.build import ADD, GEMM, K, window

US, MS = 1_000, 1_000_000
BEHIND_NS = 500_000 * MS
RATES = {GEMM: (0.9, 0.2), ADD: (0.0, 0.85)}


def training(steps: int = 6, gap_ns: int = 0, seed: int = 0) -> Activities:
    """Steps of kernels that differ in length, one after the other."""
    rng = np.random.default_rng(seed)
    kernels: list[K] = []
    at = 0
    for _ in range(steps):
        for _ in range(60):
            length = int(rng.integers(20 * US, 300 * US))
            name = (GEMM, ADD)[int(rng.integers(2))]
            kernels.append(K(at, at + length, name, len(kernels) + 1))
            at += length + int(gap_ns and rng.integers(2) * gap_ns)
    return window(kernels).activities


def sampled(
    acts: Activities, names: tuple[str, ...], offset_ns: int, *, interval: int = 200 * US,
    noise: float = 0.02, late_ns: int = 700 * US, seed: int = 1,
) -> Samples:  # fmt: skip
    """What counters would show, on a clock to which `offset_ns` has to be added."""
    edges = np.arange(0, int(acts.ends_ns.max()), interval)
    fine = np.arange(0, int(edges[-1]), US)
    row = np.searchsorted(acts.starts_ns, fine, "right") - 1
    runs = (row >= 0) & (acts.ends_ns[row] > fine)
    read = []
    for column in range(2):
        rate = np.array([RATES[n][column] if n in RATES else 0.0 for n in names])
        value = np.where(runs, rate[acts.name_ids[row]], 0.0)
        read.append(value.reshape(-1, interval // US).mean(axis=1))
    rng = np.random.default_rng(seed)
    tensor, dram = (np.clip(r + rng.normal(0, noise, len(r)), 0, 1) for r in read)
    own = edges - offset_ns
    size, nothing = len(tensor), np.full(len(tensor), np.nan)
    return Samples(
        own[:-1], own[1:], np.full(size, offset_ns + late_ns), np.zeros(size, np.int32),
        nothing, nothing, tensor, dram,
    )  # fmt: skip


NAMES = window([K(0, 1, GEMM), K(1, 2, ADD)]).names


def span(acts: Activities) -> Span:
    return Span(0, int(acts.ends_ns.max()))


@pytest.mark.parametrize("late_ns", [-300 * US, 700 * US, 9 * MS])
def test_an_offset_is_found_to_a_fraction_of_the_interval_though_the_gpu_never_idles(late_ns):
    acts = training()
    shift = find_shift(acts, sampled(acts, NAMES, BEHIND_NS, late_ns=late_ns), span(acts))
    assert abs(shift.offset_ns - BEHIND_NS) < 15 * US
    assert abs(shift.offset_ns - BEHIND_NS) < 4 * shift.error_ns


def test_what_no_kernel_explains_is_not_placed():
    acts = training()
    samples = sampled(acts, NAMES, BEHIND_NS)
    rng = np.random.default_rng(5)
    noise = replace(samples, tensor=rng.random(len(samples)), dram=rng.random(len(samples)))
    assert find_shift(acts, noise, span(acts)) is None


def test_a_signal_that_never_moves_is_not_placed():
    acts = training()
    samples = sampled(acts, NAMES, BEHIND_NS)
    still = np.full(len(samples), 0.5)
    assert find_shift(acts, replace(samples, tensor=still, dram=still), span(acts)) is None


def test_kernels_that_repeat_too_soon_fit_at_many_offsets_and_at_none():
    kernels = [K(i * 500 * US, (i + 1) * 500 * US, (GEMM, ADD)[i % 2], i + 1) for i in range(200)]
    acts = window(kernels).activities
    assert find_shift(acts, sampled(acts, NAMES, BEHIND_NS), span(acts)) is None


def test_reading_that_was_later_than_anything_searched_finds_nothing_rather_than_something() -> (
    None
):
    acts = training()
    samples = sampled(acts, NAMES, BEHIND_NS, late_ns=3 * FAR_NS)
    assert find_shift(acts, samples, span(acts)) is None


def test_few_samples_or_no_kernels_are_not_placed():
    acts = training()
    samples = sampled(acts, NAMES, BEHIND_NS)
    assert find_shift(acts, samples.take(slice(0, 20)), span(acts)) is None
    assert find_shift(acts.take(slice(0, 0)), samples, span(acts)) is None


def bursts(acts: Activities, count: int = 4) -> list[Span]:
    """Spans a third of the time long."""
    whole = span(acts).t1_ns
    edges = [whole * i // count for i in range(count + 1)]
    return [Span(low, low + (high - low) // 3) for low, high in pairwise(edges)]


def test_a_burst_that_shows_no_offset_takes_that_of_its_neighbours():
    acts = training(24)
    samples = sampled(acts, NAMES, BEHIND_NS)
    dead = bursts(acts)[1]
    host = samples.starts_ns + BEHIND_NS
    still = (host > dead.t0_ns - MS) & (host < dead.t1_ns + MS)
    tensor, dram = np.where(still, 0.5, samples.tensor), np.where(still, 0.5, samples.dram)
    placed = SampleClock().placed(replace(samples, tensor=tensor, dram=dram), acts, bursts(acts))
    inner = (host > dead.t0_ns) & (host < dead.t1_ns)
    assert np.isfinite(placed.errors_ns[inner]).all()
    assert np.abs(placed.offsets_ns[inner] - BEHIND_NS).max() < 30 * US


def test_a_wrong_match_among_good_ones_is_outvoted():
    acts = training(24)
    samples = sampled(acts, NAMES, BEHIND_NS)
    host = samples.starts_ns + BEHIND_NS
    odd = bursts(acts)[2]
    inner = np.flatnonzero((host > odd.t0_ns) & (host < odd.t1_ns))
    tensor, dram = samples.tensor.copy(), samples.dram.copy()
    tensor[inner], dram[inner] = np.roll(tensor[inner], 5), np.roll(dram[inner], 5)
    placed = SampleClock().placed(replace(samples, tensor=tensor, dram=dram), acts, bursts(acts))
    assert np.abs(placed.offsets_ns[inner] - BEHIND_NS).max() < 30 * US


def test_a_span_that_was_placed_once_is_not_searched_again(monkeypatch):
    acts = training(24)
    samples, clock = sampled(acts, NAMES, BEHIND_NS), SampleClock()
    first = clock.placed(samples, acts, bursts(acts))
    monkeypatch.setattr("brrrtop.timeline.clocks.find_shift", None)
    again = clock.placed(samples, acts, bursts(acts))
    assert (first.offsets_ns == again.offsets_ns).all()


def test_what_nothing_placed_says_so():
    acts = training()
    samples = sampled(acts, NAMES, BEHIND_NS)
    placed = SampleClock().placed(samples, acts, [])
    assert np.isnan(placed.errors_ns).all()


@pytest.mark.parametrize("case", ["a day long", "a nanosecond long", "days apart", "unordered"])
def test_samples_that_no_counter_gives_show_nothing_and_cost_nothing(case):
    acts = training()
    samples = sampled(acts, NAMES, BEHIND_NS)
    starts, ends = samples.starts_ns.copy(), samples.ends_ns.copy()
    if case == "a day long":
        ends[len(ends) // 2] += 86_400_000 * MS
    elif case == "a nanosecond long":
        ends = starts + 1
    elif case == "days apart":
        starts[-1], ends[-1] = starts[-1] + 86_400_000 * MS, ends[-1] + 86_400_000 * MS
    else:
        starts[:-1], ends[:-1] = starts[1:].copy(), ends[1:].copy()
        starts[-1], ends[-1] = starts[0] - 40 * MS, ends[0] - 40 * MS
    tracemalloc.start()
    try:
        find_shift(acts, replace(samples, starts_ns=starts, ends_ns=ends), span(acts))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
