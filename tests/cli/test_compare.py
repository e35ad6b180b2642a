"""Before and after on the command line: the sentences, the documented JSON, and a loaded baseline."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from brrrtop.advisories.compare import compare
from brrrtop.sources.recording import RecordingWriter
from collectors.protocol.frames import Frame, Kind
from tests.cli.conftest import Run
from tests.recorded import analyzed
from tests.session.runs import Run as Trainer


def recorded(trainer: Trainer, path: Path) -> str:
    with RecordingWriter(path) as writer:
        for frame in trainer.frames:
            writer.write(frame)
        writer.write(Frame(Kind.END, {"reason": "the end"}, trainer.now_ns + 1))
    return str(path)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    """A run that waits for its data, and the same run cured."""
    return (
        recorded(Trainer().steps(60, wait_us=20_000), tmp_path / "late.brrr"),
        recorded(Trainer().steps(60), tmp_path / "cured.brrr"),
    )


def test_what_was_won_and_promised_is_said_in_80_columns(
    pair: tuple[str, str], brrrtop: Run
) -> None:
    done = brrrtop("compare", *pair)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert text.startswith("2.43× faster"), "34 ms a step to 14 ms"
    assert "dataloader-stall predicted" in text and "won: 59%" in text
    assert "WAITS FOR DATA" in text and "COMPUTE-BOUND" in text
    assert text.count("        mean of 59 steps\n") == 2
    assert "per step, mean  " in text
    assert all(len(line) <= 80 for line in text.splitlines() if ".brrr" not in line)


def test_the_json_has_the_documented_keys(pair: tuple[str, str], brrrtop: Run) -> None:
    loads = json.loads(brrrtop("compare", *pair, "--json").stdout)
    assert loads["schema"] == "brrrtop.compare/1"
    assert loads["before"]["schema"] == loads["after"]["schema"] == "brrrtop.report/2"
    comparison = loads["comparison"]
    assert set(comparison) == {
        "per_step", "before_ns", "after_ns", "speedup", "buckets", "families", "kernels",
        "promises", "changes", "says", "verdicts", "steps", "noise_share",
    }  # fmt: skip
    for key in ("buckets", "families", "kernels"):
        for row in comparison[key]:
            assert set(row) == {"name", "before_ns", "after_ns", "won_ns"}
            assert row["won_ns"] == pytest.approx(row["before_ns"] - row["after_ns"])
    whole = sum(row["before_ns"] for row in comparison["buckets"])
    assert whole == pytest.approx(comparison["before_ns"], rel=1e-6), "the buckets add up"
    assert set(comparison["promises"][0]) == {
        "kind", "promised_share", "won_share", "kept_share", "predicted", "noise_share",
    }  # fmt: skip


def test_a_replay_beside_a_baseline_reports_both(pair: tuple[str, str], brrrtop: Run) -> None:
    late, cured = pair
    done = brrrtop("replay", cured, "--baseline", late, "--once")
    assert "Before and after" in done.stdout and "× faster" in done.stdout
    loads = json.loads(brrrtop("replay", cured, "--baseline", late, "--once", "--json").stdout)
    same = json.loads(brrrtop("compare", late, cured, "--json").stdout)
    assert loads["baseline"] == "late.brrr"
    assert loads["comparison"] == same["comparison"]
    lines = brrrtop("replay", cured, "--baseline", late, "--json").stdout.splitlines()
    assert json.loads(lines[-1])["comparison"]["speedup"] == pytest.approx(34 / 14, rel=0.05)


def test_a_report_without_a_baseline_does_not_speak_of_one(
    pair: tuple[str, str], brrrtop: Run
) -> None:
    assert "comparison" not in json.loads(brrrtop("analyze", pair[0], "--json").stdout)


@pytest.mark.parametrize("verb", [["replay", "{}"], ["run", "--", "touch", "started"]])
def test_a_baseline_that_cannot_be_read_is_a_sentence_before_anything_starts(
    verb: list[str], pair: tuple[str, str], brrrtop: Run, tmp_path: Path
) -> None:
    words = [pair[0] if word == "{}" else word for word in verb]
    words[1:1] = ["--baseline", "nowhere.brrr"]
    done = brrrtop(*words)
    assert done.returncode == 1
    assert "nowhere.brrr" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "started").exists()


def test_a_screen_whose_stderr_goes_elsewhere_is_explained(tmp_path: Path) -> None:
    """Textual draws on stderr."""
    ours, theirs = pty.openpty()
    with (tmp_path / "log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "brrrtop", "demo", "input-bound"],
            stdin=theirs, stdout=theirs, stderr=log, env={**os.environ, "TERM": "xterm"},
        )  # fmt: skip
        try:
            assert child.wait(120) == 2
        finally:
            child.kill()
            child.wait(60)
            os.close(ours)
            os.close(theirs)
    text = (tmp_path / "log").read_text()
    assert "the screen is drawn on stderr" in text and "--once" in text


def test_runs_that_bursts_are_samples_of_are_compared_as_runs(brrrtop):
    runs = Path(__file__).resolve().parents[1] / "recordings" / "runs"
    pair = [str(runs / f"imagenet_{name}.brrr") for name in ("jpeg", "j4")]
    done = json.loads(brrrtop("compare", *pair, "--json").stdout)
    compared, sides = done["comparison"], (done["before"], done["after"])
    assert [side["cause"] for side in sides] == ["input", "input"]
    assert compared["steps"] == [side["run"]["steps"] for side in sides]
    assert compared["after_ns"] == pytest.approx(1e6 * sides[1]["run"]["step_ms"])
    waits = next(row for row in compared["buckets"] if row["name"] == "idle: input")
    assert waits["won_ns"] < -100e6


def test_of_two_training_loops_the_one_that_both_have_is_compared():
    path = Path(__file__).resolve().parents[1] / "recordings" / "runs" / "late_loader.brrr"
    one = analyzed(path).estimate
    train = one.run.train
    tune = replace(
        train, where="tune() main.py:9", steps=4 * train.steps, step_ns=train.step_ns // 9
    )
    both = replace(one.run, phases=(tune, train), steps=5 * train.steps)
    compared = compare(replace(one, run=both), one)
    assert compared.steps == (train.steps, train.steps)
    assert compared.before_ns == compared.after_ns == pytest.approx(train.step_ns, rel=0.01)
    others = replace(one.run, phases=(tune,), steps=tune.steps)
    assert compare(replace(one, run=both), replace(one, run=others)).steps[0] == tune.steps
