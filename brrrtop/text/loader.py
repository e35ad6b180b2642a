"""The loader that the training loop waits for, in words: the same on the main screen and on its own."""

import re
from collections.abc import Mapping

from brrrtop.model.advice import WhatIf
from brrrtop.model.host_tables import LoaderRow, WorkersDo
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from collectors.vocabulary import Metric

READY = "loader-ready"
"""The edit that has the next batch always there."""
UNEVEN = 1.5
"""Times the median that a mean is, from which the median alone is no account of the waits."""
LEAST_P99 = 100
"""Of fewer waits the slowest hundredth says nothing."""
_KIND = re.compile(r"^(\w+)\(.*?(?:dataset=(\w+))?\)$")
NOT_ENTERED = (
    "Which line a worker is at is not known: brrrtop enters no worker process. "
    "`py-spy dump --pid PID` shows one."
)
_HELPS = {
    WorkersDo.WAIT_FOR_DISK: "They wait for a disk: faster storage or a cache helps, more of them hardly.",
    WorkersDo.COMPUTE: "They compute all the time: more of them help as long as cores are free, or cheaper "
    "decoding.",
    WorkersDo.SHARE_CORES: "They would compute all the time and get a part of a core each: the host's cores "
    "are taken, and more workers would share the same ones.",
    WorkersDo.SLEEP: "They sleep although the loop waits: for a network, a lock, or to hand over large "
    "batches (pinning, collating). More of them may not help.",
}


def kind(row: LoaderRow) -> str:
    match = _KIND.match(row.name)
    if match is None:
        return "DataLoader" if "DataLoader" in row.name else row.name
    return f"{match[1]} of {match[2]}" if match[2] else match[1]


def waits(row: LoaderRow, brief: bool = False) -> str:
    """`for 469 batches in 59.7 s: median 111 ms, p99 190 ms, longest 279 ms`; where few long waits make the
    time, with the mean.

    Args:
        brief: With one of the slow figures, and without the length of the time.
    """
    slow = [f"longest {units.duration(row.longest_ns)}"]
    if row.count >= LEAST_P99:
        slow = [f"p99 {units.duration(row.wait_p99_ns)}", *([] if brief else slow)]
    of_time = "" if brief else f" in {units.duration(row.of_ns)}"
    usual, mean_ns = (
        f"median {units.duration(row.wait_p50_ns)}",
        row.share * row.of_ns / max(1, row.count),
    )
    if mean_ns > UNEVEN * row.wait_p50_ns:  # few long waits make the time
        usual = f"{units.duration(mean_ns)} each on average"
    return f"for {units.count(row.count)} batches{of_time}: {usual}, {', '.join(slow)}"


def workers(row: LoaderRow, gauges: Mapping[int, float], brief: bool = False) -> str:
    if row.workers == 0:
        return "none: the training loop makes each batch itself"
    alive = gauges.get(Metric.LOADER_WORKERS)
    asked = "number not known" if row.workers is None else f"{row.workers} asked for"
    if alive is None:
        return f"{asked}; what they do is not known: only a live trainer's are looked at"
    text = f"{asked}, {alive:.0f} alive"
    cores = gauges.get(Metric.LOADER_CPU_SHARE)
    if not alive or cores is None:
        return text
    text += f": {cores:.1f} cores in use ({units.share(cores / alive)} each)"
    busy, disk = gauges.get(Metric.LOADER_BUSY_SHARE), gauges.get(Metric.LOADER_DISK_SHARE)
    if busy is None or disk is None or brief:
        return text
    asleep = max(0.0, 1 - busy - disk)
    return f"{text}, {units.share(busy)} busy, {units.share(disk)} in disk wait, {units.share(asleep)} asleep"


def ready(row: LoaderRow) -> str:
    """`no next batch was ready in 97% of the draws; of 8 at most 0 in the median`; empty: not known."""
    if row.ready_p50 is None:
        return ""
    none = f"no next batch was ready in {units.share(row.none_ready_share)} of the draws"
    if not row.ready_p50:
        return none
    most = "" if row.prefetch is None else f" of {row.prefetch}"
    return f"{row.ready_p50}{most} batches in the median; {none}"


def price(snapshot: Snapshot) -> WhatIf | None:
    """What the step is predicted to take with the next batch always there."""
    return next((row for row in snapshot.whatif if row.edit == READY), None)


def enough(row: LoaderRow) -> str:
    if row.needed is None:
        return ""
    count = row.needed.count
    return (
        f"at least {count} worker{'s' * (count != 1)}, a core each: a batch takes one of them "
        f"{units.duration(row.needed.batch_ns)}"
        + (f"; the trainer has {row.needed.cores} cores" if row.needed.cores else "")
    )


def line(workers: int = 4) -> str:
    return f"DataLoader(..., num_workers={workers}, persistent_workers=True)"


def diagnosis(row: LoaderRow) -> str:
    """What the workers' states say of what would help; empty where they say nothing."""
    return "" if row.workers_do is None else _HELPS[row.workers_do]
