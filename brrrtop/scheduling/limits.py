"""The limits that bursts of tracing keep to, and the orders they lead to."""

from enum import Enum

from msgspec import Struct

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
