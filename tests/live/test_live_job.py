"""Several live ranks as one job: bursts at once, the late rank named, ends and returns, real children."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from brrrtop.cli.commands import attach as verb
from brrrtop.cli.commands.export import Host, Watched
from brrrtop.cli.live import JobProcesses, LaunchedRanks
from brrrtop.cli.options import Options
from brrrtop.ledger.ledger import Ledger
from brrrtop.model.run import Run
from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.scheduling.burst import Limits
from brrrtop.scheduling.governor import Governor
from brrrtop.session import driver
from brrrtop.session.controller import Controller
from brrrtop.session.driver import Member
from brrrtop.session.job import job_of
from brrrtop.session.live import LOOK_S, Live
from brrrtop.session.session import Session
from brrrtop.sources.live import LiveSource
from brrrtop.text.causes import sentence
from collectors.attach.attach import find_agent
from collectors.attach.launch import launch
from collectors.process.candidates import ranks_of
from collectors.process.process import read
from collectors.protocol.frames import KERNEL, OBSERVED, Frame, Kind
from collectors.protocol.requests import Op
from collectors.stacks.feed import StackFeed
from tests.agent.conftest import built
from tests.attach.children import child
from tests.attach.conftest import tracing
from tests.live import agents
from tests.live.agents import SECOND, STEP_NS, FakeAgent, FakeFeed, FakeLoad

__all__ = ["built", "tracing"]

HERE = Path(__file__).parent
START_NS = 1_700_000_000 * SECOND
TICK_NS = SECOND // 4
MS = 1_000_000
WAITS = "waiting for the trainer to touch its GPU"
PATIENCE_S = 40.0


class RankAgent(FakeAgent):
    """One rank of a data-parallel job: products, then an all-reduce that ends on all ranks at once."""

    def __init__(self, now_ns: int, rank: int, late_ns: int) -> None:
        super().__init__(now_ns, pid=4000 + rank)
        self.hello |= {"rank": rank, "world": 2, "hostname": "node"}
        self._late_ns = late_ns
        self.say(Frame(Kind.NAMES, {3: "ncclDevKernel_AllReduce_Sum_f32_RING_LL"}, now_ns))

    def _report(self, start_ns: int, end_ns: int) -> None:
        steps = np.arange(start_ns // STEP_NS + 1, end_ns // STEP_NS) * STEP_NS
        products, reduces = np.zeros(len(steps), KERNEL), np.zeros(len(steps), KERNEL)
        products["start_ns"] = steps + MS // 2 + self._late_ns
        products["end_ns"] = products["start_ns"] + 6 * MS
        products["name_id"] = 1
        reduces["start_ns"], reduces["end_ns"] = products["end_ns"], steps + 19 * MS
        reduces["name_id"] = 3
        rows = np.sort(np.concatenate((products, reduces)), order="start_ns")
        rows["grid"], rows["block"], rows["stream"] = (256, 1, 1), (128, 1, 1), 7
        self._out.append(Frame(Kind.KERNELS, rows, self._now_ns))
        spans = np.array([(start_ns, end_ns, 0, 0)], OBSERVED)
        self._out.append(Frame(Kind.OBSERVED, spans, self._now_ns))


class Bench:
    """Live ranks on one clock, which the test moves."""

    def __init__(self, *late_ns: int, broken: bool = False) -> None:
        self.now_ns = START_NS
        self.agents: list[RankAgent] = []
        self.loads: list[FakeLoad] = []
        self.fresh: list[Member] = []
        ranks = [self.rank(number, late) for number, late in enumerate(late_ns)]
        if broken:
            ranks.append(Member("9", "pid 9", len(late_ns), None, "traced by gdb already"))
        for agent in self.agents:
            agent.hello["world"] = max(len(ranks), 2)
        self.job = Live(ranks, self._newcomers, now_ns=lambda: self.now_ns)

    def rank(self, number: int, late_ns: int, agent: RankAgent | None = None) -> Member:
        agent, load = agent or RankAgent(self.now_ns, number, late_ns), FakeLoad()
        self.agents.append(agent)
        self.loads.append(load)
        source = LiveSource(
            agent, agent.hello["pid"], [FakeFeed()], load,  # type: ignore[arg-type]
            None, lambda: self.now_ns,
        )  # fmt: skip
        key = f"{len(self.agents)}"
        controller = Controller(source, Governor(Limits(max_overhead=0.01 / (1 + number))))
        return Member(key, f"pid {key}", number, Session(source), controller=controller)

    def _newcomers(self) -> list[Member]:
        fresh, self.fresh = self.fresh, []
        return fresh

    def watch(self, seconds: float) -> Snapshot:
        for _ in range(max(1, int(seconds * SECOND / TICK_NS))):
            self.now_ns += TICK_NS
            for agent in self.agents:
                if not agent.closed:
                    agent.move_to(self.now_ns)
            snapshot = self.job.advance()
        return snapshot


@pytest.fixture
def late() -> Iterator[Bench]:
    bench = Bench(0, 8 * MS)
    yield bench
    bench.job.close()


@pytest.fixture
def balanced() -> Iterator[Bench]:
    bench = Bench(0, 0)
    yield bench
    bench.job.close()


def test_the_late_rank_is_named(late):
    shown = late.watch(12)
    waited = shown.job.waited_for
    assert waited is not None and waited.rank == 1 and waited.is_slow
    assert waited.late_ns == pytest.approx(8 * MS, rel=0.05)
    assert shown.source.rank == 1  # the odd one is shown first
    assert [row.rank for row in shown.job.ranks] == [1, 0]
    assert "straggler" in [one.kind for one in shown.advisories]


def test_a_rank_that_cannot_be_watched_says_why_and_may_be_the_late_one():
    bench = Bench(0, 8 * MS, broken=True)
    shown = bench.watch(12)
    assert shown.job is not None and shown.job.together_ns
    assert shown.job.ranks[2].why == "traced by gdb already"
    assert shown.job.missing == 1 and shown.job.waited_for is None
    bench.job.close()


class HiccupAgent(RankAgent):
    """Late in its first burst, as a trainer is that was just entered."""

    def _report(self, start_ns: int, end_ns: int) -> None:
        super()._report(start_ns, end_ns)
        self._late_ns = 0


def test_a_rank_that_is_late_in_one_burst_is_not_named():
    bench = Bench(0)
    bench.fresh = [bench.rank(1, 0, HiccupAgent(START_NS, 1, 8 * MS))]
    for _ in range(30):
        shown = bench.watch(1)
        assert shown.job is not None and shown.job.waited_for is None
    assert shown.job.bursts > 2
    bench.job.close()


def test_a_late_rank_is_named_after_the_second_burst_which_comes_at_once(late):
    shown = late.watch(0.5)
    while shown.job is not None and not shown.job.bursts:
        shown = late.watch(0.25)
    assert shown.job is not None and shown.job.undecided and shown.job.waited_for is None
    assert "the next one decides" in sentence(shown.job)
    shown = late.watch(3)
    assert shown.job.waited_for.rank == 1 and not shown.job.undecided


class IdleAgent(RankAgent):
    """Of a rank that has not touched its GPU."""

    def __init__(self, now_ns: int, rank: int) -> None:
        super().__init__(now_ns, rank, 0)
        body = {"state": "waiting", "says": WAITS, "tier": "nvml", "by": "agent"}
        self.say(Frame(Kind.STATUS, body, now_ns))

    def _report(self, start_ns: int, end_ns: int) -> None:
        """Nothing."""


def test_a_rank_without_a_gpu_says_what_it_waits_for_and_the_others_are_compared(late):
    late.watch(2)
    late.fresh = [late.rank(2, 0, IdleAgent(late.now_ns, 2))]
    shown = late.watch(LOOK_S + 8)
    row = next(row for row in shown.job.ranks if row.rank == 2)
    assert row.estimate is None and row.why == WAITS
    assert shown.job.together_ns and shown.job.missing == 1


def test_nobody_is_named_where_all_keep_pace(balanced):
    shown = balanced.watch(12)
    assert shown.job is not None and shown.job.together_ns
    assert shown.job.waited_for is None


def test_all_ranks_are_traced_at_the_same_time_and_no_oftener(late):
    counts = []
    for _ in range(240):
        late.watch(0.25)
        counts.append(tuple(agent.count(Op.BURST) for agent in late.agents))
    assert all(one == other for one, other in counts)
    assert counts[-1][0] >= 2


class HesitantAgent(RankAgent):
    """Its orders reach it after a step's end, those of its peers before."""

    def send(self, data: bytes) -> None:
        super().send(data)
        if self._tracing is not None and self.orders[-1][0] is Op.BURST:
            begin_ns, end_ns = self._tracing
            self._tracing = (begin_ns + agents.STEP_NS, end_ns + agents.STEP_NS)


class CompanionAgent(RankAgent):
    """Leaves once its peers were asked to leave as well."""

    peers: tuple[RankAgent, ...] = ()
    left = False

    def frames(self) -> list[Frame]:
        self.left |= self._leaves and all(one.count(Op.DETACH) for one in self.peers)
        self.closed |= self.left
        frames, self._out = self._out, []
        return frames


def test_who_decides_pays_for_the_rank_that_is_held_longest(balanced):
    balanced.watch(6)
    leader, follower = (controller.governor for _, controller in balanced.job.live)
    before_ns = leader._pause_ns
    follower.held_ns = 400 * MS
    balanced.watch(0.25)
    assert leader._pause_ns > before_ns + 200 * MS / Limits().credit_rate


def test_ranks_that_nobody_looks_at_follow_their_run_in_turns(monkeypatch):
    bench = Bench(0, 0, 0, 0)
    bench.watch(6)
    followed: list[int] = []
    now = Ledger._now
    monkeypatch.setattr(
        Ledger, "_now", lambda at, *given: followed.append(id(at)) or now(at, *given)
    )
    bench.watch(2)  # eight looks; a new verdict has the run with it
    bench.job.close()
    counts = sorted(followed.count(one) for one in set(followed))
    assert counts[-1] == 8 and max(counts[:-1]) <= 3


def test_ranks_are_compared_again_when_the_run_of_one_becomes_another(balanced, monkeypatch):
    balanced.watch(9)
    judged: list[object] = []
    monkeypatch.setattr(driver, "job_of", lambda *given: judged.append(1) or job_of(*given))
    balanced.watch(0.5)
    assert not judged
    monkeypatch.setattr(Run, "differs", lambda *_: True)
    balanced.watch(0.25)
    assert judged


def test_ranks_of_a_job_share_what_samples_take(balanced):
    balanced.watch(1)
    feeds = [feed for _, one in balanced.job.live for feed in one.source.feeds._feeds]
    assert [feed.ranks for feed in feeds] == [2, 2]
    waits: list[float] = []
    stacks = StackFeed(os.getpid())
    stacks.ranks = 3
    stacks._stop = SimpleNamespace(wait=lambda s: waits.append(s) or True)  # type: ignore[assignment]
    stacks._sample_until_stopped(None, None)  # type: ignore[arg-type]
    assert 0.06 <= waits[0] <= 0.18


def test_all_ranks_are_let_go_at_once():
    bench = Bench()
    companions = [CompanionAgent(START_NS, rank, 0) for rank in range(4)]
    ranks = [bench.rank(rank, 0, agent) for rank, agent in enumerate(companions)]
    for agent in companions:
        agent.peers = tuple(companions)
    Live(ranks).close()
    assert [agent.left for agent in companions] == [True] * 4


@pytest.mark.parametrize("second", [RankAgent, HesitantAgent])
def test_long_steps_with_one_collective_each_are_compared_within_15_s(second, monkeypatch):
    for module in (agents, sys.modules[__name__]):
        monkeypatch.setattr(module, "STEP_NS", SECOND // 2)
    bench = Bench(0)
    bench.fresh = [bench.rank(1, 0, second(START_NS, 1, 0))]
    shown = bench.watch(LOOK_S + 15)
    assert shown.job is not None and shown.job.together_ns
    bursts = [[(a, b) for op, a, b in one.orders if op is Op.BURST] for one in bench.agents]
    joint = len(bursts[1])
    assert joint and bursts[0][-joint:] == bursts[1]  # as many steps of each
    bench.job.close()


def test_nobody_is_traced_again_and_again_where_no_two_can_be_compared():
    bench = Bench(0)
    bench.fresh = [bench.rank(1, 0, IdleAgent(START_NS, 1))]
    bench.watch(LOOK_S + 55)
    assert bench.agents[0].count(Op.BURST) <= 2 + alone_bursts(60)
    bench.job.close()


def alone_bursts(seconds: float) -> int:
    """Of a rank by itself in that time."""
    bench = Bench(0)
    bench.watch(seconds)
    bench.job.close()
    return bench.agents[0].count(Op.BURST)


def test_a_rank_that_ends_leaves_the_others_and_its_row_goes_to_the_one_that_comes_back(late):
    late.watch(8)
    late.loads[1].tell_end("the trainer (pid 4001) exited: exit code 1")
    late.agents[1].close()
    shown = late.watch(3)
    assert shown.freshness is not Freshness.ENDED
    row = next(row for row in shown.job.ranks if row.rank == 1)
    assert row.why is not None
    late.fresh = [late.rank(1, 0)]
    shown = late.watch(LOOK_S + 8)
    assert [row.rank for row in shown.job.ranks].count(1) == 1
    row = next(row for row in shown.job.ranks if row.rank == 1)
    assert row.why is None and row.estimate is not None


def test_a_rank_is_opened_and_paused(late):
    shown = late.watch(10)
    other = next(row.key for row in shown.job.ranks if row.rank == 0)
    late.job.select_rank(other)
    assert late.watch(0.25).source.rank == 0
    late.job.pause()
    assert late.watch(1).paused
    late.job.resume()
    assert not late.watch(0.25).paused


def test_metrics_of_a_job_say_who_waits_and_who_is_late_until_a_rank_ends(late):
    host, key = Host(Options(), "node", lambda: late.now_ns), ("127.0.0.1", "29500", "2")
    host.watched = {}
    ranks = [one for one in late.job.members if one.controller is not None]
    for one in ranks:
        process = SimpleNamespace(pid=int(one.key), still_the_same=lambda: False)
        attached = SimpleNamespace(leave=lambda: None)
        watched = Watched(process, {"pid": one.key}, attached=attached)  # type: ignore[arg-type]
        host.watched[process.pid] = watched
        host.join(watched, one, key)

    def gauge(name: str) -> dict[str, float]:
        return {s.labels["pid"]: s.value for s in host.newest if s.name == name}

    late.job = SimpleNamespace(advance=host.advance, close=host.close)  # type: ignore[assignment]
    late.watch(12)
    assert gauge("brrrtop_up") == {"1": 1.0, "2": 1.0}
    assert gauge("brrrtop_late_seconds")["2"] == pytest.approx(0.008, rel=0.05)
    assert gauge("brrrtop_late_seconds")["1"] == 0
    waits = gauge("brrrtop_waits_for_peers_ratio")
    assert waits["1"] > 0.2 > waits["2"]
    assert gauge("brrrtop_whatif_saves_ratio").keys() == {"1", "2"}  # each one's own, shown or not
    late.loads[1].tell_end("the trainer (pid 4001) exited: exit code 1")
    late.agents[1].close()
    late.watch(3)
    assert gauge("brrrtop_up") == {"1": 1.0, "2": 0.0}
    assert list(gauge("brrrtop_step_seconds")) == ["1"]
    late.loads[0].tell_end("the trainer (pid 4000) exited: exit code 1")
    late.agents[0].close()
    late.watch(3)
    assert gauge("brrrtop_up") == {"1": 0.0, "2": 0.0} and not host.jobs


ANOTHER = """
import ctypes, sys, time
ctypes.CDLL(sys.argv[1])
print("step 3", flush=True)
time.sleep(600)
"""


@pytest.mark.timeout(150)
def test_two_real_ranks_are_found_attached_to_and_left(tracing, built, tmp_path):
    pytest.importorskip("torch")
    command = [sys.executable, str(HERE / "training.py"), str(built["cuda"]), str(built["cupti"])]
    meets = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20_000 + os.getpid() % 20_000)}
    with ExitStack() as stack:
        trainers = []
        for rank in (0, 1):
            ranks = meets | {"RANK": str(rank), "WORLD_SIZE": "2"}
            trainers.append(stack.enter_context(child(command, env=os.environ | ranks)))
        elsewhere = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        torch = shutil.copy(built["cuda"], tmp_path / "libtorch_cpu.so")
        looks_like_torch = [sys.executable, "-c", ANOTHER, torch]
        another = stack.enter_context(child(looks_like_torch, env=os.environ | elsewhere))
        for trainer in (*trainers, another):
            assert trainer.hears(b"step 3", 40), trainer.output.decode()
        pids = [trainer.pid for trainer in trainers]
        candidates = ranks_of(pids[1])
        assert [one.pid for one in ranks_of(another.pid)] == [another.pid]
        assert another.pid not in [one.pid for one in candidates], "several jobs are kept apart"
        assert [(one.pid, one.rank) for one in candidates] == list(zip(pids, (0, 1), strict=True))
        # torch never touches the stand-in GPU, so it cannot rule graphs out.
        options = Options(interval=0.25, trace_graphs=True)
        processes = JobProcesses(pids[1], options, verb.agent_files())
        job = Live(processes.open(candidates))
        try:
            end_s = time.monotonic() + PATIENCE_S
            while True:
                shown = job.advance()
                if all(row.estimate is not None for row in shown.job.ranks):
                    break
                assert time.monotonic() < end_s, [row.why for row in shown.job.ranks]
                time.sleep(0.1)
            assert {row.rank for row in shown.job.ranks} == {0, 1}
            assert shown.job.waited_for is None
        finally:
            job.close()
            processes.leave()
        for trainer in trainers:
            trainer.output = b""
            assert trainer.hears(b"step"), "the training goes on"
            assert find_agent(read(trainer.pid)) is None
        debugger = subprocess.Popen(
            [sys.executable, "-c", DEBUGGER, str(pids[0])], stdout=subprocess.PIPE
        )
        try:
            assert debugger.stdout is not None and debugger.stdout.readline() == b"holds\n"
            buffered, free = processes.open(candidates)
            assert buffered.controller is None
            assert "another debugger holds process" in (buffered.why or "")
            free.controller.source.close()
        finally:
            debugger.kill()
            debugger.communicate()
            processes.leave()


DEBUGGER = """
import sys, time
from collectors.attach.ptrace import calls
calls.request(calls.SEIZE, int(sys.argv[1]))
print("holds", flush=True)
time.sleep(100)
"""
RANK = """
import os, runpy, sys, threading, torch
torch.cuda._initialized = True
threading.Timer(14, os._exit, (0,)).start()
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
LAUNCHER = """
import os, subprocess, sys
ranks = [
    subprocess.Popen([sys.executable, *sys.argv[1:]], env=dict(os.environ, RANK=str(n), WORLD_SIZE="2"))
    for n in (0, 1)
]
for one in ranks: one.wait()
"""


@pytest.mark.timeout(150)
def test_a_launched_job_is_one_report(tracing, built):
    pytest.importorskip("torch")
    trains = [str(HERE / "training.py"), str(built["cuda"]), str(built["cupti"])]
    launched = (sys.executable, "-c", LAUNCHER, "-c", RANK, *trains)
    options = Options(command=launched, trace_graphs=True, interval=0.5)
    one = launch(launched, verb.agent_files())
    try:
        first = one.first_agent(PATIENCE_S, rank=0)
        job = LaunchedRanks(one, options).job(first, int(first.hello["pid"]))
        end_s = time.monotonic() + PATIENCE_S
        while True:
            shown = job.advance()
            rows = shown.job.ranks
            if len(rows) == 2 and all(row.estimate is not None for row in rows):
                break
            assert time.monotonic() < end_s, [row.why for row in rows]
            time.sleep(0.1)
        assert sorted(row.rank or 0 for row in rows) == [0, 1]
        job.close()
    finally:
        one.process.kill()
        one.process.wait(10)
        one.remove()
