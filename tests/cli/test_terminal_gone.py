"""Nothing of ours outlives its terminal, whenever it is closed: while quitting, detaching, at ^C."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.agent.conftest import built

__all__ = ["built"]

PATIENCE_S = 40.0
ENDS_S = 10.0
"""Two seconds, and what a busy machine adds: what is looked for never ends."""
SHOWN = b"\x1b[?1049h"
LEAVES_THE_SCREEN = b"\x1b[?1049l"
RECORDING = str(Path(__file__).resolve().parents[1] / "recordings" / "host" / "reads.brrr")
TRAINER = """
import ctypes, sys, time
ctypes.CDLL(sys.argv[1])
print("up", flush=True)
while True: time.sleep(0.02)
"""
WAITS = (sys.executable, "-c", "print('up', flush=True)\nimport time; time.sleep(600)")
BRRRTOP = ("-m", "brrrtop")
DEMO, REPLAY = ("demo", "healthy"), ("replay", RECORDING)


class Closable:
    """The command on a terminal that can be closed under it."""

    def __init__(self, arguments: Sequence[str], program: Sequence[str] = BRRRTOP) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execv(sys.executable, [sys.executable, *program, *arguments])
        self.seen = b""
        self.is_open, self.over = True, False

    def read_until(self, words: bytes) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.seen:
            assert time.monotonic() < deadline, self.seen[-1500:]
            self.read_for(0.05)

    def read_for(self, seconds: float) -> None:
        """What a terminal does all the time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 or seconds == 0:
            if select.select([self.fd], [], [], max(0.0, left))[0]:
                with contextlib.suppress(OSError):
                    self.seen += os.read(self.fd, 1 << 16)
            if seconds == 0:
                return

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            os.close(self.fd)

    def ended(self) -> bool:
        """Whether it ends by itself."""
        deadline = time.monotonic() + ENDS_S
        while time.monotonic() < deadline:
            if self._is_over():
                return True
            time.sleep(0.01)
        return False

    def _is_over(self) -> bool:
        self.over = self.over or os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        return self.over

    def kill(self) -> None:
        self.close()
        if not self._is_over():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


@contextlib.contextmanager
def opened(*arguments: str, program: Sequence[str] = BRRRTOP) -> Iterator[Closable]:
    one = Closable(arguments, program)
    try:
        yield one
    finally:
        one.kill()


def ends(arguments: Sequence[str], key: bytes, after_s: float, shown: bytes = SHOWN) -> bool:
    """Whether the command ends when its terminal is closed so long after a key."""
    with opened(*arguments) as one:
        one.read_until(shown)
        one.read_for(0.1)
        if key:
            os.write(one.fd, key)
        one.read_for(after_s)
        one.close()
        return one.ended()


@pytest.fixture(scope="module")
def trainer(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
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
def test_a_screen_ends_with_its_terminal_also_while_it_quits(
    command: Sequence[str], key: bytes, after_s: float
) -> None:
    assert ends(command, key, after_s)


@pytest.mark.timeout(120)
def test_a_detach_ends_with_its_terminal(trainer: int) -> None:
    attach = ("attach", str(trainer), "--yes")
    for key, after_s in ((b"q", 0.1), (b"\x03", 0.2)):
        assert ends(attach, key, after_s), (key, after_s)
    os.kill(trainer, 0)


@pytest.mark.timeout(120)
def test_a_started_program_ends_with_its_terminal_and_so_do_we() -> None:
    run = ("run", "--", *WAITS)
    assert ends(run, b"", 0.0, b"up")
    assert ends(run, b"\x03", 0.05, b"up")


def test_what_goes_on_while_it_leaves_starts_no_second_reader() -> None:
    """A hang-up brings SIGCONT too; here it comes all the time that leaving takes."""
    with opened(*DEMO) as one:
        one.read_until(SHOWN)
        one.read_for(0.3)
        os.write(one.fd, b"q")
        one.read_until(LEAVES_THE_SCREEN)
        deadline = time.monotonic() + ENDS_S
        while not one._is_over() and time.monotonic() < deadline:
            os.kill(one.pid, signal.SIGCONT)
            one.read_for(0.002)
        assert one.over


def test_stopped_from_outside_it_goes_on_where_it_was() -> None:
    with opened(*DEMO) as one:
        one.read_until(b"COMPUTE-BOUND")
        os.kill(one.pid, signal.SIGSTOP)
        os.waitpid(one.pid, os.WUNTRACED)
        one.seen = b""
        os.kill(one.pid, signal.SIGCONT)
        one.read_until(SHOWN)
        one.read_until(b"COMPUTE-BOUND")
        os.write(one.fd, b"q")
        one.read_until(LEAVES_THE_SCREEN)
        deadline = time.monotonic() + ENDS_S
        while not one._is_over() and time.monotonic() < deadline:
            one.read_for(0.01)
        assert one.over


def test_a_request_to_end_is_heard_when_nothing_else_is() -> None:
    """The screen's own loop hangs: the alarm ends it, not the loop."""
    hangs = (
        "import sys, time\n"
        "from brrrtop.tui import app\n"
        "app.BrrrtopApp.on_snapshot_ready = lambda self, message: time.sleep(600)\n"
        "sys.argv[1:] = ['demo', 'healthy']\n"
        "from brrrtop.cli.main import main\n"
        "sys.exit(main())\n"
    )
    with opened(program=("-c", hangs)) as one:
        one.read_until(SHOWN)
        one.read_for(1.0)
        os.kill(one.pid, signal.SIGTERM)
        assert one.ended()
