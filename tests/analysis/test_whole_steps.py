"""Bursts are judged by their whole steps: a wait between two steps counts once for each."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from brrrtop.analysis.estimate import estimate, facts_of
from brrrtop.analysis.facts.steps import whole_steps
from brrrtop.model.tables import Span, Window
from collectors.vocabulary import MarkClass
from tests.analysis.build import C, K, M, window

MS = 1_000_000
STEP_MS, WAIT_MS, KERNELS = 100, 60, 10


def burst(begin_ms: int, steps: int, corr: int, cut_ms: int = 0) -> tuple[list[K], list[C], Span]:
    """Steps that wait, then run ten kernels of 4 ms; traced from the first of them to the last."""
    kernels, calls = [], []
    for step in range(steps):
        for i in range(KERNELS):
            at = (begin_ms + step * STEP_MS + WAIT_MS + 4 * i) * MS
            corr += 1
            if step or 4 * i >= cut_ms:
                kernels.append(K(at, at + 4 * MS, corr=corr))
                calls.append(C(at - 6_000, at - 3_000, corr))
    return kernels, calls, Span(kernels[0].start, kernels[-1].end)


def run(bursts: int = 3, steps: int = 3, cut_ms: int = 0, marked: bool = True) -> Window:
    kernels: list[K] = []
    calls: list[C] = []
    spans = []
    for number in range(bursts):
        result = burst(number * 2_000, steps, number * 1_000, cut_ms)
        kernels += result[0]
        calls += result[1]
        spans.append(result[2])
    last_ms = bursts * 2_000
    ends = [i * STEP_MS * MS for i in range(1, last_ms // STEP_MS)]
    marks = [M(at - 1_000, at - 1_000, MarkClass.STEP) for at in ends if marked]
    marks += [M(at, at + WAIT_MS * MS, MarkClass.INPUT) for at in ends]
    return window(kernels, calls, marks, (spans[0].t0_ns, last_ms * MS), observed=tuple(spans))


def test_a_wait_has_its_share_of_the_step_in_bursts_of_any_length() -> None:
    for steps in (2, 3, 8):
        account = estimate(run(steps=steps)).estimate.account
        share = account.idle_ns["input"] / account.duration_ns
        assert share == pytest.approx(WAIT_MS / STEP_MS, abs=0.005), steps
        assert account.duration_ns == pytest.approx(3 * (steps - 1) * STEP_MS * MS, rel=0.01)


def test_a_step_whose_beginning_was_not_traced_is_none() -> None:
    account = estimate(run(cut_ms=20)).estimate.account
    assert account.idle_ns["input"] / account.duration_ns == pytest.approx(0.6, abs=0.005)
    assert account.duration_ns == pytest.approx(6 * STEP_MS * MS, rel=0.01)


def test_kernels_and_calls_are_those_of_the_whole_steps() -> None:
    w = run()
    cut, steps = whole_steps(facts_of(w))
    result, moved = cut.window, cut.call_rows
    assert len(result.activities) == 3 * 2 * KERNELS == len(result.calls)
    assert moved.tolist() == list(range(len(moved)))
    assert (result.calls.correlations[moved] == result.activities.correlations).all()
    assert result.observed is not None
    assert [span.duration_ns for span in result.observed] == [2 * STEP_MS * MS] * 3
    assert [span.duration_ns for span in steps] == [STEP_MS * MS] * 6


@pytest.mark.parametrize(
    "w",
    [run(marked=False), run(steps=1), window([K(0, 10)], [C(-5, -2)])],
    ids=["no marks", "no whole step", "no bursts"],
)
def test_without_whole_steps_all_that_was_traced_is_judged(w: Window) -> None:
    facts = facts_of(w)
    assert whole_steps(facts) == (facts, ())


def test_marks_of_steps_where_nothing_may_be_judged_are_no_steps() -> None:
    judged = estimate(replace(run(), observed=())).estimate
    assert not judged.steps.spans
