"""The command on a terminal of its own, which can be typed at, resized, and closed under it."""

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
from collections.abc import Iterator, Sequence

PATIENCE_S = 100.0
ENDS_S = 60.0
"""Two seconds, and what a busy machine adds: what is looked for never ends."""
BRRRTOP = ("-m", "brrrtop")
LEAVES_THE_SCREEN = b"\x1b[?1049l"


class Terminal:
    """A child of this process on a pseudo-terminal."""

    def __init__(
        self, arguments: Sequence[str], program: Sequence[str], job: bool, **environment: str
    ) -> None:
        """With `job` it can be stopped, as a job of a shell; else the terminal is its session's."""
        words = [sys.executable, *program, *arguments]
        # Without what readline put beside `os.environ`: with it no resize is heeded.
        env = os.environ | {"TERM": "xterm-256color"} | environment
        if job:
            self.fd, theirs = pty.openpty()
            files = [(os.POSIX_SPAWN_DUP2, theirs, number) for number in range(3)]
            self.pid = os.posix_spawn(words[0], words, env, file_actions=files, setpgroup=0)
            os.close(theirs)
        else:
            self.pid, self.fd = pty.fork()
            if self.pid == 0:
                os.execve(words[0], words, env)
        self.seen = b""
        self.is_open = True
        self.code: int | None = None
        self.resize(24, 80)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def read_for(self, seconds: float) -> None:
        """What a terminal does all the time."""
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.seen += os.read(self.fd, 1 << 16)
                except OSError:  # nobody is at the other end any more
                    time.sleep(left)
                    return
            if left == 0:
                return

    def answer(self, keys: bytes, words: bytes) -> None:
        """Reads until these words come up in what is written after the keys."""
        self.seen = b""
        self.type(keys)
        self.read_until(words)

    def read_until(self, words: bytes) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.seen:
            assert time.monotonic() < deadline, self.seen[-2000:]
            self.read_for(0.05)

    def has_ended(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is not None

    def ended(self) -> int | None:
        """The exit code, once there is one; all that it wrote was read."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.has_ended():
            assert time.monotonic() < deadline, self.seen[-2000:]
            self.read_for(0.05)
        self.read_for(0.05)
        return self.code

    def ends(self) -> bool:
        """Whether it ends by itself, with nobody who reads what it writes."""
        deadline = time.monotonic() + ENDS_S
        while not self.has_ended() and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.code is not None

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            os.close(self.fd)

    def kill(self) -> None:
        self.close()
        if not self.has_ended():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


@contextlib.contextmanager
def on_a_terminal(
    *arguments: str, program: Sequence[str] = BRRRTOP, job: bool = False, **environment: str
) -> Iterator[Terminal]:
    terminal = Terminal(arguments, program, job, **environment)
    try:
        yield terminal
    finally:
        terminal.kill()
