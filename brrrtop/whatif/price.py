"""Every edit that applies to a step, with the step time that it leads to and how sure that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from brrrtop.whatif.assumptions import CAUTIOUS, HOPEFUL, MIDDLE, Assumptions
from brrrtop.whatif.edits.attention import sdpa
from brrrtop.whatif.edits.batch import double_batch
from brrrtop.whatif.edits.copies import overlap_communication, pinned_copies
from brrrtop.whatif.edits.fusing import compiled
from brrrtop.whatif.edits.graphs import reduce_overhead
from brrrtop.whatif.edits.layout import channels_last
from brrrtop.whatif.edits.optimizer import fused_optimizer
from brrrtop.whatif.edits.precision import bf16, tf32
from brrrtop.whatif.edits.waiting import loader_ready, no_sync, quiet_host
from brrrtop.whatif.roofs import Roofs, roofs_of
from brrrtop.whatif.simulate import period_ns
from brrrtop.whatif.step import Step, step_of
from brrrtop.whatif.profiler import unprofiled
from brrrtop.estimator.estimate import Judged

Edit = Callable[[Step, Roofs, Assumptions], Step | None]

EDITS: dict[str, Edit] = {
    "compile": compiled,
    "compile-reduce-overhead": reduce_overhead,
    "channels-last": channels_last,
    "tf32": tf32,
    "bf16": bf16,
    "double-batch": double_batch,
    "fused-optimizer": fused_optimizer,
    "sdpa": sdpa,
    "loader-ready": loader_ready,
    "no-sync": no_sync,
    "pinned-copies": pinned_copies,
    "overlap-communication": overlap_communication,
    "quiet-host": quiet_host,
}
"""By the id that the contract gives it."""
UNITS = {"double-batch": 2}
"""Steps' worth of work in one edited step."""


@dataclass(frozen=True, slots=True)
class Price:
    """What one edit is predicted to do to a step."""

    edit: str
    step_ns: float
    """Per unit of work of the step as it is."""
    saves: float
    saves_low: float
    saves_high: float


def prices(judged: Judged) -> tuple[Price, ...]:
    """A price for each edit that applies, best first; empty where no step or no roof is known."""
    step, roofs = step_of(judged), roofs_of(judged.ceilings)
    if step is None or roofs is None:
        return ()
    bases = {id(g): unprofiled(step, g) for g in (MIDDLE, CAUTIOUS, HOPEFUL)}
    found = [p for name in EDITS if (p := price(name, (name,), bases, roofs)) is not None]
    return tuple(sorted(found, key=lambda p: -p.saves))


def price(
    name: str, names: tuple[str, ...], bases: dict[int, Step], roofs: Roofs
) -> Price | None:
    """The price of some edits, one after the other."""
    ratios = []
    first = None
    for guess in (MIDDLE, CAUTIOUS, HOPEFUL):
        base = bases[id(guess)]
        edited: Step | None = base
        units = 1
        for one in names:
            edited = EDITS[one](edited, roofs, guess) if edited is not None else None
            units *= UNITS.get(one, 1)
        present = period_ns(base)
        if edited is None or present <= 0:
            return None
        after = period_ns(edited) / units
        first = after if first is None else first
        ratios.append(1 - after / present)
    middle = ratios[0]
    return Price(name, first or 0.0, middle, min(ratios), max(ratios))
