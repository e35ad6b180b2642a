"""A private folder that the trainer can reach: its socket, and the agent's files where needed.

A trainer in a container, or of another user, does not see our installation. What it needs is then
copied to a folder of its own, and removed when the monitor is done.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from collectors import process as processes
from collectors.client import PATH_LIMIT_BYTES
from collectors.errors import NoSuchProcess, NotWritable
from collectors.printable import printable
from collectors.process import Process

_FOLDER = re.compile(r"brrrtop-(\d+)-(\d+)-(\d+)-[0-9a-f]{16}")
"""pid namespace in which the number counts, process, its start time, a random part."""
SOCKET_NAME = "agent.sock"


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """What goes into the trainer, as paths of ours."""

    folder: Path
    """The closed agent package, `collectors/agent`."""
    library: Path


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of mode 0700, owned by the trainer's user."""

    inside: str
    """As the trainer sees it."""
    handle: int
    """A descriptor of it: the way there for us, even after the trainer has ended."""
    outside: str
    agent_inside: str
    library_inside: str

    @property
    def socket_inside(self) -> str:
        return f"{self.inside}/{SOCKET_NAME}"

    @property
    def socket_outside(self) -> str:
        return f"/proc/self/fd/{self.handle}/{SOCKET_NAME}"

    def text(self, name: str) -> str | None:
        """A small file that the agent left here; None: it did not."""
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.handle)
        except OSError:
            return None
        with open(fd, "rb") as file:
            return printable(file.read(4096).decode("utf-8", "replace").strip())

    def remove(self) -> None:
        """Takes the folder and everything in it away, as far as that is possible."""
        _empty(self.handle)
        with contextlib.suppress(OSError):
            os.rmdir(self.outside)
        os.close(self.handle)


def _empty(handle: int) -> None:
    try:
        for _, folders, names, at in os.fwalk(".", dir_fd=handle, topdown=False):
            for name in names:
                os.unlink(name, dir_fd=at)
            for name in folders:
                if stat.S_ISLNK(os.lstat(name, dir_fd=at).st_mode):
                    os.unlink(name, dir_fd=at)
                else:
                    os.rmdir(name, dir_fd=at)
    except OSError:
        pass


def same_mounts(process: Process) -> bool:
    """The process sees the same files as we do."""
    try:
        return os.path.samestat(os.stat(process.root), os.stat("/")) and (
            os.readlink(f"{process.folder}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
        )
    except OSError:
        return False


def reachable(process: Process, path: Path) -> bool:
    """The trainer finds our file at the same path, and its user may read it."""
    try:
        ours, theirs = os.stat(path), os.stat(f"{process.root}{path}")
        if not os.path.samestat(ours, theirs):
            return False
        if process.uid == 0:
            return True
        for part in (path, *path.parents):
            if not _allows(os.stat(part), process, 0o5 if part.is_dir() else 0o4):
                return False
    except OSError:
        return False
    return True


def _allows(found: os.stat_result, process: Process, wanted: int) -> bool:
    if found.st_uid == process.uid:
        return found.st_mode >> 6 & wanted == wanted
    if found.st_gid == process.gid:
        return found.st_mode >> 3 & wanted == wanted
    return found.st_mode & wanted == wanted


def bases(process: Process) -> tuple[str, ...]:
    """Where a folder could be made, as the trainer sees it, best first."""
    return (f"/run/user/{process.uid}", "/tmp", "/dev/shm", "/var/tmp")


def prepare(process: Process, files: AgentFiles) -> Place:
    """A fresh private folder, and in it what the trainer cannot see otherwise.

    Raises:
        NotWritable: No folder could be made; the message names each with its reason.
    """
    prefix = "" if same_mounts(process) else process.root
    needed = (files.folder / "entry.py", files.library)
    copying = not all(reachable(process, path) for path in needed)
    refusals = []
    for base in bases(process):
        if not os.path.isdir(prefix + base):
            continue
        sweep(prefix + base)
        owner = f"{pid_namespace()}-{process.pid}-{process.start_ticks}"
        name = f"brrrtop-{owner}-{secrets.token_hex(8)}"
        try:
            return _make(process, prefix, f"{base}/{name}", files, copying)
        except OSError as fault:
            refusals.append(f"{base}: {fault.strerror}")
    raise NotWritable(
        f"no private folder can be made for process {process.pid} ({'; '.join(refusals)})",
        "free some space or make /tmp writable, then attach again",
    )


def _make(process: Process, prefix: str, inside: str, files: AgentFiles, copying: bool) -> Place:
    if len(os.fsencode(f"{inside}/{SOCKET_NAME}")) > PATH_LIMIT_BYTES:
        raise OSError(errno.ENAMETOOLONG, "too long for a socket")
    outside = prefix + inside
    if copying and os.statvfs(os.path.dirname(outside)).f_flag & os.ST_NOEXEC:
        raise OSError(errno.EACCES, "mounted noexec")
    os.mkdir(outside, 0o700)
    handle = os.open(outside, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    place = Place(inside, handle, outside, str(files.folder), str(files.library))
    try:
        if copying:
            _copy(files, Path(outside))
            place = Place(
                inside, handle, outside, f"{inside}/agent", f"{inside}/{files.library.name}"
            )
        _give(process, outside)
    except OSError:
        place.remove()
        raise
    return place


def _copy(files: AgentFiles, outside: Path) -> None:
    (outside / "agent").mkdir(0o700)
    for source in sorted(files.folder.glob("*.py")):
        shutil.copyfile(source, outside / "agent" / source.name)
    shutil.copyfile(files.library, outside / files.library.name)
    os.chmod(outside / files.library.name, 0o500)


def _give(process: Process, outside: str) -> None:
    """Makes the trainer's user the owner; the folder itself last, so nobody gets in between."""
    if process.uid == os.geteuid():
        return
    for folder, folders, names in os.walk(outside, topdown=False):
        for name in (*names, *folders):
            os.lchown(os.path.join(folder, name), process.uid, process.gid)
    os.lchown(outside, process.uid, process.gid)


def remove_beside(socket_path: str) -> None:
    """Removes the private folder in which an agent that has ended had its socket."""
    folder = os.path.dirname(socket_path)
    if _FOLDER.fullmatch(os.path.basename(folder)):
        shutil.rmtree(folder, ignore_errors=True)


def sweep(base: str) -> None:
    """Removes what a killed monitor left behind for trainers that have ended."""
    try:
        names = os.listdir(base)
    except OSError:
        return
    for name in names:
        match = _FOLDER.fullmatch(name)
        if not match or int(match[1]) != pid_namespace():
            continue
        if not lives(int(match[2]), int(match[3])):
            path = f"{base}/{name}"
            try:
                if os.lstat(path).st_uid in (os.geteuid(), 0) or os.geteuid() == 0:
                    shutil.rmtree(path, ignore_errors=True)
            except OSError:
                continue


def pid_namespace() -> int:
    """The namespace in which our pids count, as a number."""
    return os.stat("/proc/self/ns/pid").st_ino


def lives(pid: int, start_ticks: int) -> bool:
    """The very process that was started then still runs."""
    try:
        return processes.read(pid).start_ticks == start_ticks
    except NoSuchProcess:
        return False
