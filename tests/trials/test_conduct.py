"""Which runs are made within the budget, and what is said of them, with a program that is made up."""

from collections.abc import Mapping, Sequence

import pytest

from brrrtop.errors import BrrrtopError
from brrrtop.model.advice import WhatIf
from brrrtop.model.trials import Facts, Header, LoaderFacts, ModelFacts, OptimizerFacts, Pace
from brrrtop.trials.conduct import OUT_OF_TIME, Plan, Trials
from brrrtop.trials.pace import joint
from brrrtop.trials.program import Outcome

MODEL = ModelFacts("Net", "cuda", ("float32",), True, False, False, False, False)
FACTS = Facts(
    {}, {}, (MODEL,), (LoaderFacts(0, False, False, 32, False),), (OptimizerFacts("SGD", False),)
)
STEP_NS = 100e6


def a_pace(share: float, waits: float = 0.3, startup_ns: float = 2e9) -> Pace:
    return Pace(
        STEP_NS * share, STEP_NS * share / 500, 10, 80, 32.0, waits, 1 << 30, startup_ns, {1: 1.0}
    )


class MadeUp:
    """A program whose edits take the given shares of its step; runs take ten seconds."""

    def __init__(self, shares: Mapping[str, float], waits: float = 0.3, drift: float = 0.0) -> None:
        self.shares, self.waits, self.drift = shares, waits, drift
        self.runs: list[str] = []
        self.now_s = 0.0

    def run(
        self, edits: Sequence[str], seconds: float, limit_s: float, base: Pace | None = None
    ) -> Outcome:
        name = "+".join(edits)
        self.now_s += 10.0
        share = (1 + self.drift * len(self.runs)) * (self.shares.get(name, 1.0) if name else 1.0)
        self.runs.append(name or "base")
        header = Header(1, "/", ("python",), "step", 0, FACTS, gpu="H100")
        if share <= 0:
            return Outcome(None, header, "RuntimeError: no", 10.0)
        compiled = 8e9 if "compile" in name else 2e9
        worse = base is not None and share > 1.5
        return Outcome(a_pace(share, self.waits, compiled), header, None, 10.0, worse)

    def trials(self, budget_s: float = 1e4, predicted: Mapping[str, float] | None = None,
               edits: tuple[str, ...] | None = None) -> Trials:  # fmt: skip
        rows = {
            name: WhatIf(name, 1.0, saves, saves - 0.1, saves + 0.1, None, "")
            for name, saves in (predicted or {}).items()
        }
        return Trials(self, Plan(8.0, budget_s, 4, edits), lambda _: rows, lambda _: None,
                      lambda _: None, lambda: self.now_s)  # fmt: skip


def test_the_foretold_best_comes_first_a_foretold_loss_last_and_the_base_in_between():
    program = MadeUp({})
    program.trials(predicted={"fused-optimizer": 0.3, "tf32": 0.2, "compile": -0.2}).conduct()
    assert program.runs[:3] == ["base", "fused-optimizer", "tf32"]
    assert program.runs[-2:] == ["compile", "base"]
    assert program.runs[4] == "base" and program.runs[8] == "base"


def test_the_best_pair_is_tried_and_must_be_better_than_its_halves():
    shares = {"bf16": 0.6, "tf32": 0.7, "channels-last": 0.8, "bf16+channels-last": 0.5}
    program = MadeUp(shares)
    report = program.trials().conduct()
    assert report.best == ("bf16", "channels-last")  # tf32 does what bf16 does
    assert report.edits[0].edit == "bf16+channels-last"
    assert set(report.lines) == set(report.best) and len(report.checks) == 2
    again = MadeUp({**shares, "bf16+channels-last": 0.6}).trials().conduct()
    assert again.best == ("bf16",)


def test_what_should_win_and_loses_is_tried_again():
    """An MLP won 41 and 14 % and took twice as long with both: its threads were in each other's way."""
    program = MadeUp({"bf16": 0.6, "channels-last": 0.8, "bf16+channels-last": 2.1})
    program.trials().conduct()
    pair = ["bf16+channels-last", "base"]
    assert program.runs[-4:] == [*pair, *pair]
    for foretold, runs in ((0.3, 2), (-0.2, 1)):
        program = MadeUp({"compile": 2.1})
        program.trials(edits=("compile",), predicted={"compile": foretold}).conduct()
        assert program.runs.count("compile") == runs


def test_a_gain_that_is_not_sure_is_measured_again_backwards_and_what_two_runs_differ_by_counts():
    """In bf16 a loop of the GPU became one of its host: 34 % in one process, 24 % in the next."""
    program = MadeUp({"bf16": 0.7, "channels-last": 0.8}, drift=0.03)
    report = program.trials(edits=("bf16", "channels-last")).conduct()
    pair, edits = ["bf16+channels-last", "base"], ["bf16", "channels-last"]
    assert program.runs == ["base", *edits, "base", *pair, pair[0], *edits[::-1], "base"]
    assert [row.edit for row in report.edits if "+" not in row.edit] == ["bf16", "channels-last"]
    low, high = 0.02, 0.2
    middle, down, up = joint([(0.34, 0.32, 0.36), (0.24, 0.22, 0.26)])
    assert middle == pytest.approx(0.29) and down <= 0.29 - 0.1 and up >= 0.29 + 0.1
    middle, down, up = joint([(0.1, low, high), (0.1, low, high)])
    assert low < down < middle < up < high, "two that agree are surer than one"


def test_a_pair_of_a_loader_that_has_workers_now():
    program = MadeUp({"loader-workers": 0.5, "double-batch": 0.2})
    report = program.trials().conduct()
    assert "loader-workers+loader-persistent" in program.runs
    assert report.best == ("loader-workers",), "twice the batch changes the training"
    assert next(row for row in report.edits if row.edit == "double-batch").changes_numbers


def test_a_failure_is_a_row_and_no_winner():
    report = MadeUp({"compile": 0.0}).trials(edits=("compile", "bf16")).conduct()
    failed = report.edits[-1]
    assert (failed.edit, failed.fault, failed.measured) == ("compile", "RuntimeError: no", None)
    assert report.best == ()


def test_compilation_is_paid_back_by_steps():
    row = MadeUp({"compile": 0.8}).trials(edits=("compile",)).conduct().edits[0]
    assert row.compile_s == pytest.approx(6.0)
    assert row.pays_back_steps == pytest.approx(300)
    assert MadeUp({"bf16": 0.8}).trials(edits=("bf16",)).conduct().edits[0].compile_s is None


def test_drift_of_the_machine_widens_the_interval_and_wins_nothing():
    report = MadeUp({}, drift=0.05).trials(edits=("bf16",)).conduct()
    row = report.edits[0]
    assert report.base is not None and report.base.drift == pytest.approx(0.2 / 1.1)
    assert row.measured_low < 0 < row.measured_high
    assert report.best == ()


def test_the_budget_leaves_time_for_a_last_base_run():
    program = MadeUp({})
    report = program.trials(budget_s=65.0).conduct()
    assert program.now_s <= 65.0
    assert program.runs[-1] == "base" and len(program.runs) == 5
    assert OUT_OF_TIME in report.skipped.values()


@pytest.mark.parametrize(
    ("waits", "skipped", "tried"),
    [(0.95, "bf16", "loader-workers"), (0.01, "loader-workers", "bf16")],
)
def test_what_cannot_gain_is_not_tried_unless_it_is_asked_for(waits, skipped, tried):
    program = MadeUp({}, waits=waits)
    report = program.trials().conduct()
    assert skipped in report.skipped and skipped not in program.runs and tried in program.runs
    assert skipped in [row.edit for row in program.trials(edits=(skipped,)).conduct().edits]


def test_interrupted_it_reports_what_was_measured():
    class Interrupted(MadeUp):
        def run(self, edits: Sequence[str], *rest: object) -> Outcome:  # type: ignore[override]
            if len(self.runs) == 2:
                raise KeyboardInterrupt
            return super().run(edits, 8.0, 1.0)

    trials = Interrupted({"bf16": 0.5}).trials(edits=("bf16", "compile"))
    report = trials.conduct()
    assert trials.interrupted and [row.edit for row in report.edits] == ["bf16"]


def test_a_program_that_cannot_be_measured_is_an_error():
    class Broken(MadeUp):
        def run(self, *_: object) -> Outcome:
            return Outcome(None, None, "ModuleNotFoundError: No module named 'x'", 1.0)

    with pytest.raises(BrrrtopError, match="ModuleNotFoundError"):
        Broken({}).trials().conduct()
