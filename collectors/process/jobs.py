"""Which trainers of this host are ranks of one job."""

from __future__ import annotations

from collectors.errors import NoSuchProcess, NotPermitted
from collectors.process.candidates import SPAWNED, Candidate, candidates
from collectors.process.process import Process

RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")
"""Ranks that have these in common meet each other (torch.distributed's `env://`)."""


def ranks_of(pid: int) -> list[Candidate]:
    """The ranks on this host of the job that a process is of, or that it launches; by rank.

    They share a launcher (torchrun, a parent that spawned them) or where they meet. A program that starts
    other trainings, as a search over parameters does, makes no job of them. Empty: `pid` is no rank and
    launches none; one: it is alone here.
    """
    processes = candidates()
    mine = next((one for one in processes if one.pid == pid), None)
    root = mine.job if mine is not None else pid
    meets = None if mine is None or mine.not_because else _rendezvous(mine.process)
    ranks = [
        one
        for one in processes
        if not one.not_because
        and _is_rank(one)
        and (one.job == root or (meets is not None and _rendezvous(one.process) == meets))
    ]
    if (
        mine is not None
        and not mine.not_because
        and mine not in ranks
        and (mine.on_gpu or not ranks)
    ):
        return [mine]
    return sorted(ranks, key=lambda one: (one.rank is None, one.rank or 0, one.pid))


def job_key(one: Candidate) -> tuple[str, ...] | None:
    """What the ranks of one job have in common and those of others have not; None: it is no rank."""
    if one.not_because or not _is_rank(one):
        return None
    return _rendezvous(one.process) or (str(one.job),)


def _is_rank(one: Candidate) -> bool:
    """By its environment, or spawned by multiprocessing."""
    spawned = any(mark in " ".join(one.process.cmdline) for mark in SPAWNED)
    return one.rank is not None or (one.world or 1) > 1 or spawned


def _rendezvous(process: Process) -> tuple[str, ...] | None:
    """Where the ranks of its job meet; None for a job of one, and where that cannot be read."""
    try:
        where = tuple(process.environ.get(name, "") for name in RENDEZVOUS)
    except (NotPermitted, NoSuchProcess):
        return None
    return where if all(where) and where[-1] != "1" else None
