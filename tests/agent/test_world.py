"""A process that tells nobody when it launches nothing is switched while all of it is held."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.attach import client
from collectors.attach.attach import Attached
from collectors.process import process as processes
from collectors.protocol import requests
from collectors.protocol.frames import Kind
from tests.agent.rig import Monitor, Trainer
from tests.attach.fuse_server import late_file
from tests.waits import BEGIN, odd_waits, read_report

Connect = Callable[[Trainer], Monitor]
TURNS = 4
ON = "answer = sum(cupti.fake_enabled(k) for k in (1, 2, 4, 5, 10))"
BESIDE = "answer = cupti.fake_beside()"


def allowed(trainer: Trainer, connect: Connect) -> Monitor:
    """An agent of which nobody has said that the trainer has torch, and which may trace all the same."""
    trainer.load().start("flush_ms=20", graphs=True)
    trainer.do(f"launchers = load({str(trainer.built['launchers'])!r}); cupti.fake_slow_switch(30)")
    monitor = connect(trainer)
    monitor.send(requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.GRAPHS))
    monitor.in_state("ready")
    return monitor


@pytest.mark.parametrize(
    ("threads", "inside_us", "outside_us", "longest_us"),
    [(1, 20, 20, 20), (4, 20, 200, 20), (2, 50, 200, 20_000)],
    ids=["one thread", "four threads", "one is nearly always inside"],
)
def test_many_threads_launch_and_none_while_cupti_is_switched(
    trainer,
    connect,
    threads,
    inside_us,
    outside_us,
    longest_us,
):
    monitor = allowed(trainer, connect)
    trainer.do(
        f"launchers.launchers_begin(cupti.fake_api, {threads}, {inside_us}, {outside_us}, {longest_us})"
    )
    for turn in range(TURNS):
        monitor.burst(longest_s=0.1)
        monitor.traced(turn + 1)
    assert trainer.do("answer = launchers.launchers_end()") == 0, "disturbed"
    assert trainer.do(BESIDE) == 0
    assert trainer.do(ON) == 0
    assert monitor.count(Kind.KERNELS) > 100
    assert all(burst["held_us"]["on"] > 0 for burst in monitor.bursts)


def test_a_thread_whose_signal_handler_interrupted_a_launch_is_inside(trainer, connect):
    monitor = allowed(trainer, connect)
    trainer.do("launchers.launchers_begin_signalled(cupti.fake_api, 3, 200, 400)")
    for turn in range(TURNS):
        monitor.burst(longest_s=0.1)
        monitor.traced(turn + 1)
    assert trainer.do("answer = launchers.launchers_end()") == 0, "disturbed"
    assert trainer.do(BESIDE) == 0


@pytest.mark.parametrize(
    "rounds", [1, pytest.param(625, marks=[pytest.mark.soak, pytest.mark.timeout(3000)])]
)
def test_no_system_call_of_a_held_thread_ends_in_eintr_nor_keeps_the_burst_away(
    trainer, connect, rounds
):
    monitor = allowed(trainer, connect)
    trainer.do(BEGIN.format(library=str(trainer.built["waits"]), limit_ms=5))
    trainer.do("launchers.launchers_begin(cupti.fake_api, 2, 20, 200, 20)")
    for _ in range(rounds):
        for turn in range(2 * TURNS):
            monitor.burst(longest_s=0.002)
            monitor.traced(turn + 1)
        monitor.frames.clear()
    assert trainer.do("answer = launchers.launchers_end()") == 0
    assert trainer.do(BESIDE) == 0
    told = trainer.do("answer = report(); waiting.waits_end()")
    assert len(read_report(told)) > 30
    assert odd_waits(told) == {}


def test_a_file_that_is_being_closed_is_saved(trainer, connect, tmp_path):
    """On a file system that ends the calls of an interrupted thread, as gcsfuse does."""
    monitor = allowed(trainer, connect)
    with late_file(tmp_path) as path:
        trainer.do(WRITING.replace("PATH", repr(os.fsencode(path))))
        for turn in range(2 * TURNS):
            monitor.burst(longest_s=0.02)
            monitor.traced(turn + 1)
        cut, rounds = trainer.do("over = True; writer.join(); answer = cut, rounds")
    assert rounds > 3
    # Of a close that begins as its thread is stopped docs/faults.md tells: it cannot be made again.
    assert 2 * cut.pop("close") < rounds and cut == dict.fromkeys(cut, 0)


WRITING = """
libc, over, rounds = ctypes.CDLL(None, use_errno=True), False, 0
cut = dict.fromkeys(("open", "write", "fsync", "close"), 0)
def call(name, *given):
    ctypes.set_errno(0)
    result = getattr(libc, name)(*given)
    cut[name] += result < 0
    return result
def write():
    global rounds
    while not over:
        handle = call("open", PATH, os.O_RDWR)
        call("write", handle, b"text", 4), call("fsync", handle), call("close", handle)
        rounds += 1
writer = threading.Thread(target=write); writer.start()
"""


def test_a_time_limit_ends_a_wait_however_often_its_thread_is_held(trainer, connect):
    """But for limits of a socket (SO_RCVTIMEO), which the kernel begins anew, and for select and ppoll, of
    which it keeps the rest: the hold does not count."""
    monitor = allowed(trainer, connect)
    trainer.do(BEGIN.format(library=str(trainer.built["waits"]), limit_ms=300))
    for turn in range(20):  # each holds twice, in some 2 s
        monitor.burst(longest_s=0.02)
        monitor.traced(turn + 1)
    told = trainer.do("answer = report()")
    waits = read_report(told)
    limited = ["epoll_wait", "epoll_pwait", "epoll_pwait2", "semtimedop", "rt_sigtimedwait", "poll"]
    limited += ["io_getevents", "io_pgetevents", "nanosleep", "futex"]
    assert {
        name: waits[name] for name in limited if not 300_000 <= waits[name].longest_us <= 750_000
    } == {}
    assert odd_waits(told) == {}


def tracer_of(trainer: Trainer, limit_s: float = 20.0) -> int:
    """The process that holds the main thread, two that launch and one that waits, for some time already."""
    until = time.monotonic() + limit_s
    held_by = 0
    while time.monotonic() < until:
        before, held_by = held_by, all_held_by(trainer.process.pid)
        if held_by and before == held_by:
            return held_by
        time.sleep(0.04)
    raise AssertionError("nobody held it")


def all_held_by(pid: int) -> int:
    threads = [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    stand = [tid for tid in threads if status_of(tid, "State").startswith("t")]
    return int(status_of(pid, "TracerPid")) if len(stand) >= 4 else 0


def status_of(pid: int, name: str) -> str:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return ""
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(name + ":"))


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_threads_go_on_when_what_holds_them_is_ended_alone(trainer, connect, end):
    """And then no call of CUPTI's is made beside a launch, but for the one under way."""
    monitor = allowed(trainer, connect)
    trainer.do("cupti.fake_slow_switch(500)")  # of each of some 850 calls
    trainer.do("launchers.launchers_begin(cupti.fake_api, 2, 20, 200, 20)")
    monitor.burst(longest_s=0.1)
    os.kill(tracer_of(trainer), end)
    began = time.monotonic()
    while status_of(trainer.process.pid, "TracerPid") != "0":
        assert time.monotonic() - began < 5
    monitor.until(lambda m: m.bursts or m.status()["state"] == "off")
    trainer.until(ON, 0)
    assert trainer.do("answer = launchers.launchers_end()") == 0, "disturbed"
    assert trainer.do(BESIDE) <= (end == signal.SIGKILL)


def test_a_torch_that_has_not_spoken_yet_is_left_alone(trainer, connect):
    monitor = connect(trainer.load().start(graphs=True))
    monitor.send(requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.HOLDS))
    monitor.burst(longest_s=0.05)
    assert monitor.traced()["all_threads"]
    trainer.do("; ".join(f"load({str(trainer.built[one])!r})" for one in ("second", "torch")))
    monitor.burst(longest_s=0.05)
    monitor.until(lambda m: m.status().get("code") == "graphs-unknown")
    assert "(--trace-graphs takes the risk" in monitor.status()["says"]
    trainer.do("lib.brrr_graphs(0)")
    assert "all_threads" not in monitor.traced(2)


def test_leaving_holds_the_world_too(trainer, connect):
    monitor = allowed(trainer, connect)
    trainer.do("launchers.launchers_begin(cupti.fake_api, 3, 20, 20, 20)")
    monitor.trace_all()
    monitor.send(requests.detach())
    monitor.until(lambda m: m.ended)
    assert trainer.do(ON) == 0
    assert trainer.do("answer = launchers.launchers_end()") == 0
    assert trainer.do(BESIDE) == 0


def test_graphs_seen_in_a_program_without_torch_say_nothing_of_its_threads(trainer, connect):
    monitor = allowed(trainer, connect)
    monitor.trace_all()
    trainer.do("cupti.fake_graph(b'node', 5, 1000, 3)")
    monitor.until(lambda m: m.count(Kind.KERNELS) >= 5)
    monitor.send(requests.continuous(False))
    monitor.traced(1)
    trainer.do("launchers.launchers_begin(cupti.fake_api, 3, 20, 400, 20)")
    for turn in range(3):  # the main thread could be met: it launches nothing
        monitor.burst(longest_s=0.001)
        monitor.traced(turn + 2)
    assert trainer.do("answer = launchers.launchers_end()") == 0
    assert trainer.do(BESIDE) == 0


def test_a_switch_that_waits_for_the_device_is_held_out(trainer, connect):
    monitor = allowed(trainer, connect)
    trainer.do("launchers.launchers_begin(cupti.fake_api, 2, 20, 200, 20)")
    trainer.do("cupti.fake_slow_switch(600)")  # of each of some 850 calls
    monitor.burst(longest_s=0.5)
    monitor.traced()
    starts_ns = monitor.rows(Kind.KERNELS)["start_ns"]
    assert starts_ns.max() - starts_ns.min() > 250_000_000, "the hold is none of the burst's time"
    assert monitor.bursts[-1]["held_us"]["on"] > 300_000 and monitor.bursts[-1]["all_threads"]
    assert trainer.do("answer = launchers.launchers_end()") == 0
    assert trainer.do(BESIDE) == 0


def test_who_leaves_is_told_why_the_agent_stays(trainer, connect):
    monitor = allowed(trainer, connect)
    monitor.close()
    process = processes.read(trainer.process.pid)
    attached = Attached(
        client.connect(str(trainer.socket_path), pid=process.pid, uid=process.uid),
        process, "shared", (), None, 0,
    )  # fmt: skip
    attached.client.send(requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.GRAPHS))
    attached.client.send(requests.continuous(True))
    trainer.until("answer = cupti.fake_enabled(10)", 1)
    trainer.do("inside = threading.Thread(target=cupti.fake_stay_inside); inside.start()")
    assert not attached.leave(3.0)
    assert "no thread of the trainer is inside CUDA" in attached.stays
    trainer.do("cupti.fake_let_out(); inside.join()")
    trainer.until("answer = lib.brrr_wait(100) & 256", 256)
    assert trainer.do(ON) == 0


def left_inside(trainer: Trainer, connect: Connect) -> str:
    """A monitor leaves while it traces and a thread is inside CUDA: what the agent says to that."""
    monitor = allowed(trainer, connect)
    monitor.trace_all()
    trainer.do("inside = threading.Thread(target=cupti.fake_stay_inside); inside.start()")
    monitor.send(requests.detach())
    monitor.until(lambda m: m.status().get("code") == "no-pause")
    says = str(monitor.status()["says"])
    monitor.close()
    trainer.until("answer = stats(lib)[1]", 0)
    return says


def test_what_cannot_be_switched_off_yet_stays_on_and_goes_nowhere(trainer, connect):
    assert "no thread of the trainer is inside CUDA" in left_inside(trainer, connect)
    before = trainer.stats()
    trainer.do("cupti.fake_launch(name('unread'), 40_000, 10, 0, 7)")
    trainer.until("answer = cupti.fake_lent() <= 3", True)
    after = trainer.stats()
    assert after["kernels"] == before["kernels"], "somebody reads them"
    assert after["pool_mapped"] <= before["pool_mapped"] + (2 << 20)
    assert after["outbox_bytes"] == 0
    assert trainer.do(ON) > 0
    trainer.do("cupti.fake_let_out(); inside.join()")
    trainer.until("answer = lib.brrr_wait(100) & 256", 256)
    assert trainer.do(ON) == 0
    assert trainer.do(BESIDE) == 0


def test_who_comes_while_the_agent_stays_goes_on_with_it(trainer, connect):
    left_inside(trainer, connect)
    second = connect(trainer)
    second.in_state("tracing")  # without leave to hold the world: what is on needs it all the same
    second.send(requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.GRAPHS))
    seen = len(second.of(Kind.STATUS))
    second.burst(longest_s=0.5)
    second.send(requests.control(requests.Op.PING, 1))
    second.until(lambda m: len(m.of(Kind.STATUS)) > seen)  # the wish was heard
    trainer.do("cupti.fake_let_out(); inside.join()")
    second.until(lambda m: m.status().get("code") == "tracing")
    trainer.do("cupti.fake_launch(name('read'), 30, 100, 0, 7)")
    second.until(lambda m: m.count(Kind.KERNELS) == 30)
    second.in_state("ready")
    assert trainer.do(BESIDE) == 0
