"""An agent that sends what nobody foresaw, and a clock that is set back: watching goes on."""

from typing import Any

import numpy as np
import pytest

from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.scheduling.governor import Governor
from brrrtop.session import verdict as verdicts
from brrrtop.session.controller import Controller
from brrrtop.session.live import Live, alone
from brrrtop.session.session import Session
from brrrtop.sources.live import LiveSource
from brrrtop.timeline.timeline import Timeline
from collectors.protocol.frames import KERNEL, MARK, Frame, Kind
from collectors.protocol.requests import Op
from collectors.vocabulary import MarkClass
from tests.live.agents import SECOND, STEP_NS, FakeFeed
from tests.live.bench import TICK_NS, Bench

pytestmark = pytest.mark.survives_faults


@pytest.fixture
def bench() -> Any:
    one = Bench()
    yield one
    one.source.close()


def says(snapshot: Snapshot) -> str:
    """Everything on the status line."""
    return " ".join([*snapshot.source.notes, *(event.says for event in snapshot.events)])


def last(bench: Bench, seconds: float) -> Snapshot:
    """The snapshot after so long."""
    return bench.watch(seconds)[-1][1]


ODD = [
    Frame(Kind.STATUS, [1, 2]), Frame(Kind.LOSS, [3]), Frame(Kind.END, "over"), Frame(Kind.DEVICE, 7),
    Frame(Kind.OPS, [3]), Frame(Kind.HELLO, None), Frame(Kind.DEVICE, {"device_id": [0]}),
    Frame(Kind.NAMES, [1]), Frame(Kind.KERNELS, None), Frame(Kind.MARKS, {}),
    Frame(Kind.STATUS, {"by": "agent", "upkeep_ns": "x"}), Frame(Kind.STATUS, {"upkeep_ns": "x"}),
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=lambda frame: f"{Kind(frame.kind).name}-{frame.body}")
def test_a_frame_that_cannot_be_taken_costs_its_agent_and_not_the_monitor(bench, odd):
    bench.watch(4)
    bench.agent.say(odd)
    snapshot = last(bench, 3)
    assert snapshot.freshness is Freshness.LIVE
    if bench.controller.tier == "nvml":  # else it was harmless as it was
        assert "counters only" in says(snapshot)
    assert snapshot.gauges


def test_a_fault_of_the_agents_connection_costs_the_agent(bench, monkeypatch):
    bench.watch(3)
    monkeypatch.setattr(bench.agent, "frames", lambda: 1 / 0)
    snapshot = last(bench, 2)
    assert bench.controller.tier == "nvml" and "counters only" in says(snapshot)
    assert snapshot.freshness is Freshness.LIVE


@pytest.mark.parametrize("where", ["add", "learn"])
def test_a_fault_of_what_follows_costs_the_agent(bench, where, monkeypatch):
    bench.watch(3)
    monkeypatch.setattr(Timeline, where, lambda *_: {}["nothing"])
    bench.tick()
    bench.driver.advance()
    monkeypatch.undo()
    snapshot = last(bench, 2)
    assert bench.controller.tier == "nvml" and "counters only" in says(snapshot)
    assert snapshot.freshness is Freshness.LIVE and snapshot.gauges


def test_a_fault_of_advice_costs_the_advice_and_is_told(bench, monkeypatch):
    monkeypatch.setattr(verdicts, "advise", lambda *_, **__: {}["nothing"])
    snapshot = last(bench, 12)
    assert snapshot.estimate is not None and not snapshot.advisories
    assert bench.controller.tier == "bursts", "the agent is none the worse for it"
    told = [one for one in snapshot.events if one.kind == "advice"]
    assert len(told) == 1 and "KeyError" in told[0].says
    monkeypatch.undo()
    assert last(bench, 12).advisories


def test_a_fault_of_deciding_costs_the_agent(bench, monkeypatch):
    bench.watch(3)
    monkeypatch.setattr(Governor, "decide", lambda *_: 1 / 0)
    assert "counters only" in says(last(bench, 2))


def test_a_fault_without_an_agent_is_no_agents():
    source = LiveSource(None, None, [FakeFeed()])  # type: ignore[list-item]
    session = Session(source)
    session.timeline.add = lambda _frame: {}["nothing"]  # type: ignore[method-assign, misc]
    with pytest.raises(KeyError):
        session.advance()
    source.close()


def test_records_of_any_bits_leave_the_monitor_watching(bench):
    chance = np.random.default_rng(5)
    bench.watch(3)
    for kind, dtype in ((Kind.MARKS, MARK), (Kind.KERNELS, KERNEL)):
        for _ in range(10):
            noise = chance.integers(0, 256, 8 * dtype.itemsize).astype(np.uint8).view(dtype)
            bench.agent.say(Frame(kind, noise, bench.now_ns))
            bench.watch(0.5)
    assert last(bench, 1).freshness is Freshness.LIVE
    assert bench.controller.tier == "bursts"


def set_back(bench: Bench, by_ns: int) -> None:
    """CLOCK_REALTIME falls, for the trainer as for us."""
    bench.now_ns -= by_ns
    bench.agent._now_ns -= by_ns
    bench.agent._stepped_ns -= by_ns
    bench.agent._tracing = None


@pytest.mark.parametrize("by_s", [3, 86_400 * 365])
def test_a_clock_set_back_does_not_blank_the_view(bench, by_s):
    before = last(bench, 20)
    assert before.estimate is not None
    set_back(bench, by_s * SECOND)
    bursts = bench.agent.count(Op.BURST)
    after = last(bench, 30)
    assert bench.controller.tier == "bursts"
    assert after.freshness is Freshness.LIVE and after.gauges
    assert bench.agent.count(Op.BURST) > bursts
    assert after.estimate is not None and after.estimate.account.busy_ns > 0
    assert abs(after.estimate.span.t1_ns - bench.now_ns) < 30 * SECOND
    assert abs(after.now_ns - bench.now_ns) < 4 * SECOND


def test_one_frame_of_the_far_future_holds_nothing_back(bench):
    bench.watch(8)
    bench.agent.say(Frame(Kind.STATUS, {"by": "agent", "state": "ready", "says": "odd"}, 1 << 62))
    marks = np.zeros(1, MARK)
    marks["start_ns"] = marks["end_ns"] = 1 << 61
    marks["mark_class"] = MarkClass.STEP
    bench.agent.say(Frame(Kind.MARKS, marks, 1 << 62))
    snapshot = last(bench, 20)
    assert snapshot.freshness is Freshness.LIVE
    assert abs(snapshot.estimate.span.t1_ns - bench.now_ns) < 20 * SECOND
    assert bench.controller.governor.cost.step_ns == STEP_NS
    newest = bench.session.timeline.newest_ns
    assert newest is not None and newest <= bench.now_ns + TICK_NS


def test_frames_that_come_out_are_never_stamped_after_now(bench):
    for stamp in (1 << 62, bench.now_ns + 3600 * SECOND, 1, bench.now_ns - 3600 * SECOND):
        bench.agent.say(
            Frame(Kind.STATUS, {"by": "agent", "state": "ready", "says": str(stamp)}, stamp)
        )
        for frame in bench.read(1):
            assert abs(frame.sent_ns - bench.now_ns) <= 310 * SECOND


def test_a_watching_driver_follows_a_fall_and_waits_for_a_small_one():
    now = [1_000 * SECOND]
    source = LiveSource(None, None, [FakeFeed()], now_ns=lambda: now[0])  # type: ignore[list-item]
    driver = Live([alone(Controller(source))], now_ns=lambda: now[0])
    driver.advance()
    now[0] -= 2 * SECOND
    assert driver.advance().now_ns > 1_000 * SECOND
    now[0] -= 60 * SECOND
    assert driver.advance().now_ns == now[0]
    source.close()
