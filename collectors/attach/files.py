"""A private folder that the trainer can reach: its socket, and the agent's files where needed.

A trainer in a container, or of another user, does not see our installation. What it needs is then
copied to a folder of its own, and removed when the monitor is done.

The folder lies where the trainer's user can rename it, put a link in its place or fill it at any
moment, so root never works there with its own rights: see `collectors.own_files`. As that user it also
makes the folder, and nothing has to be given away. Where the trainer's user is root as well, in a
container, its rights are ours: there every step goes by handles from the container's own root
folder, and through no link, because an absolute one leads to the host's files.
"""

import contextlib
import errno
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from collectors.attach.client import PATH_LIMIT_BYTES
from collectors.errors import NoSuchProcess, NotPermitted, NotWritable
from collectors.own_files import run_as
from collectors.process import process as processes
from collectors.process.process import Process

_FOLDER = re.compile(r"brrrtop-(\d+)-(\d+)-(\d+)-[0-9a-f]{16}")
"""pid namespace in which the number counts, process, its start time, a random part."""
SOCKET_NAME = "agent.sock"
_HANDLE = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


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
    uid: int
    gid: int

    @property
    def socket_inside(self) -> str:
        return f"{self.inside}/{SOCKET_NAME}"

    @property
    def socket_outside(self) -> str:
        return f"/proc/self/fd/{self.handle}/{SOCKET_NAME}"

    def write(self, name: str, text: str) -> None:
        run_as(self.uid, self.gid, lambda: _write(self.handle, name, text.encode()))

    def remove(self) -> None:
        """Takes the folder and everything in it away, as far as that is possible."""
        with contextlib.suppress(OSError, NotPermitted):
            name = os.path.basename(self.inside)
            run_as(self.uid, self.gid, lambda: _remove(self.handle, name))
        os.close(self.handle)


def _write(folder: int, name: str, data: bytes, mode: int = 0o600) -> None:
    with open(os.open(name, _NEW_FILE, mode, dir_fd=folder), "wb") as file:
        file.write(data)


def _remove(folder: int, name: str) -> None:
    _empty(folder)
    above = os.open("..", _HANDLE, dir_fd=folder)
    try:
        os.rmdir(name, dir_fd=above)
    finally:
        os.close(above)


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


def _allows(status: os.stat_result, process: Process, wanted: int) -> bool:
    if status.st_uid == process.uid:
        return status.st_mode >> 6 & wanted == wanted
    if status.st_gid == process.gid:
        return status.st_mode >> 3 & wanted == wanted
    return status.st_mode & wanted == wanted


def bases(process: Process) -> tuple[str, ...]:
    """Where a folder could be made, as the trainer sees it, best first."""
    return (f"/run/user/{process.uid}", "/tmp", "/dev/shm", "/var/tmp")


def prepare(process: Process, files: AgentFiles) -> Place:
    """A fresh private folder, and in it what the trainer cannot see otherwise.

    Raises:
        NotWritable: No folder could be made; the message names each with its reason.
        NotPermitted: We are root, and may not act as the trainer's user.
    """
    root = None if same_mounts(process) else process.root
    needed = (files.folder / "entry.py", files.library)
    copied = {} if all(reachable(process, path) for path in needed) else _contents(files)
    refusals = []
    for base in bases(process):
        try:
            above = _handle(root, base)
        except FileNotFoundError:
            continue
        except OSError as fault:
            refusals.append(f"{base}: {fault.strerror}")
            continue
        try:
            sweep(process, above)
            return _make(process, above, f"{root or ''}{base}", base, files, copied)
        except OSError as fault:
            refusals.append(f"{base}: {fault.strerror}")
        finally:
            os.close(above)
    raise NotWritable(
        f"no private folder can be made for process {process.pid} ({'; '.join(refusals)})",
        "free some space or make /tmp writable, then attach again",
    )


def _handle(root: str | None, path: str) -> int:
    """A handle of the folder `path`, in a container of the one that its processes see."""
    if root is None:
        return os.open(path, _HANDLE)
    handle = os.open(root, _HANDLE)
    for part in path.strip("/").split("/"):
        try:
            inner = os.open(part, _HANDLE | os.O_NOFOLLOW, dir_fd=handle)
        finally:
            os.close(handle)
        handle = inner
    return handle


def _contents(files: AgentFiles) -> dict[str, bytes]:
    """What is copied, by its name there; read with our rights, since only we may be able to."""
    contents = {
        f"agent/{one.relative_to(files.folder)}": one.read_bytes()
        for one in sorted(files.folder.rglob("*.py"))
    }
    return contents | {files.library.name: files.library.read_bytes()}


def _make(
    process: Process,
    above: int,
    outside: str,
    base: str,
    files: AgentFiles,
    copied: Mapping[str, bytes],
) -> Place:
    name = f"brrrtop-{pid_namespace()}-{process.pid}-{process.start_ticks}-{os.urandom(8).hex()}"
    inside = f"{base}/{name}"
    if len(os.fsencode(f"{inside}/{SOCKET_NAME}")) > PATH_LIMIT_BYTES:
        raise OSError(errno.ENAMETOOLONG, "too long for a socket")
    if copied and os.fstatvfs(above).f_flag & os.ST_NOEXEC:
        raise OSError(errno.EACCES, "mounted noexec")
    handle = run_as(process.uid, process.gid, lambda: _fill(above, name, copied))
    agent, library = str(files.folder), str(files.library)
    if copied:
        agent, library = f"{inside}/agent", f"{inside}/{files.library.name}"
    return Place(inside, handle, f"{outside}/{name}", agent, library, process.uid, process.gid)


def _fill(above: int, name: str, copied: Mapping[str, bytes]) -> int:
    """A handle of a new folder with these files, as the user that we are just now."""
    os.mkdir(name, 0o700, dir_fd=above)
    handle = os.open(name, _FOLDER_FLAGS, dir_fd=above)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            raise OSError(errno.EPERM, "another user's folder was put in place of ours")
        inner = {"": handle}
        try:
            for path, data in copied.items():
                folder, _, file = path.rpartition("/")
                if folder not in inner:
                    above_it, _, last = folder.rpartition("/")
                    os.mkdir(last, 0o700, dir_fd=inner[above_it])
                    inner[folder] = os.open(last, _FOLDER_FLAGS, dir_fd=inner[above_it])
                _write(inner[folder], file, data, 0o600 if folder else 0o500)
        finally:
            for one in set(inner.values()) - {handle}:
                os.close(one)
    except OSError:
        with contextlib.suppress(OSError):
            _remove(handle, name)
        os.close(handle)
        raise
    return handle


def remove_beside(process: Process, socket_path: str) -> None:
    """Removes the private folder in which an agent that has ended had its socket.

    Args:
        process: Its trainer, which chose that path: only what its user owns is removed.
        socket_path: As we see it.
    """
    base, name = os.path.split(os.path.dirname(socket_path))
    if not _FOLDER.fullmatch(name):
        return
    inside = base.removeprefix(process.root)
    with contextlib.suppress(OSError, NotPermitted):
        above = _handle(None if inside == base else process.root, inside)
        try:
            run_as(process.uid, process.gid, lambda: _remove_owned(above, name))
        finally:
            os.close(above)


def sweep(process: Process, base: int) -> None:
    """Removes what killed monitors left in `base` for ended trainers of this process's user."""
    try:
        listed = os.open(".", _FOLDER_FLAGS, dir_fd=base)
    except OSError:
        return
    try:
        names = os.listdir(listed)
    finally:
        os.close(listed)
    matches = [match for match in map(_FOLDER.fullmatch, names) if match]
    ours = [match for match in matches if int(match[1]) == pid_namespace()]
    dead = [match[0] for match in ours if not lives(int(match[2]), int(match[3]))]

    def remove() -> None:
        for name in dead:
            with contextlib.suppress(OSError):
                _remove_owned(base, name)

    if dead:
        run_as(process.uid, process.gid, remove)


def _remove_owned(above: int, name: str) -> None:
    """Removes a folder of the user that we are just now, and nobody else's."""
    handle = os.open(name, _FOLDER_FLAGS, dir_fd=above)
    try:
        if os.fstat(handle).st_uid == os.geteuid():
            _remove(handle, name)
    finally:
        os.close(handle)


def pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def lives(pid: int, start_ticks: int) -> bool:
    """The very process that was started then still runs."""
    try:
        return processes.read(pid).start_ticks == start_ticks
    except NoSuchProcess:
        return False


_CUDA_LIBRARY = re.compile(r"/lib(cudart|cublas|cublasLt|cudnn|nccl|cufft|nvrtc)[-.\w]*\.so")
_TOOLKITS = ("/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda")
_IN_TOOLKIT = ("extras/CUPTI/lib64", "lib64", "targets/*/lib", "lib")
_CUPTI_FILE = "libcupti.so.1[23]*"


def cupti_option(process: Process | None) -> str:
    """The agent's option that names a libcupti; empty: the program has one, or will, or none is known.

    Args:
        process: Where it is to be loaded; None: a program that is still to start.
    """
    if process is not None:
        mapped = any("/libcupti.so" in path for path in process.files)
        if mapped or process.has_torch or not process.has_cuda_driver:
            return ""
    for file in _cupti_files(process):
        if process is None or reachable(process, file):
            return f"cupti={file}"
    return ""


def _cupti_files(process: Process | None) -> Iterator[Path]:
    """Of the CUDA that the program itself uses, then of this host, then ours."""
    seen = [] if process is None else [p for p in process.files if _CUDA_LIBRARY.search(p)]
    for folder in dict.fromkeys(Path(path).parent for path in seen):
        yield from _matching(folder)
        yield from _matching(folder, "../../*/lib")
        yield from _matching(folder, "../../../extras/CUPTI/lib64")
    for pattern in _TOOLKITS:
        for toolkit in sorted(Path("/").glob(pattern[1:]), reverse=True):
            for inside in _IN_TOOLKIT:
                yield from _matching(toolkit, inside)
    for place in sys.path:
        yield from _matching(Path(place or ".") / "nvidia", "*/lib")


def _matching(folder: Path, inside: str = "") -> list[Path]:
    pattern = f"{inside}/{_CUPTI_FILE}" if inside else _CUPTI_FILE
    try:
        paths = sorted(folder.glob(pattern), reverse=True)
        return [path.resolve() for path in paths if ";" not in str(path)]
    except OSError:
        return []
