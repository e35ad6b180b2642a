"""An end that comes for sure: nothing of ours outlives its terminal, or a request to end."""

from __future__ import annotations

import signal

LIMIT_S = 2.0
"""What leaving may take once somebody asked us to end, or nobody can see us any more."""


def arm_exit_alarm() -> None:
    """The kernel ends this process after `LIMIT_S`, if it has not ended by itself.

    Of an alarm's default action nothing in Python has a say: not a main thread that waits for a
    lock, not a thread that spins, not an interpreter that is being torn down. From any thread.
    """
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)


def prepare() -> None:
    """Makes the alarm deadly, whatever the parent left; from the main thread, before it is needed."""
    if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
