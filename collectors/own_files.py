"""Files of our own user: where nobody else can replace them, and how they are written. And work in the
folders of another, done as that user: root has no rights to lend there. Standard library only.

After `su` or `sudo -E` the environment still names folders of the user before: that user could have
root write through a link there, or replace what root loads. All that is kept between runs
(settings, measured edits, compiled libraries) goes through here.

A trainer's user can swap whatever lies in a folder of its own at any moment. Work that only has
this user's rights can be led nowhere that the user could not go alone. That is why nothing else is
relied on there: handles and `O_NOFOLLOW` alone would need every single call to be right.

The kernel keeps a user for each thread. A thread of its own takes the user on, does the work and
ends: nothing has to be restored, no signal handler of ours runs in it, and unlike a helper process
it needs no protocol and no passing of descriptors. The C library would change all threads, so the
system calls are made directly. Only the effective ids change: with root's real and saved ids the
thread can be neither signalled nor traced by the user.
"""

import contextlib
import errno
import os
import stat
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from collectors.errors import NotPermitted

_ALL_USERS = ("0", "0", "4294967295")
"""What /proc/self/uid_map says outside any user namespace."""


def own_folder(named: Path, in_home: str) -> Path:
    """`named`, or, where somebody else can change what lies there, `in_home` of our user's home.

    Returns:
        A resolved path, which need not exist; `named` also without such a home: writers ask again.
    """
    resolved = named.resolve()
    own = home()
    if own is not None and changeable_by(resolved):
        return own.resolve() / in_home
    return resolved


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all; what was there stays until then. A link keeps leading to it.

    Raises:
        OSError: It cannot be written, or another user could lead us elsewhere.
    """
    path = path.resolve()
    changeable = changeable_by(path.parent)
    if changeable:
        raise PermissionError(errno.EPERM, changeable, str(path))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
        Path(fresh).replace(path)
    except BaseException:
        Path(fresh).unlink()
        raise


def home() -> Path | None:
    """Our user's own folder, whatever HOME says."""
    try:
        import pwd

        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except (ImportError, KeyError):
        return None


def changeable_by(path: Path) -> str:
    """Who else can replace what lies at `path`, as the end of a sentence; empty: only us and root.

    Write permission of a group counts as its owner's own decision. Above our user's home nothing
    is asked: whoever owns that has this user anyway. What does not exist yet is passed over.

    Args:
        path: Resolved, so that no link on the way there can be turned elsewhere.
    """
    own, trusted = home(), _trusted_users()
    own = own and own.resolve()
    for part in (path, *path.parents):
        try:
            status = part.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as fault:
            return f"{part} cannot be looked at ({fault.strerror})"
        if status.st_uid not in trusted:
            return f"{part} belongs to user {status.st_uid}"
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            return f"anybody can change {part}"
        if part == own:
            break
    return ""


def is_own_file(path: Path) -> bool:
    """A regular file, no link, that only we and root can have written."""
    try:
        status = path.lstat()
    except OSError:
        return False
    own = status.st_uid in _trusted_users() and not status.st_mode & stat.S_IWOTH
    return own and stat.S_ISREG(status.st_mode)


def _trusted_users() -> set[int]:
    """Our user and root; in a user namespace also the number that root outside appears as."""
    users = {0, os.geteuid()}
    with contextlib.suppress(OSError, ValueError):
        if tuple(Path("/proc/self/uid_map").read_text("ascii").split()) != _ALL_USERS:
            users.add(int(Path("/proc/sys/kernel/overflowuid").read_text("ascii")))
    return users


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
