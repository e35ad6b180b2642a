"""One process measures while all others stand still, and everybody goes on afterwards."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SPIN = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"


@pytest.fixture(scope="module", autouse=True)
def lab() -> None:
    """Imported here, with torch: not by every worker that only collects."""
    global MODELS, measure, report, timing, half_of, in_turn
    pytest.importorskip("torch")
    from benchmarks.gains import MODELS, measure, report, timing
    from benchmarks.gains.loops import half_of, in_turn


def states(group: int) -> set[str]:
    texts = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                texts.add(fields[0])
    return texts


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def gpu() -> Iterator[measure.Gpu]:
    gpu = measure.Gpu(0, "0")
    spinning = [
        subprocess.Popen([sys.executable, "-c", SPIN], start_new_session=True) for _ in range(2)
    ]
    gpu.running = {process.pid for process in spinning}
    for process in spinning:
        wait_until(lambda p=process: "R" in states(p.pid))
    yield gpu
    gpu._signal(measure.signal.SIGKILL)
    for process in spinning:
        process.wait()


def test_others_stand_still_with_their_children_and_go_on_after_a_fault(gpu: measure.Gpu) -> None:
    mine, other = sorted(gpu.running)

    def fails() -> None:
        with gpu.alone(mine):
            wait_until(lambda: states(other) == {"T"})
            assert "T" not in states(mine)
            raise RuntimeError("measuring broke")

    with pytest.raises(RuntimeError, match="measuring broke"):
        fails()
    wait_until(lambda: "T" not in states(other))
    assert gpu.alone_s > 0
    assert not gpu.turn.locked()


def test_whatever_is_cut_off_the_rest_is_a_fair_sample() -> None:
    models = in_turn()
    assert len(models) == len(MODELS) >= 40
    first = models[: len(models) // 2]
    for kind in {m.kind for m in models}:
        group = sum(m.kind == kind for m in models)
        assert abs(sum(m.kind == kind for m in first) - group / 2) <= 1
    assert {half_of(m.name) for m in first} == {"tune", "test", "fresh"}


def test_what_does_not_fit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "PACK_BYTES", 10_000)
    monkeypatch.setattr(measure, "MOST_BYTES", 25_000)
    kept, out = tmp_path / "kept", tmp_path / "out"
    kept.mkdir()
    out.mkdir()
    for name, size in (("a", 6000), ("b", 6000), ("c", 20_000), ("d", 500), ("e", 8400)):
        (kept / name).write_bytes(bytes(size))
    assert measure.pack(kept, out) == ["c", "e"]
    names = []
    for number in (1, 2):
        with tarfile.open(out / f"gains-{number}.tar") as tar:
            names.append(tar.getnames())
    assert names == [["a"], ["b", "d"]]


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


class Loop:
    """Takes the given times in turn; the last one from then on."""

    def __init__(self, edit: str, *times_ms: float) -> None:
        self.edit, self._times = edit, list(times_ms)

    def measured(self) -> dict[str, Any]:
        ms = self._times.pop(0) if len(self._times) > 1 else self._times[0]
        return {"ms": ms, "mean_ms": ms, "p10_ms": ms, "p90_ms": ms, "batch": 4}


def test_an_edit_is_compared_with_the_base_loop_right_beside_it() -> None:
    base = Loop("", 100, 100, 150, 150, 151)
    rows = dict(timing.in_turns(base, [Loop("bf16", 50), Loop("tf32", 90)]))
    assert [*rows] == ["base", "bf16", "tf32", "base-again"]
    assert (rows["bf16"]["base_ms"], rows["bf16"]["drift"]) == (100, 0)
    # Before and after the first try lie 100 and 150: it is made again.
    assert rows["tf32"]["base_ms"] == 150
    assert rows["tf32"]["drift"] == 0


def test_an_edit_that_breaks_does_not_take_the_others_along() -> None:
    class Broken(Loop):
        def measured(self) -> dict[str, Any]:
            raise RuntimeError("out of memory")

    rows = dict(timing.in_turns(Loop("", 100), [Broken("sdpa", 1), Loop("tf32", 90)]))
    assert rows["sdpa"] == {"failed": "RuntimeError: out of memory"}
    assert rows["tf32"]["ms"] == 90


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
