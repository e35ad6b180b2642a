"""Everything brrrtop raises at a person: what happened, and the next thing to try. And how it ends for sure.

BrrrtopError               exit 1
├── UsageError             exit 2
├── NoTrainer              exit 3   no such trainer, or it exited
├── BadInput               exit 1   a file that cannot be read as what it should be
└── GateTripped            exit 5

Past ^C the exit code is 130, as a shell has it.
"""

from __future__ import annotations

import signal

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


LIMIT_S = 2.0
"""What leaving may take once somebody asked us to end, or nobody can see us any more."""


def arm_exit_alarm() -> None:
    """The kernel ends this process after `LIMIT_S`, if it has not ended by itself.

    Python cannot block SIGALRM's default action: a main thread that waits for a lock, a thread that
    spins and an interpreter that shuts down all end by it. Call it from any thread.
    """
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)


def prepare() -> None:
    """Makes the alarm deadly, whatever the parent left; from the main thread, before it is needed."""
    if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
