"""`import brrrtop`: what scripts and notebooks use."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import brrrtop
from brrrtop.api.watching import figures_of, lines_of
from brrrtop.errors import BadInput, UsageError
from brrrtop.session.analyze import analyze as analyze_source
from brrrtop.sources.registry import open_source
from brrrtop.views.json_report import document

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "tests" / "recordings" / "traces" / "stacks.json.gz"
Trained = tuple[dict[str, dict[str, Any]], str]


def test_every_public_name_is_there_and_no_other_is():
    assert all(getattr(brrrtop, name) is not None for name in brrrtop.__all__)
    assert dir(brrrtop) == brrrtop.__all__
    with pytest.raises(AttributeError, match="no attribute 'analyse'"):
        brrrtop.analyse  # type: ignore[attr-defined]  # noqa: B018


def test_a_report_says_what_the_command_says(tmp_path):
    report = brrrtop.analyze(TRACE)
    source = open_source(TRACE)
    assert report.to_dict() == document(analyze_source(source))
    source.close()
    assert json.loads(report.to_json()) == report.to_dict()
    assert report.regime == "overhead" and report.split.overhead > 0.8
    assert report.step_ms == pytest.approx(16.2, abs=0.1), "its own steps take 16.8 and 15.4 ms"
    assert report.advisories and report.whatif and report.kernels and report.tables.modules
    assert str(report).startswith("stacks.json.gz") and "overhead" in repr(report)
    assert len(report.brief().splitlines()) <= 30
    report.export("html", tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text() == report.to_html()
    with pytest.raises(UsageError, match="no export 'pdf'"):
        report.export("pdf", tmp_path / "a.pdf")


def test_a_notebook_shows_the_page_without_its_frame():
    shown = brrrtop.analyze(TRACE)._repr_html_()
    assert shown.startswith("<style>") and "<svg" in shown and "<html" not in shown


def test_what_cannot_be_read_says_why(tmp_path):
    with pytest.raises(BadInput):
        brrrtop.analyze(tmp_path / "none.json")


def test_figures_are_numbers_that_were_measured():
    report = brrrtop.analyze(TRACE).to_dict()
    figures = figures_of(report)
    assert figures["brrrtop/split/overhead"] == report["split"]["overhead"]
    assert figures["brrrtop/step_ms"] == report["window"]["step_ms"]
    host = report["account"]["idle_ns"]["host"] / report["window"]["duration_ns"]
    assert figures["brrrtop/idle/host"] == host
    first = report["whatif"][0]
    assert figures[f"brrrtop/whatif/{first['edit']}"] == first["saves"]
    assert "brrrtop/cost_of_watching" not in figures
    verdict, *rest = lines_of(report)
    assert verdict.startswith("overhead-bound (host)")
    assert rest[0].startswith(f"{report['advisories'][0]['id']}: ")


@pytest.fixture(scope="module")
def trained() -> Trained:
    """What came of each training, all in one process, and what it wrote to stderr."""
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("trained.py"))],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT, capture_output=True, text=True,
        timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["mode"]: line for line in lines}, done.stderr


def test_a_training_is_watched_from_within_and_nothing_of_it_stays(trained):
    results, errors = trained
    result = results["fine"]
    assert result["problem"] is None and result["count"] >= 3, errors
    (report,) = result["reports"]
    assert report["schema"] == "brrrtop.report/2"
    assert result["logged"] and result["logged"][-1][2] > 0
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    pid = report["source"]["pid"]
    assert result["left"] == []
    assert f"attach {pid} " not in listed.stdout


def test_a_log_that_fails_ends_the_log_and_not_the_training(trained):
    results, errors = trained
    assert "disk full" in results["bad log"]["problem"] and results["bad log"]["loss"] < 1
    assert errors.count("disk full") == 1


def test_a_monitor_that_cannot_start_and_a_program_without_a_gpu_leave_the_training_alone(trained):
    result = trained[0]["unwatched"]
    problem, count = result["reports"]
    assert problem and count == 0
    assert (result["problem"], result["count"], result["logged"]) == (None, 0, [])
    assert result["left"] == [], "an agent that nobody watches is taken out with its folder"
