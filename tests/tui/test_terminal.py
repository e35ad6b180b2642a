"""The program itself in a pseudo-terminal: what reaches the terminal, and how it is left."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests import started

PATIENCE_S = 30.0
LEFT = b"\x1b[?1049l"
"""Leaves the alternate screen: the shell's own lines are back."""


@dataclass
class Terminal:
    """A program on one side, its terminal's other end on ours."""

    program: subprocess.Popen[bytes]
    ours: int
    written: bytearray = field(default_factory=bytearray)

    def until(self, words: bytes) -> None:
        """Reads until these bytes come up in what is written from here on.

        Raises:
            AssertionError: They did not in `PATIENCE_S`.
        """
        begun, deadline = len(self.written), time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self._read()
            if words in self.written[begun:]:
                return
        raise AssertionError(f"{words!r} never came; last was {bytes(self.written[-400:])!r}")

    def ended(self) -> int:
        """The exit code, with everything read."""
        deadline = time.monotonic() + PATIENCE_S
        while self.program.poll() is None and time.monotonic() < deadline:
            self._read()
        while self._read():
            pass
        return self.program.wait(1)

    def press(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.kill(self.program.pid, signal.SIGWINCH)

    def _read(self) -> bool:
        if not select.select([self.ours], [], [], 0.05)[0]:
            return False
        try:
            data = os.read(self.ours, 1 << 16)
        except OSError:
            return False
        self.written += data
        return bool(data)


@contextmanager
def terminal(
    *options: str, columns: int = 80, rows: int = 24, process_group: int | None = None
) -> Iterator[Terminal]:
    """`brrrtop demo` in a pseudo-terminal; killed at the end if it is still there.

    `process_group`: 0 for a job of a shell, which can be stopped; else it has a session of its own.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    program = subprocess.Popen(
        [*started.COMMAND, "demo", "healthy", *options],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=process_group is None,
        process_group=process_group,
    )
    os.close(theirs)
    try:
        yield Terminal(program, ours)
    finally:
        if program.poll() is None:
            program.kill()
        program.wait()
        os.close(ours)


def test_ascii_and_no_colour_hold_for_every_byte() -> None:
    with terminal("--ascii", "--no-color") as screen:
        screen.until(b"COMPUTE-BOUND")
        screen.press(b"?")
        screen.until(b"Ctrl-C")
        screen.press(b"r")
        screen.until(b"FLOP/byte")
        screen.press(b"q")
        assert screen.ended() == 0
    assert all(byte < 128 for byte in screen.written)
    coloured = re.findall(rb"\x1b\[[\d;]*[34][8;][\d;]*m", bytes(screen.written))
    assert not coloured, coloured[:3]


def test_a_terminal_shrunk_to_one_cell_and_back_is_drawn_again() -> None:
    with terminal() as screen:
        screen.until(b"COMPUTE-BOUND")
        screen.resize(1, 1)
        time.sleep(0.5)
        screen.resize(100, 30)
        screen.until(b"COMPUTE-BOUND")
        screen.press(b"q")
        assert screen.ended() == 0
    assert b"Traceback" not in screen.written
    assert LEFT in screen.written


@pytest.mark.parametrize("delay_s", [0.0, 0.3, 0.36, 0.8])
def test_an_interrupt_at_any_moment_leaves_the_terminal_as_it_was(delay_s: float) -> None:
    with terminal() as screen:
        screen.until(b"started")
        deadline = time.monotonic() + delay_s
        while time.monotonic() < deadline:
            screen._read()
        if delay_s >= 0.8:
            screen.until(b"-BOUND")
        screen.press(b"\x03")
        if screen.program.poll() is None:
            os.kill(screen.program.pid, signal.SIGINT)
        assert screen.ended() in (0, 130, -signal.SIGINT)
    assert b"Traceback" not in screen.written, bytes(screen.written[-2000:])
    assert (b"\x1b[?1049h" in screen.written) == (LEFT in screen.written)
