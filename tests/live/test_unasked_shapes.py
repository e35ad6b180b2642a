"""Shapes without anybody asking: once the run is steady, again in a new regime, never beyond the budget."""

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.model.estimate import Estimate, Regime, Steps
from brrrtop.model.tables import Span
from brrrtop.scheduling.burst import Act, Decision, Limits
from brrrtop.scheduling.governor import Governor
from brrrtop.scheduling.requests import LASTS_NS, REST_NS, TRIES, Requests
from brrrtop.sources.live import LiveSource
from collectors.protocol.frames import MARK, Frame, Kind
from collectors.protocol.requests import Op
from collectors.vocabulary import MarkClass
from tests.live.agents import SECOND, STEP_NS, FakeAgent
from tests.live.bench import START_NS, Bench
from tests.tui import snapshots


class Bare(Bench):
    """A bench that is told how shapes are wished."""

    def __init__(self, shapes: bool | None = None, limits: Limits | None = None) -> None:
        super().__init__()
        self.source.close()
        self.agent = FakeAgent(START_NS)
        self.source = LiveSource(
            self.agent, 4711, [self.feed], self.load,  # type: ignore[arg-type,list-item]
            None, lambda: self.now_ns,
        )  # fmt: skip
        self.control(Governor(limits or Limits()), shapes)

    @property
    def asked(self) -> int:
        return self.agent.count(Op.SHAPES)

    def until_asked(self, most_s: float = 60) -> None:
        while not self.asked and self.now_ns < START_NS + most_s * SECOND:
            self.watch(0.25)


def test_they_are_ordered_once_with_a_burst_that_was_due():
    bench = Bare()
    bench.until_asked()
    assert bench.asked == 1 and bench.agent is not None
    orders = [one for one in bench.agent.orders if one[0] in (Op.BURST, Op.SHAPES)]
    [at] = [i for i, one in enumerate(orders) if one[0] is Op.SHAPES]
    assert at >= 2, "the first burst has to show what the run is like"
    assert (
        bench.session.timeline.status["burst"] == "its time has come, with the shapes of one step"
    )
    plain = Bare(shapes=False)
    plain.watch((bench.now_ns - START_NS) / SECOND)
    assert plain.agent.count(Op.BURST) == bench.agent.count(Op.BURST), "they cost no burst"
    bench.watch(30)
    assert bench.asked == 1
    bench.source.close()
    plain.source.close()


def test_with_the_option_it_is_asked_once_and_not_before_steps_are_steady():
    bench = Bare(shapes=True)
    bench.read(0.5)
    assert bench.asked == 0
    bench.read(20)
    assert bench.asked == 1
    orders = [one[0] for one in bench.agent.orders if one[0] in (Op.BURST, Op.SHAPES)]
    assert orders.index(Op.SHAPES) >= 2, "a first burst showed that steps are steady"
    bench.source.close()


def test_with_no_shapes_only_a_person_has_them_recorded():
    bench = Bare(shapes=False)
    bench.watch(60)
    assert bench.asked == 0
    bench.driver.shapes()
    bench.watch(1)
    assert bench.asked == 1
    bench.source.close()


def test_a_trainer_that_compiles_is_left_alone_until_steps_go_on():
    bench = Bare()
    for _ in range(30):
        rows = np.zeros(1, MARK)
        rows["start_ns"], rows["end_ns"] = bench.now_ns - SECOND // 2, bench.now_ns
        rows["mark_class"] = MarkClass.COMPILE
        bench.agent.say(Frame(Kind.MARKS, rows, bench.now_ns))
        bench.watch(1)
    assert bench.asked == 0
    bench.until_asked(120)
    assert bench.asked == 1
    bench.source.close()


def test_nothing_is_recorded_where_a_burst_is_more_than_the_budget_has():
    for limit in (0.0, 1e-5):
        bench = Bare(limits=Limits(max_overhead=limit))
        bench.watch(40)
        assert bench.asked == 0, limit
        bench.source.close()


# --- the governor's part ----------------------------------------------------------


def _next_burst(governor: Governor, now_ns: int, most_s: float = 90) -> tuple[int, Decision | None]:
    """The next burst that is ordered, with steps going on; ends it like an agent."""
    end_ns = now_ns + int(most_s * SECOND)
    while now_ns < end_ns:
        now_ns += STEP_NS
        governor.add_steps(np.array([now_ns], np.int64))
        decision = governor.decide(now_ns)
        if decision is not None and decision.act is Act.BURST:
            governor.add_observed(now_ns, now_ns + decision.steps * STEP_NS)
            governor.add_traced()
            return now_ns, decision
    return now_ns, None


def test_a_burst_before_its_time_records_no_step():
    governor = Governor()
    now_ns, _ = _next_burst(governor, START_NS)
    governor.shapes_when_due = True
    governor.want_burst()
    now_ns, early = _next_burst(governor, now_ns)
    assert early is not None and early.message == "asked for" and not early.shapes
    now_ns, due = _next_burst(governor, now_ns)
    assert due is not None and due.shapes and due.steps >= early.steps + 2
    _, after = _next_burst(governor, now_ns)
    assert after is not None and not after.shapes


def test_steps_that_change_again_and_again_keep_no_burst_from_its_time():
    """On a host that others load: the shapes came after minutes, or never."""
    governor, now_ns = Governor(), START_NS
    governor.shapes_when_due = True
    rng, reasons = np.random.default_rng(1), list[str]()
    while governor.shapes_when_due and now_ns < START_NS + 60 * SECOND:
        now_ns += int(STEP_NS * rng.uniform(1.0, 1.3) * (1 + now_ns // (5 * SECOND) % 2))
        governor.add_steps(np.array([now_ns], np.int64))
        decision = governor.decide(now_ns)
        if decision is not None:
            reasons.append(decision.message)
            governor.add_observed(now_ns, now_ns + decision.steps * STEP_NS)
            governor.add_traced()
    assert reasons[-1] == "its time has come, with the shapes of one step", reasons
    assert "the step time changed" in reasons


def test_what_a_recorded_step_took_longer_is_paid_for():
    gaps = []
    for recorded_ns in (0, 2 * STEP_NS, 200 * STEP_NS):
        governor = Governor()
        now_ns, _ = _next_burst(governor, START_NS)
        now_ns, _ = _next_burst(governor, now_ns)
        governor.add_disturbed(Span(now_ns, now_ns + SECOND), recorded_ns)
        then_ns, _ = _next_burst(governor, now_ns)
        gaps.append(then_ns - now_ns)
    paid_ns = STEP_NS / Limits().credit_rate
    assert gaps[1] - gaps[0] == pytest.approx(paid_ns, rel=0.3)
    assert gaps[2] == gaps[1], "a step that was long for another reason is not its doing"


# --- when it is due ------------------------------------------------------------------


class Run:
    """Verdicts on a run of steady steps."""

    def __init__(self) -> None:
        self.unasked, self.governor = Requests(lambda op, value: True), Governor()
        self.now_ns = START_NS
        self.learned_ns: int | None = None
        judged = snapshots.snapshot().estimate
        assert judged is not None
        self.estimate = judged

    def go(self, seconds: float, regime: Regime, steps: Steps | None = None) -> Estimate:
        """A verdict every five seconds of that time."""
        for _ in range(int(seconds / 5)):
            self.now_ns += 5 * SECOND
            ends = np.arange(self.now_ns - 5 * SECOND + STEP_NS, self.now_ns + 1, STEP_NS)
            self.governor.add_steps(ends)
            self.estimate = replace(
                self.estimate, regime=regime, span=Span(self.now_ns - 10 * SECOND, self.now_ns),
                steps=steps or replace(self.estimate.steps, count=3, warming_up=False),
            )  # fmt: skip
            self.unasked.on_estimate(self.estimate, self.learned_ns)
        return self.estimate

    @property
    def due(self) -> bool:
        return self.unasked.is_due(self.now_ns, self.governor)

    def record(self) -> None:
        """A recording that comes to something."""
        self.unasked.ordered(self.now_ns)
        self.learned_ns = self.now_ns


def test_it_is_due_once_whole_steps_were_judged_past_the_warm_up():
    run = Run()
    assert not run.due, "nothing is judged"
    run.go(5, Regime.COMPUTE, Steps(0, None))
    assert not run.due
    run.go(5, Regime.COMPUTE, Steps(3, STEP_NS, "marks", 1.0, warming_up=True))
    assert not run.due
    run.go(5, Regime.COMPUTE)
    assert run.due
    run.now_ns += 60 * SECOND
    assert not run.due, "no step for a minute: this is something else than training"


def test_it_is_due_again_after_a_change_of_regime_that_lasts_and_not_soon():
    run = Run()
    run.go(10, Regime.COMPUTE)
    run.record()
    # With shapes the verdict may become another one: that is no change of the run.
    run.go(2 * REST_NS / SECOND, Regime.MEMORY)
    assert not run.due
    run.go(LASTS_NS / SECOND - 5, Regime.OVERHEAD)
    assert not run.due
    run.go(60, Regime.MEMORY)
    assert not run.due, "it passed"
    run.go(LASTS_NS / SECOND + 5, Regime.OVERHEAD)
    assert run.due
    run.record()
    run.go(10, Regime.OVERHEAD)
    run.go(120, Regime.COMPUTE)
    assert not run.due, "the last one was two minutes ago"
    run.go(REST_NS / SECOND, Regime.COMPUTE)
    assert run.due


def test_what_came_to_nothing_is_tried_again_after_a_rest_and_not_for_ever():
    run = Run()
    for _ in range(TRIES):
        run.go(10, Regime.COMPUTE)
        assert run.due
        run.unasked.ordered(run.now_ns)
        run.go(50, Regime.COMPUTE)
        assert not run.due
        run.go(10, Regime.COMPUTE)
    assert not run.due


def test_shapes_that_are_lost_with_the_timeline_are_recorded_again():
    run = Run()
    run.go(10, Regime.COMPUTE)
    run.record()
    run.go(2 * REST_NS / SECOND, Regime.COMPUTE)
    assert not run.due
    run.learned_ns = None
    run.go(5, Regime.COMPUTE)
    assert run.due
