"""Lines of steps → where they are steady, their pace with its error, and the comparison of two."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brrrtop.model.trials import Pace
from brrrtop.trials.pace import Trace, Window, find_window, loss_difference, pace, saving

HEADER = {
    "pid": 1, "rank": None, "cwd": "/", "cmdline": ["python", "x.py"], "unit": "step", "began_ns": 0,
    "gpu": None, "facts": {"counts": {}, "problems": {}},
}  # fmt: skip


def steps(lengths_ms: list[float], **more: Any) -> list[dict[str, Any]]:
    """A mark a step, four samples each."""
    ends = np.cumsum(lengths_ms) * 1e6
    return [
        {"n": at, "t": int(end), "samples": 4 * at, "waited": int(end / 4), **more}
        for at, end in enumerate(ends, 1)
    ]


def trace_of(folder: Path, marks: list[dict[str, Any]], **header: Any) -> Trace:
    lines = [HEADER | header, *marks]
    rank = header.get("rank", "0")
    (folder / f"{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    trace = Trace(folder)
    trace.update()
    return trace


def measured(folder: Path, marks: list[dict[str, Any]], seconds: float = 2.0) -> Pace:
    window = find_window(marks, seconds)
    assert window is not None and window.complete
    result = pace(trace_of(folder, marks), window)
    assert result is not None
    return result


def test_warm_up_and_compilation_are_no_part_of_the_pace(tmp_path):
    marks = steps([5000, 900, 400, *[20] * 300])
    for mark in marks:
        mark["graphs"] = 2 if mark["n"] >= 60 else 1
    marks[59]["t"] += 0
    result = measured(tmp_path, marks)
    assert result.step_ns == pytest.approx(20e6)
    assert result.samples == 4
    assert result.waits == pytest.approx(0.25)
    assert result.startup_ns == pytest.approx(6240e6)  # 6.3 s less the three steps it held
    window = find_window(marks, 2.0)
    assert window is not None and marks[window.first]["n"] >= 60 + 50


def test_steps_that_get_quicker_for_long_are_not_measured_on_the_way(tmp_path):
    falling = [100 * 0.93**at for at in range(40)]
    assert measured(tmp_path, steps(falling + [5.0] * 800)).step_ns < 6e6


def test_the_clock_of_the_gpu_counts_where_the_host_runs_ahead(tmp_path):
    marks = steps([1.0] * 5000)
    for mark in marks:
        mark["d"] = mark["n"] * 10_000_000
    assert measured(tmp_path, marks).step_ns == pytest.approx(10e6)


def test_the_interval_holds_the_truth_nineteen_times_of_twenty(tmp_path):
    random = np.random.default_rng(1)
    hits = 0
    for _ in range(60):
        base, edited = (
            measured(tmp_path, steps(list(random.gamma(4, mean / 4, 400)))) for mean in (20, 16)
        )
        _, low, high = saving(edited, base)
        hits += low <= 0.2 <= high
    assert 53 <= hits <= 60
    assert high - low < 0.4


def test_twice_the_batch_is_judged_by_the_sample(tmp_path):
    base = measured(tmp_path, steps([20.0] * 400))
    doubled = steps([30.0] * 400)
    for mark in doubled:
        mark["samples"] *= 2
    assert saving(measured(tmp_path, doubled), base)[0] == pytest.approx(0.25)


def test_an_evaluation_is_no_part_of_the_steps(tmp_path):
    marks = steps([20.0] * 400, d=0)
    for mark in marks:
        mark["d"] = mark["t"] - 5
    whole = measured(tmp_path, marks)
    for mark in marks[200:]:  # 7 s of it, in which the loader was waited for
        mark.update({name: mark[name] + 7_000_000_000 for name in ("t", "d", "waited")})
        mark["samples"] += 512
    begin = dict(marks[199])
    end = begin | {"t": begin["t"] + 7_000_000_000, "d": begin["d"] + 7_000_000_000}
    end |= {"waited": begin["waited"] + 7_000_000_000, "samples": begin["samples"] + 512}
    split = [*marks[:200], begin, end | {"apart": True}, *marks[200:]]
    trace = trace_of(tmp_path, split)
    window = find_window(trace.marks, 6.0)
    assert window is not None and window.complete
    result = pace(trace, window)
    assert result.step_ns == pytest.approx(20e6) and result.error_ns < 1e5
    assert result.samples == 4 and result.waits == pytest.approx(whole.waits)


def test_of_several_ranks_rank_0_is_read_and_half_a_line_waits(tmp_path):
    trace_of(tmp_path, steps([10.0] * 5), rank="1")
    trace = trace_of(tmp_path, steps([20.0] * 5), rank="0")
    with (tmp_path / "0.jsonl").open("a") as file:
        file.write('{"n": 6, "t"')
        file.flush()
        trace.update()
        assert len(trace.marks) == 5
        file.write(': 1, "samples": 0, "waited": 0}\nnonsense\n[1]\n{"n": 7}\n')
    trace.update()
    assert [mark["n"] for mark in trace.marks] == [1, 2, 3, 4, 5, 6]
    assert trace.header is not None and trace.header.rank == "0"


def test_slow_steps_end_with_what_there_is(tmp_path):
    window = find_window(steps([3000.0] * 12), 1.0)
    assert window == Window(4, 7, True)
    assert find_window(steps([3000.0] * 3), 1.0) is None


def losses(scale: float, noise: float = 0.0) -> Iterator[tuple[int, float]]:
    random = np.random.default_rng(int(1000 * scale))
    return ((step, scale / step + noise * random.standard_normal()) for step in range(1, 40))


@pytest.mark.parametrize(
    ("edited", "noise", "changes"),
    [(1.0, 0.0, False), (1.0005, 0.0, False), (1.02, 0.0, True), (1.02, 0.02, False)],
)
def test_a_loss_beyond_the_noise_of_the_base_runs_is_noticed(edited, noise, changes):
    bases = [dict(losses(1.0, noise)), dict(losses(1.0 + noise, noise))]
    difference, beyond = loss_difference(dict(losses(edited)), bases)
    assert difference is not None
    assert beyond is changes


def test_a_loss_that_is_no_number_any_more_is_beyond_noise_and_one_base_has_none():
    base = dict(losses(1.0))
    assert loss_difference({**base, 39: math.nan}, [base, base]) == (None, True)
    assert loss_difference(dict(losses(2.0)), [base])[1] is False
    assert loss_difference({}, [base]) == (None, False)
