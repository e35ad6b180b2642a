"""Private folders of `brrrtop run`: each says whose it is, and those of a killed brrrtop are removed.

The name carries the machine's boot, the pid namespace, the process and its start time: where all
agree with what /proc says here, nobody can be mistaken for the owner. The command's process is
noted inside: it, and every process with an agent, may outlive a brrrtop that was killed, and then
the folder stays, so that it can still be attached to.

Every Python that the command starts imports from here, so no other user may be able to replace it.
"""

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from collectors.attach import client, files
from collectors.errors import NoSuchProcess, NotWritable
from collectors.own_files import changeable_by
from collectors.process import process as processes

PREFIX = "brrrtop-run-"
_FOLDER = re.compile(PREFIX + r"([0-9a-f]{8})-(\d+)-(\d+)-(\d+)-[0-9a-f]{8}")
"""boot, pid namespace in which the number counts, process, its start time, a random part."""
_SOCKET = re.compile(r"(\d+)\." + re.escape(files.SOCKET_NAME))
_COMMAND = "command"
_ROOM_BYTES = 1 << 14
"""More than is ever put there. A full disk makes folders, and no files in them."""


def make() -> Path:
    """A fresh folder of mode 0700 with room for sockets; removes what killed brrrtops have left.

    Raises:
        NotWritable: No folder could be made; the message names each with its reason.
    """
    tried = []
    for base in _bases():
        changeable = changeable_by(base)
        if changeable:
            tried.append(changeable)
            continue
        sweep(base)
        folder = base / f"{PREFIX}{_owner()}-{os.urandom(4).hex()}"
        longest = f"{folder}/4194304.{files.SOCKET_NAME}"
        if len(os.fsencode(longest)) > client.PATH_LIMIT_BYTES:
            tried.append(f"{base}: too long for a socket")
            continue
        try:
            folder.mkdir(0o700)
            (folder / "room").write_bytes(bytes(_ROOM_BYTES))
            (folder / "room").unlink()
            return folder
        except OSError as fault:
            tried.append(f"{base}: {fault.strerror}")
            shutil.rmtree(folder, ignore_errors=True)
    raise NotWritable(
        f"no private folder can be made ({'; '.join(tried)})",
        "make room in /tmp, or set TMPDIR to a folder that can be written",
    )


def note_command(folder: Path, pid: int) -> None:
    """Keeps the folder for as long as process `pid` lives, whatever happens to us."""
    with contextlib.suppress(OSError, NoSuchProcess):
        (folder / _COMMAND).write_text(f"{pid} {processes.read(pid).start_ticks}", "ascii")


def sockets(folder: Path) -> dict[int, str]:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return {}
    matches = ((_SOCKET.fullmatch(name), name) for name in names)
    return {int(match[1]): str(folder / name) for match, name in matches if match}


def sweep(base: Path) -> None:
    try:
        names = [path.name for path in base.iterdir()]
    except OSError:
        return
    here = (_boot(), files.pid_namespace())
    for name in names:
        match = _FOLDER.fullmatch(name)
        if match is None or (match[1], int(match[2])) != here:
            continue
        if not files.lives(int(match[3]), int(match[4])) and _is_abandoned(base / name):
            shutil.rmtree(base / name, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    """A folder of ours without a process that belongs to it."""
    try:
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        with contextlib.suppress(FileNotFoundError):  # it was killed before it could say
            pid, ticks = (folder / _COMMAND).read_text("ascii").split()
            if files.lives(int(pid), int(ticks)):
                return False
    except (OSError, ValueError):
        return False
    return not any(Path(f"/proc/{pid}").exists() for pid in sockets(folder))


def _bases() -> Iterator[Path]:
    named = [os.environ.get("XDG_RUNTIME_DIR"), "/tmp", "/dev/shm", "/var/tmp"]
    with contextlib.suppress(FileNotFoundError):  # it has tried to write in each it knows
        named.insert(1, tempfile.gettempdir())
    yield from dict.fromkeys(Path(base).resolve() for base in named if base)


def _owner() -> str:
    ticks = processes.read(os.getpid()).start_ticks
    return f"{_boot()}-{files.pid_namespace()}-{os.getpid()}-{ticks}"


def _boot() -> str:
    """Eight digits that change with the machine and with each of its starts."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii")[:8]
    except (OSError, ValueError):
        return "0" * 8
