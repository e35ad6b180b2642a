"""Files of our own user: where nobody else can replace them, and how they are written. Standard library only.

After `su` or `sudo -E` the environment still names folders of the user before: that user could have
root write through a link there, or replace what root loads. All that is kept between runs
(settings, measured edits, compiled libraries) goes through here.
"""

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path

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
