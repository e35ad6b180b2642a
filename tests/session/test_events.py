"""The regime-shift log: each change once, at its own time, with how long it lasted."""

from functools import cache

import pytest
from msgspec.structs import replace

from brrrtop.advisories.compare import compare
from brrrtop.model.estimate import Estimate, Regime
from brrrtop.model.snapshot import Event
from brrrtop.model.tables import Span
from brrrtop.session.analyze import analyze
from brrrtop.session.events import KEPT, EventLog
from brrrtop.session.replay import Replay
from brrrtop.session.session import Session
from collectors.protocol.frames import Frame, Kind
from collectors.vocabulary import MarkClass
from tests.session.runs import SGEMM, T0_NS, Run

SECOND = 1_000_000_000


def log_of(run: Run, every_ns: int, until_ns: int | None = None) -> tuple[Event, ...]:
    """The log after looking at a steady pace."""
    session = Session(run.source(), keep_ns=None)
    end_ns = until_ns or run.now_ns
    snapshot = session.advance(T0_NS)
    for now_ns in [*range(T0_NS + every_ns, end_ns, every_ns), end_ns]:
        snapshot = session.advance(now_ns)
    return snapshot.events


def test_a_first_verdict_whose_cause_is_open_waits_for_it_but_not_for_ever():
    run = Run().steps(100)
    session = Session(run.source(), keep_ns=None)
    judged = session.advance(run.now_ns).estimate
    assert judged is not None

    def lines(*causes: str) -> list[str]:
        log = EventLog()
        for i, cause in enumerate(causes):
            seen = verdict(judged, Regime.OVERHEAD, 10 + 2 * i)
            log.update(session.timeline, replace(seen, cause=cause), T0_NS)
        return [one.says for one in log.events if one.kind == "regime"]

    assert lines("unknown") == []
    assert lines("unknown", "input") == ["WAITS FOR DATA"]
    assert lines(*["unknown"] * 4) == ["GPU IS IDLE"]


@cache
def there_and_back() -> Run:
    """Compute, then a slow loader whose workers wait for a disk, then compute again; a late line."""
    run = Run().steps(300)
    run.frames.append(Frame(Kind.STATUS, {"workers": "loader workers in disk wait"}, run.now_ns))
    run.steps(420, wait_us=20_000).steps(100)
    return run.mark(MarkClass.GC, SECOND, late_ns=SECOND // 3).steps(600)


@pytest.fixture(scope="module")
def log() -> tuple[Event, ...]:
    """Of that run, looked at once a second."""
    return log_of(there_and_back(), SECOND)


def test_a_regime_says_how_long_it_lasted_once_it_is_over(log):
    regimes = [event for event in log if event.kind == "regime"]
    assert [event.says.split(" for ")[0] for event in regimes] == [
        "COMPUTE-BOUND", "COMPUTE-BOUND → WAITS FOR DATA", "WAITS FOR DATA → COMPUTE-BOUND",
    ]  # fmt: skip
    lasted_s = float(regimes[1].says.split(" for ")[1].split()[0])
    assert abs(lasted_s - (regimes[2].t_ns - regimes[1].t_ns) / SECOND) < 0.06
    assert " for " not in regimes[2].says, "it is not over yet"


def test_a_shift_to_input_says_what_the_loader_workers_do(log):
    regimes = [event.says for event in log if event.kind == "regime"]
    assert regimes[1].startswith("COMPUTE-BOUND → WAITS FOR DATA for ")
    assert regimes[1].endswith(" s, loader workers in disk wait")
    assert "workers" not in regimes[0] + regimes[2]


def test_looking_half_as_often_tells_the_same_story(log):
    slow = log_of(there_and_back(), 2 * SECOND)
    assert [e.says.split(" for ")[0] for e in log] == [e.says.split(" for ")[0] for e in slow]
    assert all(abs(a.t_ns - b.t_ns) <= 2 * SECOND for a, b in zip(log, slow, strict=True))


def test_a_replay_at_the_same_pace_tells_the_same_log_to_the_nanosecond(log):
    ticks = iter(range(10_000))
    replay = Replay(
        Session(there_and_back().source(), keep_ns=None),
        speed=1.0,
        clock=lambda: float(next(ticks) + 1),
    )
    replay._head_ns = float(replay.span.t0_ns)
    snapshot = replay.advance()
    while (snapshot.progress or 0.0) < 1.0:
        snapshot = replay.advance()
    assert [(e.kind, e.says) for e in snapshot.events] == [(e.kind, e.says) for e in log]


def verdict(of: Estimate, regime: Regime, t1_s: float) -> Estimate:
    """A verdict on ten seconds up to then."""
    end = T0_NS + int(t1_s * SECOND)
    return replace(of, regime=regime, cause=None, span=Span(end - 10 * SECOND, end))


def test_a_window_that_is_judged_anew_makes_no_change_of_regime():
    run = Run().steps(100)
    session = Session(run.source(), keep_ns=None)
    judged = session.advance(run.now_ns).estimate
    assert judged is not None
    log = EventLog()

    def regime_lines(regime: Regime, t1_s: float) -> list[str]:
        log.update(session.timeline, verdict(judged, regime, t1_s), T0_NS)
        return [one.says.split(" for ")[0] for one in log.events if one.kind == "regime"]

    assert regime_lines(Regime.COMPUTE, 10) == ["COMPUTE-BOUND"]
    for t1_s in (20, 20, 20, 25, 25, 25):
        assert regime_lines(Regime.MEMORY, t1_s) == ["COMPUTE-BOUND"], (
            "two windows, each of them judged thrice"
        )
    assert regime_lines(Regime.MEMORY, 30) == ["COMPUTE-BOUND", "COMPUTE-BOUND → BANDWIDTH-BOUND"]


def test_a_window_that_is_judged_anew_makes_no_change_since_the_baseline():
    before = analyze(Run().steps(100).source()).estimate
    after = analyze(Run().steps(100, products=SGEMM).source()).estimate
    assert before is not None and after is not None
    result = compare(before, after)
    assert result.changes
    log = EventLog()
    for t_ns in (1, 1, 1, 2, 2, 2):
        log.compared(result, t_ns)
    assert not log.events
    log.compared(result, 3)
    assert {one.kind for one in log.events} >= {"change"}
    count = len(log.events)
    for t_ns in (3, 4, 5):
        log.compared(result, t_ns)
    assert len(log.events) == count, "told once"


def test_a_pause_that_is_told_late_is_told_once_at_its_own_time():
    run = Run().steps(100).mark(MarkClass.GC, SECOND // 2, late_ns=900_000_000)
    begun_ns = run.now_ns - SECOND // 2
    run.steps(400)
    stalls = [event for event in log_of(run, SECOND // 4) if event.kind == "stall"]
    assert [(event.t_ns, event.says) for event in stalls] == [
        (begun_ns, "garbage collection for 500 ms")
    ]


def test_events_stand_in_order_of_time(log):
    times = [event.t_ns for event in log]
    assert times == sorted(times)
    assert {event.kind for event in log} >= {"regime", "stall"}


def test_recorded_lines_take_the_place_of_those_made_up_and_may_be_told_anew():
    log = EventLog()
    log._add(T0_NS, "regime", "COMPUTE-BOUND")
    row = [7, T0_NS + 5, "regime", "memory"]
    log.hear(Frame(Kind.STATUS, {"says": "bursts"}, T0_NS))
    assert [one.says for one in log.events] == ["COMPUTE-BOUND"]
    log.hear(Frame(Kind.STATUS, {"log": [row, [3, T0_NS, "baseline", "marked"]]}, T0_NS + 6))
    assert [one.says for one in log.events] == ["marked", "memory"]
    log.hear(Frame(Kind.STATUS, {"log": [[*row[:3], "memory for 2.00 s"]]}, T0_NS + 9))
    assert [one.says for one in log.events] == ["marked", "memory for 2.00 s"]
    log.marked(T0_NS + 10, "marked in the replay")
    assert len(log.events) == 3 and max(log.lines) == 8


@pytest.mark.parametrize(
    "rubbish", [None, 7, {}, ["x"], [[1]], [[1, "a", "b", "c"]], [[1, 2, 3, 4]]]
)
def test_recorded_lines_that_make_no_sense_are_left_out(rubbish):
    log = EventLog()
    log.hear(Frame(Kind.STATUS, {"log": rubbish}, T0_NS))
    assert log.events == ()


def test_the_log_lets_go_of_its_oldest_lines():
    log = EventLog()
    for number in range(KEPT + 20):
        log._add(T0_NS + number, "stall", str(number))
    assert len(log.events) == KEPT
    assert log.events[0].says == "20"
