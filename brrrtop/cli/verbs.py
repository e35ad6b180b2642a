"""Which module runs which verb."""

from __future__ import annotations

import signal
from importlib import import_module

from brrrtop.cli.options import Options

MODULES = {
    None: "find",
    "attach": "attach",
    "run": "run",
    "replay": "replay",
    "analyze": "analyze",
    "compare": "compare",
    "demo": "demo",
    "doctor": "doctor",
}


def run_verb(options: Options) -> int:
    """Runs the verb's module and returns the exit code.

    `^C` waits until everything is imported: numpy, interrupted while it loads, swallows it or
    calls itself broken.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        module = import_module(f"brrrtop.cli.{MODULES[options.verb]}")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code: int = module.run(options)
    return code
