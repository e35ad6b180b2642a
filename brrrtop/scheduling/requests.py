"""What is asked of the agent besides tracing: the shapes of one step."""

from collections.abc import Callable
from typing import Any

from brrrtop.model.estimate import Estimate, Regime
from brrrtop.model.tables import Span
from brrrtop.scheduling.burst import SECOND
from brrrtop.scheduling.governor import Governor
from collectors.protocol.frames import Records, plausible
from collectors.protocol.requests import Op
from collectors.vocabulary import MarkClass

STEADY_STEPS = 8
"""As many untraced steps in a row as long as each other, and a trainer is past its warm-up."""
STEADY_RATIO = 2.0
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
"""From one recording of shapes to the next at least."""
AGAIN_NS = 60 * SECOND
"""And after one that came to nothing."""
TRIES = 3
"""So often in vain, and it is left to a person to ask."""
RECOVERY_NS = 1_000_000_000
"""After a recorded step the host has to get ahead of the GPU again: not judged for so long."""


class Requests:
    """Decides when to ask; never twice for the same. Verdicts, marks and orders in; no clock of its own.

    Args:
        order: Sends an order with its first value; False: there is nobody to send it to.
        shapes: Of one step. None: they come with a burst that is due and paid for, once the run is
            steady and again in a new regime; True: the first ones come in a burst of their own as
            soon as steps are alike; False: only when a person asks.
    """

    def __init__(self, order: Callable[[Op, int], bool], shapes: bool | None = None) -> None:
        self._order = order
        self._shapes_at_first = shapes is True
        self._unasked = shapes is not False
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

    def on_estimate(self, estimate: Estimate | None, learned_ns: int | None) -> None:
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

    def on_marks(self, rows: Any) -> None:
        """Mark records of the wire: after a compile steps have to be steady again."""
        ends = rows["end_ns"][rows["mark_class"] == MarkClass.COMPILE]
        if len(ends):
            self._compiled_ns = max(self._compiled_ns, int(ends.max()))

    def ordered(self, now_ns: int) -> None:
        """A burst with shapes was ordered, whoever asked for it."""
        self._ordered_ns = now_ns
        self._tries += 1

    def on_tick(self, now_ns: int, governor: Governor) -> None:
        if self._shapes_at_first and _steady(governor):
            self._shapes_at_first = False
            self.shapes(governor)
        elif self._unasked:
            governor.shapes_when_due = self.is_due(now_ns, governor)

    def shapes(self, governor: Governor) -> None:
        """The shapes of one step: in the next burst, or at once where every step is traced."""
        if governor.continuous:
            self._order(Op.SHAPES, 0)
        else:
            governor.want_shapes()

    def is_due(self, now_ns: int, governor: Governor) -> bool:
        """Whether the next burst is to record a step; that it can be paid is the governor's part."""
        estimate = self._estimate
        if estimate is None or not estimate.steps.count or estimate.steps.warming_up:
            return False
        if self._tries >= TRIES or (self._learned_ns is not None and not self._changed):
            return False
        rest_ns = AGAIN_NS if self._tries else REST_NS
        if self._ordered_ns is not None and abs(now_ns - self._ordered_ns) < rest_ns:
            return False
        return self._steps_go_on(now_ns, governor)

    def _steps_go_on(self, now_ns: int, governor: Governor) -> bool:
        step_ns, last_ns = governor.cost.step_ns, governor.cost.last_step_ns
        if step_ns is None or last_ns is None or now_ns - last_ns > FRESH_NS + 2 * step_ns:
            return False
        compiled_ns = self._compiled_ns if self._compiled_ns < now_ns else 0
        steps = governor.cost.ends_within(compiled_ns, now_ns)
        return steps > STEPS and now_ns - compiled_ns >= COMPILED_NS


def disturbances(rows: Records) -> list[tuple[Span, int]]:
    """What recordings disturbed, recovery included, from mark records of the wire; with each how
    long the step was that it tells the end of, in ns, 0 where it tells of none."""
    spans = []
    for row in plausible(rows[rows["mark_class"] == MarkClass.PERTURBED], sent_ns=0):
        span = Span(int(row["start_ns"]), int(row["end_ns"]))
        spans.append((with_recovery(span), span.duration_ns if row["value"] > 0 else 0))
    return spans


def with_recovery(span: Span) -> Span:
    return Span(span.t0_ns, span.t1_ns + max(RECOVERY_NS, span.duration_ns))


def _steady(governor: Governor) -> bool:
    """A burst is over, and the steps since are alike."""
    steps = governor.cost.untraced(STEADY_STEPS)
    if governor.tracing or not governor.burst_count or len(steps) < STEADY_STEPS:
        return False
    return bool(steps.max() <= STEADY_RATIO * steps.min())
