"""Starts a trainer with the agent in it, for `brrrtop run -- CMD`.

The command keeps its terminal, its standard streams, its process group and its exit code. What is
added is one folder at the head of PYTHONPATH; see `collectors.attach.bootstrap` for what lies there.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.agent.facts import VERSION
from collectors.attach import attach, bootstrap, client, run_folders
from collectors.attach import files as attach_files
from collectors.attach.attach import Attached
from collectors.attach.client import Client
from collectors.attach.files import AgentFiles
from collectors.errors import CollectorError, LaunchFailed, NotWritable
from collectors.process import process as processes
from collectors.process.process import Process

PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
"""What a terminal sends to its whole foreground process group, the command included."""
_LOOK_EVERY_S = 0.2
INJECTION = "CUDA_INJECTION64_PATH"
"""The driver loads this library before a process can use anything of CUDA."""
_STAYS = "idle_retract_ms=0"
"""Nobody could bring back an agent that ended because nobody watched."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A command under way, and the folder in which its agents appear."""

    process: subprocess.Popen[bytes]
    folder: Path | None
    """None: it was started without any."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        code = self.process.poll()
        return code if code is None or code >= 0 else 128 - code

    def sockets(self) -> dict[int, str]:
        return {} if self.folder is None else run_folders.sockets(self.folder)

    def connect(self, pid: int, limit_s: float = 2.0) -> Client:
        path = self.sockets().get(pid, f"{self.folder}/{pid}.{attach_files.SOCKET_NAME}")
        uid = processes.read(pid).uid
        return client.connect(path, pid=pid, uid=uid, limit_s=limit_s)

    def first_agent(self, limit_s: float, rank: int | None = None) -> Client | None:
        """A connection to the first agent that appears; None: none did in time, or it ended.

        Args:
            limit_s: Imports and CUDA take a while: tens of seconds are usual.
            rank: Wait for this rank's.
        """
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            for pid in self.sockets():
                if rank is None or _rank_of(pid) == rank:
                    with contextlib.suppress(CollectorError):
                        return self.connect(pid)
            if self.exit_code is not None:
                return None
            time.sleep(_LOOK_EVERY_S)
        return None

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def wait(self, meanwhile: Callable[[], None] | None = None) -> int:
        """The command's exit code once it ends; signals that reach us are passed on, once each.

        Ctrl-C at the terminal reaches the command without us, which is in the same process group:
        that one is not sent a second time, and does not end us before the command.

        Args:
            meanwhile: Called a few times a second.
        """
        with self.passing_on():
            while True:
                try:
                    self.process.wait(_LOOK_EVERY_S)
                except subprocess.TimeoutExpired:
                    if meanwhile is not None:
                        meanwhile()
                    continue
                code = self.exit_code
                assert code is not None
                return code

    @contextlib.contextmanager
    def passing_on(self) -> Iterator[None]:
        """Signals that reach us meanwhile go to the command. Main thread only."""

        def pass_on(number: int, _: object) -> None:
            if number not in _FROM_TERMINAL or not _in_foreground():
                self.send(number)

        before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def remove(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _in_foreground() -> bool:
    """We are in the foreground of a terminal, so that its signals reach the command as well."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _rank_of(pid: int) -> int | None:
    try:
        ranks = processes.read(pid).ranks
    except CollectorError:
        return None
    return ranks.get("RANK", ranks.get("SLURM_PROCID"))


def environment(
    folder: Path,
    files: AgentFiles,
    options: str,
    when: str,
    base: Mapping[str, str],
) -> dict[str, str]:
    """`base` with the agent in it; writes the start-up file into `folder`.

    Python programs find it by that file. Others have it from CUDA, which loads a library that the
    environment names, unless another tool is named there already.

    Raises:
        NotWritable: The file cannot be written.
    """
    socket_path = str(folder / f"{bootstrap.PID}.{attach_files.SOCKET_NAME}")
    options = ";".join(filter(None, (options, attach_files.cupti_option(None))))
    payload = bootstrap.payload(str(files.folder), str(files.library), socket_path, options)
    text = bootstrap.site_text(str(folder), payload, when)
    try:
        (folder / bootstrap.SITE_NAME).write_text(text, "utf-8")
    except OSError as fault:
        raise NotWritable(
            f"{folder} cannot be written: {fault.strerror}", "free some space"
        ) from fault
    ahead = base.get("PYTHONPATH")
    full = dict(base, PYTHONPATH=f"{folder}{os.pathsep}{ahead}" if ahead else str(folder))
    if INJECTION not in base:
        full[INJECTION] = str(files.library)
        full["BRRRTOP_INJECT"] = f"{socket_path}\n{';'.join(filter(None, (_STAYS, options)))}"
    return full


def launch(
    argv: Sequence[str],
    files: AgentFiles | None,
    options: str = "",
    *,
    when: str = "cuda",
    env: Mapping[str, str] | None = None,
) -> Launched:
    """The command `argv` under way, each of its trainers with an agent.

    Args:
        argv: The command and its arguments, as after `--`.
        files: Where the agent and its library lie; None: the command runs without agents.
        options: For the agent.
        when: `cuda`: only processes that use CUDA; `torch`: all that import torch.
        env: The environment to start from; None: ours.

    Raises:
        LaunchFailed: There is no such command (exit code 127), or it cannot be run (126).
        NotWritable: No private folder can be made.
    """
    full = dict(os.environ if env is None else env)
    if files is None:
        return Launched(_begin(argv, full), None)
    folder = run_folders.make()
    try:
        process = _begin(argv, environment(folder, files, options, when, full))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    run_folders.note_command(folder, process.pid)
    return Launched(process, folder)


def _begin(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(list(argv), env=env)
    except FileNotFoundError as fault:
        raise LaunchFailed(f"there is no command {argv[0]!r}", "", 127) from fault
    except PermissionError as fault:
        helps = "name a program in it" if Path(argv[0]).is_dir() else f"chmod +x {argv[0]}"
        raise LaunchFailed(f"{argv[0]!r} may not be run", helps, 126) from fault


@contextmanager
def listening(own: AgentFiles) -> Iterator[None]:
    """The agent loaded and listening. One that this brought is taken out again, with its folder: a
    monitor does that when it leaves, unless it never came or was killed.
    """
    process = processes.read(os.getpid())
    there = attach.find_agent(process)
    if there is not None:
        there.close()
        yield
        return
    _load(process, own)
    try:
        yield
    finally:
        there = attach.find_agent(process)
        if there is not None:
            Attached(there, process, "shared", (), None, 0).leave()


def _load(process: Process, own: AgentFiles) -> None:
    place = attach_files.prepare(process, own)
    names: dict[str, Any] = {}
    exec(bootstrap.BOOT, names)  # noqa: S102 - text of ours
    paths = (place.agent_inside, place.library_inside, place.socket_inside)
    names["boot"](*paths, "", VERSION)
    reason = attach.why_refused(place)
    if reason:
        place.remove()
        raise CollectorError(f"the agent did not start: {reason}", "see `brrrtop doctor`")
    os.close(place.handle)
