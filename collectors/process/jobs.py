"""Which trainers of this host are ranks of one job."""

from __future__ import annotations

from collections.abc import Collection

from collectors.errors import NoSuchProcess, NotPermitted
from collectors.process.candidates import Candidate, candidates
from collectors.process.process import Process

RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")
"""Ranks that have these in common meet each other (torch.distributed's `env://`)."""


def ranks_of(pid: int, compute_pids: Collection[int] = ()) -> list[Candidate]:
    """The ranks on this host of the job that a process is of, or that it launches; by rank.

    They share a launcher (torchrun, a parent that spawned them) or where they meet. Empty: `pid` is
    no rank and launches none; one: it is alone here.
    """
    found = candidates(compute_pids)
    mine = next((one for one in found if one.pid == pid), None)
    root = mine.job if mine is not None else pid
    meets = None if mine is None or mine.not_because else _rendezvous(mine.process)
    ranks = [
        one
        for one in found
        if not one.not_because
        and (one.job == root or (meets is not None and _rendezvous(one.process) == meets))
    ]
    return sorted(ranks, key=lambda one: (one.rank is None, one.rank or 0, one.pid))


def _rendezvous(process: Process) -> tuple[str, ...] | None:
    """Where the ranks of its job meet; None for a job of one, and where that cannot be read."""
    try:
        where = tuple(process.environ.get(name, "") for name in RENDEZVOUS)
    except (NotPermitted, NoSuchProcess):
        return None
    return where if all(where) and where[-1] != "1" else None
