"""How many loader workers would keep up, and what those that there are do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from brrrtop.analysis.tables.loaders import with_workers
from brrrtop.model.advice import WhatIf
from brrrtop.model.host_tables import LoaderRow, WorkersDo
from brrrtop.text import loader

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
