"""Traces of several processes merged into one file: their ids start anew, so each gets its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from brrrtop.model.tables import I8

Columns = dict[str, npt.NDArray[Any]]
_CAUSED = 0.9
"""Part of a device's work that must come after the calls of a process for it to be that process's."""
_U32 = 1 << 32


def part_processes(activities: list[Columns], calls: Columns, hosts: list[Columns]) -> None:
    """Makes threads, correlations and External ids of different processes different, in place.

    Activities name a device and no process: each device is given to the process whose calls come before
    its work. Where that leaves a device open, as where all processes have device 0, ids stay as they
    are, and an activity goes to the nearest call before it.

    Args:
        activities: Kernels and copies.
        calls: With a column `pid`, as the `hosts` have.
        hosts: Ops and ranges.
    """
    processes = np.unique(calls["pid"])
    if len(processes) < 2:
        return
    _part_threads([calls, *hosts])
    owners = {
        int(device): owner
        for device, owner in _owners(activities, calls, processes).items()
        if owner is not None
    }
    devices = np.unique(np.concatenate([table["device"] for table in activities]))
    if len(owners) < len(devices) or len(devices) < len(processes):
        return
    pid_of = np.array([owners[int(device)] for device in devices], np.int64)
    for table in activities:
        table["pid"] = pid_of[np.searchsorted(devices, table["device"])]
    for key in ("correlation", "external"):
        tables = [table for table in (*activities, calls, *hosts) if key in table]
        size = max(int(table[key].max(initial=0)) for table in tables) + 1
        for table in tables:
            own = table[key] + table["pid"].astype(np.int64) * size
            table[key] = np.where(table[key] > 0, own, table[key])


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


def _owners(activities: list[Columns], calls: Columns, processes: I8) -> dict[int, int | None]:
    """The process of each device, in order of how surely; each process has one device as long as there are
    enough of them."""
    devices, ids, starts = (
        np.concatenate([table[key] for table in activities])
        for key in ("device", "correlation", "start_ns")
    )
    device_ids = np.unique(devices).tolist()
    scores = []
    for place, device in enumerate(device_ids):
        mine = (devices == device) & (ids > 0)
        for rank, process in enumerate(processes.tolist()):
            caused = _cause_share(ids[mine], starts[mine], calls, calls["pid"] == process)
            scores.append((-caused, abs(place - rank), device, process))
    owners: dict[int, int | None] = dict.fromkeys(device_ids)
    taken: set[int] = set()
    for caused, _, device, process in sorted(scores):
        spare = len(taken) < len(processes) and process in taken
        if owners[device] is None and not spare and -caused >= _CAUSED:
            owners[device] = process
            taken.add(process)
    return owners


def _cause_share(ids: I8, starts: I8, calls: Columns, rows: npt.NDArray[np.bool_]) -> float:
    """Part of the activities whose call is among these and comes before them."""
    order = np.argsort(calls["correlation"][rows], kind="stable")
    known, begun = calls["correlation"][rows][order], calls["start_ns"][rows][order]
    if not len(known) or not len(ids):
        return 0.0
    at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return float(np.mean((known[at] == ids) & (begun[at] <= starts)))
