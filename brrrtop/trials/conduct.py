"""Which runs are made, in which order, within which time, and what is made of them.

The program as it is runs first, after each third edit and last, so that an edit is compared with base runs
before and after it. An edit whose gain is not sure within a few points runs twice, the second time in the
reverse order: two runs of a loop that the host paces differ more than the blocks of one.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from brrrtop.advisories.steady import TriedProgram
from brrrtop.errors import BrrrtopError
from brrrtop.model.advice import WhatIf
from brrrtop.model.trials import BasePace, Facts, Header, Pace, TrialReport, TriedEdit
from brrrtop.trials.edits import CHANGES_TRAINING, EDITS, NEEDS_WORKERS, line_of, reasons_against
from brrrtop.trials.pace import joint, loss_difference, saving
from brrrtop.trials.program import Outcome

SCHEMA = "brrrtop.try/1"
EACH_BASE = 3
"""Edits between two base runs."""
WIDE = 0.04
"""A gain that is less sure is measured once more."""
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
        self._runs: dict[tuple[str, ...], list[tuple[Outcome, Pace, Pace | None]]] = {}
        """Of each edit, with the base runs before and after."""
        self._rows: dict[tuple[str, ...], TriedEdit] = {}
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
            self._turn([(name,) for name in self._begin()])
            self._turn(self._pairs())
            self._turn(self._unsure())
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

    def _turn(self, edits: Sequence[tuple[str, ...]]) -> None:
        for one in edits:
            self._try(one)
            if len(self._pending) == EACH_BASE:
                self._run_base()
        self._run_base()

    def _unsure(self) -> list[tuple[str, ...]]:
        """What ran once, may win, and is not sure; and what was stopped early though it should win, as is
        foretold or as a pair of what wins: a neighbour may hold the host up for a whole run."""
        return [
            edits
            for edits, row in reversed(self._rows.items())
            if len(self._runs[edits]) == 1 and row.measured_low is not None
            and row.measured_high is not None
            and (len(edits) > 1 or (row.predicted or 0.0) > 0 if row.stopped_early else
                 row.measured_high > max(0.0, row.measured_low + WIDE))
        ]  # fmt: skip

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
            self._runs.setdefault(edits, []).append((outcome, before, after))
            self._rows[edits] = self._row(edits)
            self._report(self._rows[edits])
        self._pending.clear()

    def _try(self, edits: tuple[str, ...]) -> None:
        if not self._time_for(2):
            if edits not in self._runs:
                self._skipped["+".join(edits)] = OUT_OF_TIME
            return
        compiles = any(EDITS[name].family == "compile" for name in edits)
        limit_s = self._base_s + (COMPILE_LIMIT_S if compiles else START_LIMIT_S)
        left_s = self._ends_s - self._clock() - self._base_s
        self._say(f"trying {'+'.join(edits)}{' again' if edits in self._runs else ''}")
        outcome = self._program.run(
            edits, self._plan.seconds, min(limit_s, left_s), self._bases[-1]
        )
        self._pending.append((edits, outcome))

    def _row(self, edits: tuple[str, ...]) -> TriedEdit:
        """What all runs with these edits say; of one that was stopped early nothing, if another was not."""
        runs = [run for run in self._runs[edits] if run[0].pace is not None] or self._runs[edits]
        runs = [run for run in runs if not run[0].stopped_early] or runs
        foretold = self._foretold(edits)
        outcome, base, _ = runs[0]
        row = TriedEdit("+".join(edits), fault=outcome.fault, stopped_early=outcome.stopped_early)
        if foretold is not None:
            row = replace(
                row, predicted=foretold.saves, low=foretold.saves_low, high=foretold.saves_high
            )
        paces = [run[0].pace for run in runs if run[0].pace is not None]
        if not paces:
            return row
        pace = paces[0]
        saves, low, high = joint([
            saving(one, before, after) for one, (_, before, after) in zip(paces, runs, strict=True)
        ])  # fmt: skip
        compile_s = pays_back = None
        if any(EDITS[name].family == "compile" for name in edits):
            compile_s = max(pace.startup_ns - base.startup_ns, 0.0) / 1e9
            if low > 0:
                pays_back = round(compile_s * 1e9 / (base.step_ns * saves))
        difference, changes = loss_difference(pace.losses, [one.losses for one in self._bases])
        samples = [one.samples_per_s for one in paces if one.samples_per_s]
        return replace(
            row, measured=saves, measured_low=low, measured_high=high,
            step_ms=mean(one.step_ns for one in paces) / 1e6,
            samples_per_s=mean(samples) if samples else None, peak_bytes=pace.peak_bytes,
            compile_s=compile_s, pays_back_steps=pays_back, loss_difference=difference,
            changes_numbers=changes or CHANGES_TRAINING in edits,
        )  # fmt: skip

    def _winners(self) -> list[str]:
        """Single edits that are faster for certain, best first, at most one of a family."""
        rows = [
            row
            for row in self._rows.values()
            if "+" not in row.edit and (row.measured_low or 0) > 0
        ]
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
            self._rows.values(),
            key=lambda row: -(row.measured if row.measured is not None else -99),
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
        samples = [base.samples_per_s for base in self._bases if base.samples_per_s]
        return BasePace(
            step_ms=mean(paces) / 1e6,
            step_ms_error=mean(base.error_ns for base in self._bases) / 1e6,
            samples_per_s=mean(samples) if samples else None,
            peak_bytes=self._bases[0].peak_bytes,
            waits=mean(base.waits for base in self._bases),
            runs=len(paces),
            drift=(max(paces) - min(paces)) / mean(paces),
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
