"""When the shapes of a step are recorded without anybody asking: once steady, and in a new regime."""

from __future__ import annotations

from typing import Any

from brrrtop.model.estimate import Estimate, Regime
from brrrtop.model.vocabulary import MarkClass
from brrrtop.scheduling.governor import Governor

SECOND = 1_000_000_000
STEPS = 8
COMPILED_NS = 5 * SECOND
"""So many steps, and so long after a compile, the next one is like the others: a few recompiles
follow on the first."""
FRESH_NS = 2 * SECOND
"""Ends of steps arrive within this time; without one for longer, and two steps, something else
goes on: an evaluation, a checkpoint, a compile."""
LASTS_NS = 30 * SECOND
"""A regime that stands for so long is no passage between two others."""
REST_NS = 300 * SECOND
"""From one recording to the next at least."""
TRIES = 3
"""So often in vain, and it is left to a person to ask."""


class ShapesPolicy:
    """Verdicts, marks and orders in; whether a recording is due out. No clock of its own."""

    def __init__(self) -> None:
        self._estimate: Estimate | None = None
        self._learned_ns: int | None = None
        self._regime: Regime | None = None
        """What the run was judged to be once it had shapes: they are evidence for that too."""
        self._other: tuple[Regime, int] | None = None
        """A regime that is another one, and since when."""
        self._changed = False
        self._ordered_ns: int | None = None
        self._tries = 0
        self._compiled_ns = 0

    def see_verdict(self, estimate: Estimate | None, learned_ns: int | None) -> None:
        """The newest verdict, and when the shapes in use were recorded; None: there are none."""
        if learned_ns != self._learned_ns:
            self._learned_ns, self._tries = learned_ns, 0
            self._regime, self._other, self._changed = None, None, False
        if estimate is None or estimate is self._estimate:
            return
        self._estimate = estimate
        if learned_ns is None or estimate.regime is Regime.UNKNOWN:
            return
        t_ns = estimate.span.t1_ns
        if self._regime in (None, estimate.regime):
            self._regime, self._other, self._changed = estimate.regime, None, False
        elif self._other is None or self._other[0] is not estimate.regime:
            self._other, self._changed = (estimate.regime, t_ns), False
        elif t_ns - self._other[1] >= LASTS_NS:
            self._changed = True

    def see_marks(self, rows: Any) -> None:
        """Mark records of the wire: after a compile steps have to be steady again."""
        ends = rows["end_ns"][rows["mark_class"] == MarkClass.COMPILE]
        if len(ends):
            self._compiled_ns = max(self._compiled_ns, int(ends.max()))

    def ordered(self, now_ns: int) -> None:
        """A recording was ordered, whoever asked for it."""
        self._ordered_ns = now_ns
        self._tries += 1

    def is_due(self, now_ns: int, governor: Governor) -> bool:
        """Whether the next burst is to record a step; that it can be paid is the governor's part."""
        estimate = self._estimate
        if estimate is None or not estimate.steps.count or estimate.steps.warming_up:
            return False
        if self._tries >= TRIES or (self._learned_ns is not None and not self._changed):
            return False
        if self._ordered_ns is not None and abs(now_ns - self._ordered_ns) < REST_NS:
            return False
        return self._steps_go_on(now_ns, governor)

    def _steps_go_on(self, now_ns: int, governor: Governor) -> bool:
        step_ns, last_ns = governor.cost.step_ns, governor.cost.last_step_ns
        if step_ns is None or last_ns is None or now_ns - last_ns > FRESH_NS + 2 * step_ns:
            return False
        compiled_ns = self._compiled_ns if self._compiled_ns < now_ns else 0
        steps = governor.cost.ends_within(compiled_ns, now_ns)
        return steps > STEPS and now_ns - compiled_ns >= COMPILED_NS
