"""An alarm that ends this process for certain, once its terminal has gone or it was asked to end."""

from __future__ import annotations

import signal

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
