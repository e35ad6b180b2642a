"""What was measured becomes a gain only where the loop around it was steady."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gains import report


def test_savings_are_of_the_time_per_sample(tmp_path: Path) -> None:
    def row(part: str, ms: float, batch: int) -> dict[str, Any]:
        return {
            "model": "m",
            "part": part,
            "ms": ms,
            "mean_ms": ms,
            "p10_ms": ms,
            "p90_ms": ms,
            "batch": batch,
        }

    rows = [row("base", 100, 8), row("compile", 60, 8), row("double-batch", 150, 16),
            {"model": "m", "part": "bf16", "failed": "out of memory"}, row("base-again", 110, 8)]  # fmt: skip
    file = tmp_path / "results.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    result = report.measured([file])["m"]
    assert result.saves == pytest.approx({"compile": 0.4, "double-batch": 0.25})
    assert result.failed == {"bf16": "out of memory"}
    assert result.drift == pytest.approx(0.1)


def paired(part: str, ms: float, base_ms: float, drift: float, **more: Any) -> dict[str, Any]:
    facts = {"model": "m", "part": part, "ms": ms, "mean_ms": ms, "p10_ms": ms, "p90_ms": ms}
    return {**facts, "batch": 8, "base_ms": base_ms, "base_batch": 8, "drift": drift, **more}


def test_edits_count_where_the_base_loop_around_them_was_steady(tmp_path: Path) -> None:
    def base(part: str, ms: float) -> dict[str, Any]:
        row = paired(part, ms, 0, 0)
        return {key: row[key] for key in row if key not in ("base_ms", "base_batch", "drift")}

    old, new, newest = (tmp_path / name for name in ("1", "2", "3"))
    for file, rows in (
        (old, [base("base", 100), base("sdpa", 40), base("base-again", 101)]),
        (new, [base("base", 100), paired("bf16", 60, 120, 0.02), paired("tf32", 60, 120, -0.2),
               paired("compile", 50, 130, 0.0), base("base-again", 100)]),
        (newest, [paired("compile", 80, 100, 0.01, own_process=True), paired("tf32", 9, 9, 0.5)]),
    ):  # fmt: skip
        file.write_text("\n".join(map(json.dumps, rows)))
    result = report.measured([old, new])["m"]
    assert result.saves == {"bf16": 0.5}, "what was not paired no longer counts"
    assert result.unsteady == pytest.approx({"tf32": -0.2, "compile": 0.3})
    assert result.drift == pytest.approx(0.02)
    result = report.measured([old, new, newest])["m"]
    assert result.saves == pytest.approx({"bf16": 0.5, "compile": 0.2})
    assert result.unsteady == {"tf32": 0.5}


def test_what_was_recorded_at_another_pace_is_not_judged(tmp_path: Path) -> None:
    """Compiled edits alone were measured: the base loop's time is that around them."""
    file = tmp_path / "results.jsonl"
    file.write_text(json.dumps(paired("compile", 80, 100, 0.01, own_process=True)))
    model = report.measured([file])["m"]
    assert model.step_ms == 100
    for live_ms, judged in ((104.0, True), (115.0, False), (None, True)):
        text = report.Prediction({"compile": (0.1, 0.0, 0.3)}, step_ms=live_ms)
        assert report.is_steady(model, text) is judged
        assert len(report.errors({"m": (model, text)})) == judged
        assert ("recorded at" in report.misses({"m": (model, text)})) is not judged
