"""Waits for a loader as rows: how long, how many batches lay ready, and where the loop stood."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from brrrtop.analysis.estimate import facts_of
from brrrtop.analysis.tables.loaders import loader_rows, with_workers
from brrrtop.model.advice import WhatIf
from brrrtop.model.host_tables import LoaderRow, WorkersDo, WorkersNeeded
from brrrtop.text import loader
from collectors.vocabulary import MarkClass, Metric
from tests.analysis.build import K, M, window
from tests.recorded import analyzed

DEMO = Path(__file__).parents[2] / "brrrtop" / "data" / "demos" / "input-bound.brrr"
WORKERS = "DataLoader(num_workers=2, pin_memory=True, prefetch_factor=3, dataset=Images)"
MS = 1_000_000


def wait(begin_ms: int, end_ms: int, ready: int, name: str = WORKERS, tid: int = 1) -> M:
    return M(begin_ms * MS, end_ms * MS, MarkClass.INPUT, name, ready, tid)


def sample(at_ms: int, name: str, tid: int = 1) -> M:
    return M(at_ms * MS, at_ms * MS, MarkClass.STACK, name, 0, tid)


def rows(*marks: M) -> list[LoaderRow]:
    return loader_rows(facts_of(window([K(0, 100 * MS)], marks=list(marks))))


def test_waits_what_lay_ready_and_where_the_loop_stood() -> None:
    loop = "train.py:8 main | for images in loader:"
    (row,) = rows(
        *(wait(10 * i, 10 * i + i, i % 2) for i in range(10)),
        *(sample(10 * i + 1, loop) for i in range(2, 10)),
        sample(9, "train.py:9 main | loss.backward()"),
    )
    assert (row.count, row.of_ns, row.total_ns) == (10, 100 * MS, 45 * MS)
    assert (row.wait_p50_ns, row.wait_p99_ns, row.longest_ns) == (4 * MS, 9 * MS, 9 * MS)
    assert (row.workers, row.prefetch) == (2, 6)
    assert (row.ready_p50, row.none_ready_share) == (0, 0.5)
    assert row.recent_ns == tuple(i * MS for i in range(10))
    assert row.samples == 8, "the sample after the wait is none of it"
    assert [(line.place, line.source, line.count) for line in row.lines] == [
        ("train.py:8", "for images in loader:", 8)
    ]


def test_the_line_that_waits_is_the_trainings_where_an_evaluation_waits_longer() -> None:
    steps = [M(t * MS, t * MS, MarkClass.STEP) for t in (15, 25)]
    (row,) = rows(
        *(wait(t, t + 4, 0) for t in (10, 20)),
        *(sample(t, "train.py:8 train | for x in loader:") for t in (12, 22)),
        *steps,
        *(wait(t, t + 9, 0) for t in range(30, 90, 10)),
        *(sample(t, "train.py:20 evaluate | for x in loader:") for t in range(31, 89, 2)),
    )
    assert (row.count, row.samples) == (8, 2), "all waits are counted"
    assert [line.place for line in row.lines] == ["train.py:8"]


def test_the_loader_waited_for_most_comes_first_and_a_thread_that_fetches_ahead_is_none() -> None:
    step = M(99 * MS, 99 * MS, MarkClass.STEP)
    result = rows(
        wait(0, 5, -1, "DataLoader(num_workers=0)"),
        wait(10, 30, 1),
        wait(40, 90, 0, "DataLoader(num_workers=8)", tid=2),
        step,
    )
    assert [(row.workers, row.total_ns) for row in result] == [(2, 20 * MS), (0, 5 * MS)]
    assert result[1].ready_p50 is None and result[1].prefetch is None


@pytest.mark.parametrize(("kind", "workers"), [("_SingleProcess", 0), ("_MultiProcessing", None)])
def test_a_trace_tells_workers_from_none_but_not_how_many(kind: str, workers: int | None) -> None:
    (row,) = rows(wait(0, 5, 0, f"enumerate(DataLoader)#{kind}DataLoaderIter.__next__"))
    assert row.workers == workers
    assert row.ready_p50 is None, "a range has no such figure"


def test_a_name_with_a_number_that_nobody_can_mean_tells_nothing() -> None:
    (row,) = rows(wait(0, 5, 0, f"DataLoader(num_workers={'9' * 5000}, prefetch_factor=2)"))
    assert row.workers is None and row.prefetch is None


def test_without_waits_there_is_no_row() -> None:
    assert rows() == []


def test_a_live_run_is_watched_between_bursts_and_its_decoding_line_is_named() -> None:
    (row,) = analyzed(DEMO).tables.loaders
    assert row.count > 400, "one each step, not of the few that were traced"
    assert 0.9 < row.share < 0.97
    assert row.lines[0].place == "zoo/slow_loader.py:45"
    assert row.lines[0].count > 0.6 * row.samples


READY = WhatIf("loader-ready", 20e6, 0.5, 0.4, 0.6, None, "")
"""40 ms a step now, 20 ms with the batch ready."""
IN_THE_LOOP = LoaderRow("DataLoader", 100, 10**10, 10**9, 15_000_000, 10**8, 10**8, workers=0)
FOUR = replace(IN_THE_LOOP, workers=4)
BUSY = {45: 4.0, 46: 3.9, 47: 0.97, 48: 0.01}
"""Alive, cores in use, share busy, share in disk wait."""


def judged(row: LoaderRow, means: dict[int, float], ready: WhatIf | None = READY) -> LoaderRow:
    (result,) = with_workers([row], ready, means)
    return result


@pytest.mark.parametrize(
    ("row", "count", "batch_ns"),
    [
        (IN_THE_LOOP, 1, 15_000_000),
        (replace(IN_THE_LOOP, wait_p50_ns=90_000_000), 5, 90_000_000),
        (FOUR, 8, 160_000_000),
        (replace(IN_THE_LOOP, wait_p50_ns=326_000_000), 20, 326_000_000),
    ],
)
def test_enough_workers_make_a_batch_in_the_time_of_a_step(
    row: LoaderRow, count: int, batch_ns: int
) -> None:
    needed = judged(row, BUSY).needed
    assert (needed.count, needed.batch_ns, needed.step_ns) == (count, batch_ns, 20_000_000)


@pytest.mark.parametrize(
    ("means", "does", "sentence"),
    [
        (BUSY, WorkersDo.COMPUTE, "compute all the time: more of them help"),
        ({**BUSY, 46: 1.1}, WorkersDo.SHARE_CORES, "the host's cores are taken"),
        ({**BUSY, 46: 0.4, 47: 0.1}, WorkersDo.SLEEP, "More of them may not help"),
        ({**BUSY, 46: 0.4, 48: 0.6}, WorkersDo.WAIT_FOR_DISK, "faster storage"),
        ({**BUSY, 46: 2.0, 47: 0.5}, None, ""),
        ({}, None, ""),
    ],
)
def test_only_workers_that_compute_all_the_time_are_too_few(
    means: dict[int, float], does: WorkersDo | None, sentence: str
) -> None:
    row = judged(FOUR, means)
    assert row.workers_do is does and sentence in loader.diagnosis(row)
    assert (row.needed is not None) is (does is WorkersDo.COMPUTE)


def test_nothing_is_counted_where_no_step_was_replayed_or_the_batch_may_win_nothing() -> None:
    assert judged(FOUR, BUSY, None).needed is None
    assert judged(FOUR, BUSY, replace(READY, saves_low=-0.1)).needed is None
    assert judged(replace(FOUR, workers=None), BUSY).needed is None


def test_the_number_of_workers_stays_while_its_range_holds_it_and_is_never_above_the_cores() -> (
    None
):
    def needed(saves: float, low: float, high: float, shown: int | None, cores: int = 64):  # type: ignore[no-untyped-def]
        ready = WhatIf("loader-ready", 100e6 * (1 - saves), saves, low, high, None, "")
        before = [replace(FOUR, needed=WorkersNeeded(shown, 1, 1))] if shown else []
        (row,) = with_workers([FOUR], ready, {**BUSY, Metric.TRAINER_CORES: cores}, before)
        assert row.needed is not None
        return row.needed.count, row.needed.cores

    assert needed(0.76, 0.7, 0.8, None) == (20, None)
    assert needed(0.81, 0.7, 0.84, 20) == (20, None), "21.05 by itself, rounded to 24"
    assert needed(0.81, 0.7, 0.84, None) == (24, None)
    assert needed(0.895, 0.87, 0.91, 20) == (40, None), "its range begins at 31"
    assert needed(0.50, 0.48, 0.52, 20) == (8, None)
    assert needed(0.81, 0.7, 0.84, 20, cores=16) == (20, 16)
