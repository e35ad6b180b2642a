"""Which stretch is judged: the last burst whole, but no more than a window of what has no pauses."""

import numpy as np
import pytest

from brrrtop.analysis.estimate import facts_of
from brrrtop.analysis.facts.steps import find_steps
from brrrtop.model.tables import Span
from brrrtop.session import verdict
from brrrtop.session.session import Session
from brrrtop.timeline.timeline import Timeline
from collectors.protocol.frames import CALL, MARK, OBSERVED, Frame, Kind
from collectors.vocabulary import MarkClass
from tests.memory_source import MemorySource
from tests.session.runs import T0_NS, Run

SECOND = 1_000_000_000


@pytest.mark.parametrize(("tier", "judged_s"), [("bursts", 42), ("continuous", 10)])
def test_tracing_without_pauses_is_judged_by_its_last_window(tier, judged_s):
    timeline = Timeline()
    for frame in Run().steps(3_000).frames:
        timeline.add(frame)
    traced = np.array([(T0_NS, T0_NS + 42 * SECOND, 0, 0)], OBSERVED)
    timeline.add(Frame(Kind.OBSERVED, traced, T0_NS + 42 * SECOND))
    timeline.add(Frame(Kind.STATUS, {"tier": tier}, T0_NS + 42 * SECOND))
    span = verdict.current(timeline, T0_NS + 50 * SECOND)
    assert span.duration_ns == judged_s * SECOND
    assert span.t1_ns == T0_NS + 42 * SECOND


@pytest.mark.parametrize(
    ("later_ms", "idle_ms"), [(0, 0), (900, 0), (1_100, 1_100), (5_000, 5_000)]
)
def test_a_short_pause_at_the_end_may_not_have_been_reported_yet(later_ms, idle_ms):
    timeline, run = Timeline(), Run().steps(20)
    for frame in run.frames:
        timeline.add(frame)
    assert timeline.last_ns is not None and timeline.observed is None
    span = verdict.current(timeline, timeline.last_ns + later_ms * 1_000_000)
    assert span is not None and span.t1_ns - timeline.last_ns == idle_ms * 1_000_000


def test_calls_of_a_burst_before_the_window_launch_nothing_in_it():
    """Ids start anew with each burst, and not every activity has its call recorded."""
    timeline = Timeline()
    for number in range(3):
        run = Run(T0_NS + number * SECOND).steps(3)
        for frame in run.frames:
            timeline.add(frame)
        traced = np.array([(T0_NS + number * SECOND, run.now_ns, 0, 0)], OBSERVED)
        timeline.add(Frame(Kind.OBSERVED, traced, run.now_ns))
    for begin_ns, bursts in ((T0_NS, 3), (T0_NS + SECOND // 2, 2), (T0_NS + 3 * SECOND // 2, 1)):
        window = timeline.window(Span(begin_ns, T0_NS + 3 * SECOND), 0)
        assert window.observed is not None and len(window.observed) == bursts
        assert len(window.calls) == len(window.activities) == bursts * 3 * 11
    assert int(window.calls.starts_ns.min()) >= T0_NS + 2 * SECOND


def test_a_trace_whose_clock_begins_with_it_keeps_its_first_call():
    timeline = Timeline()
    rows = np.zeros(2, CALL)
    rows["start_ns"], rows["end_ns"] = (0, 100), (50, 150)
    timeline.add(Frame(Kind.CALLS, rows, 200))
    assert timeline.window(Span(0, 200), 0).calls.starts_ns.tolist() == [0, 100]


def looked_at_once(stepped: bool) -> list[Frame]:
    """The kernels of one step, traced by a burst in which no step ended, of a trainer that had
    ended one before or of one that nobody saw step."""
    run = Run().steps(1)
    frames = [frame for frame in run.frames if frame.kind != Kind.MARKS]
    if stepped:
        before = (T0_NS - SECOND, T0_NS - SECOND, 1, 1, 0, MarkClass.STEP, 0, 0)
        frames.insert(3, Frame(Kind.MARKS, np.array([before], MARK), T0_NS))
    traced = np.array([(T0_NS, run.now_ns, 0, 0)], OBSERVED)
    return [*frames, Frame(Kind.OBSERVED, traced, run.now_ns)]


def test_a_part_of_a_step_is_no_verdict_while_a_whole_one_is_to_come():
    frames = looked_at_once(stepped=True)
    later = Run(T0_NS + 5 * SECOND).steps(3)
    traced = np.array([(T0_NS + 5 * SECOND, later.now_ns, 0, 0)], OBSERVED)
    frames += [*later.frames[3:], Frame(Kind.OBSERVED, traced, later.now_ns)]
    begun = np.array([(T0_NS + 5 * SECOND, T0_NS + 5 * SECOND + 1_000_000, 0, 0)], OBSERVED)
    frames.insert(-1, Frame(Kind.OBSERVED, begun, T0_NS + 5 * SECOND))
    session = Session(MemorySource(frames))
    assert session.advance(T0_NS + SECOND).estimate is None
    assert session.advance(T0_NS + 5 * SECOND + 1_000_000).estimate is None, "told in parts"
    judged = session.advance(T0_NS + 6 * SECOND).estimate
    assert judged.steps.count == 3


def test_a_part_of_a_step_must_do_where_nothing_better_comes():
    unseen = Session(MemorySource(looked_at_once(stepped=False)))
    assert unseen.advance(T0_NS + SECOND // 2).estimate is not None
    goes_on = Frame(Kind.STATUS, {"state": "ready"}, T0_NS + 20 * SECOND)
    slow = Session(MemorySource([*looked_at_once(stepped=True), goes_on]))
    assert slow.advance(T0_NS + SECOND // 2).estimate is None
    assert slow.advance(T0_NS + 12 * SECOND).estimate is not None
    done = Session(MemorySource(looked_at_once(stepped=True)))
    assert done.advance().estimate is not None, "a file that ends there has no more to come"


def test_the_steps_around_one_burst_tell_the_pace_of_a_trainer_that_nobody_records():
    """In the burst each step of 4 ms takes 6; nothing else is traced."""
    run = Run().steps(5)
    timeline = Timeline()
    for frame in run.frames:
        if frame.kind != Kind.MARKS:
            timeline.add(frame)
    inside = T0_NS + 6_000_000 * np.arange(5)
    before, after = (
        T0_NS - 4_000_000 * np.arange(100, 0, -1),
        run.now_ns + 4_000_000 * np.arange(1, 99),
    )
    far = T0_NS - 60 * SECOND + 50_000_000 * np.arange(500)
    rows = np.zeros(len(far) + 203, MARK)
    rows["start_ns"] = rows["end_ns"] = np.concatenate((far, before, inside, after))
    rows["mark_class"] = MarkClass.STEP
    timeline.add(Frame(Kind.MARKS, rows, run.now_ns))
    timeline.add(Frame(Kind.OBSERVED, np.array([(T0_NS, run.now_ns, 0, 0)], OBSERVED), run.now_ns))
    window = timeline.window(Span(T0_NS, run.now_ns), 0)
    steps = find_steps(facts_of(window))
    assert steps.step_ns == 4_000_000
    assert steps.count == len(steps.spans) == 4, "those that were traced"
    assert steps.run_mean_ns is not None and steps.run_mean_ns < 4_300_000, "none of the burst's"
