"""What makes a burst come before its time, or wait: the first looks at a trainer (what it does meanwhile,
when the first is worth its cost, whether it showed enough), and cheap signals that it began to behave
differently. No clock, no I/O.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from brrrtop.model.tables import I8
from brrrtop.scheduling.burst import SECOND, Limits, Stage
from brrrtop.scheduling.step_cost import StepCost
from collectors.vocabulary import Metric

BUSY = 0.05
"""With the SMs active for so much of the time a trainer without steps does not load any more: it may
be inference, or update its parameters by hand."""
WATCHED = frozenset({Metric.SM_ACTIVE, Metric.TENSOR_ACTIVE, Metric.DRAM_ACTIVE})
"""Gauges in which a jump starts a burst."""
_HISTORY = 24
_NEW = 2
"""Readings that must agree before a gauge is believed to have moved."""
_NEW_STEPS = 6
_LEAST_SHARE = 0.12
_LEAST_STEP_SHARE = 0.25
_SPREADS = 5.0
_MAD_TO_SIGMA = 1.4826
"""For a normal distribution; any statistics text, "median absolute deviation"."""


class FirstBurst:
    """Steps, gauges and the end of the first burst in; what the first two bursts wait for out."""

    def __init__(self, limits: Limits, cost: StepCost) -> None:
        self._limits = limits
        self._cost = cost
        self.just_begun = False
        """The trainer was started a moment ago: loading a model is nothing to judge it by."""
        self.active: float | None = None
        """How much of the time the SMs worked of late, 0 to 1; None: not known."""
        self.stepped_ns: int | None = None
        """When the first step ended."""
        self.hooked = True
        """Steps may be told by a hook."""
        self.compiling = False
        """A compile has been under way for a second or more."""
        self._able_ns: int | None = None
        self._first: tuple[int, int] | None = None
        self._looks = 0

    def on_burst_end(self, start_ns: int, end_ns: int) -> None:
        """A burst is over: what it traced, or where nothing ran, when it was on."""
        self._looks += 1
        alone = self._looks == 1 or self.stepped_ns is None
        self._first = (start_ns, end_ns) if alone else None

    def awaits_steps(self, now_ns: int) -> bool:
        """Whether the first burst is to wait for steps of a trainer that can be traced."""
        self._able_ns = self._able_ns or now_ns
        awaited = self.just_begun and self.hooked
        if not awaited or self._cost.step_count >= self._limits.steps_first:
            return False
        works = self.stepped_ns is None and (self.active or 0.0) >= BUSY
        most_ns = self._limits.steps_none_ns if works else self._limits.steps_first_ns
        return now_ns - self._able_ns < most_ns

    def stage(self, now_ns: int) -> Stage | None:
        """What a trainer that has just begun does before it trains; None: it trains, or infers."""
        limits, count = self._limits, self._cost.step_count
        if self.compiling:
            return Stage.COMPILING
        if not self.just_begun or count >= limits.steps_first:
            return None
        if self.stepped_ns is not None:
            early = now_ns - self.stepped_ns <= limits.steps_first_slow_ns
            return Stage.WARMING_UP if early else None
        self._able_ns = self._able_ns or now_ns
        idle = self.active is not None and self.active < BUSY
        return Stage.LOADING if idle and now_ns - self._able_ns < limits.begins_ns else None

    def lacks_a_step(self, now_ns: int, owed_ns: float) -> bool:
        """Whether the only look so far held no whole step, and a second one can hold one.

        Where nobody knew how long a step is, the first went by time, and may be 2 ms of kernels
        beside a wait of 100 ms (`spans.lacks_whole_step`), or nothing at all.

        Args:
            owed_ns: What bursts, that second one included, would have to be paid for.
        """
        limits = self._limits
        if self._first is None or now_ns - self._first[1] > limits.second_look_ns:
            return False
        if self._cost.step_ns is None or self._cost.ends_within(*self._first) >= 2:
            return False
        return owed_ns <= limits.credit_rate * limits.pause_most_ns


class MonitorPace:
    """CPU time of the monitor itself in; whether it has rested from the last burst out."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._spent_ns, self._since_ns = 0.0, 0

    def add(self, share: float) -> None:
        """Of a core, that it took in the last second."""
        self._spent_ns += share * SECOND

    def on_burst(self, now_ns: int) -> None:
        self._spent_ns, self._since_ns = 0.0, now_ns

    def is_busy(self, now_ns: int, rested_ns: int) -> bool:
        most_ns = self._limits.monitor_most * (now_ns - self._since_ns)
        return self._spent_ns > most_ns and rested_ns < self._limits.pause_most_ns


class GaugeJump:
    """One gauge, a share of 0..1."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_HISTORY)

    def moved(self, value: float) -> bool:
        """Whether the newest readings left the range of the ones before."""
        self._seen.append(value)
        if len(self._seen) < _NEW + 6:
            return False
        old, new = list(self._seen)[:-_NEW], list(self._seen)[-_NEW:]
        middle = _median(old)
        beyond = max(min(new) - middle, middle - max(new))
        if beyond <= _LEAST_SHARE or beyond <= _SPREADS * _spread(old, middle):
            return False
        self._seen.clear()
        self._seen.extend(new)
        return True


def step_moved(durations_ns: I8) -> bool:
    """Whether the newest untraced steps differ from the ones before by more than their noise."""
    if len(durations_ns) < 4 * _NEW_STEPS:
        return False
    old, new = durations_ns[:-_NEW_STEPS].tolist(), durations_ns[-_NEW_STEPS:].tolist()
    middle = _median(old)
    limit = max(_LEAST_STEP_SHARE * middle, _SPREADS * _spread(old, middle))
    return bool(abs(_median(new) - middle) > limit)


def _spread(values: Sequence[float], middle: float) -> float:
    return _MAD_TO_SIGMA * _median(abs(value - middle) for value in values)


def _median(values: Iterable[float]) -> float:
    """By hand: numpy takes ten times as long for so few, and `statistics` brings half a megabyte."""
    ordered = sorted(values)
    return (ordered[len(ordered) // 2] + ordered[(len(ordered) - 1) // 2]) / 2
