"""Decides when the agent traces, so that watching stays within `--max-overhead`. No I/O, no clock.

Time earns credit: `Limits.credit_rate` of every second. A burst spends what it is believed to
cost, and the next one comes when the debt is paid. What it costs is measured in this very run
(`step_cost`); until then a burst is taken to cost what the worst loop on an H200 cost.
"""

import math

from msgspec.structs import replace

from brrrtop.model.tables import I8, Span
from brrrtop.scheduling.burst import (
    GUST_MOST_NS,
    SECOND,
    UNABLE,
    Absorbed,
    Act,
    Burst,
    Decision,
    Limits,
    Slack,
    Stage,
    Why,
)
from brrrtop.scheduling.phases import STEPS, PhaseWatch
from brrrtop.scheduling.step_cost import AgentOverhead, CostEstimate, StepCost
from brrrtop.scheduling.triggers import WATCHED, FirstBurst, GaugeJump, MonitorPace, step_moved
from brrrtop.text import units
from collectors.vocabulary import Metric

# What a burst costs before this run has said so: the launch-bound worst case of an H200 with
# driver 580 (kernel kind and launch rows: 6.1 → 6.7-7.4 ms a step; first enable: up to 20 ms).
_PRIOR_SHARE = 0.10
_PRIOR_STALL_NS = 15_000_000
_NS_PER_RECORD = 1_500
"""Cost of a traced kernel or copy to the launching thread: 0.7-1.1 us, launch rows 0.2 (H200)."""

SHAPES_STEPS = 2
"""So many more in a burst with shapes: the agent's control thread may be late for the first."""
_ACTIVITY = (Metric.GRAPHICS_ACTIVE, Metric.SM_ACTIVE, Metric.SMI_UTIL)
"""Counters of whether the GPU does anything, the best first."""
_GOLDEN = 0.618034
"""Its multiples, modulo 1, keep apart from each other better than those of any other number."""


class Governor:
    """Steps, traced spans and gauges in; decisions out."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.cost = StepCost()
        self.upkeep = AgentOverhead()
        self._credit_ns = 0.0
        self._clock_ns: int | None = None
        self._last: Burst | None = None
        """The last one that was ordered; under way until its end is reported."""
        self._free_seen = False
        """There was a burst that waits were to absorb."""
        self._ended_ns: int | None = None
        self._records: float | None = None
        """Of a step of the last burst that had some."""
        self.watch = PhaseWatch()
        self._activity = len(_ACTIVITY)
        self._slack = Slack()
        self._rate = _PRIOR_SHARE
        """What tracing adds to a ns that is not waited for data, by the records of the last burst."""
        self._pause_ns = 0
        self.burst_count = 0
        """Bursts that were ordered so far."""
        self.pace = MonitorPace(self.limits)
        self._unanswered = 0
        self._jumps: dict[tuple[int, int, str | None], GaugeJump] = {}
        """Of each phase: that another one is not as busy is no news."""
        self._wanted: str | None = None
        """Why a burst is wanted before its time."""
        self._with_shapes = False
        self.shapes_when_due = False
        """The next burst that comes in its time, and is paid for, is to have the ops of a step too."""
        self._triggered_ns: int | None = None
        self.continuous = False
        """Everything is to be traced."""
        self._continuous_ns: int | None = None
        """Since when everything is."""
        self._able = True
        self._first_burst = FirstBurst(self.limits, self.cost)
        self.follows = False
        """Another rank's governor says when: bursts come only as they are asked for."""
        self.held_ns = 0
        """The trainer, for the last burst."""
        self.steps_least = 1
        """Of a burst: ranks are compared between the ends of two collectives that all were traced in."""
        self.plan = (0, 0)
        """Of the last burst: its steps (0: by time), and the longest it may take in ns."""
        self._given_plan: tuple[int, int] | None = None
        self._stage: Stage | None = None

    def add_steps(self, ends_ns: I8) -> None:
        self.cost.add_steps(ends_ns)
        if self._first_burst.stepped_ns is None and len(ends_ns):
            self._first_burst.stepped_ns = int(ends_ns.min())

    def add_waits(self, starts_ns: I8, ends_ns: I8) -> None:
        self._slack.add_waits(starts_ns, ends_ns)

    def add_observed(self, start_ns: int, end_ns: int) -> None:
        if self.continuous or self._continuous_ns is not None or end_ns <= start_ns:
            return
        if self._last is None or self._last.over:
            self.cost.add_foreign(start_ns, end_ns)
        else:
            self._last.add_span(start_ns, end_ns, self._clock_ns or end_ns)

    def add_records(self, starts_ns: I8, ends_ns: I8) -> None:
        if self._under_way and self._last is not None:
            self._last.add_records(starts_ns, ends_ns)

    def add_traced(self, held_ns: int = 0) -> None:
        """The agent says that the burst is over and all of it is reported.

        Args:
            held_ns: So long the trainer was held for it; without steps nothing else tells that.
        """
        if self._under_way and self._last is not None:
            self._last.traced = True
        self.held_ns = held_ns
        if self.cost.step_ns is None:
            self._credit_ns -= max(0, held_ns - _PRIOR_STALL_NS)

    def charge(self, held_ns: int) -> None:
        """A rank of the job was held so long for the last burst, and its peers waited: no queue of launches
        hides that. Steps of a job are too uneven to tell it soon."""
        beyond_ns = held_ns - self._last.charged_ns if self._last is not None else 0.0
        if beyond_ns > 0 and self._last is not None:
            self._credit_ns -= beyond_ns
            self._last.charged_ns += beyond_ns
            self._plan_pause()

    def add_upkeep(self, spent_ns: int, at_ns: int) -> None:
        """What the agent has taken from the training thread in all, bursts aside: paid for too."""
        self._credit_ns -= self.upkeep.add(spent_ns, at_ns)

    def add_state(self, state: str) -> None:
        """What the agent says of its tracing: no orders while it cannot trace."""
        could, self._able = self._able, state not in UNABLE
        if could and not self._able and self._under_way and self._last is not None:
            self._last.over, self._ended_ns = True, self._clock_ns
        if self._able and not could and self.burst_count:
            self._want(Why.POSSIBLE)

    def add_gauge(self, device: int, metric: int, value: float) -> None:
        """A reading between 0 and 1; those of other metrics are ignored."""
        if metric == Metric.SM_ACTIVE:
            self._first_burst.active = value
        if metric in _ACTIVITY and _ACTIVITY.index(metric) <= self._activity:
            self._activity = _ACTIVITY.index(metric)
            self.watch.add_active(value)
        if metric not in WATCHED or self._under_way:
            return
        jump = self._jumps.setdefault((device, metric, self.watch.key), GaugeJump())
        if jump.moved(value):
            self._want(f"{Metric(metric).name.lower().replace('_', ' ')} jumped")

    def await_steps(self, may_come: bool = True) -> None:
        """The trainer was started a moment ago: loading a model is nothing to judge it by.

        Args:
            may_come: Steps may be told by a hook; else the first burst waits for none.
        """
        self._first_burst.just_begun, self._first_burst.hooked = True, may_come

    def want_burst(self, plan: tuple[int, int] | None = None) -> None:
        """Somebody pressed the key: the next decision is a burst, whatever the credit.

        Args:
            plan: Another rank's, to trace as many steps.
        """
        self._wanted, self._given_plan = Why.ASKED, plan

    def want_shapes(self) -> None:
        """The ops of one step are wanted: a burst in which they can be recorded."""
        self._with_shapes = True
        self.want_burst()

    def add_disturbed(self, span: Span, recorded_ns: int = 0) -> None:
        """Steps slowed on our account, but not by tracing: no measure. Of a recorded one the time
        beyond a usual step is paid for, up to as much again: more was not the recording."""
        self.cost.add_foreign(span.t0_ns, span.t1_ns)
        usual_ns = self.cost.step_ns or 0
        self._credit_ns -= min(max(recorded_ns - usual_ns, 0), usual_ns)

    def clock_fell(self, now_ns: int) -> None:
        """CLOCK_REALTIME was set back: steps and bursts of before lie in a future that is none."""
        self.cost, self._slack, self._clock_ns = StepCost(), Slack(), now_ns
        self.watch = PhaseWatch()
        self._triggered_ns = None
        if self._last is not None:
            self._last.clock_fell(now_ns)
        self.pace.on_burst(now_ns)
        self._ended_ns = None if self._ended_ns is None else now_ns
        self._first_burst = FirstBurst(self.limits, self.cost)
        self._continuous_ns = None if self._continuous_ns is None else now_ns

    def want_continuous(self, on: bool) -> None:
        """Trace everything from now on, and let the budget be the user's business."""
        self.continuous = on

    def _want(self, why: str) -> None:
        if self._wanted is None:
            self._wanted = why

    def decide(self, now_ns: int) -> Decision | None:
        self._earn(now_ns)
        self.watch.tick(now_ns)
        if self.continuous != (self._continuous_ns is not None):
            return self._switch(now_ns)
        by_hand = self._wanted is Why.ASKED
        if self.continuous or (self.limits.max_overhead <= 0 and not by_hand):
            return None
        if not self._able or (self._under_way and not self._is_over(now_ns)):
            return None
        self._settle(now_ns)
        before, self._stage = self._stage, self.stage(now_ns)
        if self.burst_count and before is not None and self._stage is None:
            self._want(Why.BEGUN)
        if self.burst_count and step_moved(self.cost.untraced(48)):
            self._want(Why.CHANGED)
        why = self._reason(now_ns)
        return self._burst(now_ns, why) if why else None

    def estimate(self, now_ns: int) -> CostEstimate | None:
        """What watching has cost of late; None until it could be measured, and where everything is traced."""
        if self._continuous_ns is not None:
            return None
        bursts = self.cost.estimate(now_ns, self._pause_ns + self.limits.burst_ns)
        if bursts is None:
            return None
        return replace(bursts, share=bursts.share + self.upkeep.share)

    @property
    def forbidden(self) -> str | None:
        """That its limit lets nothing be traced."""
        none_allowed = self.limits.max_overhead <= 0 and not self.continuous
        return "an overhead limit of 0 allows no tracing: counters only" if none_allowed else None

    @property
    def waiting(self) -> str | None:
        """What the first burst waits for, where it does."""
        off = self.burst_count or self.continuous or self.forbidden is not None
        if off or not self._awaits_steps(self._clock_ns or 0):
            return None
        return "waiting for the first training steps, 2 s at most"

    def stage(self, now_ns: int) -> Stage | None:
        """What the trainer does before it trains; None: it trains, or infers."""
        return self._first_burst.stage(now_ns)

    def add_compiling(self, on: bool) -> None:
        self._first_burst.compiling = on

    def describe(self) -> str:
        if self.continuous:
            return "tracing every step, as asked: the overhead limit does not apply"
        if not self._able:
            return "the agent cannot trace at present"
        limit = units.share(self.limits.max_overhead, 2).replace(".00%", "%")
        if self.forbidden is not None:
            return self.forbidden
        if self._unanswered >= 3:
            return f"the agent has not reported the last {self._unanswered} bursts"
        if self.waiting is not None:
            return self.waiting
        if not self.burst_count:
            return "about to trace the first steps"
        pause = units.duration(self._pause_ns)
        steps, longest_ns = self._plan()
        if self._pause_ns > self.limits.pause_most_ns:
            charge = units.duration(self._charge(steps))
            return (
                f"a burst costs about {charge}, more than bursts may take once a minute under "
                f"{limit}: counters only for {pause}"
            )
        length = f"{steps} step{'s' * (steps > 1)}" if steps else units.duration(longest_ns)
        if self._aside:
            return (
                f"{length} of tracing while no step ends, a pause of {pause}, to stay under {limit}"
            )
        if not steps:
            return (
                f"no steps seen: {length} of tracing, then a pause of {pause}; what that costs "
                "cannot be measured, so the worst known case is assumed"
            )
        if self._last is not None and self._last.free:
            return f"bursts of {length}, a pause of {pause}: waits for data absorb what they add"
        return f"bursts of {length}, a pause of {pause}, to stay under {limit} of step time"

    @property
    def tracing(self) -> bool:
        return self._under_way or self._continuous_ns is not None

    @property
    def _under_way(self) -> bool:
        return self._last is not None and not self._last.over

    def _earn(self, now_ns: int) -> None:
        if self._clock_ns is not None and now_ns > self._clock_ns:
            self._credit_ns += self.limits.credit_rate * (now_ns - self._clock_ns)
            self._credit_ns = min(self._credit_ns, 0.0)  # no saving up for a storm of bursts
        self._clock_ns = max(now_ns, self._clock_ns or now_ns)

    def _charge(self, steps: int) -> float:
        """What a burst of that many steps is believed to cost, on the safe side, in ns.

        Belief and measurement, each weighted by how sure it is (normal prior, normal mean), plus
        one standard error: noisy steps do not make a cheap burst look dear, nor a dear one cheap.
        """
        step_ns = self.cost.step_ns
        length = steps * step_ns if steps and step_ns else self.limits.stepless_burst_ns
        prior = _PRIOR_SHARE * length
        if steps and self._records is not None:
            prior = _NS_PER_RECORD * self._records * steps
        prior += _PRIOR_STALL_NS
        count = len(self.cost.measured)
        if not steps or not count:
            return prior
        mean_ns, error_ns = self.cost.mean_extra()
        error_ns = max(math.hypot(error_ns, 0.5 * mean_ns / count), 1.0)
        trust = prior**2 / (prior**2 + error_ns**2)
        believed = trust * mean_ns + (1 - trust) * prior
        return max(believed, 0.0) + error_ns * math.sqrt(trust)

    def _absorbed(self) -> Absorbed | None:
        """What waits for loader workers will make of the next burst; None: no difference."""
        absorbed = self._slack.absorbed(self._clock_ns or 0, self._rate, _PRIOR_STALL_NS)
        return absorbed if absorbed.reliable else None

    def _plan(self) -> tuple[int, int]:
        """Steps of the next burst (0: by time), and the longest it may take."""
        limits = self.limits
        step_ns, last_ns = self.cost.step_ns, self.cost.last_step_ns
        now_ns = self._clock_ns or 0
        if step_ns is None or last_ns is None or step_ns <= 0 or self._aside:
            return 0, limits.stepless_burst_ns
        if now_ns - last_ns > max(limits.steps_gone_ns, 10 * step_ns):
            return 0, limits.stepless_burst_ns
        absorbed, mean_ns = self._absorbed(), self.cost.mean_step_ns
        if absorbed is not None and mean_ns:
            length_ns = min(max(limits.free_burst_ns, absorbed.gust_ns), GUST_MOST_NS)
            most = limits.free_steps_most
            if self._records:
                most = min(most, int(limits.free_records_most / self._records))
            steps = max(min(length_ns // mean_ns, most), 3)
            return steps, min(4 * max(length_ns, steps * mean_ns), 60 * SECOND)
        steps = -(-limits.burst_ns // step_ns)
        least = 3 if step_ns < limits.burst_ns * 3 else 1
        steps = min(max(steps, least, self.steps_least), limits.steps_most)
        if self._pause_ns >= limits.pause_most_ns:
            steps = self.steps_least
        return steps, min(max(4 * (steps + 1) * step_ns, limits.stepless_burst_ns), 60 * SECOND)

    @property
    def _aside(self) -> bool:
        """What goes on now has no steps, though the program has."""
        return self.watch.key not in (None, STEPS)

    def _burst(self, now_ns: int, why: str) -> Decision:
        steps, longest_ns = self._given_plan or self._plan()
        rides = (
            self.shapes_when_due and why is Why.DUE and self._pause_ns <= self.limits.pause_most_ns
        )
        shapes = self._with_shapes or rides
        if shapes:  # the step after the first mark, or the one after that
            steps, longest_ns = steps + SHAPES_STEPS, 2 * longest_ns
        self.plan, self._given_plan, self.held_ns = (steps, longest_ns), None, 0
        absorbed = self._absorbed() if steps else None
        charged_ns = self._charge(steps) * (1.0 - absorbed.share if absorbed else 1.0)
        self._last = Burst(
            now_ns, steps, longest_ns, self.watch.key, self._aside, shapes,
            absorbed is not None, charged_ns,
        )  # fmt: skip
        self._free_seen |= absorbed is not None
        self._credit_ns -= charged_ns
        self._wanted = None
        self.pace.on_burst(now_ns)
        self._with_shapes, self.shapes_when_due = False, self.shapes_when_due and not rides
        self.burst_count += 1
        message = f"{why}, with the shapes of one step" if shapes else str(why)
        return Decision(Act.BURST, message, steps, longest_ns, shapes)

    def _is_over(self, now_ns: int) -> bool:
        """Whether the burst under way has ended; takes note of how."""
        last = self._last
        if last is None or not last.ends(now_ns, self.limits):
            return False
        start_ns, end_ns = last.span or (last.asked_ns, now_ns)
        if last.span is not None:
            if last.records:
                worked_ns = self._slack.worked_ns(start_ns, end_ns)
                self._rate = _NS_PER_RECORD * last.records / max(worked_ns, 1)
                steps = last.steps or self.cost.ends_within(start_ns, end_ns)
                self._records = last.records / max(steps, 1)
            # The kinds are on from the order, not only from the first kernel that starts after.
            count = self.cost.add_burst if last.measures else self.cost.add_foreign
            count(min(start_ns, last.asked_ns), end_ns)
        answered = last.span is not None or last.traced
        if answered:
            self._first_burst.on_burst_end(start_ns, end_ns)
        self._ended_ns = max(end_ns, last.asked_ns)
        self._unanswered = 0 if answered else self._unanswered + 1
        self._plan_pause()
        start_ns, end_ns = last.whole(now_ns)
        self.watch.add_burst(last.phase or self.watch.key, end_ns - start_ns, last.busy_ns())
        return True

    def _plan_pause(self) -> None:
        """The debt, as time; it may grow at once and shrinks by a third a burst at most."""
        rate = self.limits.credit_rate
        needed_ns = int(-self._credit_ns / rate) if rate > 0 else self.limits.pause_most_ns
        if self._unanswered:
            needed_ns = max(needed_ns, self.limits.pause_least_ns * 2 ** min(self._unanswered, 5))
            needed_ns = min(needed_ns, self.limits.pause_most_ns)
        if self._last is not None and self._last.free and self._last.span is not None:
            start_ns, end_ns = self._last.span
            needed_ns = max(needed_ns, self.limits.free_rest * (end_ns - start_ns))
        careful_ns = max(needed_ns, int(0.67 * self._pause_ns))
        self._pause_ns = max(careful_ns, self.limits.pause_least_ns)

    def _settle(self, now_ns: int) -> None:
        """Books what bursts really cost where that is clearly more than was charged."""
        for cost in self.cost.book_costs(now_ns):
            charged_ns = self._last.charged_ns if self._last is not None else 0.0
            beyond_ns = cost.extra_ns - cost.error_ns - charged_ns
            if self._last is not None and self._last.free:
                span = cost.start_ns, cost.end_ns
                owed_ns = self._slack.left_of(*span, self._rate, _PRIOR_STALL_NS)
                # Steps that wait differ by more than any burst adds to them.
                beyond_ns = max(owed_ns - charged_ns, beyond_ns - cost.error_ns)
            if beyond_ns > 0:
                self._credit_ns -= beyond_ns
                self._plan_pause()

    def _reason(self, now_ns: int) -> str | None:
        """Why a burst is due now; None while it is not."""
        if self._wanted is Why.ASKED:
            return self._wanted
        if self.follows:
            return None
        if self._ended_ns is None:
            return None if self._awaits_steps(now_ns) else Why.FIRST
        rested_ns = now_ns - self._ended_ns
        if self._wanted is not None and self._may_trigger(now_ns, rested_ns):
            self._triggered_ns = now_ns
            return self._wanted
        if self._new_phase(rested_ns):
            return Why.PHASE
        if not self._free_seen and rested_ns >= self.limits.trigger_gap_ns and self._absorbed():
            return Why.ABSORBED
        owed_ns = self._charge(self._plan()[0]) - self._credit_ns
        if self._first_burst.lacks_a_step(now_ns, owed_ns):
            return Why.NO_STEP
        # Spread over the steps' own rhythms, so that a slow step every N is not always hit.
        jitter = 1 + 0.2 * ((self.burst_count * _GOLDEN) % 1.0)
        due_ns = int(self._pause_ns * jitter)
        eager = self.burst_count < self.limits.first_looks or self.shapes_when_due
        eager |= self.steps_least > 1  # in a job it works for all ranks
        busy = not eager and self.pace.is_busy(now_ns, rested_ns)
        if rested_ns < due_ns or self._credit_ns < 0 or busy:
            return None
        patience_ns = self.limits.target_patience_ns
        waits = rested_ns < due_ns + patience_ns and self.watch.elsewhere(now_ns, patience_ns)
        return None if waits else Why.DUE

    def _new_phase(self, rested_ns: int) -> bool:
        """What goes on now was never traced, and not too much is owed yet."""
        if rested_ns < self.limits.trigger_gap_ns or not self.watch.unseen:
            return False
        return self._credit_ns >= -self.limits.phase_debts * self._charge(self._plan()[0])

    def _awaits_steps(self, now_ns: int) -> bool:
        return self._able and self._first_burst.awaits_steps(now_ns)

    def _may_trigger(self, now_ns: int, rested_ns: int) -> bool:
        """Once between two bursts that come in their time, or changes without end put those off for ever."""
        limits, since_ns = self.limits, self._triggered_ns
        in_debt = self._credit_ns < -self._charge(self._plan()[0])
        if rested_ns < limits.trigger_gap_ns or in_debt:
            return False
        again = self._last is not None and self._last.asked_ns == since_ns
        rest_ns = limits.pause_most_ns if again else limits.trigger_rest_ns
        return since_ns is None or now_ns - since_ns >= rest_ns

    def _switch(self, now_ns: int) -> Decision:
        began_ns, self._continuous_ns = self._continuous_ns, now_ns if self.continuous else None
        if began_ns is None:
            self._last, self._wanted = None, None
            return Decision(Act.CONTINUOUS_ON, "asked for")
        self.cost.add_foreign(began_ns, now_ns)
        self._ended_ns = now_ns
        return Decision(Act.CONTINUOUS_OFF, "asked for")
