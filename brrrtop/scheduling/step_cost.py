"""Measures what watching adds to the steps, by comparing traced steps with their neighbours; what the
agent costs between bursts is by its own account.

The baseline of a burst are the untraced steps right before and after it, so that slow drift
cancels. Very long steps (checkpoint, evaluation) are cut off at the same length on both sides, so
that they cannot decide the comparison, and equal distributions still give zero on average.
"""

import math

import numpy as np
from msgspec import Struct

from brrrtop.model.tables import F8, I8, Bool

MARGIN_BEFORE_NS = 30_000_000
"""The first enable of a burst stalls up to 20 ms before anything is traced (H200, driver 580)."""
MARGIN_AFTER_NS = 40_000_000
"""What is traced is flushed and CUPTI taken out a few steps after the last traced record."""
NEIGHBOURS = 40
"""Untraced steps looked at on each side of a burst."""
AFTER_LEAST = 8
SETTLE_NS = 5_000_000_000
"""Long steps: no longer than this do we wait for neighbours behind a burst."""
KEPT_BURSTS = 24
KEPT_STEPS = 20_000
_FADE = 0.88
"""A burst counts this much less than the next one: half as much after five."""
_CUT_FACTOR = 2.5
_CUT_EXTRA_NS = 300_000_000
"""Longer than any stall that tracing was seen to cause (20 ms), so that a new one is not hidden."""

# Student's t, 97.5 %, for 1, 2, … degrees of freedom. Any table of the distribution.
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)


class BurstCost(Struct, frozen=True):
    start_ns: int
    end_ns: int
    steps: int
    extra_ns: float
    """May be negative: the steps' own noise is larger than the cost."""
    error_ns: float
    """Standard error of `extra_ns` from the spread of the untraced steps."""
    worst_step_ns: int


class CostEstimate(Struct, frozen=True):
    share: float
    error_share: float
    """Half width of the 95 % interval."""
    bursts: int
    worst_step_ns: int
    """The longest step that a burst touched."""


class StepCost:
    """Steps and bursts in, costs out. No clock of its own."""

    def __init__(self) -> None:
        self._ends: I8 = np.zeros(0, np.int64)
        self._open: list[tuple[int, int]] = []
        self._touched: list[tuple[int, int]] = []
        self.measured: list[BurstCost] = []

    # --- in -------------------------------------------------------------------

    def add_steps(self, ends_ns: I8) -> None:
        """Ends of steps, in any order between calls."""
        if not len(ends_ns):
            return
        joined = np.concatenate([self._ends, np.asarray(ends_ns, np.int64)])
        if len(joined) > 1 and (joined[1:] <= joined[:-1]).any():
            joined = np.unique(joined)
        self._ends = joined[-KEPT_STEPS:]

    def add_burst(self, start_ns: int, end_ns: int) -> None:
        """A traced span; measured once its neighbours are known."""
        self._open.append((start_ns, end_ns))
        self._touched = [*self._touched, (start_ns, end_ns)][-4 * KEPT_BURSTS :]

    def add_foreign(self, start_ns: int, end_ns: int) -> None:
        """A span traced on somebody else's order: no baseline, and none of our cost."""
        self._touched = [*self._touched, (start_ns, end_ns)][-4 * KEPT_BURSTS :]

    # --- out ------------------------------------------------------------------

    @property
    def step_ns(self) -> int | None:
        """Median of the last untraced steps (of all, while there are no untraced ones)."""
        durations = np.diff(self._ends[-2 * NEIGHBOURS :])
        if not len(durations):
            return None
        off = durations[~self._touched_by(self._ends[-2 * NEIGHBOURS :])]
        return int(np.median(off if len(off) else durations))

    @property
    def mean_step_ns(self) -> int | None:
        """Mean of the last steps: what rare long ones take is in it."""
        ends = self._ends[-2 * NEIGHBOURS :]
        return int((ends[-1] - ends[0]) // (len(ends) - 1)) if len(ends) > 1 else None

    @property
    def last_step_ns(self) -> int | None:
        return int(self._ends[-1]) if len(self._ends) else None

    @property
    def step_count(self) -> int:
        """Whole steps seen, up to those kept."""
        return max(len(self._ends) - 1, 0)

    def ends_within(self, start_ns: int, end_ns: int) -> int:
        """How many steps ended from then to then: one less is how many whole ones lie there."""
        return int(((self._ends >= start_ns) & (self._ends <= end_ns)).sum())

    def untraced(self, most: int) -> I8:
        ends = self._ends[-(most + 1) - 2 * NEIGHBOURS :]
        return np.diff(ends)[~self._touched_by(ends)][-most:]

    def book_costs(self, now_ns: int) -> list[BurstCost]:
        """The bursts that could be measured since the call before."""
        burst_costs: list[BurstCost] = []
        still_open: list[tuple[int, int]] = []
        for start_ns, end_ns in self._open:
            after = int((self._ends > end_ns + MARGIN_AFTER_NS).sum())
            if after <= AFTER_LEAST and now_ns - end_ns < SETTLE_NS:
                still_open.append((start_ns, end_ns))
                continue
            cost = self._measure(start_ns, end_ns)
            if cost is not None:
                burst_costs.append(cost)
        self._open = still_open
        self.measured = [*self.measured, *burst_costs][-KEPT_BURSTS:]
        return burst_costs

    def estimate(self, now_ns: int, cycle_ns: int) -> CostEstimate | None:
        """The share of time that watching cost of late; None before anything could be compared.

        Args:
            now_ns: On the steps' clock.
            cycle_ns: How long a burst and its pause are planned to last; used for a lone burst.
        """
        if not self.measured:
            return None
        starts = [cost.start_ns for cost in self.measured]
        last_ns = max(now_ns, starts[-1] + cycle_ns)
        weights = self._weights()
        wall_ns = float((np.diff([*starts, last_ns]) * weights).sum())
        mean_ns, error_ns = self.mean_extra()
        return CostEstimate(
            mean_ns / wall_ns,
            error_ns * _t95(len(starts)) / wall_ns,
            len(starts),
            max(cost.worst_step_ns for cost in self.measured),
        )

    def mean_extra(self) -> tuple[float, float]:
        """Mean cost of a burst, newer ones counting more, and its standard error; ns."""
        weights = self._weights()
        extras = np.array([cost.extra_ns for cost in self.measured])
        errors = np.array([cost.error_ns for cost in self.measured])
        mean = float((weights * extras).sum())
        within = float(np.sqrt(((weights * errors) ** 2).sum()))
        if len(extras) < 3:
            return mean, within
        variance = float((weights * (extras - mean) ** 2).sum()) * len(extras) / (len(extras) - 1)
        between = math.sqrt(variance * float((weights**2).sum()))
        return mean, max(between, within / 2)

    def _weights(self) -> F8:
        """Of the measured bursts, oldest first; they add up to 1."""
        weights = _FADE ** np.arange(len(self.measured), dtype=float)[::-1]
        return np.asarray(weights / weights.sum())

    # --- arithmetic -----------------------------------------------------------

    def _touched_by(self, ends: I8) -> Bool:
        """Which of the steps between consecutive `ends` tracing may have slowed."""
        starts, stops = ends[:-1], ends[1:]
        hit = np.zeros(max(len(ends) - 1, 0), np.bool_)
        first, last = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
        for start_ns, end_ns in self._touched:
            low, high = start_ns - MARGIN_BEFORE_NS, end_ns + MARGIN_AFTER_NS
            if low < last and first < high:
                hit |= (stops > low) & (starts < high)
        return hit

    def _measure(self, start_ns: int, end_ns: int) -> BurstCost | None:
        low = int(np.searchsorted(self._ends, start_ns - MARGIN_BEFORE_NS, "right"))
        high = int(np.searchsorted(self._ends, end_ns + MARGIN_AFTER_NS, "left"))
        ends = self._ends[max(low - NEIGHBOURS - 1, 0) : high + NEIGHBOURS + 1]
        durations = np.diff(ends)
        on = (ends[1:] > start_ns - MARGIN_BEFORE_NS) & (ends[:-1] < end_ns + MARGIN_AFTER_NS)
        off = durations[~self._touched_by(ends)]
        traced = durations[on]
        if len(off) < 3 or not len(traced):
            return None
        cut = _CUT_FACTOR * float(np.median(off)) + _CUT_EXTRA_NS
        plain = np.minimum(off, cut)
        slowed = np.minimum(traced, cut)
        extra = float(slowed.sum() - len(slowed) * plain.mean())
        spread = float(plain.std(ddof=1))
        error = spread * math.sqrt(len(slowed) * (1 + len(slowed) / len(plain)))
        return BurstCost(start_ns, end_ns, len(slowed), extra, error, int(traced.max()))


def _t95(count: int) -> float:
    """Student's 97.5 % quantile for `count` values; a single one has no spread of its own."""
    freedom = max(count - 1, 1)
    if count <= 1:
        return 1.96
    return _T[freedom - 1] if freedom <= len(_T) else 1.96 + 2.5 / freedom


class AgentOverhead:
    """Readings of one agent's total in; the share of the training thread's time out.

    The agent counts the processor time of its Python, during which the training thread may have to
    wait for the interpreter, and what handing it over costs (`probes/places.py` of the agent).
    Not in it: the hook at each step, some 3 us.
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
