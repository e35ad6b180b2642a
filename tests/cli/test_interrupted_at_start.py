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
from importlib.abc import MetaPathFinder

class Doomed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        str()  # Python has seen the signal by now

class Interrupter(MetaPathFinder):
    '''When that module is looked for, an object dies, and ^C comes while it does.'''
    def find_spec(self, name, path, target=None):
        if name == module:
            sys.meta_path.remove(self)
            Doomed()

module = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupter())
from brrrtop.cli.main import main
sys.exit(main())
"""


def ended(module: str, *words: str) -> tuple[int | None, bytes]:
    """The command on a terminal, interrupted as it imports that module: its exit code, all it wrote."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", _PROGRAM, module, *words]
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
    "module",
    [
        "brrrtop.cli.arguments",
        "brrrtop.sources.budget",  # once the verb runs
        "numpy.ma",  # for the first verdict
        "brrrtop.tui.app",
        "textual.layouts.factory",  # under the screen
    ],
)
def test_it_ends_in_silence_although_python_loses_the_exception(module: str) -> None:
    code, written = ended(module, "demo", "healthy")
    assert code == 130, written
    assert b"KeyboardInterrupt" not in written and b"Traceback" not in written
