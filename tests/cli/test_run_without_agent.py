"""`run` where the agent is not to be had: the program runs all the same, with its own exit code."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from brrrtop.cli import live
from brrrtop.cli.commands import run
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError
from collectors.attach import agent_library, run_folders
from collectors.attach.files import AgentFiles
from collectors.errors import NotWritable


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the library, on a machine without a C compiler."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setattr(agent_library, "AGENT_DIR", empty)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.delenv("CC", raising=False)


def program(code: str, **changes: Any) -> Options:
    return Options(
        verb="run", command=(sys.executable, "-c", code), **({"interval": 0.1} | changes)
    )


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("code", [0, 7])
def test_without_a_compiler_the_program_runs_and_the_counters_are_watched(
    code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    text = f"import os; print(os.environ.get('PYTHONPATH')); raise SystemExit({code})"
    assert run.run(program(text)) == code
    captured = capfd.readouterr()
    assert captured.out == f"{os.environ.get('PYTHONPATH')}\n", "nothing was put in its way"
    missing, *report = captured.err.splitlines()
    assert "there is no C compiler" in missing and "the program runs without the agent" in missing
    assert "apt install gcc libc6-dev" in missing
    assert "brrrtop --gpu" not in missing, "that is what it gets anyway"
    assert any("No verdict: it ended before any kernel was seen" in line for line in report)
    assert f"  the program exited: exit code {code}" in report


@pytest.mark.usefixtures("no_compiler")
def test_counters_alone_are_reported_once_where_one_report_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live, "COUNTERS_S", 0.2)
    assert run.run(program("import time; time.sleep(1)", once=True, json=True)) == 0
    (line,) = capfd.readouterr().out.splitlines()
    assert json.loads(line)["regime"] == "unknown"


@pytest.mark.usefixtures("no_compiler")
def test_a_gate_that_counters_cannot_answer_is_no_pass_and_no_second_opinion() -> None:
    with pytest.raises(BrrrtopError, match="could not be judged"):
        run.run(program("pass", fail_if=["idle > 30%"]))
    assert run.run(program("raise SystemExit(3)", fail_if=["idle > 30%"])) == 3


def test_where_no_private_folder_can_be_made_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refused() -> Path:
        raise NotWritable("no private folder can be made", "free some space in /tmp")

    monkeypatch.setattr(run_folders, "make", refused)
    monkeypatch.setattr(agent_library, "agent_files", lambda: AgentFiles(tmp_path, tmp_path / "so"))
    assert run.run(program("raise SystemExit(4)")) == 4
    assert "no private folder can be made: the program runs" in capfd.readouterr().err
