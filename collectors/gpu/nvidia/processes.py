"""Counts who else computes on a GPU. Reads the process list of NVML and /proc, nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from collectors.process import proc

OURS: set[int] = set()
"""Processes that the monitor started for itself: on the GPU, and nobody's neighbours."""


@dataclass(frozen=True, slots=True)
class Tenants:
    """Who shares a GPU with the trainer."""

    foreign_count: int | None
    """Compute processes besides the trainer and its children; None: cannot be told apart."""
    says: str | None = None
    mps: bool = False
    """The GPU is shared through MPS."""


def tenants(pids: Iterable[int], trainer: int | None, own: Iterable[int] = ()) -> Tenants:
    """Who is who among the compute processes of a device.

    Inside a container NVML may name processes by the pids of the host (older drivers do). That
    shows in pids that our /proc does not have; the pids that it has may then be others by accident.

    Args:
        pids: As NVML lists them.
        trainer: Its pid as we see it.
        own: Pids that are ours, never foreign, beside `OURS`.
    """
    listed = set(pids) - set(own) - OURS
    if trainer is None:
        return Tenants(len(listed), *_mps(listed))
    others = listed - {trainer}
    if trainer not in listed and not all(Path(f"/proc/{pid}").exists() for pid in others):
        says = (
            f"{len(others)} compute processes on this GPU, named by the pids of another pid "
            "namespace: who they are cannot be told from in here"
        )
        return Tenants(None, says)
    foreign = {pid for pid in others if trainer not in ancestors(pid)}
    return Tenants(len(foreign), *_mps(listed))


def _mps(pids: Iterable[int]) -> tuple[str | None, bool]:
    if any(proc.name_of(pid) == "nvidia-cuda-mps" for pid in pids):
        says = (
            "this GPU is shared through MPS: its counters are those of all clients together, "
            "not of this trainer"
        )
        return says, True
    return None, False


def ancestors(pid: int) -> list[int]:
    """Parents of a process, nearest first."""
    pids: list[int] = []
    while (parent := int(proc.status(pid).get("PPid", 0))) > 1 and parent not in pids:
        pids.append(parent)
        pid = parent
    return pids
