"""What a loader's workers do, and how many of them would keep up with the training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from brrrtop.model.advice import WhatIf
from brrrtop.model.host_tables import LoaderRow, WorkersDo, WorkersNeeded
from brrrtop.model.vocabulary import Metric

BUSY, ASLEEP = 0.7, 0.3
"""Of a core each: from there on workers work all the time; below, they wait for something else."""
MOSTLY = 0.5


def with_workers(
    rows: Sequence[LoaderRow], ready: WhatIf | None, means: Mapping[int, float]
) -> tuple[LoaderRow, ...]:
    """Loaders with what their workers do and how many would be enough.

    Args:
        ready: The price of having the next batch always there; None: no step could be replayed.
        means: Mean reading of each `Metric`; the workers' are of all loaders together.
    """
    return tuple(
        replace(row, workers_do=workers_do(row, means), needed=workers_needed(row, ready, means))
        for row in rows
    )


def workers_do(row: LoaderRow, means: Mapping[int, float]) -> WorkersDo | None:
    """What keeps the workers from being faster; None where their states do not tell."""
    each = _cores_each(means)
    if row.workers == 0 or each is None:
        return None
    if means.get(Metric.LOADER_DISK_SHARE, 0.0) >= MOSTLY:
        return WorkersDo.WAIT_FOR_DISK
    if each >= BUSY:
        return WorkersDo.COMPUTE
    if means.get(Metric.LOADER_BUSY_SHARE, 0.0) >= BUSY:
        return WorkersDo.SHARE_CORES
    return WorkersDo.SLEEP if each <= ASLEEP else None


def workers_needed(
    row: LoaderRow, ready: WhatIf | None, means: Mapping[int, float]
) -> WorkersNeeded | None:
    """How many would keep up; None where they are not what is short, or nobody knows."""
    if ready is None or ready.saves_low <= 0 or row.workers is None or not ready.step_ns > 0:
        return None
    batch_ns = float(row.wait_p50_ns)
    if row.workers:
        if workers_do(row, means) is not WorkersDo.COMPUTE:
            return None
        batch_ns = row.workers * ready.present_ns
    return WorkersNeeded(math.ceil(batch_ns / ready.step_ns), round(batch_ns), round(ready.step_ns))


def _cores_each(means: Mapping[int, float]) -> float | None:
    alive, cores = means.get(Metric.LOADER_WORKERS), means.get(Metric.LOADER_CPU_SHARE)
    return cores / alive if alive and cores is not None else None
