"""Nothing of ours outlives its terminal, whenever it is closed: while quitting, detaching, at ^C."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from brrrtop.cli import live, output
from brrrtop.cli.commands import attach
from brrrtop.cli.options import Options
from collectors.errors import PeerGone
from collectors.process import process as processes
from tests.agent.conftest import built
from tests.cli.terminal import ENDS_S, LEAVES_THE_SCREEN, on_a_terminal
from tests.live.agents import FakeAgent

__all__ = ["built"]

SHOWN = b"\x1b[?1049h"
RECORDING = str(Path(__file__).resolve().parents[1] / "recordings" / "host" / "reads.brrr")
TRAINER = """
import ctypes, sys, time
ctypes.CDLL(sys.argv[1])
print("up", flush=True)
while True: time.sleep(0.02)
"""
WAITS = (sys.executable, "-c", "print('up', flush=True)\nimport time; time.sleep(600)")
DEMO, REPLAY = ("demo", "healthy"), ("replay", RECORDING)


def ends(arguments: Sequence[str], key: bytes, after_s: float, shown: bytes = SHOWN) -> bool:
    """Whether the command ends when its terminal is closed so long after a key."""
    with on_a_terminal(*arguments) as one:
        one.read_until(shown)
        one.read_for(0.1)
        if key:
            one.type(key)
        one.read_for(after_s)
        one.close()
        return one.ends()


@pytest.fixture(scope="module")
def trainer(built: dict[str, Path], tmp_path_factory) -> Iterator[int]:
    """A process with what looks like torch."""
    torch = shutil.copy(built["cuda"], tmp_path_factory.mktemp("torch") / "libtorch_cpu.so")
    command = [sys.executable, "-c", TRAINER, str(torch)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"up\n"
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("command", "key", "after_s"),
    [(DEMO, b"", 0.0), (DEMO, b"q", 0.0), (DEMO, b"q", 0.06), (DEMO, b"q", 0.18), (REPLAY, b"\x03", 0.05)],
)  # fmt: skip
def test_a_screen_ends_with_its_terminal_also_while_it_quits(command, key, after_s):
    assert ends(command, key, after_s)


@pytest.mark.timeout(120)
def test_a_detach_ends_with_its_terminal(trainer):
    attach = ("attach", str(trainer), "--yes")
    for key, after_s in ((b"q", 0.1), (b"\x03", 0.2)):
        assert ends(attach, key, after_s), (key, after_s)
    os.kill(trainer, 0)


@pytest.mark.timeout(120)
def test_a_started_program_ends_with_its_terminal_and_so_do_we():
    run = ("run", "--", *WAITS)
    assert ends(run, b"", 0.0, b"up")
    assert ends(run, b"\x03", 0.05, b"up")


def test_what_goes_on_while_it_leaves_starts_no_second_reader():
    """A hang-up brings SIGCONT too; here it comes all the time that leaving takes."""
    with on_a_terminal(*DEMO) as one:
        one.read_until(SHOWN)
        one.read_for(0.3)
        one.type(b"q")
        one.read_until(LEAVES_THE_SCREEN)
        deadline = time.monotonic() + ENDS_S
        while not one.has_ended() and time.monotonic() < deadline:
            os.kill(one.pid, signal.SIGCONT)
            one.read_for(0.002)
        assert one.has_ended()


def test_stopped_from_outside_it_goes_on_where_it_was():
    with on_a_terminal(*DEMO) as one:
        one.read_until(b"healthy.brrr")
        os.kill(one.pid, signal.SIGSTOP)
        os.waitpid(one.pid, os.WUNTRACED)
        one.seen = b""
        os.kill(one.pid, signal.SIGCONT)
        one.read_until(SHOWN)
        one.read_until(b"healthy.brrr")
        one.type(b"q")
        one.read_until(LEAVES_THE_SCREEN)
        deadline = time.monotonic() + ENDS_S
        while not one.has_ended() and time.monotonic() < deadline:
            one.read_for(0.01)
        assert one.has_ended()


def test_a_request_to_end_is_heard_when_nothing_else_is():
    """The screen's own loop hangs: the alarm ends it, not the loop."""
    hangs = (
        "import sys, time\n"
        "from brrrtop.tui import app\n"
        "app.BrrrtopApp.on_snapshot_ready = lambda self, message: time.sleep(600)\n"
        "sys.argv[1:] = ['demo', 'healthy']\n"
        "from brrrtop.cli.main import main\n"
        "sys.exit(main())\n"
    )
    with on_a_terminal(program=("-c", hangs)) as one:
        one.read_until(SHOWN)
        one.read_for(1.0)
        os.kill(one.pid, signal.SIGTERM)
        assert one.ends()


def test_an_agent_that_has_gone_leaves_no_recording_behind(tmp_path):
    agent = FakeAgent(0)
    agent.close()
    record = tmp_path / "run.brrr"
    with pytest.raises(PeerGone):
        live.open_live(agent, 1, Options(record=str(record), trace_graphs=True), "")
    assert not record.exists()


def test_an_interrupt_at_any_moment_after_the_attach_takes_the_agent_out(monkeypatch):
    left: list[bool] = []
    process = processes.read(os.getpid())
    attached = SimpleNamespace(
        shared=True, process=process, took_ns=1, leave=lambda: left.append(True) or True
    )
    monkeypatch.setattr(attach, "attach", lambda *_, **__: attached)
    monkeypatch.setattr(attach, "agent_files", lambda: None)
    monkeypatch.setattr(attach, "_left", lambda *_: "")

    def interrupted(_text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(output, "say", interrupted)
    with pytest.raises(KeyboardInterrupt):
        attach.watch(process, Options(once=True))
    assert left == [True]
