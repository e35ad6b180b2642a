"""A trainer in a child process, and monitors on the agent's real socket."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from collectors.protocol import requests
from collectors.protocol.frames import Decoder, Frame, Kind

CHILD = Path(__file__).with_name("child.py")
PATIENCE_S = 60.0
"""What is waited for comes within a second where nothing else runs."""
_ORDER = """
    state clients kernels calls lost pool_mapped outbox_bytes name_bytes bursts cpu_ns
"""
STATS = tuple(_ORDER.split())
"""The order of `brrr_stats`."""


class Trainer:
    """One child. `do` runs Python in it and brings back what it left in `answer`."""

    in_hurry = False
    """It goes before all other processes, so that its times are its own."""

    def __init__(self, built: dict[str, Path], folder: Path, **environment: str) -> None:
        self.built, self.folder = built, folder
        self.socket_path = folder / "s" / "agent.sock"
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def do(self, code: str, patience_s: float = PATIENCE_S) -> Any:
        self.begin(code)
        return self.answer(code, patience_s)

    def until(self, code: str, wanted: Any, patience_s: float = PATIENCE_S) -> None:
        """Runs `code` again and again until its answer is `wanted`."""
        deadline = time.monotonic() + patience_s
        while (answer := self.do(code)) != wanted:
            assert time.monotonic() < deadline, f"{code!r} stayed {answer!r}"
            time.sleep(0.005)

    def begin(self, code: str) -> None:
        """Lets it begin with what takes longer; `answer` waits for the end."""
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def answer(self, code: str = "", patience_s: float = PATIENCE_S) -> Any:
        ready, _, _ = select.select([self.process.stdout], [], [], patience_s)
        assert ready, f"no answer to {code!r}"
        line = self.process.stdout.readline()
        assert line, f"the trainer died: {self.complaints()}"
        loads = json.loads(line)
        assert "fault" not in loads, loads["fault"]
        return loads["answer"]

    def complaints(self) -> str:
        """Its stderr to the end: only for one that has died."""
        return self.process.stderr.read() if self.process.stderr else ""

    def load(self, *, version: int = 130001, cupti: str = "cupti", cuda: bool = True) -> Trainer:
        """The stand-ins as torch would have them mapped, and the agent's library."""
        if cuda:
            self.do(f"cuda = load({str(self.built['cuda'])!r})")
        self.do(f"cupti = fake({str(self.built[cupti])!r}); cupti.fake_version({version})")
        self.do(f"lib = agent({str(self.built['agent'])!r})")
        return self

    def hurry(self) -> None:
        """Lets it go before all other processes, where that is permitted: the agent gives up on a
        trainer that is not there in time, and on a busy host nobody is."""
        self.in_hurry = bool(self.do("answer = hurry()"))

    def start(
        self, options: str = "", hello: str = '{"pid": 1, "wire": 1}', graphs: bool = False
    ) -> Trainer:
        """`graphs`: nobody has said that the trainer has none."""
        code = self.do(
            f"answer = [lib.brrr_start({str(self.socket_path)!r}.encode(), {hello!r}.encode(), "
            f"{options!r}.encode()), lib.brrr_last_error().decode()]"
        )
        assert code[0] == 0, code[1]
        if not graphs:
            self.do("lib.brrr_graphs(0)")
        return self

    def stats(self) -> dict[str, int]:
        return dict(zip(STATS, self.do("answer = stats(lib)"), strict=False))

    def bits_until(self, wanted: int) -> int:
        """Events of the control thread's side (`brrr_wait`), gathered until all of `wanted` were there."""
        seen, deadline = 0, time.monotonic() + PATIENCE_S
        while seen & wanted != wanted:
            assert time.monotonic() < deadline, f"only {seen:#x} of {wanted:#x}"
            seen |= self.wait_bits(200)
        return seen

    def wait_bits(self, timeout_ms: int) -> int:
        return int(self.do(f"answer = lib.brrr_wait({timeout_ms})"))

    def end(self) -> int:
        """Lets it run off its end, as a script does; the exit code."""
        self.process.stdin.close()
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


class Monitor:
    """One reader of the wire, with everything it has read."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.socket.connect(str(path))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                assert time.monotonic() < until, "the agent does not listen"
                time.sleep(0.01)
        self.decoder, self.frames, self.ended = Decoder(), [], False

    frames: list[Frame]

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, patience_s: float = 0.05) -> None:
        """What has come, after waiting at most so long for the first byte."""
        ready, _, _ = select.select([self.socket], [], [], patience_s)
        if not ready or self.ended:
            return
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        self.ended = not data
        self.frames += self.decoder.feed(data)

    def until(self, good: Callable[[Monitor], Any], patience_s: float = PATIENCE_S) -> Any:
        """Reads until `good` says something true, and gives that back."""
        deadline = time.monotonic() + patience_s
        while not (until := good(self)):
            assert time.monotonic() < deadline, f"never came; last: {self.frames[-3:]}"
            assert not self.ended or good(self), f"the agent hung up; last: {self.frames[-3:]}"
            self.read()
        return until

    def of(self, kind: Kind) -> list[Frame]:
        return [frame for frame in self.frames if frame.kind == kind]

    def rows(self, kind: Kind) -> Any:
        """All records of a kind in one array; None when there are none."""
        bodies = [frame.body for frame in self.of(kind)]
        return np.concatenate(bodies) if bodies else None

    def count(self, kind: Kind) -> int:
        return sum(len(frame.body) for frame in self.of(kind))

    def names(self) -> dict[int, str]:
        return {key: text for frame in self.of(Kind.NAMES) for key, text in frame.body.items()}

    def status(self) -> dict[str, Any]:
        return dict(self.of(Kind.STATUS)[-1].body) if self.of(Kind.STATUS) else {}

    def losses(self) -> dict[str, int]:
        return dict(self.of(Kind.LOSS)[-1].body) if self.of(Kind.LOSS) else {}

    def in_state(self, state: str, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """Waits for that state; what the status said."""

        def arrived(monitor: Monitor) -> dict[str, Any] | None:
            status = monitor.status()
            return status if status.get("state") == state else None

        return dict(self.until(arrived, patience_s))

    def ready(self) -> Monitor:
        """Once the agent can trace."""
        self.in_state("ready")
        return self

    def traced(self, times: int = 1) -> dict[str, Any]:
        """Waits for the end of that many bursts; what the last one was, less how long it held."""
        last = dict(self.until(lambda m: len(m.bursts) >= times and m.bursts[-1]))
        del last["held_us"]
        return last

    @property
    def bursts(self) -> list[dict[str, Any]]:
        return [f.body["traced"] for f in self.of(Kind.STATUS) if "traced" in f.body]

    def burst(self, steps: int = 0, longest_s: float = 0.3) -> None:
        self.send(requests.burst(steps, int(longest_s * 1e9)))

    def trace(self, steps: int = 0, longest_s: float = 0.3) -> None:
        """A burst, from its beginning on."""
        self.burst(steps, longest_s)
        self.in_state("tracing")

    def trace_all(self) -> None:
        """Without pauses, from the beginning on."""
        self.send(requests.continuous(True))
        self.in_state("tracing")

    def burst_end(self) -> None:
        self.send(requests.control(requests.Op.BURST_END))

    def close(self) -> None:
        self.socket.close()
