"""Which trainers of this host are ranks of one job."""

from __future__ import annotations

import ipaddress
import os

from collectors.errors import NoSuchProcess, NotPermitted
from collectors.process.candidates import SPAWNED, Candidate, candidates, running
from collectors.process.process import Process

RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")
"""Ranks that have these in common meet each other (torch.distributed's `env://`)."""


def ranks_of(pid: int) -> list[Candidate]:
    """The ranks on this host of the job that a process is of, or that it launches; by rank.

    They share a launcher (torchrun, a parent that spawned them) or where they meet. A program that starts
    other trainings, as a search over parameters does, makes no job of them. Ranks that nobody
    may look into are among them and say why. Empty: `pid` is no rank and launches none; one: it is
    alone here.
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
    ranks += _closed(ranks)
    return sorted(ranks, key=lambda one: (one.rank is None, one.rank or 0, one.pid))


def _closed(ranks: list[Candidate]) -> list[Candidate]:
    """Where some are missing: what their launcher runs with the same command, and nobody may look into."""
    worlds = [one.world for one in ranks if one.world]
    missing = max(worlds, default=0) - len(ranks)
    if missing <= 0:
        return []
    jobs = {(one.process.parent, one.process.cmdline): one.job for one in ranks}
    closed = []
    for process in running().values():
        job = jobs.get((process.parent, process.cmdline))
        if job is None or process.parent <= 1 or any(process.pid == one.pid for one in ranks):
            continue
        try:
            process.environ  # noqa: B018  raises where it is closed
        except NotPermitted as fault:
            closed.append(Candidate(process, job, True, None, None, fault.message))
        except NoSuchProcess:
            continue
    return closed[:missing]


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
    """Where the ranks of its job meet; None for a job of one, and where that cannot be read.

    Each container may have a `localhost` of its own.
    """
    try:
        where = tuple(process.environ.get(name, "") for name in RENDEZVOUS)
    except (NotPermitted, NoSuchProcess):
        return None
    if not all(where) or where[-1] == "1":
        return None
    return (*where, _network(process)) if _is_loopback(where[0]) else where


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost" or address.startswith("localhost.")


def _network(process: Process) -> str:
    try:
        return os.readlink(f"{process.folder}/ns/net")
    except OSError:
        return ""
