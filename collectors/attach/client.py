"""Connects to an agent's socket and turns bytes into frames. Knows nothing of what they mean."""

import errno
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collectors import own_files
from collectors.errors import NoHandshake, NotPermitted, PeerGone, PeerTooNew, PeerTooOld
from collectors.protocol import frames as wire
from collectors.protocol.frames import Frame, Kind

PATH_LIMIT_BYTES = 107
"""sockaddr_un holds 108 bytes with the closing zero."""
_CREDENTIALS = struct.Struct("3i")
_CHUNK_BYTES = 1 << 18
_READ_LIMIT_BYTES = 16 << 20
_SEND_LIMIT_BYTES = 1 << 20
_RETRY_S = 0.01
_LISTENING_FLAG = 0x10000
"""`__SO_ACCEPTCON` in the flags column of /proc/net/unix."""


class Client:
    """One connection to an agent; reading and writing never wait."""

    def __init__(self, path: str, connection: socket.socket) -> None:
        self.path = path
        self.hello: dict[str, Any] = {}
        """What the agent says first."""
        self._socket = connection
        self._decoder = wire.Decoder()
        self._first: list[Frame] = []
        self._unsent = bytearray()
        self._closed = False
        self._lock = threading.Lock()
        self.read_bytes = 0

    @property
    def closed(self) -> bool:
        return self._closed

    def fileno(self) -> int:
        return self._socket.fileno()

    def frames(self) -> list[Frame]:
        """The frames that have arrived, in order; none is no sign of an end."""
        frames, self._first = self._first, []
        with self._lock:
            self._push()
        taken = 0
        while not self._closed and taken < _READ_LIMIT_BYTES:
            try:
                chunk = self._socket.recv(_CHUNK_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                chunk = b""
            if not chunk:
                self._closed = True
                break
            taken += len(chunk)
            frames.extend(self._decoder.feed(chunk))
        self.read_bytes += taken
        return frames

    def await_hello(self, deadline: float) -> None:
        """Waits for `hello`, until a moment of CLOCK_MONOTONIC in seconds.

        Raises:
            NoHandshake: There is none.
            PeerTooOld, PeerTooNew: The agent speaks another wire version.
        """
        seen: list[Frame] = []
        while (left_s := deadline - time.monotonic()) > 0:
            select.select([self], [], [], left_s)
            try:
                seen += self.frames()
            except wire.WireError as fault:
                raise _other_version(fault) from fault
            for frame in seen:
                if frame.kind == Kind.HELLO:
                    self.hello, self._first = dict(frame.body), seen
                    return
            if self._closed:
                raise NoHandshake(f"the agent at {self.path} hung up without a hello")
        raise NoHandshake(f"the agent at {self.path} listens and says no hello")

    def send(self, data: bytes) -> None:
        """Sends, or keeps for the next call what the agent does not take yet; from any thread.

        Raises:
            PeerGone: The agent is gone, or has not read for long.
        """
        with self._lock:
            if self._closed or len(self._unsent) + len(data) > _SEND_LIMIT_BYTES:
                raise PeerGone("the agent in the trainer no longer listens", "attach again")
            self._unsent += data
            gone = not self._push()
        if gone:
            raise PeerGone("the agent in the trainer has gone", "attach again")

    def _push(self) -> bool:
        """False: nobody will take it any more. Call with the lock held."""
        while self._unsent and not self._closed:
            try:
                sent = self._socket.send(self._unsent, socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                return True
            except OSError:
                self._unsent.clear()
                return False
            del self._unsent[:sent]
        return not self._closed

    def close(self) -> None:
        """Hangs up; the agent then takes its hands off the trainer by itself."""
        self._closed = True
        self._socket.close()


def connect(
    path: str,
    *,
    pid: int,
    uid: int,
    limit_s: float = 2.0,
    give_up: Callable[[], None] | None = None,
) -> Client:
    """A connection to the agent that listens at `path`, once it has said hello.

    Args:
        path: As we see it; when too long for a socket it is reached through its folder.
        pid: The trainer; somebody else at the other end is refused.
        uid: Its user.
        limit_s: For all of it, while the agent may not even listen yet.
        give_up: Called between tries; raises to end the waiting early.

    Raises:
        NoHandshake: Nobody answered in time.
        NotPermitted: The socket belongs to another process or user.
        PeerTooOld, PeerTooNew: The agent speaks another wire version.
    """
    deadline = time.monotonic() + limit_s
    connection = _connect(path, uid, deadline, give_up)
    try:
        _check_peer(connection, path, pid, uid)
        client = Client(path, connection)
        client.await_hello(deadline)
    except BaseException:
        connection.close()
        raise
    return client


def _connect(
    path: str, uid: int, deadline: float, give_up: Callable[[], None] | None
) -> socket.socket:
    fault: OSError | None = None
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            _connect_as(uid, connection, path)
            return connection
        except OSError as failure:
            connection.close()
            fault = failure
            if failure.errno in (errno.EACCES, errno.EPERM):
                raise NotPermitted(
                    f"the agent's socket {path} may not be opened", "run brrrtop as the same user"
                ) from failure
        if give_up is not None:
            give_up()
        if time.monotonic() > deadline:
            raise NoHandshake(f"no agent answers at {path} ({fault.strerror})")
        time.sleep(_RETRY_S)


def _connect_as(uid: int, connection: socket.socket, path: str) -> None:
    """Connects with the rights of the trainer's user, which the agent then sees as the peer's.

    An agent in a user namespace (rootless containers) cannot tell root outside from any stranger.
    Whoever swaps the socket for a link leads us nowhere that this user could not go.
    """
    try:
        _connect_by_path(
            connection, path, lambda work: own_files.run_as(uid, own_files.NO_GROUP, work)
        )
    except (
        NotPermitted
    ):  # to change users, where root has lost that right: agents beside us trust it
        _connect_by_path(connection, path)


def _connect_by_path(
    connection: socket.socket,
    path: str,
    run: Callable[[Callable[[], None]], None] = lambda work: work(),
) -> None:
    """Through a handle of its folder, which may lie where only root gets to, and beyond any length."""
    folder = os.open(os.path.dirname(path) or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        run(lambda: connection.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}"))
    finally:
        os.close(folder)


def is_listening(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as connection:
        try:
            _connect_by_path(connection, path)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


def _check_peer(connection: socket.socket, path: str, pid: int, uid: int) -> None:
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    peer_pid, peer_uid, _ = _CREDENTIALS.unpack(packed)
    # 0 stands for a process outside our pid namespace.
    if peer_uid != uid or peer_pid not in (pid, 0):
        raise NotPermitted(
            f"process {peer_pid} of user {peer_uid} listens at {path}, not trainer {pid}",
            "remove that file and attach again",
        )


def _other_version(fault: wire.WireError) -> PeerTooNew | PeerTooOld:
    if isinstance(fault, wire.NewerWire):
        return PeerTooNew(f"the agent in the trainer is newer: {fault}", "upgrade brrrtop")
    return PeerTooOld(
        f"what answers in the trainer is no agent of this brrrtop: {fault}",
        "restart the trainer, or watch it with the brrrtop that attached first",
    )


def listening_sockets(pid: int) -> list[str]:
    """Paths of the Unix sockets on which process `pid` listens, as it sees them."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            link = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if link.startswith("socket:["):
            inodes.add(link[8:-1])
    names = []
    for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        words = line.split(None, 7)
        if len(words) == 8 and words[6] in inodes and int(words[3], 16) & _LISTENING_FLAG:
            names.append(words[7])
    return names
