"""Whole steps counted by CUPTI: the arithmetic beside the counters, and what is refused. The counters
themselves need a GPU (benchmarks/truth/counting.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.truth.runs import BLIND, SWEEP, blind_runs, sweep_runs
from benchmarks.truth.scoring import aligned
from brrrtop.tables import ActivityType

torch = pytest.importorskip("torch")
from benchmarks.truth import counting  # noqa: E402
from benchmarks.truth.counting import COUNTED, Launched, Uncounted, count, waves  # noqa: E402

COMPILED = {"inductor"}
"""Its blocks are chosen by trying: a recording and a count may have different ones."""


@pytest.fixture(autouse=True)
def an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    about = SimpleNamespace(major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: about)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def kernel(name: str = "k", blocks: int = 264) -> Launched:
    return Launched(name, (blocks, 1, 1), (256, 1, 1), registers=32, shared_bytes=0)


def test_waves_are_those_that_nsight_compute_tells() -> None:
    told, equal = 0, 0
    for run in sweep_runs():
        if run.name in COMPILED or not (SWEEP / f"{run.name}.ncu.csv.gz").exists():
            continue
        acts = run.window.activities
        for row, counted in aligned(run, run.window):
            shared = int(acts.shared_bytes[row])
            grid, block = (int(acts.blocks[row]),), (int(acts.threads[row]),)
            ours = waves(Launched("", grid, block, int(acts.registers[row]), shared))
            told += 1
            equal += abs(ours - counted.waves) <= max(0.02 * counted.waves, 0.01)
    assert told > 1_500
    assert equal >= 0.99 * told


def test_what_was_counted_by_cupti_is_every_kernel_of_a_step() -> None:
    found = [run for run in (*sweep_runs(), *blind_runs()) if ranges_of(run.name)]
    assert len(found) >= 20
    for run in found:
        kernels = int((run.window.activities.types == ActivityType.KERNEL).sum())
        assert any(abs(n * len(run.counters) - kernels) <= 0.02 * kernels for n in (2, 4)), run.name
        assert all(0 <= c.compute <= 101 and 0 <= c.memory <= 101 for c in run.counters)


def ranges_of(name: str) -> bool:
    return any((folder / f"{name}.ranges.csv.gz").exists() for folder in (SWEEP, BLIND))


def steps_of(
    monkeypatch: pytest.MonkeyPatch, rows: int, *steps: list[Launched]
) -> Callable[[int], object]:
    """A step whose kernels the profiler will tell as given, one list a call."""
    told = iter(steps)
    values = [[1_000.0, *[50.0] * (len(COUNTED) - 1)]] * rows
    monkeypatch.setattr(counting, "counted", lambda step, first, most: (values, first + 9))
    monkeypatch.setattr(counting, "launched", lambda step, number: next(told))
    return lambda number: None


def test_counts_are_written_as_those_of_ncu_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    same = [kernel("first"), kernel("second", 132)]
    step = steps_of(monkeypatch, 2, same, same)
    count(step, tmp_path / "a.ranges.csv", 100, 1)
    lines = (tmp_path / "a.ranges.csv").read_text().splitlines()
    assert lines[0] == ",".join(counting.COLUMNS)
    told = dict(
        zip(counting.COLUMNS, lines[1].replace('"(264, 1, 1)"', "264").split(","), strict=False)
    )
    assert told["kernel"] == "first" and told["index"] == "0"
    assert "first" in lines[1] and ",0.25," in lines[1] and ",0.125," in lines[2]


@pytest.mark.parametrize(
    ("rows", "one", "other"),
    [
        (2, ["a", "b"], ["a", "b", "c"]),
        (2, ["a", "b"], ["b", "a"]),
        (3, ["a", "b"], ["a", "b"]),
    ],
)
def test_steps_that_differ_are_not_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: int, one: list[str], other: list[str]
) -> None:
    step = steps_of(monkeypatch, rows, [*map(kernel, one)], [*map(kernel, other)])
    with pytest.raises(Uncounted, match="different kernels"):
        count(step, tmp_path / "a.ranges.csv", 100, 1)
    assert not list(tmp_path.iterdir())
