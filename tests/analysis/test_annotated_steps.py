"""Steps are told by ranges before anything is guessed from the kernels' sequence."""

from __future__ import annotations

import pytest

from brrrtop.analysis.estimate import facts_of
from brrrtop.analysis.facts import steps
from brrrtop.model.estimate import Steps
from brrrtop.model.tables import Window
from collectors.vocabulary import MarkClass
from tests.analysis.build import ADD, GEMM, C, K, M, window

US = 1_000
STEP = 400 * US


def loop(count: int, marks: list[M], first: int = 0) -> Window:
    """Steps of ten layers of two kernels each; the first one begins `first` later."""
    kernels, calls = [], []
    for step in range(count):
        for place in range(20):
            at = first * (step > 0) + step * STEP + place * 20 * US
            number = len(calls) + 1
            calls.append(C(at, at + 5 * US, number))
            name = (GEMM, ADD)[place % 2]
            kernels.append(K(at + 8 * US, at + 18 * US, name, number))
    return window(kernels, calls, marks)


def steps_of(w: Window) -> Steps:
    return steps.find_steps(facts_of(w))


def update(end: int, name: str = "Optimizer.step#Adam.step", length: int = 30 * US) -> M:
    return M(end - length, end, MarkClass.OPTIMIZER, name)


def test_a_step_lasts_from_update_to_update_and_the_first_is_warm_up() -> None:
    slow = 5 * STEP
    marks = [update(slow * (i > 0) + (i + 1) * STEP - US) for i in range(6)]
    result = steps_of(loop(6, marks, first=slow))
    assert (result.source, result.count, result.step_ns) == ("annotations", 5, STEP)


def test_two_optimizers_of_one_class_update_in_one_step() -> None:
    # Of a discriminator and a generator, after a fifth and at the end of each step.
    marks = [update(i * STEP + part) for i in range(6) for part in (80 * US, STEP - US)]
    result = steps_of(loop(6, marks))
    assert (result.count, result.step_ns) == (5, STEP)


def test_the_rarest_optimizer_ends_the_step() -> None:
    often = [update(i * STEP // 4 - US, "Optimizer.step#SGD.step") for i in range(1, 25)]
    once = [update(i * STEP - US, "Optimizer.step#Averaged.step") for i in (2, 5)]
    marks = [*often, *once, *(update((i + 1) * STEP - US) for i in range(6))]
    assert steps_of(loop(6, marks)).step_ns == STEP


@pytest.mark.parametrize("name", ["execute_context_{}(888_788544)_generation_0(0)", "iteration {}"])
def test_ranges_of_one_name_that_hold_all_launches_are_the_steps(name: str) -> None:
    ranges = [
        M(i * STEP, (i + 1) * STEP - US, MarkClass.ANNOTATION, name.format(i)) for i in range(6)
    ]
    inner = [
        M(i * STEP + US, i * STEP + 190 * US, MarkClass.ANNOTATION, "## forward ##")
        for i in range(6)
    ]
    result = steps_of(loop(6, [*ranges, *inner]))
    assert (result.source, result.count, result.step_ns) == ("annotations", 6, STEP)


def test_the_first_iteration_of_a_run_is_warm_up() -> None:
    slow = 3 * STEP
    begun = [0, *(slow + i * STEP for i in range(1, 6))]
    ranges = [
        M(a, b - US, MarkClass.ANNOTATION, f"iteration {i}")
        for i, (a, b) in enumerate(zip(begun, [*begun[1:], slow + 6 * STEP], strict=True))
    ]
    result = steps_of(loop(6, ranges, first=slow))
    assert (result.count, result.step_ns) == (5, STEP)


def test_ranges_that_hold_a_part_of_the_launches_are_no_steps() -> None:
    inner = [
        M(i * STEP, i * STEP + 190 * US, MarkClass.ANNOTATION, "## forward ##") for i in range(6)
    ]
    assert steps_of(loop(6, inner)).source != "annotations"


def test_layers_within_one_range_are_no_steps() -> None:
    assert steps_of(loop(1, [])).source == "period"
    for one in (
        M(0, STEP, MarkClass.ANNOTATION, "forward of the model"),
        update(STEP, length=STEP),
    ):
        assert steps_of(loop(1, [one])).count is None
    known = M(0, STEP, MarkClass.ANNOTATION, "execute_context_1(8_78)_generation_0(0)")
    assert steps_of(loop(1, [known])).count == 1


def test_the_profilers_own_steps_come_first() -> None:
    own = [M(i * STEP, (i + 1) * STEP - US, MarkClass.STEP, "", i) for i in range(6)]
    result = steps_of(loop(6, [*own, *(update((i + 1) * STEP // 2) for i in range(12))]))
    assert (result.count, result.confidence) == (6, 1.0)
