"""Where a thread stands is read from outside, true to the clock of the program that is read."""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from collectors.agent.entry import Control
from collectors.own_files import NO_GROUP
from collectors.process import process as processes
from collectors.protocol.frames import MARK, Frame, Kind
from collectors.stacks import feed, interpreter
from collectors.stacks.feed import StackFeed
from collectors.stacks.interpreter import Interpreter, Torn
from collectors.vocabulary import MarkClass
from tests.attach import children

PROGRAM = """
import hashlib, os, sys, threading, time
from time import perf_counter as now
def make_batch():
    return [hashlib.md5(bytes([n % 256])).digest() for n in range(MANY)]
def squares(n):
    for k in range(n): yield k * k
def train():
    for _ in range(60): sum(sorted(squares(100), key=lambda x: -x))
def main():
    print(threading.get_ident() & 0xFFFFFFFF, flush=True)
    making, begin = 0.0, now()
    while now() - begin < SECONDS:
        at = now(); make_batch(); making += now() - at
        train()
    print(making / (now() - begin), flush=True)
    time.sleep(60)
main()
""".replace("MANY", "2500")
"""Both functions keep the interpreter's lock."""
POINTS = 0.08


def is_readable(python: str) -> bool:
    ask = "import sys; print((3, 11) <= sys.version_info[:2] <= (3, 13) and sys.abiflags == '')"
    return b"True" in subprocess.run([python, "-c", ask], capture_output=True, check=True).stdout


def main_thread(child: children.Child) -> int:
    assert child.hears(b"\n")
    return int(child.output.split()[0])


@contextmanager
def running(
    path: Path, python: str = sys.executable, seconds: float = 2
) -> Iterator[children.Child]:
    path.write_text(PROGRAM.replace("SECONDS", str(seconds)))
    with children.child([python, str(path)]) as one:
        yield one


@pytest.mark.parametrize("python", children.interpreters())
def test_shares_are_those_of_the_programs_own_clock(python, tmp_path):
    if not is_readable(python):
        with children.python(children.SLEEPING, python) as one, pytest.raises(Torn):
            Interpreter(processes.read(one.process.pid))
        return
    with running(tmp_path / "train.py", python) as child:
        number, at = main_thread(child), Counter[str]()
        lines: set[int] = set()
        with closing(Interpreter(processes.read(child.process.pid))) as interpreter:
            state, end = interpreter.find_thread(number), time.monotonic() + 1.7
            while time.monotonic() < end:
                time.sleep(random.uniform(0.001, 0.006))
                try:
                    spots = interpreter.stack(state, number)
                except Torn:
                    at["torn"] += 1
                    continue
                assert [code.co_qualname for code, _ in spots[-2:]] == ["main", "<module>"]
                inside = [(code.co_qualname, line) for code, line in spots[:-2]]
                at[inside[-1][0] if inside else "main"] += 1
                lines.update(line for name, line in inside if name == "make_batch")
            with pytest.raises(Torn):
                interpreter.find_thread(number + 1)
            child.hears(b".")
            own = float(child.output.split()[1])
            child.process.kill()
            child.process.wait()
            with pytest.raises(Torn):
                interpreter.stack(state, number)
        assert at["torn"] < 0.1 * at.total(), at
        del at["torn"]
        assert at["make_batch"] / at.total() == pytest.approx(own, abs=POINTS), at
        assert lines == {5}


@pytest.mark.skipif(not is_readable(sys.executable), reason="another Python")
def test_what_inductor_wrote_is_no_line_of_the_users():
    places = feed._Places(processes.read(os.getpid()), feed._Names())
    folder = "/scratch/cache/dg/"
    assert places.is_library(f"{folder}cdglgez5n5tati4lhvy5qthe7q3qorwpteujxazontwtfytdjs22.py")
    assert not places.is_library(f"{folder}cdg.py")


def test_garbage_is_no_sample(tmp_path):
    chance = random.Random(7)

    class Garbled(Interpreter):
        rate = 0.0

        def _read_some(self, address: int, size: int) -> bytes:
            data = bytearray(super()._read_some(address, size))
            while data and chance.random() < self.rate:
                at = chance.randrange(len(data))
                data[at : at + 8] = chance.randbytes(min(8, len(data) - at))
            return bytes(
                data[: chance.randrange(size)] if chance.random() < self.rate / 9 else data
            )

    with running(tmp_path / "train.py", seconds=60) as child:
        number, outcomes = main_thread(child), Counter[bool]()
        with closing(Garbled(processes.read(child.process.pid))) as interpreter:
            state = interpreter.find_thread(number)
            for interpreter.rate in (0.05, 0.3, 0.7):
                for _ in range(400):
                    interpreter.forget()
                    try:
                        outcomes[len(interpreter.stack(state, number)) > 0] += 1
                    except Torn:
                        outcomes[False] += 1
        assert outcomes[True] and outcomes[False]
        assert child.process.poll() is None


@pytest.mark.skipif(not is_readable(sys.executable), reason="another Python")
def test_what_is_read_and_kept_has_a_bound(tmp_path, monkeypatch):
    """The trainer decides how deep its stack is, how long its names, lines and files."""
    with running(tmp_path / "train.py", seconds=60) as child:
        number, process = main_thread(child), processes.read(child.process.pid)
        with closing(Interpreter(process)) as reader:
            state = reader.find_thread(number)
            monkeypatch.setattr(interpreter, "_MOST_KEPT", 2000)
            seen = [len(reader._codes) for _ in range(60) if with_stack(reader, state, number)]
            assert seen and max(seen) < 4, "as each is some 1,500 bytes"
            monkeypatch.setattr(interpreter, "_MOST_READ", 1000)
            assert not with_stack(reader, state, number)
        names = feed._Names()
        places = feed._Places(process, names)
        for path in (tmp_path / f"{n}.py" for n in range(feed._MOST_FILES + 2)):
            path.write_bytes(b"\n" * (3 << 20))
            assert places.source(str(path), 1) == ""
        assert sum(map(len, places._files.values())) <= feed._MOST_FILES << 20
        names.name("x" * 1_000_000)
        assert len(names.new[0][1]) == feed._MOST_SIGNS


def with_stack(reader: Interpreter, state: int, number: int) -> bool:
    try:
        return len(reader.stack(state, number)) > 0
    except Torn:
        return False


class Agent:
    """What the agent sends while the feed is new: a sample of the same thread."""

    def __init__(self, feed: StackFeed, number: int, name: str) -> None:
        marks = np.zeros(1, MARK)
        marks["mark_class"], marks["tid"], marks["name_id"] = MarkClass.STACK, number, 5
        feed.hear(Frame(Kind.NAMES, {5: name}))
        feed.hear(Frame(Kind.MARKS, marks))


def samples(feed: StackFeed, seconds: float) -> tuple[dict[int, str], list[tuple[int, ...]]]:
    """Names and `(time, thread, name id)` that the feed brought."""
    time.sleep(seconds)
    names: dict[int, str] = {}
    rows: list[tuple[int, ...]] = []
    for frame in feed.drain():
        if frame.kind == Kind.NAMES:
            names |= frame.body
        else:
            columns = (frame.body[name].tolist() for name in ("end_ns", "tid", "name_id"))
            rows += zip(*columns, strict=True)
    return names, rows


@pytest.mark.skipif(not is_readable(sys.executable), reason="another Python")
@pytest.mark.parametrize("case", ["agrees", "another program", "no source"])
def test_samples_are_marks_as_the_agents_once_both_agree(case, tmp_path):
    path = tmp_path / "train.py"
    with running(path, seconds=60) as child:
        number = main_thread(child)
        if case == "no source":
            path.unlink()
        feed = StackFeed(child.process.pid)
        with closing(feed):
            feed.start()
            assert samples(feed, 0.2) == ({}, []), "nobody said which thread trains"
            outermost = (
                "other/main.py:3" if case == "another program" else f"{tmp_path.name}/train.py:9"
            )
            Agent(feed, number, f"a/b.py:7 f < {outermost} <module> | f()")
            names, rows = samples(feed, 1.2)
            assert feed.replaces_agent == (case == "agrees")
            if case != "agrees":
                assert not rows
                return
        assert 10 < len(rows) < 60 and {row[1] for row in rows} == {number}
        assert all(0 <= time.time_ns() - row[0] < 10**10 for row in rows)
        making = [n for n in names.values() if f" < {tmp_path.name}/train.py:14 main < " in n]
        assert any(
            n.endswith("hashlib.md5(bytes([n % 256])).digest() for n in range(2500)]")
            for n in making
        )
        assert {row[2] for row in rows} == names.keys()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.skipif(not is_readable(sys.executable), reason="another Python")
@pytest.mark.parametrize("kind", ["secret", "pipe"])
def test_source_is_read_with_the_rights_of_the_trainer(kind):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "theirs.py")
        Path(folder).chmod(0o755)
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.write_text("secret\n" * 20)
            path.chmod(0o600)
        code = PROGRAM.replace("SECONDS", "60")
        text = f"import hashlib, os, threading; os.setuid({NO_GROUP}); exec(compile({code!r}, {str(path)!r}, 'exec'))"
        with children.child([sys.executable, "-c", text]) as child:
            number = main_thread(child)
            with closing(StackFeed(child.process.pid)) as feed:
                feed.start()
                Agent(feed, number, f"{path.parent.name}/theirs.py:3 <module>")
                assert samples(feed, 0.6) == ({}, [])
                assert feed.close(), "it does not hang"


@pytest.mark.parametrize(
    ("path", "is_ours"),
    [
        (Control.end.__code__.co_filename, True),
        ("/tmp/brrrtop-7-4711-9-ab/agent/entry.py", True),
        ("/home/a/rl/agent/control.py", False),
    ],
)
def test_code_of_the_agent_is_no_line_of_the_users(path, is_ours):
    assert bool(feed._LIBRARY.match(path)) is is_ours
