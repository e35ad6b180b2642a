"""Ends a process of ours with the one that started it, whatever it hangs in.

The kernel does it, because an interpreter that hangs in a driver, perhaps with its lock, does nothing.

Source: prctl(2), PR_SET_PDEATHSIG; `linux/prctl.h`.
"""

from __future__ import annotations

import os
import signal

_PR_SET_PDEATHSIG = 1
_OUTSIDE = 0
"""What `getppid` says of a parent in another pid namespace."""


def end_with(parent: int) -> None:
    """This process is killed when its parent ends, and ends here if that was before.

    To the kernel the thread that started a process is its parent: it must stay until this one has
    ended. Where there is no prctl, only a parent that has ended already is heeded.

    Args:
        parent: The process that started this one, by its own `getpid`.
    """
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (ImportError, OSError, AttributeError, TypeError):  # TypeError: a libc without a name
        pass
    # Asked afterwards: whoever ends from here on is noticed by the kernel.
    if os.getppid() not in (parent, _OUTSIDE):
        os._exit(1)
