"""The whole agent in a child: its thread, a monitor that comes and goes, forks, and no torch."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.agent.facts import VERSION

from .conftest import AGENT, HERE, clean_environment, other_python

CHILD = f"""
import gc, os, sys, threading, time
sys.path.insert(0, {str(HERE)!r})
from trainer import load_agent
load_agent()
from _brrrtop_agent import entry
before = list(gc.callbacks)
def say(*what): print(*what, flush=True)
def ask(): return [entry.start(LIBRARY, SOCKET) for _ in range(2)]
LIBRARY, SOCKET = sys.argv[1:3]
say(ask(), entry.start(LIBRARY, SOCKET, "", "9.9.9"))
for line in sys.stdin:
    if line == "hooks\\n": say(len(gc.callbacks) - len(before))
    if line == "threads\\n": say(len(threading.enumerate()), len(os.listdir("/proc/self/task")))
    if line == "stop\\n": entry.stop(); say("stopped")
    if line.startswith("elsewhere"): say(repr(entry.start(LIBRARY, SOCKET + line.split()[1])))
    if line == "fork\\n":
        pid = os.fork()
        if not pid: say(len(gc.callbacks) - len(before), entry._control); os._exit(0)
        os.waitpid(pid, 0)
"""
PATIENCE_S = 60.0


class Trainer:
    """A child with the agent in it, spoken to line by line, and its library's events and log."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.log, fifo = folder / "log", folder / "events"
        self.socket = str(folder / "socket")
        os.mkfifo(fifo)
        self._events = os.open(fifo, os.O_RDWR)
        self.child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(library), self.socket],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=clean_environment(BRRRTOP_TEST_LOG=str(self.log), BRRRTOP_TEST_EVENTS=str(fifo)),
        )
        self.started = self.hear()

    def hear(self) -> str:
        return self.child.stdout.readline().strip()

    def ask(self, what: str) -> str:
        self.child.stdin.write(what + "\n")
        self.child.stdin.flush()
        return self.hear()

    def event(self, bits: int) -> None:
        os.write(self._events, f"{bits}\n".encode())

    def hooks(self, wanted: str) -> str:
        """The number of gc hooks once it is `wanted`, or what it still is in the end."""
        end = time.monotonic() + PATIENCE_S
        while (now := self.ask("hooks")) != wanted and time.monotonic() < end:
            time.sleep(0.02)
        return now

    def logged(self, what: str, count: int) -> bool:
        """True once the library has been told `what` that often."""
        end = time.monotonic() + PATIENCE_S
        while self.log.read_text().count(what) < count and time.monotonic() < end:
            time.sleep(0.02)
        return self.log.read_text().count(what) >= count

    def close(self) -> None:
        self.child.stdin.close()
        assert self.child.wait(10) == 0
        self.child.stdout.close()
        os.close(self._events)


@pytest.fixture
def trainer(tmp_path, library: Path) -> Iterator[Trainer]:
    made = Trainer(tmp_path, library)
    yield made
    made.close()


def test_starting_twice_starts_once_and_another_version_is_refused(trainer):
    assert trainer.started.startswith(
        f"['', ''] brrrtop {VERSION} is loaded in this process already"
    )
    assert trainer.log.read_text().count("start ") == 1


def test_an_agent_that_nobody_can_reach_any_more_moves_to_the_new_socket(trainer):
    assert trainer.ask("elsewhere 2") == "''"
    assert [line.split()[0] for line in trainer.log.read_text().splitlines()] == [
        "start",
        "stop",
        "start",
    ]
    Path(trainer.socket + "2").touch()
    assert "listens at" in trainer.ask("elsewhere 3"), "somebody may be watching there"


def test_probes_come_and_go_with_the_monitor(trainer):
    assert trainer.hooks("0") == "0"
    for _ in range(2):
        trainer.event(8)
        assert trainer.hooks("1") == "1"
        trainer.event(1 | 16)
        assert trainer.hooks("0") == "0"
    trainer.event(1 | 8 | 16)  # one left and the next came before we looked
    assert trainer.hooks("1") == "1"
    assert trainer.ask("threads") == "1 2", "our thread is not one of the trainer's"
    assert trainer.logged("json 1 ", 3), "each monitor hears the newest hello"


def test_stacks_are_sampled_while_a_monitor_watches(trainer):
    begun = time.monotonic()
    trainer.event(8)
    assert trainer.logged("mark 10 ", 8)
    assert time.monotonic() - begun > 0.15, "at most 40 times a second"
    trainer.event(1 | 16)
    time.sleep(0.2)
    seen = trainer.log.read_text().count("mark 10 ")
    time.sleep(0.3)
    assert trainer.log.read_text().count("mark 10 ") == seen


def test_a_detach_stops_the_library_and_ends_the_thread(trainer):
    trainer.event(8)
    assert trainer.hooks("1") == "1"
    trainer.event(1)
    assert trainer.hooks("0") == "0"
    assert trainer.logged("stop", 1)
    time.sleep(0.1)
    assert trainer.ask("threads") == "1 1"


def test_stop_undoes_everything_and_a_forked_child_has_nothing(trainer):
    trainer.event(8)
    assert trainer.hooks("1") == "1"
    assert trainer.ask("fork") == "0 None"
    assert trainer.ask("hooks") == "1", "the parent keeps its probes"
    assert trainer.ask("stop") == "stopped" and trainer.ask("hooks") == "0"


@pytest.mark.parametrize("version", ["3.9", "3.13"])
def test_without_torch_the_probes_degrade(version, script):
    hello, faults, marks, collections = script(
        """
        import gc
        c, n = control(); c.hook(); gc.collect()
        c._round(time.time_ns()); c.stacks.sample(time.time_ns()); c.unhook()
        answer([n.frames[0][1], c.fence.faults, sorted({m[0] for m in n.marks}), len(n.collections)])
        """,
        python=other_python(version),
    )
    assert faults == {} and marks == [10] and collections >= 2
    assert hello["python"].startswith(version) and "torch" not in hello


def test_the_hello_knows_its_rank_and_keeps_secrets():
    program = f"""
import sys; sys.path.insert(0, {str(AGENT.parents[1])!r})
from collectors.agent import facts, library
import json; print(json.dumps(json.loads(library.to_json(facts.hello()))))
"""
    known = {
        "SLURM_PROCID": "3",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "x",
        "NCCL_DEBUG": "INFO",
        "MASTER_PORT": "29500",
        "WANDB_API_KEY": "s",
    }
    out = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=20,
        env=clean_environment(**known),
    )
    hello = json.loads(out.stdout)
    assert (hello["rank"], hello["world"], hello["job"]) == (3, 8, "29500 - -")
    assert not {"INFO", "s"} & set(map(str, hello.values())) and "environment" not in hello
