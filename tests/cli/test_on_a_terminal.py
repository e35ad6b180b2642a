"""The command on a real terminal: the screen opens, leaves cleanly, and survives its user."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator

import pytest

LEAVES_THE_SCREEN = b"\x1b[?1049l"
PATIENCE_S = 30.0


class Terminal:
    """A child on a pseudo-terminal of its own."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm-256color", **environment})
            os.execv(sys.executable, [sys.executable, "-m", "brrrtop", *arguments])
        self.resize(24, 80)
        self.seen = b""
        self.code: int | None = None

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def read_until(self, word: bytes) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while word not in self.seen:
            assert time.monotonic() < deadline, self.seen[-2000:]
            self._read(0.1)

    def _read(self, wait_s: float) -> bool:
        if not select.select([self.fd], [], [], wait_s)[0]:
            return True
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:
            return False
        self.seen += data
        return bool(data)

    def ended(self) -> int:
        """The exit code, once there is one."""
        deadline = time.monotonic() + PATIENCE_S
        while self.code is None:
            assert time.monotonic() < deadline, self.seen[-2000:]
            self._read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        while self._read(0.0) and select.select([self.fd], [], [], 0.0)[0]:
            pass
        return self.code

    def close(self) -> None:
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@contextlib.contextmanager
def on_a_terminal(*arguments: str, **environment: str) -> Iterator[Terminal]:
    terminal = Terminal(*arguments, **environment)
    try:
        yield terminal
    finally:
        terminal.close()


def test_the_demo_opens_on_a_verdict_bears_a_tiny_terminal_and_q_leaves_it() -> None:
    with on_a_terminal("demo", "input-bound") as terminal:
        terminal.read_until(b"WAITS FOR DATA")
        for rows, columns in ((1, 1), (2, 10), (24, 80)):
            terminal.resize(rows, columns)
            os.kill(terminal.pid, signal.SIGWINCH)
            time.sleep(0.3)
        terminal.seen = b""
        terminal.read_until(b"WAITS FOR DATA")
        terminal.type(b"q")
        assert terminal.ended() == 0
        assert LEAVES_THE_SCREEN in terminal.seen
        assert b"Traceback" not in terminal.seen


def test_the_straggler_opens_on_the_ranks_and_enter_on_the_late_one() -> None:
    with on_a_terminal("demo", "straggler") as terminal:
        terminal.read_until(b"Rank 1 is")
        terminal.read_until(b"odd one first")
        terminal.seen = b""
        terminal.type(b"\r")
        terminal.read_until(b"rank1.brrr")
        terminal.type(b"q")
        assert terminal.ended() == 0
        assert b"again: brrrtop demo straggler" in terminal.seen
        assert b"Traceback" not in terminal.seen


def test_control_c_on_the_screen_is_130() -> None:
    with on_a_terminal("demo", "input-bound") as terminal:
        terminal.read_until(b"WAITS FOR DATA")
        terminal.type(b"\x03")
        assert terminal.ended() == 130
        assert LEAVES_THE_SCREEN in terminal.seen
        assert b"Traceback" not in terminal.seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(number: signal.Signals) -> None:
    with on_a_terminal("demo", "input-bound") as terminal:
        terminal.read_until(b"WAITS FOR DATA")
        os.kill(terminal.pid, number)
        assert terminal.ended() == 128 + number
        assert LEAVES_THE_SCREEN in terminal.seen
        assert b"Traceback" not in terminal.seen


@pytest.mark.parametrize(
    ("options", "environment"), [(("--no-color", "--ascii"), {}), ((), {"NO_COLOR": "1"})]
)
def test_no_color_means_no_colour_and_ascii_is_ascii(
    options: tuple[str, ...], environment: dict[str, str]
) -> None:
    with on_a_terminal("demo", "input-bound", *options, **environment) as terminal:
        terminal.read_until(b"WAITS FOR DATA")
        assert b"\x1b[38;" not in terminal.seen
        assert b";38;5;" not in terminal.seen
        assert terminal.seen.isascii() is ("--ascii" in options)


def test_a_dumb_terminal_gets_one_plain_report() -> None:
    with on_a_terminal("demo", "input-bound", TERM="dumb") as terminal:
        assert terminal.ended() == 0
        assert b"Where the time went" in terminal.seen
        assert b"\x1b" not in terminal.seen
