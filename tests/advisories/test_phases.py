"""Advice on what a run does beside its steps, and what a gain of a step is worth in a run."""

import pytest
from msgspec.structs import replace

from brrrtop.advisories.advise import advise
from brrrtop.analysis.account.account import add
from brrrtop.ledger.sums import PhaseSums
from brrrtop.model.account import Split
from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.model.run import Phase, PhaseKind, Run, Witness
from brrrtop.model.tables import Span

from .cases import Cases, large, looped
from .scenarios import Scene

CASES = Cases()
SECOND = 1_000_000_000


class RunScene(Scene):
    """Large products in each step, and phases in a run of 100 s."""

    phases: tuple[Phase, ...] = ()

    def advice(self) -> dict[str, Advisory]:
        whole = add([one.account for one in self.phases])
        run = Run(
            Span(0, 100 * SECOND), whole, Split(0, 0, 1, 0), self.phases, Witness(), SECOND, 1000, 50_000_000
        )  # fmt: skip
        return {one.kind: one for one in advise(self.judged(), run).given}


def phase(kind: PhaseKind, seconds: float, steps: int = 0, waits: float = 0.0) -> Phase:
    duration_ns = int(seconds * SECOND)
    known = PhaseSums(
        (kind, "evaluate() main.py:8"), duration_ns, count=4, longest_ns=duration_ns // 4, steps=steps,
        waits_ns=int(waits * SECOND), active_ns=0.1, read_ns=1.0,
    )  # fmt: skip
    step_ns = duration_ns // steps if steps else None
    return replace(known.phase(100 * SECOND), step_ns=step_ns)


def scene(*phases: Phase) -> RunScene:
    made = looped(lambda s: large(s, 4), scene=RunScene())
    assert isinstance(made, RunScene)
    made.phases = phases
    return made


@CASES.calls_for("evaluation-share")
def a_third_of_the_run_evaluates() -> Scene:
    return scene(phase(PhaseKind.TRAIN, 65, 1000), phase(PhaseKind.EVALUATION, 35))


@CASES.silent("evaluation-share", "generation-share", "rollout-share", "other-share")
def a_twentieth_of_the_run_evaluates() -> Scene:
    return scene(phase(PhaseKind.TRAIN, 95, 1000), phase(PhaseKind.EVALUATION, 5))


@CASES.silent("evaluation-share")
def an_evaluation_that_waits_for_its_data() -> Scene:
    return scene(phase(PhaseKind.TRAIN, 65, 1000), phase(PhaseKind.EVALUATION, 35, waits=34))


@CASES.calls_for("generation-share")
def a_third_of_the_run_generates() -> Scene:
    return scene(phase(PhaseKind.TRAIN, 65, 1000), phase(PhaseKind.GENERATION, 35))


@CASES.calls_for("rollout-share")
def rollouts_between_updates() -> Scene:
    return scene(phase(PhaseKind.TRAIN, 25, 1000), phase(PhaseKind.ROLLOUT, 75))


@CASES.calls_for("other-share")
def something_else_between_steps() -> Scene:
    return scene(phase(PhaseKind.TRAIN, 65, 1000), phase(PhaseKind.OTHER, 35))


test_given_where_it_is_called_for, test_silent_where_it_only_looks_like_it = CASES.tests()


def rows_of(made: RunScene, step_ns: int = 100_000_000) -> dict[str, WhatIf]:
    whole, steps = add([one.account for one in made.phases]), made.phases[0].steps
    run = Run(
        Span(0, 100 * SECOND), whole, Split(0, 0, 1, 0), made.phases, Witness(), SECOND, steps, step_ns
    )  # fmt: skip
    return {row.edit: row for row in advise(made.judged(), run).whatif}


def test_a_gain_of_a_step_counts_for_the_part_of_the_run_that_steps():
    alone = rows_of(scene(phase(PhaseKind.TRAIN, 100, 1000)))
    beside = rows_of(scene(phase(PhaseKind.TRAIN, 40, 400), phase(PhaseKind.ROLLOUT, 60)))
    assert beside["double-batch"].saves == pytest.approx(0.4 * alone["double-batch"].saves)


def test_time_without_steps_is_no_part_of_a_step_and_waits_for_data_are():
    whole, paused, waiting = (
        rows_of(scene(phase(PhaseKind.TRAIN, 100, *more)))["double-batch"]
        for more in ((1000,), (250,), (250, 75))
    )
    assert whole.saves_of_step is not None and paused.saves_of_step is not None
    assert paused.saves_of_step == pytest.approx(whole.saves_of_step)
    assert paused.saves < whole.saves
    assert paused.saves < (waiting.saves_of_step or 0) < whole.saves_of_step


def test_what_the_ledger_measured_is_what_ready_batches_win():
    made = scene(
        phase(PhaseKind.TRAIN, 60, 1000, waits=45), phase(PhaseKind.EVALUATION, 40, waits=20)
    )
    advice = made.advice()["dataloader-stall"]
    assert advice.saves == pytest.approx(0.65, abs=0.01) and advice.saves_at_most is not None
