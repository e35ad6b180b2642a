"""Which runs are made, in which order, within which time, and what is made of them.

The program as it is runs first, after each third edit and last, so that an edit is compared with base runs
before and after it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from brrrtop.advisories.tried import TriedProgram
from brrrtop.errors import BrrrtopError
from brrrtop.model.advice import WhatIf
from brrrtop.model.trials import BasePace, Facts, Header, Pace, TrialReport, TriedEdit
from brrrtop.trials.edits import CHANGES_TRAINING, EDITS, NEEDS_WORKERS, line_of, reasons_against
from brrrtop.trials.pace import loss_difference, saving
from brrrtop.trials.program import Outcome

SCHEMA = "brrrtop.try/1"
EACH_BASE = 3
"""Edits between two base runs."""
START_LIMIT_S, COMPILE_LIMIT_S = 180.0, 300.0
"""How much longer than the base run an edit may take; a compiler is slow."""
OUT_OF_TIME = "out of the time of --budget"


class Runs(Protocol):
    """What `brrrtop.trials.program.Program` does."""

    def run(
        self, edits: Sequence[str], seconds: float, limit_s: float, base: Pace | None = None
    ) -> Outcome: ...


class Plan(Struct, frozen=True):
    seconds: float
    budget_s: float
    workers: int
    edits: tuple[str, ...] | None = None
    """None: all that apply."""


class Trials:
    """One session of trials.

    Args:
        predict: Gains that are foretold for the program as it is, by what-if edit.
        report: Called with the base, and with each edit once the base run after it is there.
        say: Called with what runs now.
    """

    def __init__(
        self, program: Runs, plan: Plan, predict: Callable[[Header], Mapping[str, WhatIf]],
        report: Callable[[TriedEdit | BasePace], None], say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._program, self._plan, self._predict = program, plan, predict
        self._report, self._say, self._clock = report, say, clock
        self._ends_s = clock() + plan.budget_s
        self._bases: list[Pace] = []
        self._pending: list[tuple[tuple[str, ...], Outcome]] = []
        """Edits since the last base run, and what came of them."""
        self._rows: list[TriedEdit] = []
        self._base_s = 0.0
        self._predicted: Mapping[str, WhatIf] = {}
        self._header: Header | None = None
        self._skipped: dict[str, str] = {}
        self.interrupted = False

    def conduct(self) -> TrialReport:
        """Makes all runs.

        Raises:
            BrrrtopError: The program as it is has no steady steps.
        """
        try:
            names = self._begin()
            for name in names:
                self._try((name,))
                if len(self._pending) == EACH_BASE:
                    self._run_base()
            self._run_base()
            for pair in self._pairs():
                self._try(pair)
            self._run_base()
        except KeyboardInterrupt:
            if not self._pending and not self._rows:
                raise
            self.interrupted = True
            self._settle(None)
        return self.result()

    def _begin(self) -> list[str]:
        """The first base run and what is foretold; the edits to try, in order."""
        outcome = self._program.run((), self._plan.seconds, self._plan.budget_s / 2)
        if outcome.pace is None or outcome.header is None:
            fault = outcome.fault or "no step was seen"
            raise BrrrtopError(f"the program as it is cannot be measured: {fault}",
                               "see that it trains for longer by itself, or give --seconds 3")  # fmt: skip
        self._bases.append(outcome.pace)
        self._header, self._base_s = outcome.header, outcome.took_s
        facts = outcome.header.facts
        base = self._base_pace()
        assert base is not None
        self._report(base)
        against = reasons_against(facts, outcome.pace, outcome.header.gpu is not None)
        asked = self._plan.edits
        if asked is None:
            names = [name for name in EDITS if name not in against]
            self._skipped = against
        else:
            names = [name for name in asked if EDITS[name].lacks(facts) is None]
            self._skipped = {n: str(EDITS[n].lacks(facts)) for n in asked if n not in names}
        if names:
            self._predicted = self._predict(outcome.header)
        foretold = {name: row.saves for name in names if (row := self._foretold((name,)))}
        # Foretold losses come after what nothing is foretold of.
        return sorted(names, key=lambda n: -foretold.get(n, 0.0)) if asked is None else names

    def _foretold(self, edits: tuple[str, ...]) -> WhatIf | None:
        names = [EDITS[name].foretold_by or "-" for name in edits]
        return self._predicted.get("+".join(names)) or self._predicted.get("+".join(names[::-1]))

    def _time_for(self, runs: int) -> bool:
        return self._clock() + runs * self._base_s <= self._ends_s

    def _run_base(self) -> None:
        """The program as it is once more, if there is time, and the rows of the edits before it."""
        if self._pending and self._time_for(1):
            self._say("running the program as it is")
            outcome = self._program.run((), self._plan.seconds, self._base_s + START_LIMIT_S)
            self._settle(outcome.pace)
        self._settle(None)

    def _settle(self, after: Pace | None) -> None:
        before = self._bases[-1]
        if after is not None:
            self._bases.append(after)
        for edits, outcome in self._pending:
            self._rows.append(self._row(edits, outcome, before, after))
            self._report(self._rows[-1])
        self._pending.clear()

    def _try(self, edits: tuple[str, ...]) -> None:
        if not self._time_for(2):
            self._skipped["+".join(edits)] = OUT_OF_TIME
            return
        compiles = any(EDITS[name].family == "compile" for name in edits)
        limit_s = self._base_s + (COMPILE_LIMIT_S if compiles else START_LIMIT_S)
        left_s = self._ends_s - self._clock() - self._base_s
        base = self._bases[-1]
        self._say(f"trying {'+'.join(edits)}")
        outcome = self._program.run(edits, self._plan.seconds, min(limit_s, left_s), base)
        if outcome.stopped_early and len(edits) > 1 and self._time_for(2):
            # Each of them wins: that they lose together may be the machine's doing.
            self._say(f"trying {'+'.join(edits)} again")
            outcome = self._program.run(edits, self._plan.seconds, min(limit_s, left_s), base)
        self._pending.append((edits, outcome))

    def _row(
        self, edits: tuple[str, ...], outcome: Outcome, base: Pace, after: Pace | None
    ) -> TriedEdit:
        foretold = self._foretold(edits)
        row = TriedEdit("+".join(edits), fault=outcome.fault, stopped_early=outcome.stopped_early)
        if foretold is not None:
            row = replace(
                row, predicted=foretold.saves, low=foretold.saves_low, high=foretold.saves_high
            )
        pace = outcome.pace
        if pace is None:
            return row
        saves, low, high = saving(pace, base, after)
        compile_s = pays_back = None
        if any(EDITS[name].family == "compile" for name in edits):
            compile_s = max(pace.startup_ns - base.startup_ns, 0.0) / 1e9
            if low > 0:
                pays_back = round(compile_s * 1e9 / (base.step_ns * saves))
        difference, changes = loss_difference(pace.losses, [one.losses for one in self._bases])
        return replace(
            row, measured=saves, measured_low=low, measured_high=high, step_ms=pace.step_ns / 1e6,
            samples_per_s=pace.samples_per_s, peak_bytes=pace.peak_bytes, compile_s=compile_s,
            pays_back_steps=pays_back, loss_difference=difference,
            changes_numbers=changes or CHANGES_TRAINING in edits,
        )  # fmt: skip

    def _winners(self) -> list[str]:
        """Single edits that are faster for certain, best first, at most one of a family."""
        rows = [row for row in self._rows if "+" not in row.edit and (row.measured_low or 0) > 0]
        names: list[str] = []
        for row in sorted(rows, key=lambda row: -(row.measured or 0)):
            family = EDITS[row.edit].family
            if row.edit != CHANGES_TRAINING and family not in {EDITS[n].family for n in names}:
                names.append(row.edit)
        return names

    def _pairs(self) -> list[tuple[str, ...]]:
        """The two best edits together; of a loader that has workers now, what only such a one can have."""
        names = self._winners()
        if len(names) >= 2:
            return [tuple(names[:2])]
        more = [n for n in NEEDS_WORKERS if self._plan.edits is None or n in self._plan.edits]
        return [("loader-workers", more[0])] if names == ["loader-workers"] and more else []

    def result(self) -> TrialReport:
        rows = sorted(
            self._rows, key=lambda row: -(row.measured if row.measured is not None else -99)
        )
        winners = [
            row for row in rows if (row.measured_low or 0) > 0 and row.edit != CHANGES_TRAINING
        ]
        best = _best(winners)
        facts = self._header.facts if self._header else Facts({}, {})
        lines = {name: line_of(name, facts, self._plan.workers) for name in best}
        checks = tuple(EDITS[name].checked for name in best)
        return TrialReport(
            SCHEMA, self._base_pace(), tuple(rows), best, self._skipped, lines, checks
        )

    def kept(self, report: TrialReport) -> TriedProgram | None:
        """What live screens are to know of it; None: it uses no GPU, or nothing was measured."""
        header, gains = self._header, {}
        for row in report.edits:
            saves, low, high = row.measured, row.measured_low, row.measured_high
            if saves is not None and low is not None and high is not None:
                name = "+".join(EDITS[one].foretold_by or one for one in row.edit.split("+"))
                gains[name] = saves, low, high
        if header is None or header.gpu is None or report.base is None or not gains:
            return None
        return TriedProgram(header.cwd, header.cmdline[1:], header.gpu, report.base.step_ms, gains)

    def _base_pace(self) -> BasePace | None:
        if not self._bases or self._header is None:
            return None
        paces = [base.step_ns for base in self._bases]
        mean = sum(paces) / len(paces)
        errors = [base.error_ns for base in self._bases]
        samples = [base.samples_per_s for base in self._bases if base.samples_per_s]
        return BasePace(
            step_ms=mean / 1e6,
            step_ms_error=sum(errors) / len(errors) / 1e6,
            samples_per_s=sum(samples) / len(samples) if samples else None,
            peak_bytes=self._bases[0].peak_bytes,
            waits=sum(base.waits for base in self._bases) / len(self._bases),
            runs=len(paces),
            drift=(max(paces) - min(paces)) / mean,
            unit=self._header.unit,
            gpu=self._header.gpu,
        )


def _best(winners: Sequence[TriedEdit]) -> tuple[str, ...]:
    """The edits of the best row; a pair only where it is better for certain than its better half."""
    for row in winners:
        halves = row.edit.split("+")
        singles = [winner for winner in winners if winner.edit in halves and winner is not row]
        if all((row.measured_low or 0) > (single.measured or 0) for single in singles):
            return tuple(halves)
    return ()
