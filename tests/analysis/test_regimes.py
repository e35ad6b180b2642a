"""The verdict is read from the split, and its confidence from the lead and from what is not known."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from brrrtop.analysis.account import account as regimes
from brrrtop.analysis.account.account import split_of
from brrrtop.analysis.estimate import estimate
from brrrtop.model.account import IDLE_CAUSES, MECHANICAL_CLASSES, Account
from brrrtop.model.estimate import Regime, Side
from tests.analysis.build import ADD, GEMM, H2D, NCCL, K, window

WHOLE = 1_000_000
PARTS = st.integers(0, WHOLE)
CERTAIN = st.floats(0.0, 1.0)


def account(compute: int, memory: int, underfilled: int, idle: int, unknown: int) -> Account:
    return Account(
        duration_ns=compute + memory + underfilled + idle + unknown,
        compute_ns=compute, memory_ns=memory, underfilled_ns=underfilled, exposed_comm_ns=0,
        exposed_copy_ns=0, idle_ns=dict.fromkeys(IDLE_CAUSES, 0) | {"launch": idle},
        unknown_ns=unknown, mechanical_ns=dict.fromkeys(MECHANICAL_CLASSES, 0),
        busy_ns=compute + memory + underfilled + unknown,
    )  # fmt: skip


def judge(booked: Account, uncertainty_by_bound: dict[Side, float]) -> regimes.Verdict:
    return regimes.judge(booked, split_of(booked), uncertainty_by_bound, 100)


@given(PARTS, PARTS, PARTS, PARTS, PARTS, CERTAIN, CERTAIN, CERTAIN)
def test_a_verdict_agrees_with_the_split(compute, memory, small, idle, unknown, a, b, c):
    booked = account(compute, memory, small, idle, unknown)
    uncertainty_by_bound = {Side.COMPUTE: a, Side.MEMORY: b, Side.UNDERFILLED: c}
    result, split = judge(booked, uncertainty_by_bound), split_of(booked)
    assert 0.0 <= result.confidence < 1.0
    if result.regime in (Regime.COMPUTE, Regime.MEMORY, Regime.OVERHEAD):
        first = max((Regime.COMPUTE, Regime.MEMORY, Regime.OVERHEAD), key=lambda r: getattr(split, r.value))  # fmt: skip
        assert result.regime is first
        assert result.confidence >= regimes.FLOOR


@given(PARTS, PARTS, PARTS, PARTS, PARTS, CERTAIN, CERTAIN, CERTAIN,
       st.sampled_from([0, 1, 2]), st.floats(0.0, 1.0))  # fmt: skip
def test_more_unknown_time_never_makes_surer(
    compute, memory, small, idle, unknown, a, b, c,
    which, part,
):  # fmt: skip
    times = [compute, memory, small]
    assume(sum(times) + idle + unknown > 0)
    uncertainty_by_bound = {Side.COMPUTE: a, Side.MEMORY: b, Side.UNDERFILLED: c}
    before = judge(account(*times, idle, unknown), uncertainty_by_bound)
    lost = int(times[which] * part)
    times[which] -= lost
    after = judge(account(*times, idle, unknown + lost), uncertainty_by_bound)
    assert after.confidence <= before.confidence + 0.0011  # both are rounded


def sure(compute: float, memory: float, overhead: float, doubt: float = 0.0) -> float:
    """Confidence where that share of the time is booked as compute and may be memory."""
    shares = {Regime.COMPUTE: compute, Regime.MEMORY: memory, Regime.OVERHEAD: overhead}
    uncertainty_by_bound = {Regime.COMPUTE: doubt, Regime.MEMORY: 0.0, Regime.OVERHEAD: 0.0}
    return regimes.confidence(shares, uncertainty_by_bound, 0.0)


@given(st.floats(0.6, 1), st.floats(0, 1), st.floats(0, 1))
def test_more_doubt_never_makes_a_clear_verdict_surer(share, doubt, more):
    assert sure(share, 1 - share, 0.0, doubt + more) <= sure(share, 1 - share, 0.0, doubt)


def test_a_verdict_is_a_toss_where_it_is_about_to_tip():
    assert sure(0.55, 0.45, 0.0) == pytest.approx(0.5)
    assert sure(0.675, 0.325, 0.0) == pytest.approx(0.8)
    assert sure(0.5, 0.5, 0.0) == pytest.approx(0.7)  # surely mixed
    assert sure(0.675, 0.325, 0.0, doubt=0.25) == pytest.approx(0.5)


def test_much_unknown_time_leaves_no_verdict():
    result = judge(account(540, 0, 0, 0, 460), {})
    assert (result.regime, result.runner_up) == (Regime.UNKNOWN, Regime.COMPUTE)


@pytest.mark.parametrize("names", [(GEMM,), (GEMM, ADD), (ADD,), (ADD, "_mine"), (NCCL, GEMM), (H2D, ADD)])  # fmt: skip
@pytest.mark.parametrize("gap", [0, 40_000, 400_000])
def test_a_window_without_its_device_is_never_judged_surer(names, gap):
    made = window(
        [K(i * (100_000 + gap), i * (100_000 + gap) + 100_000, names[i % len(names)], i + 1, blocks=4000)
         for i in range(40)]
    )  # fmt: skip
    blind = replace(made, device=type(made.device)(0))
    known, unknown = estimate(made).estimate, estimate(blind).estimate
    assert unknown.confidence <= known.confidence
    assert sum(np.array([known.split.compute, known.split.memory, known.split.overhead, known.split.unknown])) == pytest.approx(1)  # fmt: skip


def test_a_verdict_on_first_steps_is_never_sure():
    idle = account(50, 50, 0, 900, 0)
    steady = judge(idle, {})
    first = regimes.judge(idle, split_of(idle), {}, 100, warming_up=True)
    assert steady.confidence == 0.99
    assert (first.regime, first.cause) == (steady.regime, steady.cause)
    assert first.confidence == regimes.MOST_AT_START
    unsure = account(500, 450, 0, 50, 0)
    again = regimes.judge(unsure, split_of(unsure), {}, 100, warming_up=True)
    assert again.confidence <= judge(unsure, {}).confidence


def test_a_lead_that_unknown_time_cannot_turn_is_a_verdict():
    assert judge(account(0, 0, 0, 620, 380), {}).regime is Regime.OVERHEAD
    assert judge(account(0, 0, 0, 520, 480), {}).regime is Regime.UNKNOWN
