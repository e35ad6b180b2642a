"""Into a running trainer: finds an agent that is there already, else tries each way in, in order.

    pending call → parked thread → sys.remote_exec → told to use `brrrtop run`

Each way has a deadline, and each failure its reason. Nothing here ever leaves a trainer stopped.

`sys.remote_exec` (3.14) stops nobody and comes last all the same: its script runs in the main thread,
where an exception that one of the user's signal handlers raises meanwhile is lost in our script. Under
a handler that raises up to five times a millisecond, 18 of 300 entries lost one; by pending call none.
"""

import contextlib
import os
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from collectors.attach import access, bootstrap, by_ptrace, client
from collectors.attach import files as attach_files
from collectors.attach.access import REMOTE_EXEC, Attempt, Method
from collectors.attach.by_ptrace import LOADED_LIBRARY, PARKED_THREAD, PENDING_CALL
from collectors.attach.client import Client
from collectors.attach.files import AgentFiles, Place
from collectors.attach.ptrace import calls
from collectors.errors import (
    RUN_INSTEAD,
    AttachFailed,
    CollectorError,
    NoHandshake,
    NoSuchProcess,
    NotPermitted,
)
from collectors.printable import printable
from collectors.process import process as processes
from collectors.process.process import Process
from collectors.protocol.frames import Frame, Kind, WireError
from collectors.protocol.requests import detach
from collectors.vocabulary import StatusCode

METHODS = (PENDING_CALL, PARKED_THREAD, REMOTE_EXEC)
NATIVE_METHODS = (LOADED_LIBRARY,)
"""Into a program that is not Python."""
_MAIN_PATIENCE_S = 0.5
_LOOK_EVERY_S = 0.1
_FIND_LIMIT_S = 1.0
"""For the hello of an agent that is there already."""
_OTHERS_LIMIT_S, _OTHERS_EVERY_S = 3.0, 0.02
_LATER = f"attach again once it goes on, or {RUN_INSTEAD}"


@dataclass(frozen=True, slots=True)
class Attached:
    """A live connection to a trainer's agent, and how it came about."""

    client: Client
    process: Process
    method: str
    """`shared` when an agent was there already."""
    attempts: tuple[Attempt, ...]
    place: Place | None
    """The folder made for this attach; None when the agent was there already."""
    took_ns: int
    _last_words: list[str] = field(default_factory=list)

    @property
    def stays(self) -> str:
        """Why the agent could not end when it was left; empty: it did, or did not say."""
        return self._last_words[-1] if self._last_words else ""

    @property
    def shared(self) -> bool:
        return self.method == "shared"

    @property
    def stopped_ns(self) -> int:
        return sum(attempt.stopped_ns for attempt in self.attempts)

    def leave(self, limit_s: float = 2.0) -> bool:
        """Asks the agent to end, and hangs up; True: it did, and its folder is gone.

        An agent that another monitor watches stays, and so does its folder. What remains in the
        trainer in any case is the mapped library, asleep, and a page or two of memory.
        """
        with contextlib.suppress(CollectorError, OSError):
            self.client.send(detach())
        deadline = time.monotonic() + limit_s
        while not self.client.closed and time.monotonic() < deadline:
            select.select([self.client], [], [], 0.1)
            with contextlib.suppress(WireError):
                self._hear(self.client.frames())
        self.client.close()
        while (ended := not client.is_listening(self.client.path)) is False:
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_EVERY_S)
        if self.place is not None:
            if ended:
                self.place.remove()
            else:
                os.close(self.place.handle)
        elif ended:
            attach_files.remove_beside(self.process, self.client.path)
        return ended

    def _hear(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.kind == Kind.STATUS and frame.body.get("code") == StatusCode.NO_PAUSE:
                self._last_words.append(printable(str(frame.body.get("says", ""))))


def find_agent(process: Process) -> Client | None:
    """A connection to an agent that another monitor put there, or that started with the trainer."""
    try:
        paths = client.listening_sockets(process.pid)
    except OSError:
        return None
    for path in paths:
        if path.endswith(attach_files.SOCKET_NAME) and "/brrrtop-" in path:
            prefix = "" if attach_files.same_mounts(process) else process.root
            try:
                return client.connect(
                    prefix + path, pid=process.pid, uid=process.uid, limit_s=_FIND_LIMIT_S
                )
            except (NoHandshake, NotPermitted):
                continue
    return None


def attach(
    pid: int,
    files: AgentFiles,
    options: str = "",
    *,
    limit_s: float = 20.0,
    handshake_s: float | None = None,
    need_torch: bool = True,
    methods: Sequence[Method] | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Attached:
    """A connection to the agent in process `pid`, which is put there unless it is there already.

    Args:
        pid: The trainer.
        files: Where the agent and its library lie on our side.
        options: For the agent, `key=value;key=value`.
        limit_s: For everything together.
        handshake_s: How long each way may take from entering to the agent's hello; None: its own.
        need_torch: Refuse a Python that has loaded neither torch nor CUDA's driver.
        methods: Ways to try, in order; None: those for such a program.
        report: Called with what is being done, for a status line.

    Raises:
        NoSuchProcess, NotPermitted, NotPython, NoTorch, TrainerStopped, Unsupported, NotWritable:
            Known before, or the kernel said so.
        AttachFailed: Every way was tried; `attempts` tells how each ended.
    """
    began = time.perf_counter_ns()
    deadline = time.monotonic() + limit_s
    process = processes.read(pid)

    def attached(
        agent: Client, attempts: Sequence[Attempt] = (), place: Place | None = None
    ) -> Attached:
        method = attempts[-1].method if attempts else "shared"
        took_ns = time.perf_counter_ns() - began
        return Attached(agent, process, method, tuple(attempts), place, took_ns)

    again = True
    while True:
        try:
            access.check(process, need_torch)
            there = find_agent(process)
            if there is not None:
                return attached(there)
            place = attach_files.prepare(process, files)
            try:
                entry = _Entry(process, place, _text(process, place, options), deadline)
                return attached(entry.connect(methods, handshake_s, report), entry.attempts, place)
            except BaseException:
                place.remove()
                raise
        except CollectorError as fault:
            there = None if isinstance(fault, NoSuchProcess) else _agent_of_others(process)
            if there is not None:
                return attached(there)
            if not again or not isinstance(fault, NotPermitted):
                raise
            again = False


def _agent_of_others(process: Process) -> Client | None:
    """The agent of a monitor that entered at the same instant, and so was in our way."""
    deadline = time.monotonic() + _OTHERS_LIMIT_S
    traced = False
    while by_ptrace.is_entered(process.pid) and time.monotonic() < deadline:
        traced = True
        time.sleep(_OTHERS_EVERY_S)
    while True:
        there = find_agent(process)
        if there is not None or not traced or time.monotonic() > deadline:
            return there
        time.sleep(_OTHERS_EVERY_S)


def _text(process: Process, place: Place, options: str) -> str:
    """What the trainer is to run, or, where that is no Python, what its agent is told."""
    options = ";".join(filter(None, (options, attach_files.cupti_option(process))))
    if process.python is None:
        return f"{place.socket_inside}\n{options}"
    paths = (place.agent_inside, place.library_inside, place.socket_inside)
    try:
        return bootstrap.payload(*paths, options, process.pids_inside[-1])
    except ValueError as fault:
        raise CollectorError(str(fault), "install brrrtop at a shorter path") from fault


@dataclass(slots=True)
class _Entry:
    process: Process
    place: Place
    text: str
    deadline: float
    attempts: list[Attempt] = field(default_factory=list)

    def connect(
        self,
        methods: Sequence[Method] | None,
        handshake_s: float | None,
        report: Callable[[str], None],
    ) -> Client:
        """A connection by the first way that works.

        Raises:
            CollectorError: No way can work, or all were tried.
        """
        pid = self.process.pid
        known = METHODS if self.process.python is not None else NATIVE_METHODS
        for method in methods or known:
            if time.monotonic() > self.deadline:
                break
            if method is not REMOTE_EXEC:
                report(f"{method.name}: entering process {pid}")
            elif any(attempt.entered for attempt in self.attempts):
                break  # whoever did not run what was accepted runs no script either
            connection = self._by(method, handshake_s or method.handshake_s)
            if connection is not None:
                return connection
        reasons = "; ".join(f"{a.method}: {a.reason}" for a in self.attempts)
        action = next((a.action for a in reversed(self.attempts) if a.action), RUN_INSTEAD)
        raise AttachFailed(
            f"no way into process {pid} worked ({reasons})", action, tuple(self.attempts)
        )

    @property
    def _left_s(self) -> float:
        return max(0.1, self.deadline - time.monotonic())

    def _by(self, method: Method, handshake_s: float) -> Client | None:
        began = time.perf_counter_ns()
        attempt = method.enter(self.process, self.text, self.place, min(5.0, self._left_s))
        connection = None
        if attempt.entered:
            try:
                connection = self._handshake(method, min(handshake_s, self._left_s))
            except _Unanswered as silence:
                attempt = replace(attempt, reason=str(silence), action=_LATER)
        took_ns = time.perf_counter_ns() - began
        self.attempts.append(replace(attempt, took_ns=took_ns))
        return connection

    def _handshake(self, method: Method, limit_s: float) -> Client:
        process, path = self.process, self.place.socket_outside
        check = _Watch(process, self.place, method).check
        try:
            return client.connect(
                path, pid=process.pid, uid=process.uid, limit_s=limit_s, give_up=check
            )
        except NoHandshake as fault:
            raise _Unanswered(self._silence(limit_s, fault)) from fault

    def _silence(self, limit_s: float, fault: NoHandshake) -> str:
        """What an agent that does not answer means."""
        if os.path.lexists(self.place.socket_outside):
            return f"entered, and no agent answered: {fault}"
        return (
            f"entered, and no agent came of it in {limit_s:.0f} s: a call that does not return "
            "may hold the lock of its Python"
        )


def why_refused(place: Place) -> str:
    name = attach_files.SOCKET_NAME + bootstrap.REFUSED_SUFFIX
    try:
        target = os.readlink(name.encode(), dir_fd=place.handle)
    except OSError:
        return ""
    return printable(target.decode("utf-8", "replace"))


class _Unanswered(Exception):
    """The text was accepted and no agent came of it; another way may still work."""


class _Watch:
    """Looks, while we wait for the agent, whether waiting has become pointless."""

    def __init__(self, process: Process, place: Place, method: Method) -> None:
        self._process, self._place, self._method = process, place, method
        self._still_since = self._looked = time.monotonic()
        self._standing = calls.standing(process.pid, process.pid)

    def check(self) -> None:
        """Nothing, or an exception when no agent can be expected any more."""
        now = time.monotonic()
        if now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        if not self._process.still_the_same():
            raise NoSuchProcess(
                f"process {self._process.pid} exited during the attach",
                "`brrrtop` lists the trainers",
            )
        reason = why_refused(self._place)
        if reason:
            raise CollectorError(f"the agent does not start there: {reason}", RUN_INSTEAD)
        if not self._method.needs_main_thread:
            return
        before = self._standing
        self._standing = calls.standing(self._process.pid, self._process.pid)
        if before is None or self._standing != before:
            self._still_since = now
        elif now - self._still_since > _MAIN_PATIENCE_S:
            raise _Unanswered("its main thread sleeps in a system call and runs no Python")
