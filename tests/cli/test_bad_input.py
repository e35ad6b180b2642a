"""Input that cannot be used: a sentence with what to do, the right exit code, never a traceback."""

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.session.handmade import annotation, kernel, launch, text_of, written

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def an_event(**changes: Any) -> dict[str, Any]:
    event = {
        "ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0, "dur": 5.0,
        "args": {"device": 0, "stream": 7, "correlation": 1, "grid": [1, 1, 1]},
    }  # fmt: skip
    return event | changes


def a_trace(*events: dict[str, Any]) -> str:
    return json.dumps({"traceEvents": list(events)})


NOISE = bytes(range(256)) * 8
BAD: dict[str, str | bytes] = {
    "empty.json": "",
    "empty.json.gz": "",
    "empty.brrr": "",
    "text.json": "step 3 loss 0.4\n",
    "half.json": '{"traceEvents": [',
    "number.json": "3",
    "other.json": '{"rows": []}',
    "null.json": '{"traceEvents": null}',
    "nothing.json": a_trace(),
    "cpu.json": a_trace(an_event(cat="cpu_op")),
    "not-gzip.json.gz": b"\x1f\x8b" + bytes(40),
    "noise.brrr": NOISE,
    "noise.json": NOISE,
}


def assert_a_sentence(done: subprocess.CompletedProcess[str], code: int) -> None:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("brrrtop: ")
    assert "Traceback" not in done.stderr
    assert "fault of brrrtop's own" not in done.stderr
    assert len(done.stderr.splitlines()) <= 4


@pytest.mark.parametrize("verb", ["analyze", "replay"])
@pytest.mark.parametrize("name", [*BAD, "folder.json"])
def test_a_bad_file_gets_a_sentence(name, verb, brrrtop, tmp_path):
    if name in BAD:
        text = BAD[name]
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    else:
        (tmp_path / name).mkdir()
    done = brrrtop(verb, name)
    assert_a_sentence(done, 1)
    assert name in done.stderr


def test_a_missing_device_or_step_is_named_with_those_there_are(brrrtop, tmp_path):
    (tmp_path / "t.json").write_text(a_trace(an_event()))
    done = brrrtop("analyze", "t.json", "--gpu", "3")
    assert_a_sentence(done, 1)
    assert "GPU 0" in done.stderr
    assert_a_sentence(brrrtop("analyze", "t.json", "--steps", "90-95"), 1)


def test_chosen_steps_are_counted_though_the_host_marked_them_before_they_ran(brrrtop, tmp_path):
    events = []
    for step in range(4):
        host, device = step * 1_000, 500 + step * 2_000
        events.append(annotation(host, 900, f"ProfilerStep#{step}"))
        for i in range(10):
            events.append(launch(host + 50 * i, 5, 100 * step + i + 1))
            events.append(kernel(device + 200 * i, 190, 100 * step + i + 1))
    written(tmp_path, text_of(events))
    done = brrrtop("analyze", "t.json", "--steps", "2-3", "--json")
    assert done.returncode == 0, done.stderr
    window = json.loads(done.stdout)["window"]
    assert (window["steps"], window["step_ms"]) == (2, 2.0)
    assert window["duration_ns"] == 4_000_000


def test_kernels_that_take_no_time_are_nothing_to_judge(brrrtop, tmp_path):
    (tmp_path / "t.json").write_text(a_trace(an_event(dur=0)))
    done = brrrtop("analyze", "t.json")
    assert_a_sentence(done, 1)
    assert "takes time" in done.stderr


def test_kernel_names_that_are_no_utf8_are_reported_on_any_terminal(brrrtop, command, tmp_path):
    (tmp_path / "t.json").write_bytes(
        b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k\xff\xfe\\u0000\\ud800",'
        b' "pid": 0, "tid": 7, "ts": 1, "dur": 5, "args": {"device": 0, "stream": 7}}]}'
    )
    ascii_locale = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    for done in (brrrtop("analyze", "t.json"), command("analyze", "t.json", env=ascii_locale)):
        assert "Traceback" not in done.stderr
        assert "fault of brrrtop's own" not in done.stderr
        assert "\x00" not in done.stdout


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["demo", "no-such-scenario"], 2),
        (["replay", "x.json", "--speed", "0"], 2),
        (["analyze", "x.json", "--fail-if", "speed > 3"], 2),
        (["compare", "a.json"], 2),
        (["compare", "a.json", "b.json"], 1),
        (["run"], 2),
        (["attach"], 2),
        (["attach", "2147483646", "--once"], 3),
    ],
)
def test_a_command_that_cannot_work_says_so(argv, code, brrrtop):
    assert_a_sentence(brrrtop(*argv), code)


def test_a_hostile_collectors_folder_is_refused(command, tmp_path):
    hostile = tmp_path / "collectors"
    hostile.mkdir()
    (hostile / "__init__.py").write_text("raise SystemExit('ran somebody else')")
    (tmp_path / "t.json").write_text("{}")
    done = command("analyze", "t.json")
    assert_a_sentence(done, 1)
    assert "collectors hides" in done.stderr
