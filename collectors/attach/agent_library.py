"""Where the agent's C library is, and how it is built. Standard library only: the package's own
build uses this too, with nothing of brrrtop installed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.attach import ownership
from collectors.errors import CollectorError, NotWritable, Unsupported

if TYPE_CHECKING:
    from collectors.attach.files import AgentFiles

LIBRARY_NAME = "libbrrrtop_agent.so"
AGENT_DIR = Path(__file__).parents[1] / "agent"
SOURCE_DIR = AGENT_DIR / "native"
MACHINES = ("x86_64", "aarch64")
FLAGS = (
    "-std=c11",
    "-D_GNU_SOURCE",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",
    "-fstack-protector-strong",
    "-Wall",
    "-Wextra",
)
LINK_FLAGS = ("-shared", "-Wl,-z,nodelete,-z,relro,-z,now,--no-gc-sections", "-lpthread", "-ldl")
"""Never unmapped: CUPTI keeps the addresses of our callbacks. Bound at load: the first launch is no
place for the linker. Nothing is dropped: the fingerprint is referred to by nobody, and zig's linker would."""

COMPILE_LIMIT_S = 120.0
_FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)))
COUNTERS_ALONE = "watch the GPU's counters alone: brrrtop --gpu 0"
"""What is left where there is no library, as the end of an action."""
_HELP = (
    "install a C compiler (Debian, Ubuntu: apt install gcc libc6-dev; or set CC), "
    f"or {COUNTERS_ALONE}"
)


def library_path() -> Path:
    """The library for this machine, compiled on first use where the package brought none.

    Raises:
        CollectorError: There is no library and none can be built here; the action says what helps.
    """
    check_machine()
    bundled = AGENT_DIR / LIBRARY_NAME
    if bundled.is_file() and is_current(bundled):
        return bundled
    return _cached()


def agent_files() -> AgentFiles:
    """What goes into a trainer: the agent's folder and its library.

    Raises:
        CollectorError: As `library_path`.
    """
    from collectors.attach.files import AgentFiles

    return AgentFiles(folder=AGENT_DIR, library=library_path())


def check_machine(machine: str | None = None) -> None:
    """Refuses a platform nobody has made the agent work on.

    Args:
        machine: None: this one.

    Raises:
        Unsupported: Not Linux, or another processor.
    """
    machine = machine or os.uname().machine
    if not sys.platform.startswith("linux") or machine not in MACHINES:
        raise Unsupported(
            f"the agent runs on Linux on {' and '.join(MACHINES)}, not on {sys.platform} {machine}",
            COUNTERS_ALONE,
        )


def compiler() -> list[str] | None:
    """The C compiler's command: `$CC`, else cc, gcc or clang; None without one."""
    named = shlex.split(os.environ.get("CC", ""))
    for command in ([named] if named else []) + [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]) is not None:
            return command
    return None


def fingerprint() -> str:
    """What the library is built from, as 16 hex digits; the library carries it."""
    digest = hashlib.sha256(" ".join(FLAGS + LINK_FLAGS).encode())
    for source in sorted(SOURCE_DIR.glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def compile_library(target: Path, extra: tuple[str, ...] = ()) -> Path:
    """Build the library at `target`, which appears whole or not at all.

    Args:
        target: The file to make; its folder exists.
        extra: Further compiler flags.

    Raises:
        Unsupported: There is no compiler.
        NotWritable: The disk is full.
        CollectorError: It failed; the message holds the end of what it said.
    """
    command = compiler()
    if command is None:
        raise Unsupported("the agent has to be compiled and there is no C compiler", _HELP)
    sources = sorted(str(path) for path in SOURCE_DIR.glob("*.c"))
    if not sources:
        raise Unsupported(f"the agent's sources are missing from {SOURCE_DIR}", "reinstall brrrtop")
    stamp = f'-DBRRR_FINGERPRINT="{fingerprint()}"'
    try:
        # The compiler's own files too: those in another user's TMPDIR could be replaced.
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / LIBRARY_NAME
            _compile(
                [*command, *FLAGS, stamp, *extra, "-o", str(made), *sources, *LINK_FLAGS],
                folder,
                target,
            )
            made.chmod(0o755)
            made.replace(target)
    except subprocess.TimeoutExpired as fault:
        raise CollectorError(
            f"{command[0]} needed more than {COMPILE_LIMIT_S:.0f} s for the agent", "try again"
        ) from fault
    except OSError as fault:
        raise CollectorError(f"the agent did not compile: {fault}", _HELP) from fault
    return target


def _compile(command: list[str], temporary: str, target: Path) -> None:
    """Runs the compiler.

    Raises:
        CollectorError: It failed.
    """
    told = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=COMPILE_LIMIT_S,
        check=False,
        env={**os.environ, "LC_ALL": "C", "TMPDIR": temporary},
    )
    full = next((one for one in _FULL if one in told.stderr), None)
    if told.returncode != 0 and full is not None:
        raise NotWritable(
            f"the agent cannot be compiled into {target.parent}: {full}",
            "make room there, or set XDG_CACHE_HOME to a folder with room",
        )
    if told.returncode != 0:
        last = " ".join(told.stderr.split()[-60:]) or f"exit code {told.returncode}"
        raise CollectorError(f"the agent did not compile: {last}", _HELP)


def is_current(library: Path) -> bool:
    """False when the sources beside the library are not those it was built from."""
    if not SOURCE_DIR.is_dir():
        return True
    try:
        return f"brrrtop-sources:{fingerprint()}".encode() in library.read_bytes()
    except OSError:
        return False


def _cached() -> Path:
    folder = _cache_folder()
    target = folder / f"{fingerprint()}-{os.uname().machine}" / LIBRARY_NAME
    if ownership.is_own_file(target):
        return target
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            _hold(lock.fileno())
            return target if ownership.is_own_file(target) else compile_library(target)
    except OSError as fault:
        raise NotWritable(
            f"the agent's library cannot be put into {folder}: {fault.strerror}",
            "make that folder writable, or set XDG_CACHE_HOME to one that is",
        ) from fault


def _cache_folder() -> Path:
    """Where a library can be kept that is loaded into trainers, so that nobody else can replace it.

    Root's HOME and XDG_CACHE_HOME may still be another user's (`sudo -E`, `su`): then the folder is
    in root's own home.
    """
    import platformdirs

    named = Path(platformdirs.user_cache_dir("brrrtop")).resolve() / "agent"
    changeable, own = ownership.changeable_by(named), ownership.home()
    if changeable and own is not None:
        named = own.resolve() / ".cache" / "brrrtop" / "agent"
        changeable = ownership.changeable_by(named)
    if changeable:
        raise NotWritable(
            f"the agent's library cannot be kept where others can replace it: {changeable}",
            "set XDG_CACHE_HOME to a folder of your own",
        )
    return named


def _hold(descriptor: int) -> None:
    """Take the lock, or give up when another brrrtop compiles without end."""
    until = time.monotonic() + COMPILE_LIMIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as fault:
            if time.monotonic() > until:
                raise CollectorError(
                    "another brrrtop has been compiling the agent for two minutes", "try again"
                ) from fault
            time.sleep(0.05)
