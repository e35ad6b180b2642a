"""What is asked of the agent besides tracing: stacks while the GPU idles, the shapes of one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from brrrtop.model.estimate import Estimate
from brrrtop.protocol.requests import Op
from brrrtop.scheduling.governor import Governor
from brrrtop.scheduling.shapes_policy import ShapesPolicy

SECOND = 1_000_000_000
IDLE_BELOW = 0.8
"""With the SMs active for less than this, the main thread's stacks are worth looking at."""
BUSY_ABOVE = 0.9
GPM_PATIENCE_NS = 5 * SECOND
"""Without GPM by then, nothing tells an idle GPU from a busy one: stacks are always wanted."""
STEADY_STEPS = 8
"""As many untraced steps in a row as long as each other, and a trainer is past its warm-up."""
STEADY_RATIO = 2.0


class Requests:
    """Decides when to ask; never twice for the same.

    Args:
        order: Sends an order with its first value; False: there is nobody to send it to.
        shapes: Of one step. None: they come with a burst that is due and paid for, once the run is
            steady and again in a new regime; True: the first ones come in a burst of their own as
            soon as steps are alike; False: only when a person asks.
    """

    def __init__(self, order: Callable[[Op, int], bool], shapes: bool | None = None) -> None:
        self._order = order
        self._stacks: bool | None = None
        self._shapes_at_first = shapes is True
        self._unasked = ShapesPolicy() if shapes is not False else None

    def see_activity(self, active: float) -> None:
        """Asks for stacks only while the GPU has time to spare: they cost the trainer a little."""
        wanted = True if active < IDLE_BELOW else False if active > BUSY_ABOVE else self._stacks
        if wanted is not None and wanted != self._stacks:
            self._stacks = wanted
            self._order(Op.STACKS, int(wanted))

    def see_verdict(self, estimate: Estimate | None, learned_ns: int | None) -> None:
        """The newest verdict, and when the shapes in use were recorded; None: there are none."""
        if self._unasked is not None:
            self._unasked.see_verdict(estimate, learned_ns)

    def see_marks(self, rows: Any) -> None:
        """Mark records of the wire."""
        if self._unasked is not None:
            self._unasked.see_marks(rows)

    def ordered(self, now_ns: int) -> None:
        """A burst with shapes was ordered."""
        if self._unasked is not None:
            self._unasked.ordered(now_ns)

    def see_time(self, now_ns: int, opened_ns: int, governor: Governor) -> None:
        """What is due now, where watching began at `opened_ns`."""
        if self._stacks is None and now_ns - opened_ns > GPM_PATIENCE_NS:
            self.see_activity(0.0)
        if self._shapes_at_first and _steady(governor):
            self._shapes_at_first = False
            self.shapes(governor)
        elif self._unasked is not None:
            governor.shapes_when_due = self._unasked.is_due(now_ns, governor)

    def shapes(self, governor: Governor) -> None:
        """The shapes of one step: in the next burst, or at once where every step is traced."""
        if governor.continuous:
            self._order(Op.SHAPES, 0)
        else:
            governor.want_shapes()


def _steady(governor: Governor) -> bool:
    """A burst is over, and the steps since are alike."""
    steps = governor.cost.untraced(STEADY_STEPS)
    if governor.tracing or not governor.has_traced or len(steps) < STEADY_STEPS:
        return False
    return bool(steps.max() <= STEADY_RATIO * steps.min())
