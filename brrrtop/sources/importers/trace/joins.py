"""Who caused what: processes of merged traces apart, launches to activities, ops to launches.

Several processes in one file number their threads and calls anew, so each gets numbers of its own.
"""

import numpy as np
import numpy.typing as npt

from brrrtop.model import intervals
from brrrtop.model.intervals import Nest
from brrrtop.model.tables import I8, Bool
from brrrtop.sources.importers.trace.columns import Array, Columns

_U32 = 1 << 32
_TRUST = 0.8
"""Share of launches whose External id must name the op that holds them before it is believed:
torch 1.13 wrote the correlation there."""
_CAUSED = 0.9
"""Part of a device's work that must come after the calls of a process for it to be that process's."""


def correlate_by_external(activities: list[Columns], calls: Columns) -> None:
    """Takes External ids for correlations where nobody wrote any, as Kineto once did on ROCm, in place.

    These number the call and what it ran; an op's own External id is another.
    """
    if any(table["correlation"].any() for table in (*activities, calls)):
        return
    ids = calls["external"]
    acts = np.concatenate([table["external"] for table in activities])
    named = np.isin(acts, ids[ids > 0])
    if not len(acts) or named.mean() < _TRUST or len(np.unique(ids)) < len(ids):
        return
    for table in (*activities, calls):
        table["correlation"] = table["external"].copy()
        table["external"] = np.zeros_like(table["external"])


def part_processes(
    activities: list[Columns], calls: Columns, hosts: list[Columns]
) -> dict[int, list[int]]:
    """Makes threads, correlations and External ids of different processes different, in place.

    Activities name a device and no process: each device is given to the process whose calls come before
    its work. Where that leaves a device open, as where all processes have device 0, ids stay as they
    are, and an activity goes to the nearest call before it.

    Args:
        activities: Kernels and copies.
        calls: With a column `pid`, as the `hosts` have.
        hosts: Ops and ranges.

    Returns:
        The threads of each device's process; empty where there is one, or a device is open.
    """
    if not len(calls["pid"]) or not np.ptp(calls["pid"]):
        return {}
    processes = np.unique(calls["pid"])
    _part_threads([calls, *hosts])
    owners = _owners(activities, calls, processes)
    if len(owners) < len(processes):
        return {}
    devices, pids = np.array(sorted(owners.items()), np.int64).T
    for table in activities:
        table["pid"] = pids[np.searchsorted(devices, table["device"])]
    for key in ("correlation", "external"):
        tables = [table for table in (*activities, calls, *hosts) if key in table]
        known = np.unique(np.concatenate([table[key] for table in tables]))
        for table in tables:
            own = table["pid"].astype(np.int64) * len(known) + np.searchsorted(known, table[key])
            table[key] = np.where(table[key] > 0, own + 1, table[key])
    threads = {
        pid: [table["tid"][table["pid"] == pid] for table in (calls, *hosts)] for pid in pids
    }
    return {
        device: np.unique(np.concatenate(threads[pid])).tolist() for device, pid in owners.items()
    }


def _part_threads(tables: list[Columns]) -> None:
    """Threads of one number in several processes get one of their own, but for the first."""
    keys = [table["pid"].astype(np.int64) * _U32 + table["tid"] for table in tables]
    known = np.unique(np.concatenate(keys))
    tids = known % _U32
    _, first = np.unique(tids, return_index=True)
    again = np.ones(len(known), np.bool_)
    again[first] = False
    free = np.setdiff1d(np.arange(_U32 - 2 * len(known), _U32), tids)
    tids[again] = free[: again.sum()]
    for table, key in zip(tables, keys, strict=True):
        table["tid"] = tids[np.searchsorted(known, key)]


def _owners(activities: list[Columns], calls: Columns, processes: I8) -> dict[int, int]:
    """The process of each device, in order of how surely; each process has one device as long as there are
    enough of them. Empty where a device has none."""
    devices, ids, starts = (
        np.concatenate([table[key] for table in activities])
        for key in ("device", "correlation", "start_ns")
    )
    device_ids = np.unique(devices).tolist()
    scores = []
    for place, device in enumerate(device_ids):
        on_device = (devices == device) & (ids > 0)
        for rank, process in enumerate(processes.tolist()):
            caused = _cause_share(ids[on_device], starts[on_device], calls, calls["pid"] == process)
            scores.append((-caused, abs(place - rank), device, process))
    owners: dict[int, int] = {}
    for caused, _, device, process in sorted(scores):
        taken = set(owners.values())
        spare = len(taken) < len(processes) and process in taken
        if device not in owners and not spare and -caused >= _CAUSED:
            owners[device] = process
    return owners if len(owners) == len(device_ids) else {}


def _cause_share(ids: I8, starts: I8, calls: Columns, rows: npt.NDArray[np.bool_]) -> float:
    """Part of the activities whose call is among these and comes before them."""
    begun = calls["start_ns"][rows]
    if not len(begun) or not len(ids):
        return 0.0
    at = intervals.latest_before(calls["correlation"][rows], begun, ids, starts)
    return float(np.mean((at >= 0) & (begun[at] <= starts)))


def in_u32(*columns: Array) -> list[I8]:
    """Ids that share one space, mapped to dense ones when any does not fit u32; 0 stays 0."""
    if all(not len(c) or (int(c.min()) >= 0 and int(c.max()) < _U32) for c in columns):
        return [np.asarray(c, np.int64) for c in columns]
    known = np.unique(np.concatenate([*columns, np.zeros(1, np.int64)]))
    known = np.concatenate([np.zeros(1, np.int64), known[known != 0]])
    order = np.argsort(known)
    return [order[np.searchsorted(known, c, sorter=order)] for c in columns]


def unique_correlations(
    calls: Array, call_starts: I8, launching: Bool, acts: Array, act_starts: I8
) -> tuple[I8, I8]:
    """Correlations of calls and activities, unique among calls.

    A correlation that several calls carry (merged traces, counters that wrapped) gets a new number
    for each call; its activities go to the nearest launching call before them, else the first.
    """
    known, counts = np.unique(calls, return_counts=True)
    again = known[(counts > 1) & (known != 0)]
    if not len(again):
        return calls, acts
    calls, acts = calls.copy(), acts.copy()
    call_rows = np.flatnonzero(np.isin(calls, again))
    act_rows = np.flatnonzero(np.isin(acts, again))
    old = calls[call_rows]
    top = int(max(calls.max(), acts.max(initial=0)))
    fresh = _unused_rows(np.concatenate([calls, acts]), len(call_rows), top)
    calls[call_rows] = fresh
    able = np.flatnonzero(launching[call_rows])
    rows = intervals.latest_before(
        old[able], call_starts[call_rows[able]], acts[act_rows], act_starts[act_rows]
    )
    acts[act_rows] = np.append(fresh[able], 0)[rows]  # -1: none of them launches
    return calls, acts


def _unused_rows(used: Array, count: int, top: int) -> I8:
    if top + count < _U32:
        return np.arange(top + 1, top + 1 + count, dtype=np.int64)
    candidates = np.setdiff1d(np.arange(1, len(used) + count + 1, dtype=np.int64), used)
    return np.asarray(candidates[:count], np.int64)


def op_of_launch(nest: Nest, op_externals: I8, launches: dict[str, Array]) -> I8:
    """Position in `nest.order` of the op behind each launch; -1: nobody knows.

    By External id where the trace's External ids prove to be those of ops, else by who holds the
    launch on its thread. `launches` has tid (-1: the call was not recorded), start_ns, end_ns and
    external.
    """
    enclosing = nest.holder(launches["tid"], launches["start_ns"], launches["end_ns"])
    if not len(op_externals) or not len(enclosing):
        return enclosing
    externals = op_externals[nest.order]
    order = np.argsort(externals, kind="stable")
    at = np.searchsorted(externals, launches["external"], "right", sorter=order) - 1
    named = np.where(at >= 0, order[np.maximum(at, 0)], -1)
    named[(named >= 0) & (externals[named] != launches["external"])] = -1
    named[launches["external"] == 0] = -1
    both = (enclosing >= 0) & (launches["external"] != 0)
    agree = np.count_nonzero(named[both] == enclosing[both])
    if agree < _TRUST * np.count_nonzero(both):
        return enclosing
    if not both.any() and np.mean(launches["external"] == launches["correlation"]) > 0.5:
        return enclosing
    return np.where(named >= 0, named, enclosing)
