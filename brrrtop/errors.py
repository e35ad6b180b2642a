"""Everything brrrtop raises at a person: what happened, and the next thing to try.

BrrrtopError               exit 1
├── UsageError             exit 2
├── NoTrainer              exit 3   no such trainer, or it exited
├── BadInput               exit 1   a file that cannot be read as what it should be
└── GateTripped            exit 5

Past ^C the exit code is 130, as a shell has it.
"""

from __future__ import annotations

INTERRUPTED = 130


class BrrrtopError(Exception):
    """One sentence for the user, and the command or change that helps."""

    exit_code = 1

    def __init__(self, message: str, action: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.action = action


class UsageError(BrrrtopError):
    exit_code = 2


class NoTrainer(BrrrtopError):
    exit_code = 3


class GateTripped(BrrrtopError):
    exit_code = 5


class BadInput(BrrrtopError):
    """A recording or trace that cannot be used."""


def report_survived(fault: Exception) -> None:
    """A fault that live watching goes on after, with where it was, for the log `brrrtop.faults`: tests
    read it, and stderr has it where BRRRTOP_TRACEBACK is set."""
    import logging
    import os

    log = logging.getLogger("brrrtop.faults")
    if not log.handlers:
        debug = os.environ.get("BRRRTOP_TRACEBACK")
        log.addHandler(logging.StreamHandler() if debug else logging.NullHandler())
    log.error("watching goes on after %s", type(fault).__name__, exc_info=fault)
