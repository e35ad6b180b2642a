"""Coming, staying, leaving: monitors, forks, exits, other profilers."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.protocol import requests
from collectors.protocol.frames import Kind
from tests.agent.rig import PATIENCE_S, Monitor, Trainer

Connect = Callable[[Trainer], Monitor]
HANGS_S = 90
"""What waits for that comes later than all that is waited for."""
STOP, CAME, GONE, TRACING, TRACED, ENDED = 1, 8, 16, 64, 128, 256


def test_hello_says_who_and_what(trainer, connect):
    monitor = connect(
        trainer.load().start(hello='{"pid": 42, "wire": 1, "cmdline": "träin \\"x\\""}')
    ).ready()
    hello = monitor.of(Kind.HELLO)[-1].body
    assert (hello["pid"], hello["wire"], hello["cmdline"]) == (42, 1, 'träin "x"')
    facts = monitor.status()["cupti"]
    assert facts["version"] == 130001
    assert facts["path"] == str(trainer.built["cupti"])
    assert monitor.frames[0].kind == Kind.HELLO


def test_the_socket_is_for_its_owner_alone(trainer):
    trainer.load().start()
    assert stat.S_IMODE(trainer.socket_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(trainer.socket_path.parent.stat().st_mode) == 0o700


def test_a_folder_that_others_write_is_refused(trainer):
    trainer.socket_path.parent.mkdir()
    trainer.socket_path.parent.chmod(0o777)
    with pytest.raises(AssertionError, match="others can write"):
        trainer.load().start()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("max_buffers=zero", "from 1 to 64"),
        ("wings=2", "unknown option wings"),
        ("drain_ms", "no value"),
    ],
)
def test_options_that_make_no_sense_are_refused(trainer, options, sentence):
    with pytest.raises(AssertionError, match=sentence):
        trainer.load().start(options)
    trainer.start()


def test_a_path_too_long_or_in_use_is_refused_with_a_sentence(trainer):
    trainer.load()
    short = trainer.socket_path
    trainer.socket_path = short.parent / ("x" * 120)
    with pytest.raises(AssertionError, match="longer than"):
        trainer.start()
    short.parent.mkdir(mode=0o700)
    short.write_text("precious")
    trainer.socket_path = short
    with pytest.raises(AssertionError, match="not a socket of ours"):
        trainer.start()
    assert short.read_text() == "precious"


def test_starting_twice_is_starting_once(trainer, connect):
    trainer.load().start().start()
    connect(trainer).ready()
    assert trainer.do("answer = threading.active_count()") == 1, "no Python thread of ours"


def test_the_agent_waits_for_cuda_and_begins_by_itself(trainer, connect):
    monitor = connect(trainer.load(cuda=False).start())
    monitor.send(requests.continuous(True))
    assert "waiting for the trainer to touch its GPU" in monitor.in_state("waiting")["says"]
    assert trainer.do("answer = cupti.fake_calls(0)") == 0, "no CUPTI call before CUDA is there"
    trainer.do(f"cuda = load({str(trainer.built['cuda'])!r}); cuda.fake_cuda_awake(0)")
    time.sleep(0.7)
    assert trainer.do("answer = cupti.fake_calls(0)") == 0, "mapped is not awake"
    trainer.do("cuda.fake_cuda_awake(1)")
    monitor.in_state("tracing")


def test_without_a_libcupti_counters_remain_and_one_that_comes_is_taken(trainer, connect):
    trainer.do(f"cuda = load({str(trainer.built['cuda'])!r})")
    trainer.do(f"lib = agent({str(trainer.built['agent'])!r})")
    monitor = connect(trainer.start())
    status = monitor.in_state("absent")
    assert status["tier"] == "nvml" and "no libcupti is mapped" in status["says"]
    trainer.do(f"cupti = fake({str(trainer.built['cupti'])!r})")
    monitor.in_state("ready")


def test_two_copies_of_cupti_are_refused_by_name(trainer, connect):
    trainer.load().do(f"second = load({str(trainer.built['second'])!r})")
    trainer.start()
    says = connect(trainer).in_state("off")["says"]
    assert str(trainer.built["cupti"]) in says and str(trainer.built["second"]) in says


def test_of_two_copies_the_one_that_torch_uses_is_taken(trainer, connect):
    trainer.load().do(f"second = load({str(trainer.built['second'])!r})")
    trainer.do(f"torch = load({str(trainer.built['torch'])!r})")
    trainer.start()
    facts = connect(trainer).in_state("ready")["cupti"]
    assert facts["path"] == str(trainer.built["second"])


def test_the_copy_that_triton_carries_is_not_it(trainer, connect):
    trainer.load().do(f"second = load({str(trainer.built['triton'])!r})")
    trainer.start()
    facts = connect(trainer).in_state("ready")["cupti"]
    assert facts["path"] == str(trainer.built["cupti"])


def test_another_nvidia_tool_in_the_trainer_is_left_alone(trainer, connect):
    trainer.load().do(f"tool = load({str(trainer.built['sanitizer'])!r})")
    trainer.start()
    assert "libsanitizer-collection" in connect(trainer).in_state("off")["says"]
    assert trainer.do("answer = cupti.fake_calls(0)") == 0


def test_a_cupti_before_12_6_gives_kernels_without_calls(trainer, connect):
    monitor = connect(trainer.load(version=22, cupti="older").start())
    assert "without launch and sync calls" in monitor.in_state("ready")["says"]
    monitor.trace(longest_s=0.1)
    trainer.do("cupti.fake_launch(name('k'), 20, 100, 0, 7)")
    assert monitor.traced() == {
        "kernels": 20,
        "steps": 0,
        "whole": True,
        "launches": None,
    }
    assert monitor.rows(Kind.CALLS) is None


def test_the_agent_retracts_when_the_monitor_leaves(trainer, connect):
    monitor = connect(trainer.load().start())
    monitor.trace_all()
    trainer.bits_until(CAME | TRACING)
    monitor.close()
    trainer.bits_until(GONE | STOP)
    trainer.until("answer = [cupti.fake_enabled(k) for k in (1, 2, 10)]", [0, 0, 0])
    trainer.until("answer = cupti.fake_attribute(2)", 250)  # it is given back
    before = trainer.do("answer = time.process_time_ns()")
    time.sleep(0.5)
    assert trainer.do("answer = time.process_time_ns()") - before < 20_000_000, "asleep"


def test_a_killed_monitor_is_as_good_as_gone_and_the_next_one_is_welcome(trainer, connect):
    trainer.load().start()
    code = (
        "import socket,sys,time; sys.path.insert(0, sys.argv[2]); from collectors.protocol import requests as control\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        "s.send(control.continuous(True)); print('on', flush=True); time.sleep(60)"
    )
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", code, str(trainer.socket_path), root]
    victim = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert victim.stdout is not None and victim.stdout.readline() == b"on\n"
    trainer.bits_until(TRACING)
    victim.send_signal(signal.SIGKILL)
    trainer.bits_until(GONE | STOP)
    victim.wait(5)
    victim.stdout.close()
    monitor = connect(trainer)
    trainer.bits_until(CAME)
    monitor.in_state("ready")
    monitor.trace(longest_s=0.1)
    trainer.do("cupti.fake_launch(name('k'), 20, 100, 0, 7)")
    assert monitor.traced()["kernels"] == 20


def test_nobody_watching_for_long_ends_the_agent(trainer):
    trainer.load().start("idle_retract_ms=200")
    trainer.bits_until(ENDED)
    assert not trainer.socket_path.exists()
    trainer.start()


def test_two_monitors_share_one_agent(trainer, connect):
    first = connect(trainer.load().start()).ready()
    first.trace(longest_s=0.1)
    trainer.do("cupti.fake_launch(name('early'), 20, 100, 0, 7)")
    first.traced()
    second = connect(trainer).ready()
    second.trace_all()
    trainer.do("cupti.fake_launch(name('late'), 30, 100, 0, 7)")
    second.send(requests.continuous(False))
    second.traced()
    first.until(lambda m: m.count(Kind.KERNELS) == 50)
    assert second.count(Kind.KERNELS) == 30
    known = second.names()
    assert {known[i] for i in second.rows(Kind.KERNELS)["name_id"]} == {"late"}
    assert "early" in known.values(), "names from before are told to who comes later"
    second.send(requests.detach())
    second.until(lambda m: m.ended)
    assert trainer.wait_bits(300) & STOP == 0, "one of two leaves: only it leaves"
    first.burst(longest_s=0.1)
    trainer.do("time.sleep(0.05); cupti.fake_launch(name('after'), 5, 100, 0, 7)")
    first.until(lambda m: m.count(Kind.KERNELS) == 55)


def test_a_fifth_monitor_is_turned_away(trainer, connect):
    trainer.load().start()
    four = [connect(trainer) for _ in range(4)]
    for monitor in four:
        monitor.in_state("ready")
    fifth = connect(trainer)
    fifth.until(lambda m: m.ended)
    assert fifth.frames == []


def test_a_monitor_that_talks_nonsense_is_let_go(trainer, connect):
    trainer.load().start()
    other, monitor = connect(trainer), connect(trainer)
    other.in_state("ready")
    monitor.send(b"GET / HTTP/1.1\r\n\r\n" * 4)
    monitor.until(lambda m: m.ended)
    other.send(requests.control(requests.Op.PING, 1))
    seen = len(other.of(Kind.STATUS))
    other.until(lambda m: len(m.of(Kind.STATUS)) > seen)


def test_orders_split_anywhere_are_understood(trainer, connect):
    monitor = connect(trainer.load().start()).ready()
    for byte in requests.burst(1, 10**9) + requests.control(requests.Op.PING, 1):
        monitor.send(bytes([byte]))
    seen = len(monitor.of(Kind.STATUS))
    monitor.until(lambda m: len(m.of(Kind.STATUS)) > seen)
    assert trainer.bits_until(TRACING) & TRACING


def test_a_monitor_that_does_not_read_costs_no_memory_and_hears_of_its_loss(trainer, connect):
    slow = connect(trainer.load().start("outbox_bytes=262144;flush_ms=20")).ready()
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.trace_all()
    for _ in range(5):
        trainer.do("cupti.fake_launch(name('k'), 3000, 100, 0, 7)")
        time.sleep(0.1)
    assert trainer.stats()["outbox_bytes"] < 2 << 20
    slow.send(requests.continuous(False))
    slow.in_state("ready")
    slow.until(lambda m: m.losses().get("outbox"))
    got = slow.count(Kind.KERNELS) + slow.count(Kind.CALLS)
    assert 0 < got < 30_000
    assert slow.rows(Kind.OBSERVED)["flags"].any()


def test_detach_leaves_the_trainer_as_it_was(trainer, connect):
    monitor = connect(trainer.load().start())
    monitor.trace_all()
    trainer.do("cupti.fake_launch(name('k'), 20, 100, 0, 7)")
    monitor.send(requests.detach())
    assert trainer.bits_until(STOP) & GONE == 0
    assert trainer.do("answer = lib.brrr_stop()") == 0
    monitor.until(lambda m: m.of(Kind.END))
    assert monitor.count(Kind.KERNELS) == 20, "what was traced is not thrown away"
    assert not trainer.socket_path.exists()
    trainer.until("answer = 'brrrtop-agent\\n' in comms()", False)
    assert trainer.do("answer = [cupti.fake_enabled(k) for k in (1, 2, 10)]") == [0, 0, 0]
    trainer.do("cupti.fake_launch(name('k'), 20, 100, 0, 7); cupti.fake_foreign_buffer()")
    trainer.start()
    connect(trainer).in_state("ready")


def test_a_python_side_that_never_answers_does_not_keep_the_agent(trainer, connect):
    monitor = connect(trainer.load().start()).ready()
    monitor.send(requests.detach())
    monitor.until(lambda m: m.ended)
    trainer.until(f"answer = os.path.exists({str(trainer.socket_path)!r})", False)


def test_yield_lets_another_profiler_have_cupti_and_resume_takes_it_back(trainer, connect):
    monitor = connect(trainer.load().start()).ready()
    monitor.trace_all()
    trainer.do("cupti.fake_launch(name('k'), 20, 100, 0, 7)")
    assert trainer.do("answer = lib.brrr_yield(b'torch.profiler')") == 0
    assert trainer.do("answer = [cupti.fake_enabled(k) for k in (1, 2, 10)]") == [0, 0, 0]
    assert trainer.do("answer = cupti.fake_attribute(2)") == 250
    assert "torch.profiler is recording" in monitor.in_state("yielded")["says"]
    assert monitor.count(Kind.KERNELS) == 20
    trainer.do("cupti.fake_take_callbacks(); cupti.fake_set_attribute(9, 0)")
    monitor.burst()
    trainer.do("cupti.fake_launch(name('k'), 20, 100, 0, 7)")
    assert trainer.do("answer = lib.brrr_resume()") == 0
    monitor.until(lambda m: m.status()["state"] == "tracing")
    assert trainer.do("answer = cupti.fake_attribute(9)") == 1, "a buffer for each thread again"
    trainer.do("cupti.fake_launch(name('k'), 30, 100, 0, 7)")
    monitor.until(lambda m: m.count(Kind.KERNELS) == 50)


def test_a_forked_child_has_no_agent_and_keeps_no_socket(trainer, connect):
    monitor = connect(trainer.load().start())
    monitor.trace_all()
    trainer.do(
        "r, w = os.pipe()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    lib.brrr_mark(4, 1, 2, 3, 0, 0); lib.brrr_step(1, 2)\n"
        "    found = [lib.brrr_wait(10), lib.brrr_stop(), lib.brrr_yield(b'x')]\n"
        "    found.append(lib.brrr_name(b'n'))\n"
        "    fds = []\n"
        "    for f in os.listdir('/proc/self/fd'):\n"
        "        try: fds.append(os.readlink(f'/proc/self/fd/{f}'))\n"
        "        except OSError: pass\n"
        "    fds = [f for f in fds if 'socket' in f or 'eventfd' in f]\n"
        "    tasks = len(os.listdir('/proc/self/task'))\n"
        "    os.write(w, json.dumps([found, fds, tasks]).encode())\n"
        "    time.sleep(30)\n"
        "    os._exit(0)\n"
        "os.close(w)"
    )
    result, fds, tasks = trainer.do("answer = json.loads(os.read(r, 4096))")
    assert result == [0, 0, 0, 1] and fds == [] and tasks == 1
    trainer.do("cupti.fake_launch(name('k'), 20, 100, 0, 7)")
    monitor.until(lambda m: m.count(Kind.KERNELS) == 20)
    child = trainer.do("answer = pid")
    trainer.process.kill()
    monitor.until(lambda m: m.ended)
    os.kill(child, signal.SIGKILL)


def test_a_forked_child_may_start_an_agent_of_its_own(trainer, connect):
    trainer.load().start()
    connect(trainer).in_state("ready")
    other = trainer.folder / "child" / "agent.sock"
    trainer.do(
        "pid = os.fork()\n"
        "if pid == 0:\n"
        f"    lib.brrr_start({str(other)!r}.encode(), b'{{\"pid\": 7, \"wire\": 1}}', b'')\n"
        "    time.sleep(30)\n"
        "    os._exit(0)\n"
    )
    monitor = Monitor(other)
    try:
        monitor.in_state("ready")
        assert monitor.of(Kind.HELLO)[0].body["pid"] == 7
    finally:
        monitor.close()
        os.kill(trainer.do("answer = pid"), signal.SIGKILL)


@pytest.mark.parametrize("way", ["end", "sys.exit", "os._exit", "thread"])
def test_exits_while_tracing_are_quick_and_keep_their_code(trainer, connect, way):
    monitor = connect(trainer.load().start())
    monitor.trace_all()
    trainer.do("cupti.fake_launch(name('k'), 20, 100, 0, 7)")
    began = time.monotonic()
    if way == "end":
        assert trainer.end() == 0
    else:
        code = {
            "sys.exit": "sys.exit(7)",
            "os._exit": "os._exit(7)",
            "thread": "threading.Thread(target=lambda: [cupti.fake_launch(name('k'), 100, 9, 0, 7) "
            "for _ in range(100000)], daemon=True).start(); sys.exit(7)",
        }[way]
        trainer.process.stdin.write(json.dumps(code) + "\n")
        trainer.process.stdin.flush()
        assert trainer.process.wait(PATIENCE_S) == 7
    assert time.monotonic() - began < PATIENCE_S
    monitor.until(lambda m: m.ended)
    assert way == "os._exit" or monitor.of(Kind.END)[-1].body == {"reason": "the trainer exits"}


def test_a_cupti_that_hangs_holds_up_neither_launches_nor_marks_nor_the_exit(trainer, connect):
    monitor = connect(trainer.load().start("flush_ms=20"))
    monitor.trace_all()
    began = time.monotonic()
    trainer.do(f"cupti.fake_slow_flush({HANGS_S * 1000}); time.sleep(0.2)")
    trainer.do("train(cupti, lib, 50)")
    assert trainer.do("answer = lib.brrr_name(b'still here')") > 0
    assert trainer.do("answer = lib.brrr_yield(b'x')") == -6
    assert "still inside CUPTI" in trainer.do("answer = lib.brrr_last_error().decode()")
    assert trainer.end() == 0
    assert time.monotonic() - began < HANGS_S


def test_signals_go_to_the_trainers_own_threads(trainer, connect):
    trainer.load().start()
    connect(trainer).in_state("ready")
    blocked = trainer.do(
        "answer = [line.split()[1] for t in os.listdir('/proc/self/task')\n"
        " if open(f'/proc/self/task/{t}/comm').read() == 'brrrtop-agent\\n'\n"
        " for line in open(f'/proc/self/task/{t}/status') if line.startswith('SigBlk')]"
    )
    everything_but_kill_and_stop = 0x7FFBFEFF
    assert len(blocked) == 1
    assert int(blocked[0], 16) & everything_but_kill_and_stop == everything_but_kill_and_stop


def test_devices_and_hello_sent_before_a_monitor_came_are_kept(trainer, connect):
    trainer.load().start()
    trainer.do("lib.brrr_json(3, b'{\"device_id\": 0}')")
    trainer.do('lib.brrr_json(1, b\'{"pid": 9, "wire": 1, "torch": "2"}\')')
    time.sleep(0.1)
    monitor = connect(trainer).ready()
    assert monitor.of(Kind.HELLO)[0].body["torch"] == "2"
    assert monitor.of(Kind.DEVICE)[0].body == {"device_id": 0}
    trainer.do('lib.brrr_json(13, b\'{"tier": "probe", "state": "off", "says": "x"}\')')
    monitor.until(lambda m: m.status()["tier"] == "probe")


def test_memory_stays_within_its_cap_under_load(trainer, connect):
    monitor = connect(trainer.load().start("flush_ms=20")).ready()
    before = trainer.do("answer = int(open('/proc/self/statm').read().split()[1]) * 4096")
    monitor.trace_all()
    for _ in range(10):
        trainer.do("cupti.fake_launch(name('k'), 10000, 10, 0, 7)")
    after = trainer.do("answer = int(open('/proc/self/statm').read().split()[1]) * 4096")
    stats = trainer.stats()
    assert stats["pool_mapped"] + stats["outbox_bytes"] + stats["name_bytes"] < 28 << 20
    assert after - before < 32 << 20


def test_many_starts_and_stops_leave_nothing_behind(trainer):
    trainer.load()
    trainer.start().do("lib.brrr_stop()")
    before = trainer.do("answer = len(os.listdir('/proc/self/fd'))")
    for _ in range(30):
        trainer.start()
        monitor = Monitor(trainer.socket_path)
        monitor.send(requests.continuous(True))
        trainer.do("cupti.fake_launch(name('k'), 50, 10, 0, 7)")
        assert trainer.do("answer = lib.brrr_stop()") == 0
        monitor.close()
    assert trainer.do("answer = len(os.listdir('/proc/self/fd'))") == before
    trainer.until("answer = len(comms()) <= 2", True)  # the stand-in has a worker of its own


def test_a_wish_to_leave_is_heard_though_the_monitor_hangs_up_with_it(trainer, connect):
    monitor = connect(trainer.load().start("flush_ms=20")).ready()
    monitor.trace_all()
    trainer.do("train(cupti, lib, 100)")
    monitor.send(requests.detach())
    monitor.close()
    gone = f"train(cupti, lib, 5); answer = os.path.exists({str(trainer.socket_path)!r})"
    trainer.until(gone, False)  # it does not go on waiting for monitors
