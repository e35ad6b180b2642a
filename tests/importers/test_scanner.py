"""The scanner in C reads what msgspec reads, to the last number, or leaves it to msgspec."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from brrrtop.session.analyze import analyze
from brrrtop.sources.importers.kineto import scanner_library as building
from brrrtop.sources.importers.kineto import source as kineto_source
from brrrtop.sources.importers.trace.reader import Inflater, Runs
from brrrtop.sources.registry import open_source
from collectors.attach.agent_library import compiler
from tests.fuzz import fuzz
from tests.importers import both_ways
from tests.importers.both_ways import assert_same
from tests.session.handmade import kernel, launch, op, text_of, written

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler here")
TRACES = Path(os.environ.get("BRRRTOP_TRACES", "/nowhere"))
FILES = sorted(TRACES.rglob("*.json.gz"))
MOST_BYTES = 1_000_000


@pytest.fixture(scope="module", autouse=True)
def there_is_a_library() -> None:
    assert both_ways.library() is not None


def test_a_trace_as_profilers_write_it_is_scanned_whole() -> None:
    events = fuzz.trace(steps=50)
    for text in (json.dumps(events), json.dumps(events, indent=2)):
        assert assert_same([text[1:-1].encode()] * 3) == 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_real_traces_are_scanned_whole(path: Path) -> None:
    if path.stat().st_size > MOST_BYTES:
        pytest.skip("large")
    with path.open("rb") as file:
        runs = Runs(Inflater(file, path.stat().st_size).blocks(), path.name)
        runs.start()
        result = list(runs)
    assert assert_same(result) == len(result)


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
    "decimals of doubles": one({"ts": 5952765447.4019995, "dur": 0.0005}),
    "halves of nanoseconds": one({"ts": 12.0005, "dur": 7.0015}),
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
def test_what_is_plain_enough_is_read_the_same(event: Any) -> None:
    assert assert_same([as_text(one()), as_text(event) + b"," + as_text(one())]) == 2


@pytest.mark.parametrize("event", LEFT.values(), ids=LEFT)
def test_what_is_not_is_left_to_msgspec_with_its_whole_run(event: Any) -> None:
    sound = as_text(one())
    assert assert_same([sound, sound + b"," + as_text(event), sound]) == 2


@pytest.mark.parametrize(
    "text", [b'{"name":"\xff"}', b'{"name":"\xed\xa0\x80"}', b'{"a":"\xc3', b'{"a']
)
def test_what_is_not_utf8_or_no_whole_event_is_left(text: bytes) -> None:
    assert assert_same([text]) == 0


def test_broken_text_is_read_the_same() -> None:
    taken = 0
    for data, _ in zip(fuzz.kineto_inputs(random.Random(3)), range(150), strict=False):
        taken += assert_same(both_ways.runs_of(data))
    assert taken > 50


def test_every_start_of_a_run_is_read_the_same() -> None:
    text = as_text(one(x="é", grid=[1, 2, 3])) + b"," + as_text(launch(1, 2.5, 3))
    for length in range(len(text)):
        assert_same([text[:length]])


def test_without_a_compiler_traces_are_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
from tests.importers import both_ways
library = load_library({library!r})
taken = 0
for data, _ in zip(fuzz.kineto_inputs(random.Random(5)), range({count})):
    collected = Collected()
    scanned = Scanned(library, collected)
    runs = both_ways.runs_of(data)
    for run in (*runs, data, *(runs[0][:n] for n in range(0, len(runs[0]), 97))):
        taken += scanned.take(run)
    scanned.finish()
print(taken)
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("width", ["", "-DBRRR_WITHOUT_SSE2"])
def test_broken_text_raises_no_alarm_of_the_compilers_watchdogs(tmp_path: Path, width: str) -> None:
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
    code = WATCHED.format(path=[root, *sys.path], library=str(library), count=30)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=240, check=False, cwd=root,
        env={**os.environ, "LD_PRELOAD": str(preload), "PYTHONMALLOC": "malloc",
             "ASAN_OPTIONS": "detect_leaks=0", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 10
