"""What the agent costs between bursts, by its own account."""

from __future__ import annotations


class AgentOverhead:
    """Readings of one agent's total in; the share of the training thread's time out.

    The agent counts the processor time of its Python, during which the training thread may have to
    wait for the interpreter, and what handing it over costs (`probes/stack_samples.py` of the agent).
    Not in it: the hook at each step, some 3 us (`benchmarks/probe_cost.py`).
    """

    def __init__(self) -> None:
        self._first: tuple[int, int] | None = None
        self._last = (0, 0)

    def add(self, spent_ns: int, at_ns: int) -> int:
        """A total since the agent began, CLOCK_REALTIME; what of it is new. One that fell is of
        another agent."""
        if self._first is None or spent_ns < self._last[0] or at_ns <= self._last[1]:
            self._first = self._last = (spent_ns, at_ns)
            return 0
        new_ns = spent_ns - self._last[0]
        self._last = (spent_ns, at_ns)
        return new_ns

    @property
    def share(self) -> float:
        """Of all the time that was accounted for; 0 before there was any."""
        if self._first is None or self._last[1] == self._first[1]:
            return 0.0
        return (self._last[0] - self._first[0]) / (self._last[1] - self._first[1])
