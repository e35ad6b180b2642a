"""How long the training loop waited for each batch, where it stood meanwhile, what lay ready, and how many
workers would keep up.

Waits are marked all the time, bursts or not: the minute around the judged span speaks where it was
watched, as a span of one burst holds a handful of them.
"""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.facts.stack_samples import by_line, reading
from brrrtop.analysis.facts.table import Facts
from brrrtop.model import intervals
from brrrtop.model.advice import WhatIf
from brrrtop.model.host_tables import LoaderRow, WorkersDo, WorkersNeeded
from brrrtop.model.run import Line
from brrrtop.model.tables import I8, Bool, Marks, Window, percentile
from collectors.vocabulary import MarkClass, Metric

MOST_LINES, MOST_RECENT = 5, 120
_OPTION = re.compile(r"(\w+)=(\d{1,6})\b")
_IN_THE_LOOP = "_SingleProcess"
"""In the name of a trace's range of a loader without workers."""
BUSY, ASLEEP = 0.7, 0.3
"""Of a core each: from there on workers work all the time; below, they wait for something else."""
MOSTLY = 0.5


def loader_rows(facts: Facts) -> list[LoaderRow]:
    window = facts.window
    marks = window.watched
    if marks is None or not (marks.classes == MarkClass.INPUT).any():
        marks = window.marks
    rows = np.flatnonzero(_of_the_loop(marks))
    if not len(rows):
        return []
    of_ns = int(marks.ends_ns.max() - marks.starts_ns.min())
    if marks is window.marks:
        of_ns = window.span.duration_ns
    by_loader = (
        rows[marks.name_ids[rows] == name_id] for name_id in np.unique(marks.name_ids[rows])
    )
    result = [_row(window, marks, rows, of_ns) for rows in by_loader]
    return sorted(result, key=lambda row: -row.total_ns)


def _of_the_loop(marks: Marks) -> Bool:
    """Waits of threads that step: a thread of its own that fetches ahead holds nobody up."""
    waits = marks.classes == MarkClass.INPUT
    own = np.isin(marks.tids, marks.tids[np.isin(marks.classes, (MarkClass.STEP, MarkClass.STACK))])
    return np.asarray(waits & own if (waits & own).any() else waits)


def _row(window: Window, marks: Marks, rows: I8, of_ns: int) -> LoaderRow:
    name = window.names[marks.name_ids[rows[0]]]
    options = {key: int(value) for key, value in _OPTION.findall(name)}
    starts, ends = marks.starts_ns[rows], marks.ends_ns[rows]
    lengths = np.sort(ends - starts)
    workers = 0 if _IN_THE_LOOP in name else options.get("num_workers")
    ready = marks.values[rows] if workers else np.zeros(0, np.int64)
    ready = ready[ready >= 0]
    inside = _samples_in(marks, rows[_of_training(marks, rows)])
    if not len(inside):
        inside = _samples_in(marks, rows)
    return LoaderRow(
        name=name,
        count=len(rows),
        of_ns=of_ns,
        total_ns=min(intervals.total(*intervals.merge_unsorted(starts, ends)), of_ns),
        wait_p50_ns=percentile(lengths, 0.5),
        wait_p99_ns=percentile(lengths, 0.99),
        longest_ns=int(lengths[-1]),
        workers=workers,
        prefetch=workers * options["prefetch_factor"]
        if workers and "prefetch_factor" in options
        else None,
        ready_p50=percentile(np.sort(ready), 0.5) if len(ready) else None,
        none_ready_share=float((ready == 0).mean()) if len(ready) else None,
        recent_ns=tuple((ends - starts)[-MOST_RECENT:].tolist()),
        samples=len(inside),
        lines=_lines(window, marks.name_ids[inside]),
    )


def _of_training(marks: Marks, rows: I8) -> Bool:
    """Waits after which a step ends before the loop draws again: an evaluation's have none."""
    ends = marks.ends_ns[rows]
    steps = np.sort(marks.ends_ns[marks.classes == MarkClass.STEP])
    draws = np.sort(marks.starts_ns[rows])
    after = np.append(draws, np.iinfo(np.int64).max)[np.searchsorted(draws, ends, "left")]
    return np.asarray(np.searchsorted(steps, after) > np.searchsorted(steps, ends))


def _samples_in(marks: Marks, rows: I8) -> I8:
    waits = intervals.Cover(*intervals.merge_unsorted(marks.starts_ns[rows], marks.ends_ns[rows]))
    at = np.flatnonzero(marks.classes == MarkClass.STACK)
    return at[waits.between(marks.starts_ns[at], marks.starts_ns[at] + 1) > 0]


def _lines(window: Window, name_ids: I8) -> tuple[Line, ...]:
    at, inside = by_line(window.names, name_ids)
    return tuple(
        Line(*place, count, *reading(inside[place])) for place, count in at.most_common(MOST_LINES)
    )


def with_workers(
    rows: Sequence[LoaderRow],
    ready: WhatIf | None,
    means: Mapping[int, float],
    shown: Sequence[LoaderRow] = (),
) -> tuple[LoaderRow, ...]:
    """Loaders with what their workers do and how many would be enough.

    Args:
        ready: The price of having the next batch always there; None: no step could be replayed.
        means: Mean reading of each `Metric`; the workers' are of all loaders together.
        shown: With the numbers that were given last: one that is still possible stays.
    """
    last = {row.name: row.needed.count for row in shown if row.needed is not None}
    return tuple(
        replace(
            row,
            workers_do=workers_do(row, means),
            needed=workers_needed(row, ready, means, last.get(row.name)),
        )
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
    row: LoaderRow, ready: WhatIf | None, means: Mapping[int, float], last: int | None = None
) -> WorkersNeeded | None:
    """How many would keep up; None where they are not what is short, or nobody knows."""
    if ready is None or ready.saves_low <= 0 or row.workers is None or not ready.step_ns > 0:
        return None
    batch_ns = float(row.wait_p50_ns)
    if row.workers:
        if workers_do(row, means) is not WorkersDo.COMPUTE:
            return None
        batch_ns = row.workers * ready.present_ns
    count = math.ceil(batch_ns / ready.step_ns)
    count += -count % 2 ** max(0, count.bit_length() - 3)  # both times are known to a tenth at best
    if last is not None and _is_possible(last, batch_ns, ready):
        count = last
    cores = means.get(Metric.TRAINER_CORES)
    short = int(cores) if cores is not None and cores < count else None
    return WorkersNeeded(count, round(batch_ns), round(ready.step_ns), short)


def _is_possible(count: int, batch_ns: float, ready: WhatIf) -> bool:
    """Whether so many are within the range of the gain, or within a tenth."""
    least, most = (
        batch_ns / max(ready.present_ns * (1 - saves), 1)
        for saves in (ready.saves_low, ready.saves_high)
    )
    now = batch_ns / ready.step_ns
    return min(least, 0.9 * now) <= count <= math.ceil(1.1 * max(most, now))


def _cores_each(means: Mapping[int, float]) -> float | None:
    alive, cores = means.get(Metric.LOADER_WORKERS), means.get(Metric.LOADER_CPU_SHARE)
    return cores / alive if alive and cores is not None else None
