"""Samples far longer than kernels tell each kernel's rates, and nothing where they cannot."""

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.analysis.estimate import estimate
from brrrtop.analysis.kernels.counters import Rates, measured, overlap_shares, solve
from brrrtop.model.estimate import Regime, Side
from brrrtop.model.tables import Samples, Span, Window
from tests.analysis.build import ADD, GEMM, K, window

US, MS = 1_000, 1_000_000
OTHER = GEMM.replace("256x128", "128x256")
INTERVAL = 200 * US


def mixed(names: tuple[str, ...], seed: int = 3, blocks: int = 40_000) -> Window:
    """Kernels of 20-90 us, far shorter than a sample, in an order that chance made."""
    rng = np.random.default_rng(seed)
    kernels, at = [], 0
    for i in range(3000):
        length = int(rng.integers(20 * US, 90 * US))
        name = names[int(rng.integers(len(names)))]
        kernels.append(K(at, at + length, name, i + 1, blocks=blocks))
        at += length
    return window(kernels)


def with_samples(
    w: Window, tensor: dict[str, float], dram: dict[str, float], *, noise: float = 0.02,
    error_ns: float = 5 * US, offset_ns: int = 7 * MS,
) -> Window:  # fmt: skip
    """The window with the samples that kernels of these rates give."""
    edges = np.arange(w.span.t0_ns, w.span.t1_ns, INTERVAL)
    count = len(edges) - 1
    nothing = np.full(count, np.nan)
    samples = Samples(
        edges[:-1] - offset_ns, edges[1:] - offset_ns, np.full(count, offset_ns),
        np.zeros(count, np.int32), np.full(count, error_ns), nothing, nothing, nothing,
    )  # fmt: skip
    shares = overlap_shares(w.activities, w.activities.name_ids, samples, len(w.names))
    rng = np.random.default_rng(4)

    def read(rates: dict[str, float]) -> np.ndarray:
        each = np.array([rates.get(name, 0.0) for name in w.names])
        return np.asarray(np.clip(shares @ each + rng.normal(0, noise, count), 0, 1))

    return replace(w, samples=replace(samples, tensor=read(tensor), dram=read(dram)))


def test_shares_add_up_to_the_time_that_kernels_ran():
    w = with_samples(mixed((GEMM, ADD)), {}, {})
    shares = overlap_shares(w.activities, w.activities.name_ids, w.samples, len(w.names))
    assert shares.sum(axis=1) == pytest.approx(np.ones(len(w.samples)))
    whole = overlap_shares(w.activities, np.zeros(len(w.activities), np.int64), w.samples, 1)
    assert whole[:, 0] == pytest.approx(shares.sum(axis=1))


def expected(size: int) -> dict[str, Rates]:
    wide = Rates(np.full(size, 0.3), np.full(size, 0.3))
    return {"tensor": wide, "dram": wide}


def test_rates_of_short_kernels_come_out_within_their_errors():
    truth = {GEMM: 0.85, OTHER: 0.4, ADD: 0.0}, {GEMM: 0.2, OTHER: 0.3, ADD: 0.9}
    w = with_samples(mixed((GEMM, OTHER, ADD)), *truth)
    result = measured(w, w.activities.name_ids, expected(len(w.names)))
    assert result is not None and set(result) == {"tensor", "dram"}
    for column, rates in zip(("tensor", "dram"), truth, strict=True):
        for name, rate in rates.items():
            at = w.names.index(name)
            assert result[column].rates[at] == pytest.approx(rate, abs=0.02)
            assert result[column].errors[at] < 0.02


def test_kernels_that_never_part_are_not_told_apart():
    pairs = [
        K(
            i * 100 * US + part * 50 * US,
            i * 100 * US + (part + 1) * 50 * US,
            name,
            2 * i + part + 1,
        )
        for i in range(1500)
        for part, name in enumerate((GEMM, ADD))
    ]
    w = with_samples(window(pairs), {GEMM: 0.9, ADD: 0.0}, {GEMM: 0.1, ADD: 0.9})
    result = measured(w, w.activities.name_ids, expected(len(w.names)))
    gemm, add = w.names.index(GEMM), w.names.index(ADD)
    assert min(result["tensor"].errors[[gemm, add]]) > 0.15
    assert result["tensor"].rates[[gemm, add]].sum() == pytest.approx(0.9, abs=0.05)


def test_two_products_of_one_family_are_told_apart_and_labelled_as_measured():
    w = with_samples(
        mixed((GEMM, OTHER), blocks=4000), {GEMM: 0.92, OTHER: 0.08}, {GEMM: 0.15, OTHER: 0.9}
    )
    result = estimate(w).estimate
    assert {row.name: row.side for row in result.kernels} == {
        GEMM: Side.COMPUTE, OTHER: Side.MEMORY,
    }  # fmt: skip
    assert {row.evidence for row in result.kernels} == {"L3"}
    roofs = {row.name: row.roof_share for row in result.kernels}
    assert roofs[GEMM] == pytest.approx(0.92, abs=0.03)
    assert roofs[OTHER] == pytest.approx(0.9, abs=0.03)


def test_a_kernel_of_no_known_name_is_judged_by_what_it_moves():
    w = mixed(("_mine", GEMM), blocks=4000)
    blind = {row.name: row.side for row in estimate(w).estimate.kernels}
    seen = with_samples(w, {GEMM: 0.9}, {"_mine": 0.9, GEMM: 0.1})
    sides = {row.name: row.side for row in estimate(seen).estimate.kernels}
    assert (blind["_mine"], sides["_mine"]) == (Side.UNKNOWN, Side.MEMORY)
    still = with_samples(w, {GEMM: 0.9}, {"_mine": 0.1, GEMM: 0.1})
    assert {row.name: row.side for row in estimate(still).estimate.kernels}["_mine"] is Side.UNKNOWN


def test_what_moves_elements_stays_memory_and_shows_what_was_measured():
    reduction = "triton_red_fused_sum_0"
    w = mixed((reduction, GEMM))
    seen = with_samples(w, {GEMM: 0.9}, {reduction: 0.3, GEMM: 0.1})
    row = next(r for r in estimate(seen).estimate.kernels if r.name == reduction)
    assert (row.side, row.evidence) == (Side.MEMORY, "L3")
    assert row.roof_share == pytest.approx(0.3, abs=0.03) and row.roof_share_why is None


def test_rates_stay_within_their_bounds():
    shares = np.random.default_rng(2).dirichlet(np.ones(4), 40)
    for readings in (np.zeros(40), np.ones(40) * 3):
        rates = solve(shares, readings, Rates(np.full(4, 0.5), np.full(4, 0.5)), 0.03)
        assert ((rates.rates >= 0) & (rates.rates <= 1)).all()


@pytest.mark.parametrize("error_ns", [float("nan"), 100.0 * US])
def test_samples_that_are_not_well_placed_change_nothing(error_ns):
    w = mixed((GEMM, OTHER), blocks=4000)
    seen = with_samples(w, {GEMM: 0.05}, {GEMM: 0.9}, error_ns=error_ns)
    result, plain = estimate(seen).estimate, estimate(w).estimate
    assert (result.kernels, result.account) == (plain.kernels, plain.account)


def test_samples_outside_of_traced_spans_are_not_used():
    w = with_samples(mixed((GEMM, ADD)), {GEMM: 0.9}, {ADD: 0.9})
    few = replace(w, observed=(Span(0, 5 * MS),))
    assert measured(few, few.activities.name_ids, expected(len(w.names))) is None


def test_a_regime_that_names_had_wrong_is_put_right():
    w = mixed((GEMM, OTHER), blocks=132)
    seen = with_samples(w, {GEMM: 0.1, OTHER: 0.1}, {GEMM: 0.9, OTHER: 0.85})
    assert estimate(w).estimate.regime is Regime.COMPUTE
    result = estimate(seen).estimate
    assert result.regime is Regime.MEMORY
    # With the products counted as compute by their names, memory could not be this sure.
    assert result.confidence > 0.8
    half = with_samples(w, {GEMM: 0.9, OTHER: 0.1}, {GEMM: 0.2, OTHER: 0.9})
    mixed_one = estimate(half).estimate
    assert mixed_one.regime is Regime.MIXED or mixed_one.confidence < 0.7
