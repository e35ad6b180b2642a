"""Traces in archives and from standard input."""

import gzip
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from brrrtop.errors import BadInput
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from tests.analysis.test_steady_part import Trace


def _text() -> bytes:
    trace = Trace()
    for number in range(4):
        trace.step(number, number * 10_000)
    return json.dumps({"traceEvents": trace.events}).encode()


def _zipped(path: Path, *files: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files:
            archive.writestr(name, text)
    return path


@pytest.mark.parametrize("name", ["t.json", "folder/t.json.gz"])
def test_the_one_trace_in_a_zip_is_read(tmp_path, name):
    text = gzip.compress(_text()) if name.endswith("gz") else _text()
    shown = analyze(open_source(_zipped(tmp_path / "t.zip", (name, text))))
    assert shown.estimate is not None and shown.estimate.steps.count == 4
    assert shown.estimate.account.busy_ns == 4 * 8_000_000


def test_what_is_wrong_with_a_zip_is_said(tmp_path):
    two = _zipped(tmp_path / "two.zip", ("a.json", _text()), ("b.json", _text()))
    with pytest.raises(BadInput, match="holds 2 files"):
        open_source(two)
    whole = _zipped(tmp_path / "one.zip", ("a.json", _text())).read_bytes()
    for end in (5, len(whole) // 2, len(whole) - 10):
        (tmp_path / "torn.zip").write_bytes(whole[:end])
        with pytest.raises(BadInput, match="damaged or ends early"):
            analyze(open_source(tmp_path / "torn.zip"))
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 0xFF
    (tmp_path / "bad.zip").write_bytes(flipped)
    try:
        shown = analyze(open_source(tmp_path / "bad.zip"))
    except BadInput:
        return
    assert any("damaged" in note for note in shown.source.notes)


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_is_read_from_standard_input(packed):
    text = gzip.compress(_text()) if packed else _text()
    command = [sys.executable, "-m", "brrrtop", "analyze", "-", "--json"]
    run = subprocess.run(command, input=text, capture_output=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    report = json.loads(io.BytesIO(run.stdout).read())
    assert report["window"]["steps"] == 4 and report["source"]["label"] == "stdin"


def test_an_empty_standard_input_is_said():
    command = [sys.executable, "-m", "brrrtop", "analyze", "-"]
    run = subprocess.run(command, input=b"", capture_output=True, check=False, timeout=60)
    assert run.returncode == 1 and b"stdin is empty" in run.stderr
