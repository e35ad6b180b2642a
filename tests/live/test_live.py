"""A live source lets out all that arrives, in order; orders bursts; outlives its agent."""

import threading

import pytest

from brrrtop.cli.commands.replay import scenarios
from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import Freshness
from brrrtop.session import live
from brrrtop.session.live import Live, alone
from brrrtop.session.session import Session
from brrrtop.sources.recording import RecordingSource
from collectors.protocol.frames import Frame, Kind
from collectors.protocol.requests import Op
from collectors.vocabulary import Metric, StatusCode
from tests.live.agents import SECOND
from tests.live.bench import START_NS, Bench, bench, kinds, say, statuses

__all__ = ["bench"]


def test_frames_come_in_order_and_the_hello_first(bench):
    frames = bench.read(8)
    assert frames[0].kind == Kind.HELLO
    assert frames[0].body["torch"] == "2.13"
    times = [frame.sent_ns for frame in frames]
    assert times == sorted(times)
    assert {Kind.KERNELS, Kind.MARKS, Kind.GAUGES, Kind.OBSERVED, Kind.STATUS} <= kinds(frames)


def test_nothing_is_taken_for_traced_before_a_burst(bench):
    first = list(bench.source.frames(START_NS))
    (observed,) = [frame for frame in first if frame.kind == Kind.OBSERVED]
    assert len(observed.body) == 0


def test_memory_that_bursts_took_is_given_back_every_ten_seconds(bench, monkeypatch):
    given = []
    monkeypatch.setattr(live, "malloc_trim", lambda: given.append(bench.now_ns))
    bench.watch(31)
    assert len(given) == 3 and given[2] - given[1] >= live.TRIM_NS


def test_bursts_are_ordered_with_pauses_between(bench):
    bench.read(20)
    assert 3 <= bench.agent.count(Op.BURST) <= 10
    _, steps, longest_ns = next(one for one in bench.agent.orders if one[0] is Op.BURST)
    assert steps >= 0
    assert longest_ns > 0


def test_the_agent_is_told_that_we_live_whatever_the_reader_does(bench):
    agent = bench.agent
    pinged = threading.Event()
    while not pinged.is_set() and agent.count(Op.PING) < 2:
        pinged.wait(0.05)  # nobody reads the source meanwhile
    assert agent.count(Op.PING) >= 2


def test_what_watching_costs_is_a_gauge(bench):
    frames = bench.read(30)
    metrics = {int(m) for f in frames if f.kind == Kind.GAUGES for m in f.body["metric"]}
    assert {Metric.STEP_COST_SHARE, Metric.STEP_COST_ERROR_SHARE} <= metrics
    assert "pause" in str(statuses(frames)["sampling"])


def test_the_gauges_learn_the_trainers_numbering(bench):
    bench.read(1)
    assert bench.feed.matched == {0: "aa-bb"}


def test_continuous_is_an_order_and_a_tier(bench):
    bench.read(3)
    assert bench.controller.tier == "bursts"
    assert "every step" in bench.driver.continuous(True)
    assert bench.agent.orders[-1][:2] == (Op.CONTINUOUS, 1)
    assert bench.source.info.tier == "continuous"
    bench.driver.continuous(False)
    assert bench.agent.orders[-1][:2] == (Op.CONTINUOUS, 0)


def test_a_lost_agent_leaves_the_gauges_running(bench):
    bench.read(3)
    bench.agent.closed = True
    frames = bench.read(2)
    text = statuses(frames)
    assert text["tier"] == "nvml"
    assert text["state"] == "lost"
    assert "counters only" in str(text["says"])
    assert Kind.GAUGES in kinds(frames)
    assert Kind.END not in kinds(frames)
    assert not bench.source.ended
    with pytest.raises(BrrrtopError, match="nothing can be traced: the agent is gone"):
        bench.controller.continuous(True)


def test_an_agent_that_ends_while_the_trainer_runs_is_no_end(bench):
    bench.read(1)
    bench.agent.say(Frame(Kind.END, {"reason": "switched off"}, bench.now_ns))
    frames = bench.read(1)
    assert "switched off" in str(statuses(frames)["says"])
    assert Kind.END not in kinds(frames)


def test_the_end_of_the_trainer_ends_the_source(bench):
    bench.read(2)
    bench.load.trainer_running = False
    frames = bench.read(2)
    assert frames[-1].kind == Kind.END
    assert "exited" in frames[-1].body["reason"]
    assert bench.source.ended
    assert bench.watch(0.25)[0][1].freshness is Freshness.ENDED


def test_a_trainer_that_exits_is_not_first_called_a_lost_agent(bench):
    bench.read(2)
    bench.agent.closed = True
    frames = bench.read(0.25)
    bench.load.trainer_running = False
    frames += bench.read(1)
    assert "lost" not in str(statuses(frames))
    assert frames[-1].kind == Kind.END


def test_a_trainer_that_takes_long_to_exit_has_exited_in_the_end(bench):
    bench.read(2)
    bench.agent.closed = True
    bench.read(2)
    assert "its socket closed" in bench.source.info.notes[0], "as far as anybody knows"
    bench.load.trainer_running = False
    bench.read(1.5)
    assert bench.source.info.notes == ("the trainer (pid 4711) exited: exit code 1",)


def test_who_waited_for_the_trainer_is_believed_at_once(bench):
    bench.read(2)
    bench.agent.closed = True
    bench.controller.exited("the program exited: exit code 3")
    frames = bench.read(0.25)
    assert frames[-1].body == {"reason": "the program exited: exit code 3"}
    assert bench.source.info.notes == ("the program exited: exit code 3",)
    assert "lost" not in str(statuses(frames))


def test_no_burst_is_ordered_while_the_agent_cannot_trace(bench):
    bench.read(4)
    says = "torch.profiler is recording: kernel tracing waits"
    body = {"by": "agent", "tier": "nvml", "state": "yielded", "says": says}
    bench.agent.say(Frame(Kind.STATUS, body, bench.now_ns))
    assert statuses(bench.read(0.5))["says"] == says
    assert bench.controller.tier == "nvml"
    before = bench.agent.count(Op.BURST)
    bench.read(10)
    assert bench.agent.count(Op.BURST) == before
    bench.agent.say(Frame(Kind.STATUS, {**body, "state": "ready"}, bench.now_ns))
    bench.read(1.5)
    assert bench.agent.count(Op.BURST) == before + 1


def test_while_it_is_undecided_whether_anything_may_be_traced_no_burst_is_ordered(bench):
    says = "kernel tracing waits to hear whether the trainer has CUDA graphs; without torch …"
    bench.read(4)
    before = bench.agent.count(Op.BURST)
    text = statuses(say(bench, "ready", says, StatusCode.GRAPHS_UNKNOWN))
    assert (text["state"], text["tier"], bench.controller.tier) == ("ready", "nvml", "nvml")
    assert "cannot trace" in str(text["sampling"])
    bench.read(10)
    assert bench.agent.count(Op.BURST) == before
    assert bench.source.info.notes == (says,)
    say(bench, "tracing", "tracing a burst")
    say(bench, "ready", "kernel tracing is ready")
    assert bench.controller.tier == "bursts"
    bench.read(4)
    assert bench.agent.count(Op.BURST) > before


def test_gpus_alone_can_be_watched():
    bench = Bench(agent=False)
    frames = bench.read(3)
    bench.source.close()
    assert frames[0].kind == Kind.HELLO
    assert bench.source.info.tier == "nvml"
    assert {Kind.GAUGES, Kind.OBSERVED, Kind.STATUS} <= kinds(frames)
    assert bench.driver.capabilities.isdisjoint({"continuous"})


def test_closing_detaches_once_and_lets_go(bench):
    bench.read(1)
    bench.source.close()
    bench.source.close()
    assert bench.agent.count(Op.DETACH) == 1
    assert bench.agent.orders[-1][0] is Op.DETACH
    assert bench.agent.closed
    assert bench.feed.closed


def test_a_clock_set_back_is_not_a_wish_to_go_back(bench):
    bench.watch(2)
    bench.now_ns -= 5 * SECOND
    assert bench.driver.advance().freshness is not None


def test_a_paused_picture_stands_still_while_frames_are_kept(bench):
    bench.watch(4)
    bench.driver.pause()
    watch = bench.watch(3)
    assert all(one.paused for _, one in watch)
    assert len({one.now_ns for _, one in watch}) == 1
    bench.driver.resume()
    ((now_ns, fresh),) = bench.watch(0.25)
    assert fresh.now_ns == now_ns
    assert bench.source.span is None and bench.session.timeline.newest_ns >= now_ns - SECOND


def test_a_mark_while_paused_is_of_the_picture_that_is_shown():
    bench = Bench()
    for _ in range(60):
        bench.tick()
        bench.driver.advance()
    bench.driver.pause()
    shown = bench.driver.advance()
    assert shown.estimate is not None
    for _ in range(12):
        bench.tick()
        bench.driver.advance()
    assert bench.driver.mark_baseline().startswith("baseline marked ")
    marked = bench.driver.advance()
    assert marked.baseline.estimate is shown.estimate
    bench.driver.close()


def test_silence_lasts_over_a_pause_and_is_taken_back(bench):
    recorded = RecordingSource(scenarios()["unpinned-copies"])
    span = recorded.span
    session = Session(recorded, keep_ns=None)
    driver = Live([alone(bench.controller, session)], now_ns=lambda: span.t1_ns)
    kind = driver.advance().advisories[0].kind
    driver.pause()
    assert "for good: --silence" in driver.silence(kind)
    paused = driver.advance()
    assert [one.kind for one in paused.silenced] == [kind]
    assert kind not in {one.kind for one in paused.advisories}
    driver.resume()
    assert kind not in {one.kind for one in driver.advance().advisories}
    assert session.silenced == {kind}
    driver.silence(kind)
    assert driver.advance().advisories[0].kind == kind
    recorded.close()


def test_a_burst_that_somebody_asks_for_comes_before_its_time(bench):
    bench.watch(10)
    while bench.controller.governor.tracing:
        bench.watch(0.25)
    before = bench.agent.count(Op.BURST)
    assert bench.controller.governor._pause_ns > SECOND
    assert "tracing" in bench.driver.burst()
    bench.watch(0.5)
    assert bench.agent.count(Op.BURST) == before + 1
    bench.driver.continuous(True)
    with pytest.raises(BrrrtopError, match="already"):
        bench.driver.burst()


def test_without_an_agent_no_burst_can_be_asked_for():
    bench = Bench(agent=False)
    with pytest.raises(BrrrtopError, match="there is no agent in the trainer"):
        bench.driver.burst()
    bench.source.close()


def test_the_agent_rests_while_a_feed_takes_its_samples(bench):
    bench.feed.replaces_agent = True
    bench.watch(10)
    asked = bench.agent.count(Op.REST)
    assert 3 <= asked <= 4, "it rests for 5 s each time"
    bench.feed.replaces_agent = False
    bench.watch(4)
    assert bench.agent.count(Op.REST) == asked
