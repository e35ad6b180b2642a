"""What was measured of a program stands in place of what is predicted for it, while it is the same program."""

from pathlib import Path

import pytest

from brrrtop.advisories.advise import Advice
from brrrtop.advisories.steady import TriedProgram, keep, path, tried_of, with_tried
from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.session.session import Session
from brrrtop.sources.registry import open_source
from brrrtop.views.whatif import gain

DEMO = Path(__file__).parents[2] / "brrrtop" / "data" / "demos" / "input-bound.brrr"
COMMAND = ("train.py", "--batch", "64")
TRIED = TriedProgram("/home/me", COMMAND, "H100", 100.0, {"compile": (0.2366, 0.22, 0.25)})


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def advice(step_ms: float = 100.0) -> Advice:
    rows = [
        WhatIf(edit, step_ms * 1e6 * (1 - saves), saves, saves - 0.1, saves + 0.1, None, "")
        for edit, saves in (("bf16", 0.4), ("compile", 0.1))
    ]
    given = [
        Advisory(
            kind, "", 0.9, row.saves_high, {"edit": row.edit}, "", "", row.saves, row.saves_low
        )
        for kind, row in zip(("enable-tf32-or-amp", "launch-bound-compile"), rows, strict=True)
    ]
    return Advice(tuple(given), tuple(rows))


def test_a_measured_gain_replaces_the_predicted_one():
    made = with_tried(advice(), (TRIED,), "H100")
    row = next(row for row in made.whatif if row.edit == "compile")
    assert (row.saves, row.saves_low, row.saves_high) == (0.2366, 0.22, 0.25)
    assert row.present_ns == pytest.approx(100e6)
    told = {one.kind: gain(one) for one in made.given}
    assert told["launch-bound-compile"] == "1.31× faster, tried"
    assert "1.7×" in str(told["enable-tf32-or-amp"])


def test_a_measured_loss_leads_no_list():
    tried = TriedProgram("/home/me", COMMAND, "H100", 100.0, {"bf16": (-0.2, -0.3, -0.1)})
    made = with_tried(advice(), (tried,), "H100")
    assert [one.kind for one in made.given] == ["launch-bound-compile", "enable-tf32-or-amp"]
    assert [row.edit for row in made.whatif] == ["compile", "bf16"]


@pytest.mark.parametrize(("gpu", "step_ms"), [("H200", 100.0), ("H100", 70.0), (None, 100.0)])
def test_another_gpu_or_a_changed_program_has_not_been_tried(gpu, step_ms):
    assert with_tried(advice(step_ms), (TRIED,), gpu) == advice(step_ms)


def test_it_is_kept_by_folder_and_command_whatever_the_interpreter():
    keep(TRIED)
    keep(TriedProgram("/home/me", COMMAND, "H200", 50.0, {}))
    keep(TriedProgram("/home/me", COMMAND, "H100", 90.0, TRIED.edits))
    kept = tried_of("/home/me", ("/usr/bin/python3", *COMMAND))
    assert [(one.gpu, one.step_ms) for one in kept] == [("H200", 50.0), ("H100", 90.0)]
    assert tried_of("/elsewhere", ("python", *COMMAND)) == ()
    path().write_text("broken")
    assert tried_of("/home/me", ("python", *COMMAND)) == ()


def test_a_session_on_a_program_that_was_tried_says_so():
    def shown(tried: tuple[TriedProgram, ...]) -> Session:
        session = Session(open_source(DEMO), keep_ns=None, tried=tried)
        session.advance()
        return session

    plain = shown(()).advance()
    row = plain.whatif[0]
    assert plain.estimate is not None and plain.estimate.device.name is not None
    tried = TriedProgram("/", (), plain.estimate.device.name, row.present_ns / 1e6,
                         {row.edit: (0.5, 0.4, 0.6)})  # fmt: skip
    advisories = shown((tried,)).advance().advisories
    assert [one.tried for one in advisories if one.kind == row.advisory] == [0.5]
