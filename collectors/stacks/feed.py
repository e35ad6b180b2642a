"""Samples of the training thread's stack, read from outside: as marks, by the agent's names of places.

The agent's own samples need the interpreter's lock: they stand where that is let go, not where the thread
was. These take its place as soon as both name the same program.
"""

from __future__ import annotations

import os
import random
import re
import stat
import time
from collections import deque
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from collectors.agent.probes.places import Places, place
from collectors.errors import CollectorError
from collectors.gpu.feed import SamplerThread
from collectors.own_files import run_as
from collectors.printable import printable
from collectors.process import process as processes
from collectors.process.process import Process
from collectors.protocol.frames import MARK, Frame, Kind
from collectors.stacks.interpreter import Code, Interpreter, Spot, Torn
from collectors.vocabulary import MarkClass

_PAUSES_S = (0.02, 0.06)
"""Between samples, at random: an even distance would meet an even loop at the same place each time."""
_MOST_SHARED = 4
"""Ranks of a job share the samples of one: peers do the same, and a few seconds tell who does not."""
_FINEST_NS = 1 << 20
"""What jitters below this fills recordings."""
_FORGET_NS = 10_000_000_000
"""What was read of code is read again after that: the trainer may have dropped it."""
_SILENT_NS = 2_000_000_000
"""Without a sample for so long the agent is to take its own."""
_FIRST_NAME, _MOST_NAMES, _MOST_SIGNS = 1 << 16, 1 << 15, 4096
"""Ids of names: an agent's are below."""
_MOST_SOURCE, _MOST_FILES = 1 << 20, 64
_LIBRARY = re.compile(
    r"<(frozen|string|shim)|.*/((site|dist)-packages|lib\d*/python3\.\d+)/"
    r"|.*/(collectors|brrrtop-[^/]+)/agent/"
    r"|.*/(?P<of>\w\w)/c(?P=of)\w{40,}\.py$",  # written by Inductor, named by a hash
    re.DOTALL,
)
"""Code that is not the user's own: as `library_dirs` of the agent, which can ask the interpreter."""


class _Frame(NamedTuple):
    """As much of Python's own frames as names of places take."""

    f_code: Code
    f_lineno: int
    f_back: Any


class _Places(Places):
    """The agent's names of places, made here."""

    def __init__(self, process: Process, names: _Names) -> None:
        super().__init__(cast("Any", names))
        self._process = process
        torch = (path for path in process.files if path.endswith("/lib/libtorch_cpu.so"))
        self._torch = tuple(path.removesuffix("lib/libtorch_cpu.so") for path in torch)
        self._files: dict[str, bytes] = {}
        self._located: dict[tuple[Spot, ...], tuple[int, str]] = {}

    def forget(self) -> None:
        self._located.clear()

    def is_library(self, path: str) -> bool:
        return _LIBRARY.match(path) is not None or path.startswith(self._torch)

    def locate(self, spots: list[Spot]) -> tuple[int, str]:
        """The id of a stack's name, and its outermost function of the user's."""
        if (known := self._located.get(key := tuple(spots))) is not None:
            return known
        leaf = None
        for spot in reversed(spots):
            leaf = _Frame(*spot, leaf)
        name_id = self.name(cast("Any", leaf))
        users = (spot for spot in reversed(spots) if not self.is_library(spot[0].co_filename))
        outermost = _outermost(place(*cast("Any", next(users, spots[0]))))
        self._located[key] = found = name_id, outermost
        return found

    def source(self, path: str, line: int) -> str:
        if path.startswith("<"):
            return ""
        text = self._files.get(path)
        if text is None:
            if len(self._files) >= _MOST_FILES:
                self._files.clear()
            text = self._files[path] = self._read(path)
        lines = text.decode("utf-8", "replace").splitlines()
        return lines[line - 1] if 0 < line <= len(lines) else ""

    def _read(self, path: str) -> bytes:
        process = self._process
        ours = process.outside(str(Path(process.cwd, path)))
        try:
            return run_as(process.uid, process.gid, lambda: _contents(ours))
        except (OSError, CollectorError) as fault:  # a cell of a notebook: only its process has it
            raise Torn(f"no source: {fault}") from fault


def _contents(path: str) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("not a file")
        return file.read(_MOST_SOURCE)


class _Names:
    """Gives names ids; those that are new are told once."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self.new: deque[tuple[int, str]] = deque()

    def name(self, text: str) -> int:
        text = text[:_MOST_SIGNS]
        known = self._ids.get(text)
        if known is None:
            if len(self._ids) >= _MOST_NAMES:
                self._ids.clear()
            known = self._ids[text] = _FIRST_NAME + len(self._ids)
            self.new.append((known, printable(text)))
        return known


class StackFeed(SamplerThread):
    """Samples of one trainer that has an agent; without the right to read it, none."""

    def __init__(self, pid: int) -> None:
        super().__init__("brrrtop-stacks")
        self._pid = pid
        self._names = _Names()
        self._samples: deque[tuple[int, int, int]] = deque(maxlen=4096)
        self._number: int | None = None
        """Of the training thread: the one of the agent's newest sample or step."""
        self._agent_names: dict[int, str] = {}
        self._agent_outermost: set[str] = set()
        self._agreed = False
        self._newest_ns = self._told_ns = 0

    @property
    def remarks(self) -> list[str]:
        return []

    @property
    def replaces_agent(self) -> bool:
        """Samples come, and are of the program that the agent's are of."""
        return self._agreed and time.monotonic_ns() - self._newest_ns < _SILENT_NS

    def hear(self, frame: Frame) -> None:
        """A frame of the agent: which thread trains, and what it calls the places there."""
        if frame.kind == Kind.NAMES and not self._agreed:
            self._agent_names.update((i, n) for i, n in frame.body.items() if ".py:" in n)
        if frame.kind != Kind.MARKS:
            return
        rows = frame.body[np.isin(frame.body["mark_class"], (MarkClass.STACK, MarkClass.STEP))]
        if len(rows):
            self._number = int(rows["tid"][-1])
        if not self._agreed:
            ids = rows["name_id"][rows["mark_class"] == MarkClass.STACK].tolist()
            self._agent_outermost.update(_outermost(self._agent_names.get(i, "")) for i in ids)

    def drain(self) -> list[Frame]:
        samples = [self._samples.popleft() for _ in range(len(self._samples))]
        names = dict(self._names.new.popleft() for _ in range(len(self._names.new)))
        frames = [Frame(Kind.NAMES, names)] if names else []
        if samples and self._agreed:
            rows = np.zeros(len(samples), MARK)
            rows["start_ns"] = rows["end_ns"] = [at_ns for at_ns, _, _ in samples]
            rows["tid"] = [number for _, number, _ in samples]
            rows["name_id"] = [name_id for _, _, name_id in samples]
            rows["mark_class"] = MarkClass.STACK
            before_ns, self._told_ns = self._told_ns or samples[0][0], samples[-1][0]
            rows["value"] = np.diff(rows["start_ns"], prepend=before_ns)
            frames.append(Frame(Kind.MARKS, rows))
        return frames

    def _run(self) -> None:
        with suppress(Exception):  # whatever it is: the agent's own samples stay
            process = processes.read(self._pid)
            with closing(Interpreter(process)) as interpreter:
                self._sample_until_stopped(interpreter, _Places(process, self._names))

    def _sample_until_stopped(self, interpreter: Interpreter, places: _Places) -> None:
        state, number, forget_ns = 0, None, 0
        while not self._stop.wait(random.uniform(*_PAUSES_S) * min(self.ranks, _MOST_SHARED)):
            if self._number is None:
                continue
            now_ns = time.monotonic_ns()
            if now_ns >= forget_ns:
                forget_ns = now_ns + _FORGET_NS
                interpreter.forget()
                places.forget()
            try:
                if number != self._number or now_ns - self._newest_ns > _SILENT_NS:
                    number = self._number
                    state = interpreter.find_thread(number)
                at_ns = time.time_ns() // _FINEST_NS * _FINEST_NS
                name_id, outermost = places.locate(interpreter.stack(state, number))
            except Torn:
                continue
            self._agreed = self._agreed or outermost in self._agent_outermost
            self._newest_ns = now_ns
            self._samples.append((at_ns, number, name_id))


def _outermost(name: str) -> str:
    """`a.py:7 f < main.py:88 main > b.py:1 g | x` → `main.py main`."""
    users = name.partition(" | ")[0].partition(" > ")[0]
    where, _, function = users.rpartition(" < ")[2].rpartition(" ")
    return f"{where.rpartition(':')[0]} {function}"
