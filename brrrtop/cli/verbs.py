"""Which module runs which verb."""

from __future__ import annotations

import signal
from importlib import import_module
from types import FrameType

from brrrtop import deadline
from brrrtop.cli.options import Options
from brrrtop.cli.signals import uninterrupted

MODULES = {
    None: "find",
    "attach": "attach",
    "run": "run",
    "replay": "replay",
    "analyze": "analyze",
    "compare": "compare",
    "demo": "demo",
    "doctor": "doctor",
    "export": "export",
    "calibrate": "calibrate",
}


def run_verb(options: Options) -> int:
    """Runs the verb's module and returns the exit code."""
    with uninterrupted():
        module = import_module(f"brrrtop.cli.commands.{MODULES[options.verb]}")
    ended_by = _end_as_by_interrupt()
    code = 0
    try:
        code = module.run(options)
    except KeyboardInterrupt:
        if not ended_by:
            raise
    return 128 + ended_by[0] if ended_by else code


def _end_as_by_interrupt() -> list[int]:
    """Makes a request to end, or a terminal that goes away, take the way out that `^C` takes.

    Once: the same request again, or a way out that takes too long, ends the process at once.

    Returns:
        Grows by the number of the signal when one comes.
    """
    came: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        signal.signal(number, signal.SIG_DFL)
        deadline.end_within()
        signal.raise_signal(signal.SIGINT)

    deadline.prepare()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)
    return came
