"""The scanner in C reads what events are plain enough for, and leaves the rest, whole runs of it, alone."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brrrtop.session.analyze import analyze
from brrrtop.sources.importers.kineto import scanner_library as building
from brrrtop.sources.importers.kineto import source as kineto_source
from brrrtop.sources.importers.kineto.scanned import Scanned
from brrrtop.sources.importers.trace.columns import COLUMNS, Collected
from brrrtop.sources.registry import open_source
from collectors.attach.agent_library import compiler
from tests.fuzz import fuzz
from tests.session.handmade import kernel, op, text_of, written

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler here")


def taken(*runs: bytes) -> list[bool]:
    """Which runs the scanner takes."""
    library = building.scanner_library()
    assert library is not None
    scanned = Scanned(library, Collected())
    return [scanned.take(run) for run in runs]


def contents(run: bytes, scan: bool) -> dict[str, Any]:
    """What is collected of a run, with names, threads and signatures in place of their numbers."""
    collected, library = Collected(), building.scanner_library() if scan else None
    scanned = Scanned(library, collected) if library is not None else None
    kineto_source.take(collected, run)
    if scanned is not None:
        scanned.finish()
    texts = {
        "name_id": list(collected.names),
        "pid": list(collected.processes),
        "tid": {number: key for key, number in collected.threads.items()},
        "signature": [(one[0], *map(_parsed, one[1:])) for one in collected.signatures],
    }
    result: dict[str, Any] = {"events": collected.event_count, "losses": dict(collected.losses)}
    for name in COLUMNS:
        for key, column in collected.concat(name).items():
            values = np.asarray(column).tolist()
            result[f"{name}.{key}"] = [texts[key][n] for n in values] if key in texts else values
    return result


def _parsed(text: bytes) -> Any:
    return json.loads(text) if text else None


def test_a_trace_as_profilers_write_it_is_scanned_whole():
    events = fuzz.trace(steps=50)
    for text in (json.dumps(events), json.dumps(events, indent=2)):
        run = text[1:-1].encode()
        assert taken(run, run, run) == [True] * 3
        assert contents(run, scan=True) == contents(run, scan=False)


def one(change: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    event = kernel(1000.5, 3.25, 7)
    event["args"] |= arguments
    return event | (change or {})


READ = {
    "escapes in names": one({"name": 'a\\"b\\\\\n\t\u00e9\u20ac\U0001f600'}),
    "an escape by number": '{"cat":"kernel","name":"\\u00e9\\u0041","ts":1,"dur":2}',
    "other keys of any shape": one(x=[1, {"y": [None, True, -1.5e-3, "]}"]}], z={}),
    "no arguments": {"cat": "kernel", "ts": 1, "dur": 2},
    "no duration": {"cat": "kernel", "ts": 1},
    "an empty event": {},
    "arguments before the category": '{"args":{"stream":5},"ts":1,"dur":2,"cat":"kernel"}',
    "keys twice": '{"cat":"cpu_op","cat":"kernel","ts":5,"ts":1,"dur":2,"args":{"stream":5},"args":{"device":2}}',
    "threads with names": one({"tid": "stream 7", "pid": "python"}),
    "the smallest and largest ids": one(correlation=(1 << 63) - 1, stream=-(1 << 62)),
    "a late time to the nanosecond": one({"ts": 1712195495505543.2, "dur": 1.25}),
    "an impossible duration": one({"dur": -5}),
    "shapes with spaces": op(1, 2, "aten::mm", **{"Input Dims": [[1, 2], []], "Input type": ["a", ""]}),
    "strides without shapes": op(1, 2, "aten::mm", **{"Input Strides": [[1, 2]]}),
}  # fmt: skip
LEFT = {
    "an id beyond 64 bits": one(correlation=1 << 63),
    "an id that is a fraction": one(stream=7.5),
    "an id that is null": one(stream=None),
    "a grid of two": one(grid=[1, 2]),
    "arguments that are null": one({"args": None}),
    "a name that is a number": one({"name": 5}),
    "a key with an escape": '{"c\\u0061t":"kernel","ts":1,"dur":2}',
    "a character as two escapes": '{"cat":"kernel","name":"\\ud83d\\ude00","ts":1,"dur":2}',
    "half a character": '{"cat":"kernel","name":"\\ud83d","ts":1,"dur":2}',
    "a time in scientific notation": '{"cat":"kernel","ts":1.5e3,"dur":2}',
    "a time that is no number": '{"cat":"kernel","ts":NaN,"dur":2}',
    "a number with a leading zero": '{"cat":"kernel","ts":012,"dur":2}',
    "a text with a control character": '{"cat":"kernel","name":"a\nb","ts":1,"dur":2}',
    "deep nesting": one(x=json.loads("[" * 100 + "]" * 100)),
    "no event": "5",
}


def as_text(event: Any) -> bytes:
    return (event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)).encode()


@pytest.mark.parametrize("event", READ.values(), ids=READ)
def test_what_is_plain_enough_is_read_the_same(event):
    run = as_text(event) + b"," + as_text(one())
    assert taken(as_text(one()), run) == [True] * 2
    assert contents(run, scan=True) == contents(run, scan=False)


@pytest.mark.parametrize("event", LEFT.values(), ids=LEFT)
def test_what_is_not_is_left_with_its_whole_run(event):
    sound = as_text(one())
    assert taken(sound, sound + b"," + as_text(event), sound) == [True, False, True]


@pytest.mark.parametrize(
    "text", [b'{"name":"\xff"}', b'{"name":"\xed\xa0\x80"}', b'{"a":"\xc3', b'{"a']
)
def test_what_is_not_utf8_or_no_whole_event_is_left(text):
    assert taken(text) == [False]


def test_without_a_compiler_traces_are_read_all_the_same(tmp_path, monkeypatch):
    path = written(tmp_path, text_of(fuzz.trace()))
    scanned = analyze(open_source(path)).estimate
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    unpacked = dataclasses.replace(building.LIBRARY, bundled_in=tmp_path)
    monkeypatch.setattr(building, "LIBRARY", unpacked)
    asked: list[Any] = []
    monkeypatch.setattr(
        kineto_source, "scanner_library", lambda: asked.append(building.scanner_library())
    )
    read = analyze(open_source(path)).estimate
    assert asked == [None] and read is not None and scanned is not None
    assert read.account == scanned.account and read.steps == scanned.steps


WATCHED = """
import random, sys
from pathlib import Path
sys.path[:0] = {path!r}
from brrrtop.sources.importers.trace.columns import Collected
from brrrtop.sources.importers.kineto.scanned import Scanned
from brrrtop.sources.importers.kineto.scanner_library import load_library
from tests.fuzz import fuzz
library = load_library({library!r})
taken = 0
for data, _ in zip(fuzz.kineto_inputs(random.Random(5)), range({count})):
    collected = Collected()
    scanned = Scanned(library, collected)
    runs = fuzz.runs_of(data)
    for run in (*runs, data, *(runs[0][:n] for n in range(0, len(runs[0]), 97))):
        taken += scanned.take(run)
    scanned.finish()
print(taken)
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("width", ["", "-DBRRR_WITHOUT_SSE2"])
def test_broken_text_raises_no_alarm_of_the_compilers_watchdogs(tmp_path, width):
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no gcc here")
    asked = [gcc, "-print-file-name=libasan.so"]
    preload = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    if not preload.is_absolute():
        pytest.skip("libasan.so is not installed")
    flags = ("-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
    library = building.LIBRARY.compile(tmp_path / "watched.so", (*flags, *filter(None, [width])))
    root = str(Path(__file__).parents[2])
    code = WATCHED.format(path=[root, *sys.path], library=str(library), count=10)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=240, check=False, cwd=root,
        env={**os.environ, "LD_PRELOAD": str(preload), "PYTHONMALLOC": "malloc",
             "ASAN_OPTIONS": "detect_leaks=0", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 10
