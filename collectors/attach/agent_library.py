"""Where the agent's C library is, and how it is built. Standard library only: the package's own
build uses this too, with nothing of brrrtop installed.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collectors import own_files
from collectors.errors import CollectorError, NotWritable, Unsupported

MACHINES = ("x86_64", "aarch64")
COMPILE_LIMIT_S = 120.0
_FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)))


@dataclass(frozen=True, slots=True)
class CLibrary:
    file_name: str
    subject: str
    """What it is to people, such as `agent`; also its folder in the cache."""
    bundled_in: Path
    """The folder where a wheel brings it."""
    sources: Path
    flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    without_it: str
    """What is left to do without a library or another machine, as the end of an action."""

    def path(self) -> Path:
        """The library for this machine, compiled on first use where the package brought none."""
        self.check_machine()
        bundled = self.bundled_in / self.file_name
        if bundled.is_file() and self.is_current(bundled):
            return bundled
        return self._cached_path()

    def check_machine(self, machine: str | None = None) -> None:
        """Refuses a platform nobody has made the library work on.

        Args:
            machine: None: this one.

        Raises:
            Unsupported: Not Linux, or another processor.
        """
        machine = machine or os.uname().machine
        if not sys.platform.startswith("linux") or machine not in MACHINES:
            raise Unsupported(
                f"the {self.subject} runs on Linux on {' and '.join(MACHINES)}, "
                f"not on {sys.platform} {machine}",
                self.without_it,
            )

    def fingerprint(self) -> str:
        """What the library is built from, as 16 hex digits; the library carries it."""
        import hashlib

        digest = hashlib.sha256(" ".join(self.flags + self.link_flags).encode())
        for source in sorted(self.sources.glob("*.[ch]")):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        return digest.hexdigest()[:16]

    def compile(self, target: Path, extra: tuple[str, ...] = ()) -> Path:
        """Build the library at `target`, which appears whole or not at all.

        Args:
            target: The file to make; its folder exists.
            extra: Further compiler flags.

        Raises:
            Unsupported: There is no compiler.
            NotWritable: The disk is full.
            CollectorError: It failed; the message holds the end of what it said.
        """
        import subprocess
        import tempfile

        command = compiler()
        if command is None:
            raise Unsupported(
                f"the {self.subject} has to be compiled and there is no C compiler", self._help
            )
        sources = sorted(str(path) for path in self.sources.glob("*.c"))
        if not sources:
            raise Unsupported(
                f"the {self.subject}'s sources are missing from {self.sources}", "reinstall brrrtop"
            )
        stamp = f'-DBRRR_FINGERPRINT="{self.fingerprint()}"'
        try:
            # The compiler's own files too: those in another user's TMPDIR could be replaced.
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                made = Path(folder) / self.file_name
                flags = [*self.flags, stamp, *extra, "-o", str(made)]
                self._compile([*command, *flags, *sources, *self.link_flags], folder, target)
                made.chmod(0o755)
                made.replace(target)
        except subprocess.TimeoutExpired as fault:
            raise CollectorError(
                f"{command[0]} needed more than {COMPILE_LIMIT_S:.0f} s for the {self.subject}",
                "try again",
            ) from fault
        except OSError as fault:
            raise CollectorError(
                f"the {self.subject} did not compile: {fault}", self._help
            ) from fault
        return target

    @property
    def _help(self) -> str:
        return (
            "install a C compiler (Debian, Ubuntu: apt install gcc libc6-dev; or set CC), "
            f"or {self.without_it}"
        )

    def _compile(self, command: list[str], temporary: str, target: Path) -> None:
        """Runs the compiler.

        Raises:
            CollectorError: It failed.
        """
        import subprocess

        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMPILE_LIMIT_S,
            check=False,
            env={**os.environ, "LC_ALL": "C", "TMPDIR": temporary},
        )
        full = next((reason for reason in _FULL if reason in result.stderr), None)
        if result.returncode != 0 and full is not None:
            raise NotWritable(
                f"the {self.subject} cannot be compiled into {target.parent}: {full}",
                "make room there, or set XDG_CACHE_HOME to a folder with room",
            )
        if result.returncode != 0:
            last = " ".join(result.stderr.split()[-60:]) or f"exit code {result.returncode}"
            raise CollectorError(f"the {self.subject} did not compile: {last}", self._help)

    def is_current(self, library: Path) -> bool:
        """False when the sources beside the library are not those it was built from."""
        if not self.sources.is_dir():
            return True
        try:
            return f"brrrtop-sources:{self.fingerprint()}".encode() in library.read_bytes()
        except OSError:
            return False

    def _cached_path(self) -> Path:
        folder = self._cache_folder()
        target = folder / f"{self.fingerprint()}-{os.uname().machine}" / self.file_name
        if own_files.is_own_file(target):
            return target
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (folder / "lock").open("w") as lock:
                self._hold(lock.fileno())
                return target if own_files.is_own_file(target) else self.compile(target)
        except OSError as fault:
            raise NotWritable(
                f"the {self.subject}'s library cannot be put into {folder}: {fault.strerror}",
                "make that folder writable, or set XDG_CACHE_HOME to one that is",
            ) from fault

    def _cache_folder(self) -> Path:
        """Where a library can be kept so that nobody else can replace it before it is loaded.

        Root's HOME and XDG_CACHE_HOME may still be another user's (`sudo -E`, `su`): then the folder
        is in root's own home.
        """
        import platformdirs

        named = Path(platformdirs.user_cache_dir("brrrtop"), self.subject)
        named = own_files.own_folder(named, f".cache/brrrtop/{self.subject}")
        if changeable := own_files.changeable_by(named):
            raise NotWritable(
                f"the {self.subject}'s library cannot be kept where others can replace it: {changeable}",
                "set XDG_CACHE_HOME to a folder of your own",
            )
        return named

    def _hold(self, descriptor: int) -> None:
        """Take the lock, or give up when another brrrtop compiles without end."""
        import fcntl

        until = time.monotonic() + COMPILE_LIMIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as fault:
                if time.monotonic() > until:
                    raise CollectorError(
                        f"another brrrtop has been compiling the {self.subject} for two minutes",
                        "try again",
                    ) from fault
                time.sleep(0.05)


def compiler() -> list[str] | None:
    """The C compiler's command: `$CC`, else cc, gcc or clang; None without one."""
    import shlex
    import shutil

    named = shlex.split(os.environ.get("CC", ""))
    for command in ([named] if named else []) + [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]) is not None:
            return command
    return None


if TYPE_CHECKING:
    from collectors.attach.files import AgentFiles

LIBRARY_NAME = "libbrrrtop_agent.so"
AGENT_DIR = Path(__file__).parents[1] / "agent"
SOURCE_DIR = AGENT_DIR / "native"
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
place for the linker. Nothing is dropped: zig's linker would drop the fingerprint."""
COUNTERS_ALONE = "watch the GPU's counters alone: brrrtop --gpu 0"
"""What is left where there is no library, as the end of an action."""


def library() -> CLibrary:
    return CLibrary(LIBRARY_NAME, "agent", AGENT_DIR, SOURCE_DIR, FLAGS, LINK_FLAGS, COUNTERS_ALONE)


def library_path() -> Path:
    """The library for this machine, compiled on first use where the package brought none."""
    return library().path()


def agent_files() -> AgentFiles:
    """What goes into a trainer: the agent's folder and its library."""
    from collectors.attach.files import AgentFiles

    return AgentFiles(folder=AGENT_DIR, library=library_path())
