"""A closed pipe is quiet, `^C` is 130, and off a terminal there are no escape codes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import started
from tests.cli.terminal import on_a_terminal

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def trace(tmp_path) -> Path:
    """Four steps of three kernels and a wait, long enough in text to fill a pipe."""
    events = []
    for number in range(4000):
        args = {"device": 0, "stream": 7, "correlation": number + 1}
        events.append(
            {"ph": "X", "cat": "kernel", "name": f"kernel_{number % 97}_{'x' * 60}", "pid": 0,
             "tid": 7, "ts": 20.0 * number, "dur": 12.0,
             "args": args | {"grid": [512, 1, 1], "block": [256, 1, 1]}}
        )  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def start(*arguments: str, **options: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "brrrtop", *arguments],
        cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **options,  # type: ignore[call-overload]
    )  # fmt: skip


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_that_leaves_early_is_no_failure(trace, form):
    reading, writing = os.pipe()
    os.close(reading)
    child = start("analyze", str(trace), *form, stdout=writing)
    os.close(writing)
    _, narration = child.communicate(timeout=120)
    assert (child.returncode, narration) == (0, b"")


def test_a_closed_stdout_is_no_traceback(trace):
    command = f"exec {sys.executable} -m brrrtop analyze {trace} >&-"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, timeout=120)
    assert done.stderr == b""
    assert done.returncode == 0


def test_a_full_disk_is_a_sentence(trace):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with Path("/dev/full").open("wb") as full:
        child = start("analyze", str(trace), stdout=full)
        _, narration = child.communicate(timeout=120)
    assert child.returncode == 1
    assert b"no space left" in narration
    assert b"Traceback" not in narration


@pytest.mark.parametrize("after_s", [0.03, 0.08, 0.15, 0.25, 0.4])
def test_interrupting_is_130_at_any_moment(tmp_path, after_s):
    """The file is a pipe that nobody fills, so that reading it would last for ever."""
    never = tmp_path / "never.json"
    os.mkfifo(never)
    holder = os.open(never, os.O_RDWR)
    try:
        child = subprocess.Popen(
            [*started.COMMAND, "analyze", str(never)],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert child.stdout is not None and child.stdout.readline() == b"started\n"
        time.sleep(after_s)
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
        _, narration = child.communicate(timeout=120)
    finally:
        os.close(holder)
    assert b"Traceback" not in narration
    # A ^C that comes between the sentence and the exit ends Python itself: 130 to a shell as well.
    assert child.returncode in (130, 1, -signal.SIGINT), narration


@pytest.mark.parametrize("verb", ["analyze", "replay"])
def test_off_a_terminal_there_is_one_plain_report(verb, trace, brrrtop):
    done = brrrtop(verb, str(trace))
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "Where the time went" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_json_lines_of_a_replay_are_one_object_each(trace, brrrtop):
    done = brrrtop("replay", str(trace), "--json", "--interval", "0.1")
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert {report["schema"] for report in reports} == {"brrrtop.report/2"}


def test_a_gate_decides_the_exit_code_and_the_report_comes_all_the_same(trace, brrrtop):
    done = brrrtop("analyze", str(trace), "--json", "--fail-if", "idle > 10%")
    assert done.returncode == 5
    assert "the gate tripped: idle > 10%" in done.stderr
    assert json.loads(done.stdout)["schema"] == "brrrtop.report/2"
    assert brrrtop("analyze", str(trace), "--fail-if", "idle > 90%").returncode == 0


_PROGRAM = """
import signal, sys
from functools import reduce
from importlib import import_module

class Doomed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        str()  # Python has seen the signal by now

def interrupted(*given, **named):
    Doomed()
    return function(*given, **named)

module, _, path = sys.argv.pop(1).partition(":")
*owners, name = path.split(".")
owner = reduce(getattr, owners, import_module(module))
function = getattr(owner, name)
setattr(owner, name, interrupted)
from brrrtop.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "function",
    [
        "brrrtop.cli.main:_run",
        "brrrtop.cli.commands.replay:to_first_verdict",
        "brrrtop.cli.show:load_settings",  # for the screen
        "brrrtop.tui.app:BrrrtopApp.run",
    ],
)
def test_it_ends_in_silence_although_python_loses_the_exception(function):
    with on_a_terminal(function, "demo", "healthy", program=("-c", _PROGRAM)) as terminal:
        assert terminal.ended() == 130, terminal.seen
    assert b"KeyboardInterrupt" not in terminal.seen and b"Traceback" not in terminal.seen
