"""The terminal that the screens are on: Textual's own driver, except for how it ends.

Textual's input thread goes on reading a terminal that has gone, as fast as it can, and Python waits
for that thread at its end. A hang-up also sends SIGCONT, which Textual takes for the end of a pause:
it starts another such thread, while it is leaving too. Here the reader ends with its terminal, is
never waited for longer than a moment, and only what was paused goes on.
"""

import os
import select
import signal
import termios
from codecs import getincrementaldecoder
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Any, cast

from textual import constants
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.drivers.web_driver import WebDriver
from textual.message import Message

from brrrtop.errors import arm_exit_alarm

LOOK_EVERY_MS = 100
ESCAPE_MS = round(1000 * constants.ESCAPE_DELAY) + 1
"""After so long without another byte Esc was the key, and not the beginning of a sequence."""
JOIN_S = 1.0
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL


class TerminalGone(Message):
    """Nobody can see the screen any more."""


class Continued(Message):
    """The process was stopped from outside, and goes on; the shell has had the terminal."""


class Terminal(LinuxDriver):
    """A terminal that may go away at any moment."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._file = cast("Any", _UntilGone(self._file))
        self._reader: _Reader | None = None

    def write(self, data: str) -> None:
        """Dropped where nobody writes it out: the queue is short, and waiting would be for ever."""
        if self._writer_thread is not None and self._writer_thread.is_alive():
            self._writer_thread.write(data)

    def _run_input_thread(self) -> None:
        """On Textual's own thread, which Python would wait for: so a daemon does the work."""
        self._reader = _Reader(self)
        self._reader.start()

    def disable_input(self) -> None:
        """No more input from here on; returns within `2 * JOIN_S` even where a read hangs."""
        reading = self._key_thread is not None
        if self._key_thread is not None:
            self._key_thread.join(JOIN_S)  # all it does is start the reader
            self._key_thread = None
        if self._reader is not None:
            self._reader.stop()
            self._reader = None
        if not reading:
            return
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)
        self._disable_mouse_support()
        with suppress(termios.error):
            termios.tcflush(self.fileno, termios.TCIFLUSH)

    def _sigcont_application(self, *_: object) -> None:
        if is_gone(self.fileno):
            self.tell_gone()
        elif self._must_signal_resume:
            super()._sigcont_application()
        else:
            self._post(Continued())

    def start_over(self) -> None:
        """Takes the terminal again after others had it."""
        if not is_gone(self.fileno):
            self.suspend_application_mode()
            self.resume_application_mode()

    def tell_gone(self) -> None:
        """Has the app leave, and the kernel see to it. From any thread."""
        arm_exit_alarm()
        self._post(TerminalGone())

    def _post(self, message: Message) -> None:
        with suppress(RuntimeError):  # its loop has ended
            self._app.post_message(message)


class Served(WebDriver):
    """A tab of a browser, behind textual-serve, which may end without a word."""

    def run_input_thread(self) -> None:
        super().run_input_thread()
        if not self.exit_event.is_set():
            arm_exit_alarm()
            with suppress(RuntimeError):  # its loop has ended
                self._app.post_message(TerminalGone())

    def write(self, data: str) -> None:
        with suppress(OSError):  # nobody reads it any more
            super().write(data)

    def write_meta(self, data: dict[str, object]) -> None:
        with suppress(OSError):
            super().write_meta(data)


def textual_driver() -> type[Driver] | None:
    """What the screens are on; None: what the user's TEXTUAL_DRIVER names."""
    wanted = os.environ.get("TEXTUAL_DRIVER")
    if wanted is None:
        return Terminal
    return Served if wanted.endswith(":WebDriver") else None


def is_gone(descriptor: int) -> bool:
    """Whether the other side of this terminal was closed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(mask & _GONE for _, mask in poll.poll(0))


class _Reader(Thread):
    """Turns what is typed into messages until it is stopped or the terminal has gone."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(name="brrrtop-input", daemon=True)
        self._terminal = terminal
        self._stopping = Event()

    def stop(self) -> None:
        self._stopping.set()
        self.join(JOIN_S)

    def run(self) -> None:
        fileno = self._terminal.fileno
        parser = XTermParser(self._terminal._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        poll = select.poll()
        poll.register(fileno, select.POLLIN)
        data: bytes | None = None
        while not self._stopping.is_set():
            wait_ms = ESCAPE_MS if data is not None and data[-1:] == b"\x1b" else LOOK_EVERY_MS
            data = _read_typed(fileno) if poll.poll(wait_ms) else None
            if data == b"":
                if is_gone(fileno):
                    self._terminal.tell_gone()
                    break
                self._stopping.wait(LOOK_EVERY_MS / 1000)  # readable and empty: not at full speed
            with suppress(ParseError):
                for message in (*(parser.feed(decode(data)) if data else ()), *parser.tick()):
                    self._terminal.process_message(message)
        with suppress(EOFError, ParseError):
            list(parser.feed(""))


def _read_typed(fileno: int) -> bytes:
    """What there is to read; empty when there is nothing although there should be."""
    try:
        return os.read(fileno, 4096)
    except OSError:
        return b""


class _UntilGone:
    """A file whose reader may leave: what is written from then on is lost, and nothing is raised."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._gone = False

    def write(self, text: str) -> None:
        self._try(lambda: self._file.write(text))

    def flush(self) -> None:
        self._try(self._file.flush)

    def _try(self, do: Callable[[], object]) -> None:
        if not self._gone:
            try:
                do()
            except (OSError, ValueError):
                self._gone = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
