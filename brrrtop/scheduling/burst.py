"""Bursts of tracing: the limits that they keep to, and the orders they lead to; one of them from its order on
(what it was to be, what the agent has reported of it); how much of what tracing adds is absorbed by waits
for loader workers. No clock, no I/O.

A thread that comes late to a loader whose workers are behind waits that much less: its extra time is
on nobody's critical path. Extra time is owed until as much of it has been waited for, halved for
safety; a stretch at whose end nothing is owed cost nothing. Loaders without workers absorb nothing:
what they do is done by the training thread itself.
"""

from enum import Enum

import numpy as np
from msgspec import Struct

from brrrtop.model import intervals
from brrrtop.model.tables import I8
from collectors.vocabulary import StrEnum

SECOND = 1_000_000_000
UNABLE = frozenset({"waiting", "undecided", "absent", "yielded", "blocked", "off"})
"""States of the agent in which it traces nothing."""


class Limits(Struct, frozen=True):
    max_overhead: float = 0.01
    metered: float = 0.5
    """Of the limit, the part that bursts and upkeep may take by our own account. A launch-bound
    trainer paid more than that account has: +1.3 % in the median of 48 pairs, +2.3 % on average, where
    it said 0.8 % (H200, tiny_mlp, benchmarks/overhead.py). What the rest is was not measured."""
    pause_least_ns: int = 2 * SECOND
    pause_most_ns: int = 60 * SECOND
    burst_ns: int = 60_000_000
    """About how long a burst should be; whole steps decide."""
    steps_most: int = 16
    free_burst_ns: int = 2 * SECOND
    """About how long a burst should be that waits for loader workers absorb: at least a gust of batches."""
    free_steps_most: int = 256
    free_records_most: int = 60_000
    """Of such a burst: more would be the monitor's own time, and the recording's size."""
    free_rest: int = 3
    """Pauses after such a burst, in its own lengths: what it would show next is mostly known."""
    monitor_most: float = 0.05
    """Of a core, for the monitor itself from a burst to the next: what it makes of one takes its time."""
    first_looks: int = 4
    """Bursts that do not wait for that."""
    stepless_burst_ns: int = 200_000_000
    """Length of a burst when no steps are seen."""
    steps_first: int = 3
    """So many steps of a trainer that has just begun are waited for: `analysis.facts.steps` tells why."""
    steps_first_slow_ns: int = 4 * SECOND
    """So long after the first of them it is no beginning any more: slower steps are no warm-up."""
    steps_first_ns: int = 2 * SECOND
    """And so long at most: nobody watches a screen that says nothing. What is traced before the
    steps is shown as what it is (`Stage`)."""
    steps_none_ns: int = SECOND
    """And so long at most while the GPU works and no step ends: it infers, or evaluates."""
    begins_ns: int = 60 * SECOND
    """So long, without a step, an idle GPU means that a trainer loads or prepares."""
    second_look_ns: int = 60 * SECOND
    """So long after a first look without a whole step, one that holds some comes before its time."""
    steps_gone_ns: int = 20 * SECOND
    """Without a step for this long (and ten times its length), bursts go by time."""
    target_patience_ns: int = 30 * SECOND
    """So long a burst that is due waits for a phase of which it would tell more."""
    phase_debts: int = 4
    """Bursts that may be owed when a phase that was never traced begins: it may not come again."""
    trigger_gap_ns: int = 1 * SECOND
    trigger_rest_ns: int = 10 * SECOND
    quiet_ns: int = 700_000_000
    """A burst is over when no more of it was reported for this long: the agent reports spans every
    150 ms while it traces, and drains for 500 ms at most."""
    answer_ns: int = 5 * SECOND
    """An agent that has not reported a burst this long after its end will not."""

    @property
    def credit_rate(self) -> float:
        """What bursts and upkeep may cost, per unit of time."""
        return self.max_overhead * self.metered


class Stage(Enum):
    """What a trainer does before it trains; the value goes over the wire of statuses."""

    LOADING = "loading"
    COMPILING = "compiling"
    WARMING_UP = "warming-up"


class Why(StrEnum):
    """What makes a burst due, as the status line says it; a gauge that jumped is named besides."""

    ASKED = "asked for"
    FIRST = "the first look"
    NO_STEP = "the first look held no whole step"
    DUE = "its time has come"
    PHASE = "the program does something else"
    ABSORBED = "waits for data absorb what a long one adds"
    BEGUN = "the trainer has begun its work"
    CHANGED = "the step time changed"
    POSSIBLE = "tracing is possible again"


class Act(Enum):
    BURST = "burst"
    CONTINUOUS_ON = "continuous on"
    CONTINUOUS_OFF = "continuous off"


class Decision(Struct, frozen=True):
    act: Act
    message: str
    steps: int = 0
    """Whole steps of a burst; 0: by time."""
    longest_ns: int = 0
    shapes: bool = False
    """Have the ops of one of these steps recorded."""


_NONE = np.zeros(0, np.int64)


class Burst:
    """Ordered; then its spans and records in, and whether it is over out.

    Args:
        steps: To trace; 0: by time.
        longest_ns: It may take.
        phase: Of `PhaseWatch`, in which it was ordered.
        aside: That phase has no steps, though the program has.
        disturbed: The ops of a step are recorded in it, so that its steps measure nothing.
        free: Waits are to absorb what it adds.
        charged_ns: What it was taken to cost.
    """

    def __init__(
        self, asked_ns: int, steps: int, longest_ns: int, phase: str | None = None, aside: bool = False,
        disturbed: bool = False, free: bool = False, charged_ns: float = 0.0,
    ) -> None:  # fmt: skip
        self.asked_ns, self.steps, self.longest_ns = asked_ns, steps, longest_ns
        self.phase, self.free, self.charged_ns = phase, free, charged_ns
        self.measures = not (disturbed or aside)
        """Its steps can be compared with those around it."""
        self.span: tuple[int, int] | None = None
        """What was traced, as far as reported."""
        self._seen_ns = asked_ns
        self.traced = False
        """The agent says that it is over and all of it is reported."""
        self.records = 0
        self.over = False
        self._busy: list[tuple[I8, I8]] = []

    def add_span(self, start_ns: int, end_ns: int, now_ns: int) -> None:
        before = self.span or (start_ns, end_ns)
        self.span = min(before[0], start_ns), max(before[1], end_ns)
        self._seen_ns = now_ns

    def add_records(self, starts_ns: I8, ends_ns: I8) -> None:
        self.records += len(starts_ns)
        self._busy.append((starts_ns, ends_ns))

    def ends(self, now_ns: int, limits: Limits) -> bool:
        """Whether it is over: said, not reported of any more, or without an answer for too long."""
        if self.span is not None:
            self.over = self.traced or now_ns - self._seen_ns >= limits.quiet_ns
        else:
            self.over = self.traced or now_ns - self.asked_ns > self.longest_ns + limits.answer_ns
        return self.over

    def whole(self, now_ns: int) -> tuple[int, int]:
        """Start and end; where nothing ran until now, no longer than it may take."""
        return self.span or (self.asked_ns, min(now_ns, self.asked_ns + self.longest_ns))

    def busy_ns(self) -> int:
        if self.span is None or not self._busy:
            return 0
        starts, ends = (np.concatenate(side) for side in zip(*self._busy, strict=True))
        return intervals.total(*intervals.merge_unsorted(*intervals.clip(starts, ends, *self.span)))

    def clock_fell(self, now_ns: int) -> None:
        """CLOCK_REALTIME was set back: it counts from now."""
        self.asked_ns = self._seen_ns = now_ns
        self.span = None


KEEP_NS = 30 * SECOND
LEAST_NS = 3 * SECOND
"""Of watching, before waits are relied upon."""
_BIN_NS = 50_000_000
GUST_MOST_NS = 5 * SECOND
"""Waits that are further apart than this absorb no burst that ends between them."""
_ABSORBED = 0.5
"""Of a wait: the other half is kept for what the estimate of the extra time lacks."""
RELIABLE = 0.9
"""Of the time of late lies in stretches that cost nothing: the next burst will too."""


class Absorbed(Struct, frozen=True):
    """What waits would have made of tracing all the time of late."""

    share: float
    """Of the time, in stretches at whose end nothing was owed."""
    gust_ns: int
    """The longest of nine tenths of those stretches: a burst as long ends behind a wait."""

    @property
    def reliable(self) -> bool:
        return self.share >= RELIABLE


class Slack:
    """Waits for loaders with workers in, in any order between calls; what they absorb out."""

    def __init__(self) -> None:
        self._starts = np.zeros(0, np.int64)
        self._ends = np.zeros(0, np.int64)
        self._since_ns: int | None = None

    def add_waits(self, starts_ns: I8, ends_ns: I8) -> None:
        if not len(ends_ns):
            return
        if self._since_ns is None:
            self._since_ns = int(starts_ns.min())
        starts = np.concatenate([self._starts, starts_ns])
        ends = np.concatenate([self._ends, ends_ns])
        kept = np.flatnonzero(ends > ends.max() - KEEP_NS)
        kept = kept[np.argsort(ends[kept], kind="stable")]
        self._starts, self._ends = starts[kept], ends[kept]

    def absorbed(self, now_ns: int, rate: float, stall_ns: float) -> Absorbed:
        """Had all been traced of late, in bursts that begin behind each stretch that cost nothing.

        Args:
            rate: What tracing adds to each ns that is not waited.
            stall_ns: What it adds once, where a burst begins.
        """
        first_ns = max(now_ns - KEEP_NS, self._since_ns or now_ns)
        if now_ns - first_ns < LEAST_NS:
            return Absorbed(0.0, 0)
        since_ns, waited, stretches = first_ns, 0, []
        for end_ns, wait_ns in self._binned(first_ns, now_ns):
            waited += wait_ns
            worked = max(end_ns - since_ns - waited, 0)
            if end_ns - since_ns > GUST_MOST_NS:
                since_ns, waited = end_ns, 0
            elif _ABSORBED * waited >= stall_ns + rate * worked:
                stretches.append(end_ns - since_ns)
                since_ns, waited = end_ns, 0
        if not stretches:
            return Absorbed(0.0, 0)
        gust_ns = int(np.quantile(stretches, 0.9))
        under_way_ns = min(now_ns - since_ns, 2 * gust_ns)
        share = sum(stretches) / max(now_ns - first_ns - under_way_ns, 1)
        return Absorbed(min(share, 1.0), gust_ns)

    def left_of(self, start_ns: int, end_ns: int, rate: float, stall_ns: float) -> float:
        """What a burst from then to then still owed `GUST_MOST_NS` later, in ns."""
        owed, since_ns = stall_ns, start_ns
        for at_ns, wait_ns in self._binned(start_ns, end_ns + GUST_MOST_NS):
            worked = min(at_ns, end_ns) - since_ns - wait_ns
            owed = max(owed + rate * max(worked, 0) - _ABSORBED * wait_ns, 0.0)
            since_ns = max(min(at_ns, end_ns), since_ns)
        return owed + rate * max(end_ns - since_ns, 0)

    def worked_ns(self, start_ns: int, end_ns: int) -> int:
        """Of that time, what was not waited."""
        waited = np.minimum(self._ends, end_ns) - np.maximum(self._starts, start_ns)
        return end_ns - start_ns - int(waited.clip(0).sum())

    def _binned(self, from_ns: int, to_ns: int) -> list[tuple[int, int]]:
        """Ends of bins in which waits ended, and what was waited there: of each wait the part after
        `from_ns`."""
        rows = (self._ends > from_ns) & (self._ends <= to_ns)
        ends = self._ends[rows]
        lengths = ends - np.maximum(self._starts[rows], from_ns)
        if not len(ends):
            return []
        bins = (ends - from_ns) // _BIN_NS
        firsts = np.flatnonzero(np.diff(bins, prepend=-1))
        sums = np.add.reduceat(lengths, firsts)
        lasts = ends[np.append(firsts[1:], len(ends)) - 1]
        return list(zip(lasts.tolist(), sums.tolist(), strict=True))
