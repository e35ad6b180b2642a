"""From what an edit wins of a traced step to what it wins of the run (Amdahl).

A gain of the step counts for the steps of its phase. While loader workers set the pace, a faster step waits
longer and wins nothing. What an edit takes away that the ledger measured (waits, saves, pauses) counts as
the ledger says.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from brrrtop.model.account import IDLE_CAUSES, Account
from brrrtop.model.advice import WhatIf
from brrrtop.model.host_tables import LoaderRow
from brrrtop.model.run import Phase, Run
from brrrtop.model.tables import Window
from brrrtop.text import loader
from brrrtop.whatif.price import doubt_of
from brrrtop.whatif.risks import Risk, risk_of_run, with_risks

LEAST_ROW = 0.01
"""Of the run: a row for what the ledger measured from there on."""
ASYNC_SAVE = "torch.distributed.checkpoint.async_save(state)"
QUIET = ("gc", "logging")
_FOR_DATA = ("loader-ready", "pinned-copies")


class Sampled(Struct, frozen=True):
    """The run, and the phase whose steps were traced."""

    run: Run
    phase: Phase | None
    paced: float
    """Share of the training time that waits for loader workers: they set the pace then, and not the step."""
    risks: tuple[Risk, ...] = ()
    """By all steps that were traced, of which the window has the last ones."""

    def part(self, step_ns: float | None) -> float:
        """Share of the run that traced steps of that length stand for."""
        if self.phase is None or not self.run.duration_ns:
            return 1.0
        if not step_ns or not self.phase.steps:
            return self.phase.share
        return min(self.phase.share, step_ns * self.phase.steps / self.run.duration_ns)

    def step_ns(self, traced_ns: float) -> float:
        """A step of the phase: the traced one, and its waits for data by the ledger. Pauses between steps,
        and time before the first mark, are no part of one."""
        if self.phase is None or not self.phase.step_ns:
            return traced_ns
        waits_ns = self.phase.waits_ns / self.phase.steps
        return max(traced_ns, min(traced_ns + waits_ns, self.phase.step_ns))

    def idle(self, *causes: str) -> float:
        """Share of the run in which the GPU idles for these causes."""
        return _idle(self.run.account, causes) / max(1, self.run.duration_ns)

    def loop_idle(self, *causes: str) -> float:
        """Share of the run in which it idles for these causes in the phase whose steps were traced."""
        phase = self.phase or self.run
        return _idle(phase.account, causes) / max(1, self.run.duration_ns)


def _idle(account: Account, causes: Iterable[str]) -> int:
    return sum(account.idle_ns.get(cause, 0) for cause in causes)


def sampled(run: Run, loaders: Sequence[LoaderRow], window: Window) -> Sampled:
    """What the traced steps are a sample of."""
    traced = [one for one in run.phases if one.traced_ns]
    loop = run.loop_in(window.observed or ())
    phase = loop[0] if loop else max(traced, key=lambda one: one.duration_ns, default=None)
    workers = max((row.workers or 0 for row in loaders), default=0)
    waits = (phase.waits_share or 0.0) if phase is not None and workers else 0.0
    risk = risk_of_run(phase, window) if phase is not None and phase.steps else None
    return Sampled(run, phase, waits, () if risk is None else (risk,))


def rows_of_run(rows: Iterable[WhatIf], of: Sampled) -> tuple[WhatIf, ...]:
    """What-if rows of a step as rows of the run, best first, and those of what the ledger measured."""
    measured = _measured(of)
    kept = [_scaled(row, of) for row in rows if row.edit not in measured]
    return tuple(sorted((*measured.values(), *kept), key=lambda row: row.place))


def rows_after(rows: Iterable[WhatIf], of: Sampled) -> tuple[WhatIf, ...]:
    """The best edit with one more after it, of the run."""
    return tuple(_scaled(row, of) for row in rows)


def _scaled(row: WhatIf, of: Sampled) -> WhatIf:
    phase = of.phase
    row = row if row.risk else with_risks(row, of.risks)
    if phase is None or not phase.duration_ns:
        return row
    # A step that was traced without its waits is shorter than the mean one: its gain is a time.
    part = of.part(row.present_ns)
    left = 1.0 if row.edit in _FOR_DATA else 1.0 - of.paced
    wins = row.saves * (left if row.saves > 0 else 1.0)
    saves, of_step = wins * part, wins * row.present_ns / of.step_ns(row.present_ns)
    step_ns = phase.step_ns or row.present_ns
    return replace(
        row,
        saves=saves,
        saves_low=row.saves_low * part * (left if row.saves_low > 0 else 1.0),
        saves_high=max(row.saves_high * part, saves),
        saves_of_step=of_step,
        step_ns=step_ns * (1 - of_step),
        changed_share=None if row.changed_share is None else row.changed_share * part,
    )


def _measured(of: Sampled) -> dict[str, WhatIf]:
    """Edits that take away what the ledger measured."""
    waits = sum(one.waits_ns for one in of.run.phases) / max(1, of.run.duration_ns)
    waits = min(waits, of.idle(*IDLE_CAUSES))  # no run is shorter than what its GPU does
    measured = (
        ("loader-ready", ("input",), waits, loader.line()),
        ("async-save", ("checkpoint",), 0.0, ASYNC_SAVE),
        ("quiet-host", QUIET, 0.0, "gc.freeze(); log every N steps, from a thread"),
    )  # fmt: skip
    rows = (_row(edit, causes, most, line, of) for edit, causes, most, line in measured)
    return {row.edit: row for row in rows if row.saves >= LEAST_ROW}


def _row(edit: str, causes: tuple[str, ...], most: float, line: str, of: Sampled) -> WhatIf:
    saves, of_step = min(of.idle(*causes), 0.99), 0.0
    step_ns = float(of.run.duration_ns)
    if of.phase is not None and of.phase.duration_ns:
        of_step = min(_idle(of.phase.account, causes) / of.phase.duration_ns, 0.99)
        step_ns = float(of.phase.step_ns or of.phase.duration_ns)
    return WhatIf(
        edit=edit,
        step_ns=step_ns * (1 - of_step),
        saves=saves,
        saves_low=saves - doubt_of(saves),
        saves_high=min(max(saves, most), 0.99),
        advisory=None,
        line=line,
        saves_of_step=of_step,
    )
