"""What others wrote, on its way to the terminal: every report, line of stderr, question and screen."""

import asyncio
import dataclasses
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from msgspec.structs import replace

from brrrtop.cli import output
from brrrtop.cli.commands import find
from brrrtop.cli.main import main
from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import Snapshot
from brrrtop.sources.registry import open_source
from collectors.process import process as processes
from collectors.process.candidates import Candidate
from tests.hostile import ALL, harm, lines, recording, strings_in, texts
from tests.recorded import analyzed
from tests.tui import snapshots
from tests.tui.shown import shown

READS = Path(__file__).resolve().parents[1] / "recordings" / "host" / "reads.brrr"
KEYS = ("", "question_mark", "r", "a", "l", "b", "1", "enter", "slash", "S")
WHOLE = settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
"""For what takes a second an example: a failure is not made smaller."""


def _hostile(folder: Path, text: str) -> Path:
    path = folder / "run.brrr"
    path.unlink(missing_ok=True)
    return recording(READS, path, text)


@WHOLE
@given(lines)
def test_a_recording_lets_nothing_into_a_snapshot(tmp_path, text):
    snapshot = analyzed(_hostile(tmp_path, text))
    assert snapshot.estimate is not None
    assert not harm("".join(strings_in(snapshot)), allowed="")


@WHOLE
@given(lines)
def test_no_report_has_any_of_it(tmp_path, capsys, text):
    path = str(_hostile(tmp_path, text))
    for command in (["analyze"], ["analyze", "--json"], ["compare", path], ["replay", "--once"]):
        assert main([command[0], path, *command[1:]]) == 0
        captured = capsys.readouterr()
        assert captured.out
        assert not harm(captured.out + captured.err)


@WHOLE
@given(texts)
def test_no_screen_shows_any_of_it_were_it_let_in(text):
    asyncio.run(_through_all_screens(_with(text)))


def _with(text: str) -> Snapshot:
    """A snapshot whose own strings were not cleaned."""
    whole = snapshots.snapshot()
    estimate = replace(
        whole.estimate,
        device=replace(whole.estimate.device, name=f"H200 {text}"),
        kernels=tuple(
            replace(row, name=f"{row.name}{text}", family=f"f{text}")
            for row in whole.estimate.kernels
        ),
    )
    source = replace(
        whole.source, label=f"run{text}.brrr", cmdline=f"python {text}", notes=(f"note {text}",)
    )
    advice = tuple(
        replace(one, says=f"{one.says} {text}", suggests=text) for one in whole.advisories
    )
    events = tuple(replace(one, says=f"{text} {one.says}") for one in whole.events)
    return replace(whole, estimate=estimate, source=source, advisories=advice, events=events)


async def _through_all_screens(snapshot: Snapshot) -> None:
    async with shown(snapshot, size=(120, 40), notifications=True) as screen:
        written = _driver_output(screen.app)
        for key in KEYS:
            if key in ("enter", "slash"):
                await screen.press("escape", "1")
            seen = await screen.press(key) if key else await screen.text()
            assert seen.strip()
            assert not harm(seen), (key, seen)
        await screen.press("escape", "1", "y")
        screen.app.say(f"{snapshot.source.label} {ALL} {'too long for the line ' * 8}")
        assert not harm(await screen.until("too long for the line"))
    for piece in written:
        assert not harm("".join(_without_our_own(piece))), piece


def _driver_output(app: Any) -> list[str]:
    """Grows by all that is written to the terminal from here on."""
    written: list[str] = []
    driver = app._driver
    before = driver.write

    def write(data: str) -> None:
        written.append(data)
        before(data)

    driver.write = write
    return written


def _without_our_own(data: str) -> str:
    """Styles, cursor movements, the pointer and the clipboard of `y`, which Textual writes, taken out."""
    return re.sub(
        r"\x1b\[[\d;?]*[a-zA-Z]|\x1b\]52;c;[A-Za-z0-9+/=]*\x07|\x1b\]22;[a-z]+\x07|\n", "", data
    )


def test_the_picker_shows_no_command_line_as_it_came(monkeypatch):
    own = processes.read(processes.read(1).pid)
    trainers = [
        Candidate(
            dataclasses.replace(own, pid=pid, cmdline=("python", "t.py", ALL)), 1, True, 0, 2, ""
        )
        for pid in (4711, 4712)
    ]
    text, typed = io.StringIO(), io.StringIO(f"{ALL}\n9\n2\n".replace("\n\n", "\n"))
    typed.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", text)
    monkeypatch.setattr(sys, "stdin", typed)
    assert find._picked(trainers).pid == 4712
    output.say(f"found {find.line_of(trainers[0])}")
    assert "4711" in text.getvalue()
    assert not harm(text.getvalue())


@given(texts)
def test_no_line_of_narration_and_no_question_has_any_of_it(text):
    stderr = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        patch.setattr(sys, "stdin", io.StringIO("y\n"))
        output.say(f"process 4711 belongs to mallory: {text}")
        assert output.confirm(f"load the agent into {text}?")
    assert not harm(stderr.getvalue())


@given(texts)
def test_no_failure_has_any_of_it(text):
    from brrrtop.cli import main as command

    stderr = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        for fault in (
            BrrrtopError(f"the agent does not start there: {text}", f"try {text}"),
            OSError(2, "No such file", text),
            ValueError(text),
        ):
            assert command._report_failure(fault) == 1
    assert not harm(stderr.getvalue())


@WHOLE
@given(lines.filter(lambda text: "\0" not in text))
def test_no_file_name_on_the_command_line_comes_back(capsys, text):
    for words in (
        ["analyze", f"no{text}file"],
        ["analyze", "x", f"--{text}"],
        [text],
        ["demo", text],
    ):
        main(words)
        captured = capsys.readouterr()
        assert not harm(captured.out + captured.err)


def test_a_trace_with_hostile_names_is_judged_clean(tmp_path):
    from tests.session.handmade import GPU, kernel, launch, op, text_of

    evil = "".join(sign for sign in ALL if sign not in "\n\r")
    events = [
        one
        for at in range(40)
        for one in (
            op(at * 50, 40, f"aten::mm{evil}", **{"Input Dims": [[2, 2]], "Input type": ["float"]}),
            launch(at * 50 + 1, 3, at + 1),
            kernel(at * 50 + 5, 30, at + 1, f"gemm{evil}"),
        )
    ]
    path = tmp_path / f"t{evil.replace(chr(0), '').replace('/', '')}.json"
    path.write_bytes(text_of(events, deviceProperties=[{**GPU, "name": f"H200{evil}"}]))
    source = open_source(path)
    try:
        frames = list(source.frames())
        label = source.info.label
    finally:
        source.close()
    assert not harm(label, allowed="")
    message = "".join(strings_in([frame.body for frame in frames]))
    assert "gemm" in message
    assert not harm(message, allowed="")
    assert not harm("".join(strings_in(analyzed(path))), allowed="")


def test_json_for_machines_has_the_clean_names(tmp_path, capsys):
    path = _hostile(tmp_path, "\x1b[2J\u202e")
    assert main(["analyze", str(path), "--json", "--once"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert sum(row["name"].endswith("?[2J?") for row in document["kernels"]) >= 2
