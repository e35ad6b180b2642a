"""Advice, and the edits of a step behind it. Computes nothing.

Times are integer nanoseconds on the trainer's CLOCK_REALTIME. `None` is "not measured"; a
measured zero is 0. Shares are 0..1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class Advisory(Struct, frozen=True):
    """One symptom, its evidence, one thing to try."""

    kind: str
    """The published id, `dataloader-stall` and so on."""
    says: str
    confidence: float
    saves_at_most: float | None
    """Share of wall time that could go at most; None for advice that saves nothing itself."""
    evidence: Mapping[str, Any]
    suggests: str
    waste: str
    saves: float | None = None
    """Share of the step that the simulated edit saves; None where no edit was simulated."""
    saves_low: float | None = None
    """Of the simulated edit; with `saves_at_most` it holds the true share four times out of five."""
    safe: float | None = None
    """`WhatIf.safe` of the simulated edit: what advice is ordered by."""
    tried: float | None = None
    """The share that `brrrtop try` measured of this very program; None where nobody tried."""


class StepWork(Struct, frozen=True):
    """What host and device have to do in a simulated step, whoever waits for whom."""

    kernels: float
    """Kernels, copies and memsets."""
    device_ns: float
    """In which any of them runs."""
    host_ns: float
    """Of the thread that launches, without its waits for the device."""


class Unprofiled(Struct, frozen=True):
    """What an edit would save of a step without the profiler that recorded it."""

    saves: float
    step_ns: float
    """Of the edited step."""


class WhatIf(Struct, frozen=True):
    """What one edit is predicted to do to a step: of a profiler's trace to the recorded one."""

    edit: str
    """Its id: `compile`, `channels-last` and so on."""
    step_ns: float
    """Predicted time of a step, per unit of its present work."""
    saves: float
    """1 - predicted over present time; negative for an edit that makes it slower."""
    saves_low: float
    saves_high: float
    """These two hold the true value four times out of five."""
    advisory: str | None
    """Id of the advice that names it; None where none is given."""
    line: str
    """The line of code."""
    now: StepWork | None = None
    """Of the present step; None where nobody told."""
    then: StepWork | None = None
    """Of the edited one, per unit of the present step's work."""
    saves_of_step: float | None = None
    """Of a step of its phase, where `saves` is of the run; None: they are the same."""
    safe: float | None = None
    """Low end of the gain, what edits are ordered by: of a profiler's trace the mean of the recorded step's
    and of that without the profiler; None: `saves_low`."""
    risk: str | None = None
    """`whatif.risks.Risk`: what in the records speaks against it; its cost is in the range."""
    changed_share: float | None = None
    """Share of the time in kernels that it changes or takes away; None where nobody told."""
    unprofiled: Unprofiled | None = None
    """None: no profiler slowed the step. The range holds both."""

    @property
    def present_ns(self) -> float:
        """Time of the step without the edit."""
        saves = self.saves if self.saves_of_step is None else self.saves_of_step
        return self.step_ns / (1 - saves) if saves < 1 else math.nan

    @property
    def most(self) -> float:
        """The larger gain, of the recorded step or of that without the profiler."""
        return max(self.saves, self.unprofiled.saves if self.unprofiled else self.saves)
