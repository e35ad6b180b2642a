"""Which module runs which verb."""

from __future__ import annotations

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
    """Runs the verb's module and returns the exit code."""
    module = import_module(f"brrrtop.cli.{MODULES[options.verb]}")
    code: int = module.run(options)
    return code
