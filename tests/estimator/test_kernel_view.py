"""The truth bench kernel by kernel: halves of a sweep, matching, sums of groups, recordings of a sweep."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.truth.keep import keep
from benchmarks.truth.kernel_table import markdown, tallies, tally
from benchmarks.truth.kernels import Kernel, kernels, sweep_section, write_csv
from benchmarks.truth.runs import RECORDINGS, Counted, Run, runs, sweep_runs, window_of
from benchmarks.truth.scoring import aligned, score
from benchmarks.truth.sets import HALVES, half_of
from tests.session import handmade

CSV = (
    "index,kernel,grid,block,gpu__time_duration.sum,sm__throughput.x,gpu__compute_memory_throughput.x"
    ",dram__throughput.x,sm__pipe_tensor_cycles_active.x,launch__waves_per_multiprocessor\n"
)


@pytest.fixture(scope="module")
def run() -> Run:
    return next(run for run in runs() if run.name == "histograms")


@pytest.fixture(scope="module")
def found(run: Run) -> list[Kernel]:
    return kernels(run)


def one(found: list[Kernel], side: str, counted: str, time_ns: float, dram: float = 0.0) -> Kernel:
    """A kernel said to be on `side` where the counters say `counted`, by 60 % against 20 %."""
    high = {"compute": (60.0, 20.0), "memory": (20.0, 60.0)}[counted]
    shares = dict.fromkeys(("compute", "memory", "underfilled", "unknown"), 0.0) | {side: 1.0}
    truth = Counted("gemm", *high, dram, 0.0, 4.0)
    return replace(found[0], side=side, charged=shares, time_ns=time_ns, counted=truth)


def test_the_half_of_a_case_is_fixed_for_good_and_both_are_of_like_size() -> None:
    assert half_of("norms", "layer_norm", 64, 256) == "held"
    assert half_of("norms", "layer_norm", 384, 256) == "tune"
    halves = [half_of("norms", "layer_norm", blocks, 256) for blocks in range(2000)]
    assert set(halves) == set(HALVES)
    assert 0.45 < halves.count("tune") / 2000 < 0.55


def test_equal_launches_of_a_script_are_in_the_same_half(found: list[Kernel]) -> None:
    half: dict[tuple[str, int, int], str] = {}
    for kernel in found:
        case = (kernel.name, kernel.blocks, kernel.threads)
        assert half.setdefault(case, kernel.half) == kernel.half
    assert len(half) < len(found) and set(half.values()) == set(HALVES)


def test_every_counted_kernel_is_judged_as_the_table_of_scripts_does(
    run: Run, found: list[Kernel]
) -> None:
    verdicts = score(run, run.window).kernels
    assert [k.right for k in found] == [v.right for v in verdicts]
    assert [k.time_ns for k in found] == [v.time_ns for v in verdicts]
    assert all(sum(k.charged.values()) == pytest.approx(1) for k in found)


def test_sums_tell_count_from_time_and_the_way_of_the_error(found: list[Kernel]) -> None:
    told = tally(
        "gemm",
        [
            one(found, "compute", "memory", 300.0),
            one(found, "compute", "compute", 50.0),
            one(found, "memory", "memory", 50.0, dram=60.0),
        ],
    )
    assert (told.kernels, told.sides.decided, told.sides.wrong) == (3, 3, 1)
    assert told.sides.by_count == pytest.approx(2 / 3)
    assert told.sides.by_time == pytest.approx(0.25)
    assert told.bias == pytest.approx((100 / 3, 75))
    assert told.error == pytest.approx((100 / 3, 75))
    assert told.turns == (("compute → memory", 1),)
    # What the counters call memory is caches here: by the DRAM the first is compute, as we say.
    assert told.dram.wrong == 0


def test_groups_come_most_wrong_first_and_the_last_line_sums_all(found: list[Kernel]) -> None:
    groups = tallies(found, "kernel")
    wrong = [group.sides.wrong for group in groups]
    assert wrong == sorted(wrong, reverse=True)
    assert sum(group.kernels for group in groups) == len(found)
    text = markdown(found, "kernel", 3)
    assert len(text) == 2 + 3 + 1 + 1
    assert f"{len(groups) - 3} more" in text[-2] and f"| {len(found)} |" in text[-1]
    assert len({line.count("|") for line in text}) == 1


def test_a_file_holds_every_kernel_and_what_was_gone_by(
    found: list[Kernel], tmp_path: Path
) -> None:
    write_csv(tmp_path / "k.csv", found)
    with (tmp_path / "k.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found)
    assert [row["ncu_side"] for row in rows] == [k.counted.side for k in found]
    assert [row["evidence"] for row in kernel_rows(rows)] and {row["half"] for row in rows} <= {
        *HALVES
    }


def kernel_rows(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return [row for row in rows if row["evidence"] in ("L1", "L1.5", "L2")]


def test_a_step_with_other_kernels_loses_only_those(run: Run) -> None:
    lost = replace(run, counters=run.counters[:20] + run.counters[23:])
    assert [counted for _, counted in aligned(lost, run.window)] == list(lost.counters)
    strange = Counted("tuned_otherwise", 1.0, 1.0, 1.0, 0.0, 1.0, 1, 32)
    more = replace(run, counters=(*run.counters[:30], strange, *run.counters[30:]))
    assert [counted for _, counted in aligned(more, run.window)] == list(run.counters)


def test_a_launch_counted_with_another_grid_is_left_out(run: Run, found: list[Kernel]) -> None:
    first = replace(run.counters[0], blocks=(run.counters[0].blocks or 0) + 1)
    other = replace(run, counters=(first, *run.counters[1:]))
    assert len(kernels(other)) == len(found) - 1


def traced(folder: Path) -> None:
    """A script of four steps with two kernels each, the last step's unlike the others'."""
    events, number = [], 1
    for step in range(4):
        start = 1000.0 * (step + 1)
        events.append(handmade.annotation(start, 900, f"ProfilerStep#{step}"))
        for place in range(2):
            at = start + 100 * place
            name = f"void gemm_{place}<float>(int)"
            dims = {"Input Dims": [[64, 64], [64, 64]], "External id": number}
            events.append(handmade.op(at - 1, 10, "aten::mm", **dims))
            events.append(handmade.launch(at, 5, number, **{"External id": number}))
            events.append(handmade.kernel(at + 20, 50, number, name))
            number += 1
    handmade.written(folder, handmade.text_of(events), "products.trace.json.gz", compress=True)
    (folder / "products.meta.json").write_text('{"step_ms": 1.0}')
    rows = "".join(
        f'{i},void gemm_{i}<float>(int),"(4, 2, 1)","(128, 1, 1)",50,70,20,10,0,4\n' for i in (0, 1)
    )
    (folder / "products.ncu.csv").write_text(CSV + rows)


def test_a_sweep_is_kept_in_a_folder_of_its_own_and_cut_to_its_steps(tmp_path: Path) -> None:
    traced(tmp_path)
    out = tmp_path / "h200-sweep"
    keep(tmp_path, out, tmp_path / "sweep", 2, 0)
    assert len(window_of(out / "products.brrr").activities) == 4
    (swept,) = sweep_runs(out)
    judged = kernels(swept)
    assert [k.script for k in judged] == ["products"] * 2
    assert [(k.counted.blocks, k.counted.threads) for k in judged] == [(8, 128)] * 2
    text = "\n".join(sweep_section(out))
    assert "Sweep, 1 scripts of many cases each, 2 counted kernels" in text
    assert "| gemm |" in text


def test_no_table_of_scripts_holds_a_sweep_and_no_section_is_of_none(tmp_path: Path) -> None:
    assert sweep_section(tmp_path) == []
    assert {run.name for run in runs()} == {path.stem for path in RECORDINGS.glob("*.brrr")}
