"""`^C` while the command starts: Python loses a KeyboardInterrupt that comes up in a callback."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 30.0

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


def ended(function: str, *words: str) -> tuple[int | None, bytes]:
    """The command on a terminal, interrupted where it calls that function: its exit code, all it wrote."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", _PROGRAM, function, *words]
    child = subprocess.Popen(
        command, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(theirs)
    written, until = b"", time.monotonic() + PATIENCE_S
    try:
        while child.poll() is None and time.monotonic() < until:
            if select.select([ours], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):
                    written += os.read(ours, 1 << 16)
        return child.poll(), written
    finally:
        child.kill()
        child.wait()
        os.close(ours)


@pytest.mark.parametrize(
    "function",
    [
        "brrrtop.cli.main:_run",
        "brrrtop.cli.commands.replay:to_first_verdict",
        "brrrtop.cli.settings:load",  # for the screen
        "brrrtop.tui.app:BrrrtopApp.run",
    ],
)
def test_it_ends_in_silence_although_python_loses_the_exception(function: str) -> None:
    code, written = ended(function, "demo", "healthy")
    assert code == 130, written
    assert b"KeyboardInterrupt" not in written and b"Traceback" not in written
