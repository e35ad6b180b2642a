"""What is asked of the agent besides tracing: stacks while the GPU idles, the shapes of one step."""

from __future__ import annotations

from collections.abc import Callable

from brrrtop.session.governor import Governor
from collectors.control import Op

SECOND = 1_000_000_000
IDLE_BELOW = 0.8
"""With the SMs active for less than this, the main thread's stacks are worth looking at."""
BUSY_ABOVE = 0.9
GPM_PATIENCE_NS = 5 * SECOND
"""Without GPM by then, nothing tells an idle GPU from a busy one: stacks are always wanted."""
STEADY_STEPS = 8
"""As many untraced steps in a row as long as each other, and a trainer is past its warm-up."""
STEADY_RATIO = 2.0


class Wishes:
    """Decides when to ask; never twice for the same.

    Args:
        order: Sends an order with its first value; False: there is nobody to send it to.
        shapes: Ask for the shapes of one step once the steps are steady.
    """

    def __init__(self, order: Callable[[Op, int], bool], shapes: bool = False) -> None:
        self._order = order
        self._stacks: bool | None = None
        self._shapes_at_first = shapes

    def see_activity(self, active: float) -> None:
        """Asks for stacks only while the GPU has time to spare: they cost the trainer a little."""
        wanted = True if active < IDLE_BELOW else False if active > BUSY_ABOVE else self._stacks
        if wanted is not None and wanted != self._stacks:
            self._stacks = wanted
            self._order(Op.STACKS, int(wanted))

    def see_time(self, watched_ns: int, governor: Governor) -> None:
        """What is due after so long a time of watching."""
        if self._stacks is None and watched_ns > GPM_PATIENCE_NS:
            self.see_activity(0.0)
        if self._shapes_at_first and _steady(governor):
            self._shapes_at_first = False
            self.shapes(governor)

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
