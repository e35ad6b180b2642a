"""Work in a trainer's folders, done as its user: root has no rights to lend there. Standard library only.

A trainer's user can swap whatever lies in a folder of its own at any moment. Work that only has
this user's rights can be led nowhere that the user could not go alone. That is why nothing else is
relied on here: handles and `O_NOFOLLOW` alone would need every single call to be right.

The kernel keeps a user for each thread. A thread of its own takes the user on, does the work and
ends: nothing has to be restored, no signal handler of ours runs in it, and unlike a helper process
it needs no protocol and no passing of descriptors. The C library would change all threads, so the
system calls are made directly. Only the effective ids change: with root's real and saved ids the
thread can be neither signalled nor traced by the user.
"""

import os
import threading
from collections.abc import Callable
from typing import TypeVar

from collectors.errors import NotPermitted

Result = TypeVar("Result")
_SYSTEM_CALLS = {"x86_64": (116, 119, 117), "aarch64": (159, 149, 147)}
"""setgroups, setresgid, setresuid (linux/unistd.h of each machine)."""
NO_GROUP = 65534
"""The kernel's overflow group, which owns nothing."""


def is_needed(uid: int) -> bool:
    """We are root, and `uid` is somebody else."""
    return os.geteuid() == 0 and uid != 0


def run_as(uid: int, gid: int, work: Callable[[], Result]) -> Result:
    """What `work` returns; root does it as user `uid` with the one group `gid`, others as they are.

    Raises:
        NotPermitted: Root here may not take another user's rights (a container without CAP_SETUID).
    """
    if not is_needed(uid):
        return work()
    results: list[Result] = []
    faults: list[BaseException] = []

    def act() -> None:
        try:
            _become(uid, gid)
            results.append(work())
        except BaseException as fault:  # noqa: BLE001 - it is raised in the thread that asked
            faults.append(fault)

    thread = threading.Thread(target=act, name=f"as-user-{uid}", daemon=True)
    thread.start()
    try:
        thread.join()
    finally:  # Ctrl-C: what it works on must not go before it has ended
        thread.join()
    if faults:
        raise faults[0]
    return results[0]


def _become(uid: int, gid: int) -> None:
    """Changes the effective user of this thread alone, which must end afterwards."""
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).syscall
    setgroups, setresgid, setresuid = _SYSTEM_CALLS[os.uname().machine]
    keep = ctypes.c_long(-1)
    wanted = (
        (setgroups, ctypes.c_long(0), None, None),
        (setresgid, keep, ctypes.c_long(gid), keep),
        (setresuid, keep, ctypes.c_long(uid), keep),
    )
    for number, *arguments in wanted:
        if call(ctypes.c_long(number), *arguments) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise NotPermitted(
                f"root here may not act as user {uid} ({reason})",
                f"run brrrtop as user {uid}, or give the container --cap-add SETUID and SETGID",
            )
