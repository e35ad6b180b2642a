"""A live source lets out all that arrives, in order; orders bursts; outlives its agent."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.cli.commands.demo import scenarios
from brrrtop.cli.live import left
from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.model.vocabulary import Metric
from brrrtop.protocol.frames import Decoder, Frame, Kind, WireError, encode
from brrrtop.protocol.requests import Op
from brrrtop.protocol.status import StatusCode
from brrrtop.scheduling.governor import Governor
from brrrtop.scheduling.limits import Limits
from brrrtop.session.live import LiveSession
from brrrtop.session.session import Session
from brrrtop.sources.live import LiveSource
from brrrtop.sources.recording import RecordingSource, RecordingWriter
from brrrtop.sources.writer_thread import WriterThread
from collectors.attach import agent_library
from collectors.process import load as hostload
from collectors.process.load import HostLoad
from tests.live.agents import SECOND, FakeAgent, FakeFeed, FakeLoad, gauges
from tests.memory_source import MemorySource

START_NS = 1_700_000_000 * SECOND
TICK_NS = SECOND // 4


class Bench:
    """A live source with everything around it faked, on one clock."""

    def __init__(self, *, agent: bool = True, path: Path | None = None) -> None:
        self.now_ns = START_NS
        self.agent = FakeAgent(START_NS) if agent else None
        self.feed = FakeFeed()
        self.load = FakeLoad()
        self.source = LiveSource(
            self.agent, 4711, [self.feed], self.load,  # type: ignore[arg-type]
            Governor(Limits()), RecordingWriter(path) if path else None, lambda: self.now_ns,
        )  # fmt: skip
        self.session = Session(self.source)
        self.driver = LiveSession(self.session, self.source, lambda: self.now_ns)

    def tick(self) -> None:
        self.now_ns += TICK_NS
        if self.agent is not None and not self.agent.closed:
            self.agent.move_to(self.now_ns)
        sm, power = (Metric.SM_ACTIVE, 0.7), (Metric.POWER_WATT, 500.0)
        self.feed.pending.append(gauges(self.now_ns - 1, sm, power))

    def read(self, seconds: float) -> list[Frame]:
        """All frames of that time."""
        frames: list[Frame] = []
        for _ in range(int(seconds * SECOND / TICK_NS)):
            self.tick()
            frames += self.source.frames(self.now_ns)
        return frames

    def watch(self, seconds: float) -> list[tuple[int, Snapshot]]:
        """Snapshots of that time, with the time of each."""
        watch = []
        for _ in range(int(seconds * SECOND / TICK_NS)):
            self.tick()
            watch.append((self.now_ns, self.driver.advance()))
        return watch


@pytest.fixture
def bench() -> Iterator[Bench]:
    one = Bench()
    yield one
    one.source.close()


def kinds(frames: list[Frame]) -> set[int]:
    return {frame.kind for frame in frames}


def statuses(frames: list[Frame]) -> dict[str, object]:
    """All that was said on the status line, later words over earlier ones."""
    text: dict[str, object] = {}
    for frame in frames:
        if frame.kind == Kind.STATUS:
            text.update(frame.body)
    return text


def test_frames_come_in_order_and_the_hello_first(bench: Bench) -> None:
    frames = bench.read(8)
    assert frames[0].kind == Kind.HELLO
    assert frames[0].body["torch"] == "2.13"
    times = [frame.sent_ns for frame in frames]
    assert times == sorted(times)
    assert {Kind.KERNELS, Kind.MARKS, Kind.GAUGES, Kind.OBSERVED, Kind.STATUS} <= kinds(frames)


def test_nothing_is_taken_for_traced_before_a_burst(bench: Bench) -> None:
    first = list(bench.source.frames(START_NS))
    (observed,) = [frame for frame in first if frame.kind == Kind.OBSERVED]
    assert len(observed.body) == 0


def test_bursts_are_ordered_with_pauses_between(bench: Bench) -> None:
    bench.read(20)
    assert bench.agent is not None
    assert 3 <= bench.agent.count(Op.BURST) <= 10
    _, steps, longest_ns = next(one for one in bench.agent.orders if one[0] is Op.BURST)
    assert steps >= 0
    assert longest_ns > 0


def test_the_agent_is_told_that_we_live_whatever_the_reader_does(bench: Bench) -> None:
    agent = bench.agent
    assert agent is not None
    pinged = threading.Event()
    while not pinged.is_set() and agent.count(Op.PING) < 2:
        pinged.wait(0.05)  # nobody reads the source meanwhile
    assert agent.count(Op.PING) >= 2


def test_what_watching_costs_is_a_gauge(bench: Bench) -> None:
    frames = bench.read(30)
    metrics = {int(m) for f in frames if f.kind == Kind.GAUGES for m in f.body["metric"]}
    assert {Metric.STEP_COST_SHARE, Metric.STEP_COST_ERROR_SHARE} <= metrics
    assert "pause" in str(statuses(frames)["sampling"])


def test_stacks_are_wanted_only_while_the_gpu_has_time(bench: Bench) -> None:
    bench.read(1)
    assert bench.agent is not None
    bench.feed.pending.append(gauges(bench.now_ns, (Metric.SM_ACTIVE, 0.99)))
    list(bench.source.frames(bench.now_ns))
    wanted = [a for op, a, _ in bench.agent.orders if op is Op.STACKS]
    assert wanted == [1, 0]


def test_without_gpm_stacks_are_always_wanted() -> None:
    bench = Bench()
    for _ in range(40):
        bench.tick()
        bench.feed.pending.clear()
        list(bench.source.frames(bench.now_ns))
    bench.source.close()
    assert bench.agent is not None
    assert [a for op, a, _ in bench.agent.orders if op is Op.STACKS] == [1]


def test_the_gauges_learn_the_trainers_numbering(bench: Bench) -> None:
    bench.read(1)
    assert bench.feed.matched == {0: "aa-bb"}


def test_continuous_is_an_order_and_a_tier(bench: Bench) -> None:
    bench.read(3)
    assert bench.agent is not None
    assert bench.source.tier == "bursts"
    assert "every step" in bench.driver.continuous(True)
    assert bench.agent.orders[-1][:2] == (Op.CONTINUOUS, 1)
    assert bench.source.info.tier == "continuous"
    bench.driver.continuous(False)
    assert bench.agent.orders[-1][:2] == (Op.CONTINUOUS, 0)


def test_a_lost_agent_leaves_the_gauges_running(bench: Bench) -> None:
    bench.read(3)
    assert bench.agent is not None
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
        bench.source.continuous(True)


def test_an_agent_that_ends_while_the_trainer_runs_is_no_end(bench: Bench) -> None:
    bench.read(1)
    assert bench.agent is not None
    bench.agent.say(Frame(Kind.END, {"reason": "switched off"}, bench.now_ns))
    frames = bench.read(1)
    assert "switched off" in str(statuses(frames)["says"])
    assert Kind.END not in kinds(frames)


def test_the_end_of_the_trainer_ends_the_source(bench: Bench) -> None:
    bench.read(2)
    bench.load.trainer_running = False
    frames = bench.read(2)
    assert frames[-1].kind == Kind.END
    assert "exited" in frames[-1].body["reason"]
    assert bench.source.ended
    assert bench.watch(0.25)[0][1].freshness is Freshness.ENDED


def test_a_trainer_that_exits_is_not_first_called_a_lost_agent(bench: Bench) -> None:
    bench.read(2)
    assert bench.agent is not None
    bench.agent.closed = True
    frames = bench.read(0.25)
    bench.load.trainer_running = False
    frames += bench.read(1)
    assert "lost" not in str(statuses(frames))
    assert frames[-1].kind == Kind.END


def test_a_trainer_that_takes_long_to_exit_has_exited_in_the_end(bench: Bench) -> None:
    bench.read(2)
    assert bench.agent is not None
    bench.agent.closed = True
    bench.read(2)
    assert "its socket closed" in bench.source.info.notes[0], "as far as anybody knows"
    bench.load.trainer_running = False
    bench.read(1.5)
    assert bench.source.info.notes == ("the trainer (pid 4711) exited: exit code 1",)


def test_who_waited_for_the_trainer_is_believed_at_once(bench: Bench) -> None:
    bench.read(2)
    assert bench.agent is not None
    bench.agent.closed = True
    bench.source.exited("the program exited: exit code 3")
    frames = bench.read(0.25)
    assert frames[-1].body == {"reason": "the program exited: exit code 3"}
    assert bench.source.info.notes == ("the program exited: exit code 3",)
    assert "lost" not in str(statuses(frames))


def test_no_burst_is_ordered_while_the_agent_cannot_trace(bench: Bench) -> None:
    bench.read(4)
    assert bench.agent is not None
    says = "torch.profiler is recording: kernel tracing waits"
    body = {"by": "agent", "tier": "nvml", "state": "yielded", "says": says}
    bench.agent.say(Frame(Kind.STATUS, body, bench.now_ns))
    assert statuses(bench.read(0.5))["says"] == says
    assert bench.source.tier == "nvml"
    before = bench.agent.count(Op.BURST)
    bench.read(10)
    assert bench.agent.count(Op.BURST) == before
    bench.agent.say(Frame(Kind.STATUS, {**body, "state": "ready"}, bench.now_ns))
    bench.read(1.5)
    assert bench.agent.count(Op.BURST) == before + 1


def test_while_it_is_undecided_whether_anything_may_be_traced_no_burst_is_ordered(
    bench: Bench,
) -> None:
    says = "kernel tracing waits to hear whether the trainer has CUDA graphs; without torch …"
    assert bench.agent is not None
    bench.read(4)
    before = bench.agent.count(Op.BURST)
    text = statuses(say(bench, "ready", says, StatusCode.GRAPHS_UNKNOWN))
    assert (text["state"], text["tier"], bench.source.tier) == ("ready", "nvml", "nvml")
    assert "cannot trace" in str(text["sampling"])
    bench.read(10)
    assert bench.agent.count(Op.BURST) == before
    assert bench.source.info.notes == (says,)
    say(bench, "tracing", "tracing a burst")
    say(bench, "ready", "kernel tracing is ready")
    assert bench.source.tier == "bursts"
    bench.read(4)
    assert bench.agent.count(Op.BURST) > before


CODES = {
    "ready": StatusCode.READY,
    "tracing": StatusCode.TRACING,
    "waiting": StatusCode.GPU_UNTOUCHED,
}


def say(bench: Bench, state: str, says: str, code: StatusCode | None = None) -> list[Frame]:
    assert bench.agent is not None
    code = code or CODES.get(state, StatusCode.CUPTI_FAILED)
    body = {"by": "agent", "state": state, "code": code.value, "says": says, "cupti": None}
    bench.agent.say(Frame(Kind.STATUS, body, bench.now_ns))
    return bench.read(1)


def test_bursts_are_no_news(bench: Bench) -> None:
    text = {
        "ready": "kernel tracing is ready",
        "tracing": "tracing a burst",
        "yielded": "torch.profiler is recording: kernel tracing waits",
    }
    states = ("ready", "tracing", "ready", "yielded", "ready", "tracing")
    words = [statuses(say(bench, state, text[state])).get("says") for state in states]
    assert words == [text["ready"], None, None, text["yielded"], text["ready"], None]


def test_what_keeps_the_agent_from_tracing_is_a_note_until_it_traces(bench: Bench) -> None:
    say(bench, "waiting", "waiting for the trainer to touch its GPU")
    assert bench.source.info.notes == ("waiting for the trainer to touch its GPU",)
    assert bench.source.info.waits == set(bench.source.info.notes)
    say(bench, "ready", "kernel tracing is ready")
    assert bench.source.info.notes == ()
    graphs = "kernel tracing waits to hear whether the trainer has CUDA graphs"
    assert statuses(say(bench, "ready", graphs, StatusCode.GRAPHS_UNKNOWN))["says"] == graphs, (
        "and a line of the log"
    )
    bench.feed.says = ["no GPM"]
    assert bench.source.info.notes == (graphs, "no GPM")
    say(bench, "tracing", "tracing a burst")
    assert bench.source.info.notes == ("no GPM",)
    assert bench.source.info.gauges == {"no GPM"}


def met_with(bench: Bench, *missing: str) -> None:
    """As if the agent had met a trainer of which it could not say this."""
    assert bench.agent is not None
    for key in missing:
        bench.agent.hello.pop(key)
        bench.source._hello.pop(key)


def test_a_torch_without_cuda_is_not_said_to_touch_a_gpu_soon(bench: Bench) -> None:
    met_with(bench, "cuda")
    text = statuses(say(bench, "waiting", "waiting for the trainer to touch its GPU"))["says"]
    assert "torch (2.13) is built without CUDA" in str(text)
    assert bench.source.info.notes == (text,)
    say(bench, "ready", "kernel tracing is ready")
    assert bench.source.info.notes == (), "something else in it did use a GPU"


def test_keys_that_trace_say_why_not_where_no_kernels_will_come(bench: Bench) -> None:
    """A trainer on the CPU was said to be traced in every step."""
    met_with(bench, "cuda")
    say(bench, "waiting", "waiting for the trainer to touch its GPU")
    for asked in (lambda: bench.driver.continuous(True), bench.driver.burst, bench.driver.shapes):
        with pytest.raises(BrrrtopError, match=r"traced: its torch .* without CUDA"):
            asked()
    assert bench.source.tier == "bursts" and not bench.source.governor.continuous
    say(bench, "off", "CUPTI 99 has records of a layout not known here: counters only")
    with pytest.raises(BrrrtopError, match="nothing can be traced: CUPTI 99"):
        bench.driver.burst()
    say(bench, "ready", "kernel tracing is ready")
    assert bench.driver.burst() == "tracing the next steps"


def test_a_torch_that_was_not_imported_yet_may_touch_a_gpu(bench: Bench) -> None:
    met_with(bench, "cuda", "torch")
    says = "waiting for the trainer to touch its GPU"
    assert statuses(say(bench, "waiting", says))["says"] == says


SENTENCES = {
    "off": [(StatusCode.OTHER_TOOL, "another NVIDIA tool is in the trainer (libToolsInjection64.so): kernel tracing stays off"),
            (StatusCode.TWO_CUPTIS, "two copies of CUPTI are mapped, /a and /b, and torch uses neither for certain: kernel "
            "tracing stays off"),
            (StatusCode.CUPTI_UNUSABLE, "CUPTI 99 has records of a layout not known here: counters only")],
    "absent": [(StatusCode.NO_CUPTI, "no libcupti is mapped in the trainer: counters only")],
    "blocked": [(StatusCode.CUPTI_TAKEN, "another profiler holds CUPTI (39); next try in 10 s"),
                (StatusCode.RECORDS_HELD, "no records arrive: CUPTI has kept a buffer of them for 12 s; next try in 10 s"),
                (StatusCode.NO_RECORDS, "no records arrive: another profiler owns the callbacks; next try in 10 s")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("state", "code", "says"), [(s, *one) for s in SENTENCES for one in SENTENCES[s]]
)
def test_what_stands_in_the_way_is_told_with_what_helps(
    bench: Bench, state: str, code: StatusCode, says: str
) -> None:
    message = str(statuses(say(bench, state, says, code))["says"])
    assert message.startswith(f"{says}; ") and len(message) > len(says) + 20
    assert bench.source.info.notes == (message,)


def test_the_agent_has_the_codes_that_the_monitor_decides_by() -> None:
    native_text = (agent_library.SOURCE_DIR / "status_code.h").read_text()
    assert set(re.findall(r'X\(CODE_\w+, "([a-z-]+)"\)', native_text)) == set(StatusCode)


@pytest.mark.parametrize(
    ("state", "says"), [(s, one[1]) for s in SENTENCES for one in SENTENCES[s]]
)
def test_an_agent_of_before_there_were_codes_is_told_of_with_what_helps(
    bench: Bench, state: str, says: str
) -> None:
    assert bench.agent is not None
    body = {"by": "agent", "state": state, "says": says, "cupti": None}
    (frame,) = Decoder().feed(encode(Frame(Kind.STATUS, body, bench.now_ns)))
    bench.agent.say(frame)
    message = str(statuses(bench.read(1))["says"])
    assert message.startswith(f"{says}; ") and len(message) > len(says) + 20


def test_a_limit_that_allows_nothing_is_a_note() -> None:
    governor = Governor(Limits(max_overhead=0.0))
    source = LiveSource(FakeAgent(START_NS), 4711, [], FakeLoad(), governor)  # type: ignore[arg-type]
    assert any("limit of 0" in note for note in source.info.notes)
    source.continuous(True)
    assert source.info.notes == ()
    source.close()


def test_a_stopped_trainer_is_told_with_the_command_that_helps(bench: Bench) -> None:
    bench.read(2)
    bench.load.trainer_stopped = "the trainer is stopped: kill -CONT 4711"
    assert "kill -CONT 4711" in str(statuses(bench.read(1.5))["says"])
    assert "kill -CONT 4711" in bench.source.info.notes[0]
    bench.load.trainer_stopped = None
    assert "runs again" in str(statuses(bench.read(1.5))["says"])
    assert bench.source.info.notes == ()


def test_a_part_of_the_agent_does_not_speak_for_all_of_it(bench: Bench) -> None:
    assert bench.agent is not None
    body = {"tier": "allocator", "state": "live", "says": "", "alloc_retry_count": 3}
    bench.agent.say(Frame(Kind.STATUS, body, bench.now_ns))
    text = statuses(bench.read(2))
    assert (text["alloc_retry_count"], text["tier"]) == (3, "bursts")
    assert "state" not in text
    assert "says" not in text


def test_a_burst_in_which_nothing_ran_is_answered(bench: Bench) -> None:
    bench.read(0.5)
    governor = bench.source.governor
    assert governor.tracing
    assert bench.agent is not None
    bench.agent.orders.clear()
    body = {"by": "agent", "state": "ready", "traced": {"kernels": 0, "steps": 1, "whole": True}}
    bench.agent.say(Frame(Kind.STATUS, body, bench.now_ns))
    bench.read(0.5)
    assert not governor.tracing


def test_garbage_from_the_agent_is_a_sentence(bench: Bench) -> None:
    def broken() -> list[Frame]:
        raise WireError("a frame claims 4294967295 bytes")

    assert bench.agent is not None
    bench.agent.frames = broken  # type: ignore[method-assign]
    assert "claims" in str(statuses(bench.read(1))["says"])


def test_gpus_alone_can_be_watched() -> None:
    bench = Bench(agent=False)
    frames = bench.read(3)
    bench.source.close()
    assert frames[0].kind == Kind.HELLO
    assert bench.source.info.tier == "nvml"
    assert {Kind.GAUGES, Kind.OBSERVED, Kind.STATUS} <= kinds(frames)
    assert bench.driver.can.isdisjoint({"continuous"})


def test_closing_detaches_once_and_lets_go(bench: Bench) -> None:
    bench.read(1)
    bench.source.close()
    bench.source.close()
    assert bench.agent is not None
    assert bench.agent.count(Op.DETACH) == 1
    assert bench.agent.orders[-1][0] is Op.DETACH
    assert bench.agent.closed
    assert bench.feed.closed


def plain(snapshot: Snapshot) -> str:
    """All that a snapshot shows of the trainer, and nothing of where the frames came from."""
    return repr(
        replace(
            snapshot, source=None, freshness=None, age_ns=None, progress=None, speed=None, whole_ns=None,
            paused=False,
        )  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_recording_gives_the_snapshots_that_were_seen_live(tmp_path: Path) -> None:
    bench = Bench(path=tmp_path / "run.brrr")
    seen = bench.watch(25)
    bench.source.close()
    assert seen[-1][1].estimate is not None
    replayed = RecordingSource(tmp_path / "run.brrr")
    session = Session(replayed)
    for now_ns, snapshot in seen:
        assert plain(session.advance(now_ns)) == plain(snapshot)
    assert replayed.info.torch == "2.13"
    replayed.close()


def test_what_is_in_memory_can_be_saved_and_replayed(tmp_path: Path, bench: Bench) -> None:
    seen = bench.watch(12)
    path = tmp_path / "saved.brrr"
    assert str(path) in bench.driver.save(str(path))
    replayed = RecordingSource(path)
    session = Session(replayed)
    for now_ns, _ in seen[:-1]:
        session.advance(now_ns)
    assert plain(session.advance(seen[-1][0])) == plain(seen[-1][1])
    replayed.close()
    with pytest.raises(BrrrtopError, match="exists"):
        bench.driver.save(str(path))


def test_a_full_disk_stops_the_recording_and_nothing_else(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full:
        def write(self, frame: Frame) -> None:
            raise BrrrtopError("recording to run.brrr stopped: No space left on device")

        def flush_if_due(self) -> None: ...

        def close(self) -> None: ...

    source = LiveSource(
        None,
        None,
        [bench.feed],
        bench.load,
        sink=Full(),
        now_ns=lambda: bench.now_ns,  # type: ignore[arg-type]
    )
    frames = []
    for _ in range(12):
        bench.tick()
        frames += source.frames(bench.now_ns)
        time.sleep(0.01)
    source.close()
    assert "No space left" in str(statuses(frames)["recording"])
    assert any("No space left" in note for note in source.info.notes)
    left(LiveSession(Session(source), source))
    assert "No space left" in capsys.readouterr().err
    assert Kind.GAUGES in kinds(frames)


def test_a_disk_that_hangs_costs_the_recording_only(bench: Bench) -> None:
    free = threading.Event()

    class Hung:
        def write(self, frame: Frame) -> None:
            free.wait(5)

        def flush_if_due(self) -> None: ...

        def close(self) -> None: ...

    scribe = WriterThread(Hung(), waiting_bytes=2_000)
    began = time.monotonic()
    for second in range(20):
        scribe.write(gauges(second, (Metric.POWER_WATT, 1.0)))
    assert scribe.stopped is not None
    assert "too slow" in scribe.stopped
    scribe.close(wait_s=0.2)
    assert time.monotonic() - began < 1
    free.set()


def test_whatever_fails_in_writing_is_told() -> None:
    class Broken:
        def write(self, frame: Frame) -> None:
            raise MemoryError

        def flush_if_due(self) -> None: ...

        def close(self) -> None:
            raise ValueError("no stream to end")

    scribe = WriterThread(Broken())
    scribe.write(gauges(1, (Metric.POWER_WATT, 1.0)))
    scribe.close()
    assert scribe.stopped == "recording stopped: MemoryError"


def test_a_clock_set_back_is_not_a_wish_to_go_back(bench: Bench) -> None:
    bench.watch(2)
    bench.now_ns -= 5 * SECOND
    assert bench.driver.advance().freshness is not None


def test_a_paused_picture_stands_still_while_frames_are_kept(bench: Bench) -> None:
    bench.watch(4)
    bench.driver.pause()
    watch = bench.watch(3)
    assert all(one.paused for _, one in watch)
    assert len({one.now_ns for _, one in watch}) == 1
    bench.driver.resume()
    ((now_ns, fresh),) = bench.watch(0.25)
    assert fresh.now_ns == now_ns
    newest = MemorySource(bench.source.tee.ring.frames()).span
    assert newest is not None
    assert newest.t1_ns == now_ns


def test_a_process_that_a_signal_stopped_is_seen() -> None:
    child = subprocess.Popen(["sleep", "20"])
    try:
        load = HostLoad(child.pid)
        assert load.trainer_stopped is None
        child.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 5
        while load.trainer_stopped is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert f"kill -CONT {child.pid}" in str(load.trainer_stopped)
        load.close()
    finally:
        child.kill()
        child.wait(10)


def test_the_hosts_load_is_measured() -> None:
    load = HostLoad(os.getpid())
    sum(range(2_000_000))
    rows = load.sample()
    result = {Metric(row["metric"]): float(row["value"]) for row in rows}
    assert result[Metric.MONITOR_RSS_BYTES] > 1 << 20
    assert result[Metric.TRAINER_CPU_SHARE] > 0.1
    assert set(rows["device"].tolist()) == {-1}
    assert load.trainer_running is True
    gone = HostLoad(2**22 - 1)
    assert gone.trainer_running is False
    assert Metric.TRAINER_CPU_SHARE not in {int(m) for m in gone.sample()["metric"]}
    assert np.isfinite(rows["value"]).all()


def test_a_process_that_does_a_part_of_the_work_is_counted_as_the_monitor_while_it_lives() -> None:
    busy = "print(flush=True)\nwhile True: pass"
    child = subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline()
        load = HostLoad()
        alone = _measured(load)
        first, both = _measured(load, child.pid), _measured(load, child.pid)
        assert both[Metric.MONITOR_CPU_SHARE] > max(0.1, 2 * alone[Metric.MONITOR_CPU_SHARE])
        assert first[Metric.MONITOR_RSS_BYTES] > alone[Metric.MONITOR_RSS_BYTES] + (1 << 20)
    finally:
        child.kill()
        child.wait(10)
    left = _measured(load, child.pid)
    assert left[Metric.MONITOR_CPU_SHARE] < 0.5 * both[Metric.MONITOR_CPU_SHARE]
    assert left[Metric.MONITOR_RSS_BYTES] < first[Metric.MONITOR_RSS_BYTES] - (1 << 20)


def test_a_helper_has_no_share_before_its_second_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick of 10 ms that falls between two looks at it within 50 us would be 200 cores."""

    class Share:
        rss_bytes = 1 << 20

        def __init__(self, pid: int | None = None) -> None:
            self.is_helper = pid == 77

        def share(self) -> float:
            return 200.0 if self.is_helper else 0.1

    monkeypatch.setattr(hostload, "CpuShare", Share)
    load = HostLoad()
    assert _measured(load, 77)[Metric.MONITOR_CPU_SHARE] == 0.1
    assert _measured(load, 77)[Metric.MONITOR_CPU_SHARE] == pytest.approx(200.1)


def _measured(load: HostLoad, *helpers: int) -> dict[Metric, float]:
    time.sleep(0.2)
    return {Metric(row["metric"]): float(row["value"]) for row in load.sample(helpers)}


def test_a_mark_while_paused_is_of_the_picture_that_is_shown() -> None:
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
    assert "baseline" in bench.driver.can
    assert bench.driver.mark_baseline().startswith("baseline marked ")
    marked = bench.driver.advance()
    assert marked.baseline is not None
    assert marked.baseline.estimate is shown.estimate
    bench.driver.close()


def test_silence_lasts_over_a_pause_and_is_taken_back(bench: Bench) -> None:
    recorded = RecordingSource(scenarios()["unpinned-copies"])
    span = recorded.span
    assert span is not None
    session = Session(recorded, keep_ns=None)
    driver = LiveSession(session, bench.source, lambda: span.t1_ns)
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


def test_a_burst_that_somebody_asks_for_comes_before_its_time(bench: Bench) -> None:
    bench.watch(10)
    assert bench.agent is not None
    while bench.source.governor.tracing:
        bench.watch(0.25)
    before = bench.agent.count(Op.BURST)
    assert bench.source.governor._pause_ns > SECOND
    assert "tracing" in bench.driver.burst()
    bench.watch(0.5)
    assert bench.agent.count(Op.BURST) == before + 1
    bench.driver.continuous(True)
    with pytest.raises(BrrrtopError, match="already"):
        bench.driver.burst()


def test_without_an_agent_no_burst_can_be_asked_for() -> None:
    bench = Bench(agent=False)
    with pytest.raises(BrrrtopError, match="there is no agent in the trainer"):
        bench.driver.burst()
    bench.source.close()
