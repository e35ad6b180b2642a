"""Advice, the edits of a step behind it, and the comparison with a baseline. Computes nothing.

Times are integer nanoseconds on the trainer's CLOCK_REALTIME. `None` is "not measured"; a
measured zero is 0. Shares are 0..1.
"""

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from brrrtop.model.estimate import Estimate, Regime
from collectors.vocabulary import StrEnum


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
    tried: float | None = None
    """The share that `brrrtop try` measured of this very program; None where nobody tried."""

    @property
    def may_lose(self) -> bool:
        """Whether the range of its gain reaches down to zero: then it never leads what surely wins."""
        return self.saves_low is not None and self.saves_low <= 0


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


OFFER = "double-batch"


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
    """Of the present step; None: unknown."""
    then: StepWork | None = None
    """Of the edited one, per unit of the present step's work."""
    saves_of_step: float | None = None
    """Of a step of its phase, where `saves` is of the run; None: they are the same."""
    risk: str | None = None
    """`whatif.risks.Risk`: what in the records speaks against it; its cost is in the range."""
    changed_share: float | None = None
    """Share of the kernel time that it changes or takes away; None: unknown."""
    unprofiled: Unprofiled | None = None
    """None: no profiler slowed the step. The range holds both."""

    @property
    def present_ns(self) -> float:
        """Time of the step without the edit."""
        saves = self.saves if self.saves_of_step is None else self.saves_of_step
        return self.step_ns / (1 - saves) if saves < 1 else math.nan

    @property
    def place(self) -> tuple[int, float]:
        """In a list, best first: what surely wins by the low end of its gain, what may win, twice the batch
        (an offer, which changes the training), what loses."""
        if self.edit.partition("+")[0] == OFFER:
            return (2 if self.saves > 0 else 3, -self.saves)
        return (
            (0, -self.saves_low)
            if self.saves_low > 0
            else (1 if self.saves > 0 else 3, -self.saves)
        )

    @property
    def most(self) -> float:
        """The larger gain, of the recorded step or of that without the profiler."""
        return max(self.saves, self.unprofiled.saves if self.unprofiled else self.saves)


NOISE = 0.02
"""A step time that moved less than 2 % has not moved."""


class Change(Struct, frozen=True):
    name: str
    before_ns: float
    after_ns: float

    @property
    def won_ns(self) -> float:
        return self.before_ns - self.after_ns


class PromiseResult(Struct, frozen=True):
    """What one advisory promised, beside what was measured."""

    kind: str
    promised_share: float | None
    """Of the wall before: what was predicted for a simulated edit, else at most."""
    won_share: float | None
    """Of the wall before, by the whole change; None without steps on both sides."""
    predicted: bool = False
    """The promise is a prediction, no bound."""
    noise_share: float = NOISE
    """A smaller gain or loss is none."""

    @property
    def kept_share(self) -> float | None:
        if self.won_share is None or not self.promised_share or self.is_noise:
            return None
        return self.won_share / self.promised_share

    @property
    def is_noise(self) -> bool:
        """Whether what was measured is no more than steps differ by themselves."""
        return self.won_share is not None and abs(self.won_share) < self.noise_share


class Outcome(StrEnum):
    """Of a change, by the length of a step."""

    UNKNOWN = "unknown"
    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"


def outcome(speedup: float | None, noise: float = NOISE) -> Outcome:
    """What came of a change that made steps so many times as fast; None: nobody knows.

    Args:
        noise: Share of a step; one that moved less has not moved.
    """
    if speedup is None:
        return Outcome.UNKNOWN
    if abs(1 - 1 / speedup) < noise:
        return Outcome.SAME
    return Outcome.FASTER if speedup > 1 else Outcome.SLOWER


class Comparison(Struct, frozen=True):
    """Two estimates of one trainer, side by side."""

    per_step: bool
    before_ns: float
    """Wall a step, or 1 s."""
    after_ns: float
    speedup: float | None
    """Steps per second, after over before; None without steps on both sides."""
    buckets: tuple[Change, ...]
    """As in the account, in its order."""
    families: tuple[Change, ...]
    """By size of the change."""
    kernels: tuple[Change, ...]
    """By size of the change, at most twenty."""
    promises: tuple[PromiseResult, ...]
    changes: tuple[str, ...]
    """What is different in kind: precision, batch, compile, optimizer, layout. More than one:
    nobody knows which helped."""
    says: str
    steps: tuple[float | None, float | None] = (None, None)
    """How many each side's times are the mean of; seldom whole numbers. None: not known."""
    regimes: tuple[Regime, Regime] = (Regime.UNKNOWN, Regime.UNKNOWN)
    """Before and after."""
    causes: tuple[str | None, str | None] = (None, None)
    """The largest reason of an overhead, before and after."""
    noise_share: float = NOISE
    """Of a step: by so much two such means differ, 95 times of 100, though nothing was changed; never
    less than `NOISE`."""

    @property
    def outcome(self) -> Outcome:
        return outcome(self.speedup, self.noise_share)


class Baseline(Struct, frozen=True, eq=False):
    """What was judged when somebody marked it, or a file judged whole."""

    label: str
    """The file, or what was marked."""
    t_ns: int
    """When it was marked, on its source's clock."""
    estimate: Estimate
    advisories: tuple[Advisory, ...] = ()
    """Advice given then: what was promised."""
    devices: tuple[Estimate, ...] = ()
    here: bool = False
    """Of the very source it is compared with: what it was judged on is no part of the after."""

    def of(self, device_id: int) -> Estimate:
        """The estimate of that GPU, else of the one that was shown."""
        estimates = [
            estimate for estimate in self.devices if estimate.device.device_id == device_id
        ]
        return estimates[0] if estimates else self.estimate
