"""Which module runs which verb."""

from __future__ import annotations

import gc
import os
import signal
from importlib import import_module
from types import FrameType, ModuleType

from brrrtop import deadline
from brrrtop.cli.options import Options
from brrrtop.cli.signals import begin, end_if_untouched, without_interrupts

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

READ_ONLY = ("analyze", "compare", "demo", "replay")
"""Verbs that touch nothing but files, which they read, unless they are to write one."""
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def run_verb(options: Options) -> int:
    """Runs the verb's module and returns the exit code."""
    with without_interrupts():
        module = _import_verb(f"brrrtop.cli.commands.{MODULES[options.verb]}")
    ended_by = _end_as_by_interrupt()
    code = 0
    try:
        if options.verb not in READ_ONLY or options.record or options.export:
            begin()
        code = module.run(options)
    except KeyboardInterrupt:
        if not ended_by:
            raise
    return 128 + ended_by[0] if ended_by else code


def _import_verb(name: str) -> ModuleType:
    """The module, without what imports of numpy cost that nothing here uses.

    Its OpenBLAS starts a thread a core for products of matrices, of which there are none. Programs
    that we start shall not inherit that.
    """
    ours = _BLAS_THREADS not in os.environ
    if ours:
        os.environ[_BLAS_THREADS] = "1"
    gc.disable()  # what is imported stays: nobody need look for garbage in it, now or later
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()
        if ours:
            os.environ.pop(_BLAS_THREADS, None)


def _end_as_by_interrupt() -> list[int]:
    """Makes a request to end, or a terminal that goes away, take the way out that `^C` takes.

    Once: the same request again, or a way out that takes too long, ends the process at once.

    Returns:
        Grows by the number of the signal when one comes.
    """
    came: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        end_if_untouched(128 + number)
        came.append(number)
        signal.signal(number, signal.SIG_DFL)
        deadline.end_within()
        signal.raise_signal(signal.SIGINT)

    deadline.prepare()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)
    return came
