"""What a rule sees, and the arithmetic all rules share.

A saving of device time is simulated, as kernels that take less of it; a saving of host time counts
only as far as the device idled for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from brrrtop.advisories.thresholds import Thresholds
from brrrtop.analysis.ceilings import Ceilings
from brrrtop.analysis.signals.facts import Facts
from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.model.estimate import Estimate
from brrrtop.model.vocabulary import Metric
from brrrtop.whatif.edits.fusing import is_compiled
from brrrtop.whatif.price import Priced

NO_GAIN, NO_HOPE = 0.01, 0.03
"""An edit that wins less than the first, and than the second even where everything unknown turns out well,
is a waste of time."""
ONE_AT_A_TIME = "several changes at once: nobody will know which one helped"
_UNMARKED = ("sync", "host", "io", "launch", "unknown")
"""Where the idle time of a save is booked that no mark names, most of it first."""


@dataclass(frozen=True, slots=True)
class Context:
    """One judged window and its facts."""

    estimate: Estimate
    facts: Facts
    limits: Thresholds
    ceilings: Ceilings | None
    priced: Priced | None = None
    """What each edit would make of a step; None where no step can be replayed."""

    @property
    def rows(self) -> tuple[WhatIf, ...]:
        """Edits that apply, best first."""
        return self.priced.rows if self.priced else ()

    def matters(self, row: WhatIf) -> bool:
        """Whether a run with this edit still to make is not healthy. Twice the batch changes the training,
        and wins some 5 % wherever kernels are large already."""
        limits = self.limits
        return row.saves >= (
            limits.batch_gain if row.edit == "double-batch" else limits.healthy_gain
        )

    def price(self, edit: str) -> WhatIf | None:
        """The price of one edit; None where it does not apply."""
        return next((row for row in self.rows if row.edit == edit), None)

    @property
    def host_sets_the_pace(self) -> bool:
        """Whether the device stands idle for a quarter of the time because the host is late."""
        late = self.estimate.account.mechanical_ns
        unseen = min(late["unknown"], self.facts.dispatch_idle_ns)
        return self.share(late["host_late"] + late["launch"] + unseen) > 0.25

    @property
    def waste(self) -> str:
        """Edits that were simulated and win nothing, each with its figure."""
        none = [row for row in self.rows if row.saves < NO_GAIN and row.saves_high < NO_HOPE]
        if not none:
            return ONE_AT_A_TIME
        told = ", ".join(f"{row.edit} ({100 * row.saves:+.0f}%)" for row in none)
        return f"simulated, these win nothing: {told.replace('-0%', '0%').replace('+0%', '0%')}"

    @property
    def compiled(self) -> bool:
        """Whether most that could be generated is, or CUDA graphs launch most kernels."""
        graphs = self.facts.graph_kernels * 2 > self.facts.kernels
        return graphs or (self.priced is not None and is_compiled(self.priced.step))

    @property
    def memory_used(self) -> float | None:
        """Largest share of device memory in use; None without readings."""
        total = self.facts.readings.mean(Metric.MEMORY_TOTAL_BYTES)
        used = self.facts.readings.largest.get(int(Metric.MEMORY_USED_BYTES))
        return used / total if total and used is not None else None

    @property
    def wall_ns(self) -> int:
        """The window's accounted time, at least 1."""
        return max(self.estimate.account.duration_ns, 1)

    @property
    def steps(self) -> float | None:
        """Steps that the account covers; None when unknown."""
        return self.facts.steps

    @property
    def rho(self) -> float:
        """Share of kernel time that sets the pace; the busy share where no launch is known."""
        rho = self.estimate.launch.rho
        return rho if rho is not None else self.estimate.account.worked_ns / self.wall_ns

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, at least: from the kernels' names when the device is unknown."""
        return self.estimate.device.capability or self.facts.architecture or (0, 0)

    def share(self, time_ns: float) -> float:
        """Part of the wall."""
        return time_ns / self.wall_ns

    def idle(self, *causes: str) -> float:
        """Share of the wall the device idled for these causes."""
        return self.share(sum(self.estimate.account.idle_ns.get(c, 0) for c in causes))

    @property
    def save_idle_ns(self) -> int:
        """Idle time of saves that no mark names: what marks name is booked already."""
        found, idle_ns = self.facts.saves, self.estimate.account.idle_ns
        if found is None or found.marked:
            return 0
        return min(found.idle_ns, sum(idle_ns.get(cause, 0) for cause in _UNMARKED))

    @property
    def waited(self) -> float:
        """Share of the wall idle after waits for the device, less what saves took of it."""
        booked = self.estimate.account.idle_ns.get("sync", 0)
        return self.share(max(booked - self.save_idle_ns, 0))

    def a_step(self, amount: float) -> float:
        """`amount` per step, or for the whole window when steps are unknown."""
        return amount / (self.steps or 1)

    @property
    def per(self) -> str:
        """What `a_step` amounts are per."""
        return "a step" if self.steps else "in this window"

    def device_side(self, saved_ns: float) -> float:
        """Share of a step that `saved_ns` less of kernel time in the window wins, by simulation."""
        kernel_ns = max(self.estimate.account.worked_ns, 1)
        if self.priced is not None:
            return self.priced.scaled(1 - min(saved_ns / kernel_ns, 1.0))
        return min(self.rho, 1.0) * self.share(saved_ns)

    def removed(self, spent_ns: float, kernels: int) -> float:
        """Most of the wall that not launching these kernels at all can win.

        Their own time, and their part of the launches that the device waits for: the host is
        spared the launch as the device is the kernel, so rho takes nothing away.
        """
        part = kernels / self.facts.kernels if self.facts.kernels else 0.0
        return self.share(spent_ns) + self.idle("launch") * min(part, 1.0)

    def worth(self, saves: float) -> bool:
        """Whether a bound is worth showing at all."""
        least = max(
            self.limits.worth_share,
            self.share(self.limits.worth_step_ns * (self.steps or 1)),
        )
        return saves >= least


def advisory(
    context: Context,
    kind: str,
    *,
    says: str,
    suggests: str,
    confidence: float,
    saves: float | None = None,
    expected: float | None = None,
    expected_low: float | None = None,
    waste: str | None = None,
    **evidence: Any,
) -> Advisory | None:
    """The advisory, or None when its bound is not worth the edit.

    Args:
        saves: Most it can win, share of the wall; None for advice that saves nothing itself.
        expected: What a simulated edit wins; None where none was simulated.
        expected_low: What it wins at least; `saves` is what it wins at most.
        waste: Defaults to the regime's own waste of time.
        evidence: Numbers behind it, units in the names.
    """
    if saves is not None:
        saves = min(max(float(saves), 0.0), 0.99)
        if not context.worth(saves):
            return None
    return Advisory(
        kind=kind,
        says=says,
        confidence=round(min(max(float(confidence), 0.0), 0.99), 3),
        saves_at_most=None if saves is None else round(saves, 4),
        evidence=dict(evidence),
        suggests=suggests,
        saves=None if expected is None else round(expected, 4),
        saves_low=None if expected_low is None else round(expected_low, 4),
        waste=waste or context.waste,
    )
