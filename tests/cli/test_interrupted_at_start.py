"""`^C` while the command starts: Python loses a KeyboardInterrupt that comes up in a callback."""

from __future__ import annotations

import pytest

from tests.cli.terminal import on_a_terminal

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
        "brrrtop.cli.settings:load",  # for the screen
        "brrrtop.tui.app:BrrrtopApp.run",
    ],
)
def test_it_ends_in_silence_although_python_loses_the_exception(function: str) -> None:
    with on_a_terminal(function, "demo", "healthy", program=("-c", _PROGRAM)) as terminal:
        assert terminal.ended() == 130, terminal.seen
    assert b"KeyboardInterrupt" not in terminal.seen and b"Traceback" not in terminal.seen
