"""Imports the agent piece by piece, so that the trainer has the interpreter in between.

Compiling all of it at a stretch (there may be no cache for this Python) kept it from the training
thread for 20 ms: a step of 23 ms instead of 4 (H200).
"""

from __future__ import annotations

import sys
from importlib import import_module
from time import sleep
from typing import Any, Callable

_PIECES = (
    "library", "probes", "probes.probe", "probes.pauses", "facts", "probes.places",
    "probes.steps", "probes.neighbours", "probes.op_shapes", "entry",
)  # fmt: skip
"""What a piece imports comes before it."""
_PAUSE_S = 0.005
"""Several steps of the quickest trainers for each millisecond taken from one."""


def load() -> Callable[..., Any]:
    """The agent's `start`, once everything is there."""
    package = __name__.rpartition(".")[0]
    for piece in _PIECES:
        name = f"{package}.{piece}"
        if name not in sys.modules:
            import_module(name)
            sleep(_PAUSE_S)
    start: Callable[..., Any] = import_module(f"{package}.entry").start
    return start
