"""A connection to an agent: whole frames whatever the pieces, a deadline on every wait."""

import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collectors.attach import client
from collectors.errors import NoHandshake, NotPermitted, PeerGone, PeerTooNew, PeerTooOld
from collectors.protocol.frames import Frame, Kind, WireError, encode

HELLO = encode(Frame(Kind.HELLO, {"wire": 1, "pid": os.getpid()}))


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(2)
        listener.settimeout(5)
        yield listener


def connect(path: Path, limit_s: float = 2.0, **more: int) -> client.Client:
    given = {"pid": os.getpid(), "uid": os.geteuid()} | more
    return client.connect(str(path), limit_s=limit_s, **given)


@contextmanager
def pair(tmp_path, first: bytes = HELLO) -> Iterator[tuple[client.Client, socket.socket]]:
    with listening(tmp_path / "s") as listener:
        agents: list[socket.socket] = []

        def answer() -> None:
            agents.append(listener.accept()[0])
            agents[0].sendall(first)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            with contextlib.closing(connect(tmp_path / "s")) as ours:
                thread.join(5)
                yield ours, agents[0]
        finally:
            thread.join(5)
            for one in agents:
                one.close()


def read_all(ours: client.Client, count: int) -> list[Frame]:
    frames: list[Frame] = []
    deadline = time.monotonic() + 5
    while len(frames) < count and not ours.closed and time.monotonic() < deadline:
        frames += ours.frames()
        time.sleep(0.001)
    return frames


def test_hello_comes_with_the_connection_and_again_as_a_frame(tmp_path):
    with pair(tmp_path) as (ours, _):
        assert ours.hello["pid"] == os.getpid()
        assert [f.kind for f in ours.frames()] == [Kind.HELLO]
        assert ours.frames() == []
        assert not ours.closed


def test_frames_arrive_whole_whatever_the_pieces(tmp_path):
    sent = b"".join(encode(Frame(Kind.STATUS, {"n": n})) for n in range(30))
    with pair(tmp_path) as (ours, agent):
        for at in range(0, len(sent), 7):
            agent.sendall(sent[at : at + 7])
        assert [f.body["n"] for f in read_all(ours, 31)[1:]] == list(range(30))


def test_what_came_before_the_end_is_still_read(tmp_path):
    with pair(tmp_path) as (ours, agent):
        agent.sendall(encode(Frame(Kind.END, {"reason": "bye"})))
        agent.close()
        assert [f.kind for f in read_all(ours, 3)] == [Kind.HELLO, Kind.END]
        ours.frames()
        assert ours.closed
        with pytest.raises(PeerGone):
            ours.send(b"x")


def test_garbage_is_told_apart_from_an_end(tmp_path):
    with pair(tmp_path) as (ours, agent):
        agent.sendall(struct.pack("<IHHq", 1 << 31, 1, 0, 0))
        with pytest.raises(WireError):
            read_all(ours, 5)


def test_sending_never_waits_for_an_agent_that_does_not_read(tmp_path):
    with pair(tmp_path) as (ours, agent):
        began = time.monotonic()
        with pytest.raises(PeerGone):
            for _ in range(100_000):
                ours.send(b"z" * 1000)
        assert time.monotonic() - began < 2
        buffered = len(ours._unsent)
        assert buffered > 0
        agent.settimeout(1)
        while len(ours._unsent):
            agent.recv(1 << 20)
            ours.frames()


def test_what_an_agent_does_not_read_is_bounded_and_its_end_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(client, "_SEND_LIMIT_BYTES", 100_000)
    with pair(tmp_path) as (ours, _):
        with pytest.raises(PeerGone, match="no longer listens"):
            for _ in range(1_000):
                ours.send(bytes(10_000))
        assert len(ours._unsent) == 100_000
    (tmp_path / "s").unlink()
    with pair(tmp_path) as (ours, agent):
        agent.close()
        with pytest.raises(PeerGone, match="has gone"):
            ours.send(b"x")
        assert not ours._unsent
        ours.close()
        assert ours.closed and ours.fileno() == -1


def test_an_agent_that_never_stops_is_read_in_parts(tmp_path, monkeypatch):
    with pair(tmp_path) as (ours, agent):
        ours.frames()
        monkeypatch.setattr(client, "_CHUNK_BYTES", 10)
        monkeypatch.setattr(client, "_READ_LIMIT_BYTES", 25)
        agent.sendall(HELLO * 10)
        before = ours.read_bytes
        ours.frames()
        assert ours.read_bytes - before == 30


def test_no_agent_is_told_after_the_deadline_and_not_later(tmp_path):
    began, tries = time.monotonic(), list[None]()
    with pytest.raises(NoHandshake):
        client.connect(
            str(tmp_path / "s"), pid=1, uid=0, limit_s=0.2, give_up=lambda: tries.append(None)
        )
    assert 0.2 <= time.monotonic() - began < 1
    assert 1 < len(tries) < 25, "it sleeps between two"


def test_an_agent_that_says_nothing_is_given_up(tmp_path, monkeypatch):
    looks: list[None] = []
    monkeypatch.setattr(client.Client, "frames", lambda _: looks.append(None) or [])
    with listening(tmp_path / "s"), pytest.raises(NoHandshake, match="no hello"):
        connect(tmp_path / "s", 0.2)
    assert 1 <= len(looks) < 5, "it waits, and does not ask again and again"
    monkeypatch.undo()
    (tmp_path / "s").unlink()
    with listening(tmp_path / "s") as listener:
        leaving = threading.Thread(target=lambda: listener.accept()[0].close())
        leaving.start()
        with pytest.raises(NoHandshake, match="hung up"):
            connect(tmp_path / "s")
        leaving.join()


def test_waiting_ends_early_when_it_is_pointless(tmp_path):
    def pointless() -> None:
        raise PeerGone("nobody will come")

    with pytest.raises(PeerGone):
        client.connect(str(tmp_path / "s"), pid=1, uid=os.geteuid(), limit_s=10, give_up=pointless)


def test_root_without_the_right_to_change_users_connects_as_itself(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise NotPermitted("no")

    monkeypatch.setattr(client.own_files, "run_as", refuse)
    with pair(tmp_path) as (ours, _):
        assert ours.hello


def test_another_process_behind_the_socket_is_refused(tmp_path):
    with listening(tmp_path / "s"):
        before = os.listdir("/proc/self/fd")
        with pytest.raises(NotPermitted, match="not trainer") as caught:
            connect(tmp_path / "s", pid=os.getpid() + 1)
        assert os.listdir("/proc/self/fd") == before, caught


def test_another_user_behind_the_socket_is_refused(tmp_path):
    with listening(tmp_path / "s"), pytest.raises(NotPermitted):
        connect(tmp_path / "s", uid=os.geteuid() + 1)


@pytest.mark.parametrize(("wire", "kind"), [(99, PeerTooNew), (None, PeerTooOld)])
def test_other_versions_are_refused_by_name(wire, kind, tmp_path):
    body = json.dumps({"wire": wire}).encode()
    hello = struct.pack("<IHHq", len(body), Kind.HELLO, 0, 0) + body
    with pytest.raises(kind), pair(tmp_path, hello):
        pass


def test_paths_longer_than_a_socket_may_have_are_reached_all_the_same(tmp_path):
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    before = os.getcwd()
    os.chdir(folder)
    try:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("s")
    finally:
        os.chdir(before)
    with listener:
        listener.listen(1)
        thread = threading.Thread(target=lambda: kept.append(answered(listener)))
        kept: list[socket.socket] = []
        thread.start()
        with contextlib.closing(connect(folder / "s")) as ours:
            assert ours.hello["wire"] == 1
        thread.join(5)
        kept[0].close()


def answered(listener: socket.socket) -> socket.socket:
    connection, _ = listener.accept()
    connection.sendall(HELLO)
    return connection


def test_listening_sockets_of_a_process_are_found_by_looking(tmp_path):
    with listening(tmp_path / "s"), socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "bound"))
        listen = client.listening_sockets(os.getpid())
        assert str(tmp_path / "s") in listen and str(tmp_path / "bound") not in listen
        assert client.is_listening(str(tmp_path / "s"))
        with contextlib.ExitStack() as stack, contextlib.suppress(BlockingIOError):
            while True:
                one = stack.enter_context(socket.socket(socket.AF_UNIX))
                one.setblocking(False)
                one.connect(str(tmp_path / "s"))
        assert client.is_listening(str(tmp_path / "s")), "though nobody is let in just now"
    assert str(tmp_path / "s") not in client.listening_sockets(os.getpid())
    assert not client.is_listening(str(tmp_path / "s"))
