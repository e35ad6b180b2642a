"""Which processes of this host train something, and which only help one that does.

Which trainers of this host are ranks of one job.
"""

import os
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from collectors.errors import NoSuchProcess, NotPermitted, NotTheTrainer
from collectors.process import process as processes
from collectors.process.process import Process

HELPERS = {
    "torch/_inductor/compile_worker": "compiles for torch.compile",
    "multiprocessing.resource_tracker": "tracks resources for multiprocessing",
    "multiprocessing.forkserver": "forks processes for multiprocessing",
    "torch_shm_manager": "holds shared memory for torch",
}
_LOADER_WORKER = "pt_data_worker"
"""What torch calls a DataLoader's worker (`torch/utils/data/_utils/worker.py`)."""
SPAWNED = ("multiprocessing.spawn", "--multiprocessing-fork")
_LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch/distributed/run.py",
    "torch/distributed/launch.py",
    "accelerate",
    "deepspeed",
)


@dataclass(frozen=True, slots=True)
class Candidate:
    process: Process
    job: int
    """The outermost ancestor that belongs to the same job: all ranks of a torchrun share it."""
    on_gpu: bool
    """It has a CUDA context: NVML says so, or its device files are mapped."""
    rank: int | None
    world: int | None
    not_because: str
    """Empty: a trainer that may be offered. Else why it is not."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def command(self) -> str:
        return " ".join(self.process.cmdline) or self.process.name


def short_name(command: str) -> str:
    """Of the interpreter its name: the script is what tells."""
    program, space, rest = command.partition(" ")
    return f"{program.rpartition('/')[2]}{space}{rest}"


def running() -> dict[int, Process]:
    result = {}
    for pid in processes.pids():
        with suppress(NoSuchProcess):
            one = processes.read(pid)
            if one.cmdline and pid != os.getpid():
                result[pid] = one
    return result


_settled: set[tuple[int, int]] = set()
"""Processes with torch that are on a GPU: neither changes any more, and their maps are long to read."""


def _uses(process: Process, compute_pids: Collection[int]) -> tuple[bool, bool, str]:
    """Has torch; is on a GPU; why neither can be known."""
    key = process.pid, process.start_ticks
    if key in _settled:
        return True, True, ""
    if process.name == _LOADER_WORKER and process.pid not in compute_pids:
        return True, False, ""
    torch, on_gpu, hidden = _look_into(process, compute_pids)
    if on_gpu and torch:
        _settled.add(key)
    return torch, on_gpu, hidden


def _look_into(process: Process, compute_pids: Collection[int]) -> tuple[bool, bool, str]:
    listed = any(pid in compute_pids for pid in process.pids_inside)
    try:
        return process.has_torch, listed or process.has_cuda_context, ""
    except NotPermitted as fault:
        return False, listed, fault.message
    except NoSuchProcess:
        return False, False, ""


def _ancestors(process: Process, everyone: dict[int, Process]) -> list[Process]:
    ancestors: list[Process] = []
    parent = everyone.get(process.parent)
    while parent is not None and parent not in ancestors:
        ancestors.append(parent)
        parent = everyone.get(parent.parent)
    return ancestors


def _is_launcher(process: Process) -> bool:
    words = process.cmdline[:4]
    return any(name in word for word in words for name in _LAUNCHERS)


def _not_because(process: Process, parent: Process | None, on_gpu: bool, forks: set[int]) -> str:
    line = " ".join(process.cmdline)
    for mark, does in HELPERS.items():
        if mark in line:
            return does
    if any(word.rsplit("/", 1)[-1] == "brrrtop" for word in process.cmdline[:3]):
        return "is a brrrtop"
    if process.name == _LOADER_WORKER:
        return f"a DataLoader's worker of process {process.parent}"
    if on_gpu:
        return ""
    if _is_launcher(process):
        return "launches the ranks of a job"
    if parent is not None and parent.pid in forks:
        if process.cmdline == parent.cmdline:
            return f"a copy of process {parent.pid} that uses no GPU, as a loader's worker is"
        if any(mark in line for mark in SPAWNED):
            return f"was spawned by process {parent.pid} and uses no GPU"
    return ""


def candidates(
    compute_pids: Collection[int] = (), matching: Callable[[Process], bool] | None = None
) -> list[Candidate]:
    """Processes that may be trainers, those on a GPU first, then by age; excluded ones last.

    A process that we may not look into is listed only when NVML names it.

    Args:
        compute_pids: Processes with a context on a GPU, as NVML lists them.
        matching: Looks only into processes for which this holds; None: into all.
    """
    everyone = running()
    for pid, start_ticks in [*_settled]:
        if pid not in everyone or everyone[pid].start_ticks != start_ticks:
            _settled.discard((pid, start_ticks))
    asked = [
        candidate for candidate in everyone.values() if matching is None or matching(candidate)
    ]
    facts = {process.pid: _uses(process, compute_pids) for process in asked}
    known = {pid for pid, (torch, on_gpu, _) in facts.items() if torch or on_gpu}
    result = []
    for pid in known:
        process = everyone[pid]
        _, on_gpu, hidden = facts[pid]
        line_up = [a for a in _ancestors(process, everyone) if a.pid in known or _is_launcher(a)]
        reason = hidden or _not_because(process, everyone.get(process.parent), on_gpu, known)
        job = line_up[-1].pid if line_up else pid
        rank, world = _rank(process)
        result.append(Candidate(process, job, on_gpu, rank, world, reason))
    return sorted(
        result, key=lambda c: (bool(c.not_because), not c.on_gpu, c.job, c.rank or 0, c.pid)
    )


def check_trains(process: Process) -> None:
    """Nothing, where `process` may be a trainer, or nobody around it is one.

    Raises:
        NotTheTrainer: It launches, or helps, others that train: what it started, or whose worker it
            is. Names them.
    """
    pid = process.pid
    try:
        if process.has_cuda_context and process.name != _LOADER_WORKER:
            return
    except (NotPermitted, NoSuchProcess):
        return
    everyone = running()
    me = everyone.get(pid)
    family = {pid, process.parent}
    family |= {
        candidate.pid for candidate in everyone.values() if me in _ancestors(candidate, everyone)
    }
    reasons = {}
    named = []
    for candidate in candidates(matching=lambda other: other.pid in family):
        reasons[candidate.pid] = candidate.not_because
        rank = f" (rank {candidate.rank})" if candidate.rank is not None else ""
        if not candidate.not_because:
            named.append(f"brrrtop attach {candidate.pid}{rank}")
    why = reasons.get(pid, "")
    if me is None or not named or (pid in reasons and not why):
        return
    more = f", and {len(named) - 4} more" if len(named) > 4 else ""
    raise NotTheTrainer(
        f"process {pid} ({process.name}) does not train itself{why and f': {why}'}",
        f"{', '.join(named[:4])}{more}",
    )


def _rank(process: Process) -> tuple[int | None, int | None]:
    try:
        ranks = process.ranks
    except (NotPermitted, NoSuchProcess):
        return None, None
    return ranks.get("RANK", ranks.get("SLURM_PROCID")), ranks.get("WORLD_SIZE")


_LOOPBACK = re.compile(r"localhost(\.|$)|127\.|::1$")
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
    candidate = next((process for process in processes if process.pid == pid), None)
    root = candidate.job if candidate is not None else pid
    meets = None if candidate is None or candidate.not_because else _rendezvous(candidate.process)
    ranks = [
        rank
        for rank in processes
        if not rank.not_because
        and _is_rank(rank)
        and (rank.job == root or (meets is not None and _rendezvous(rank.process) == meets))
    ]
    if (
        candidate is not None
        and not candidate.not_because
        and candidate not in ranks
        and (candidate.on_gpu or not ranks)
    ):
        return [candidate]
    ranks += _closed(ranks)
    return sorted(ranks, key=lambda one: (one.rank is None, one.rank or 0, one.pid))


def _closed(ranks: list[Candidate]) -> list[Candidate]:
    """Where some are missing: what their launcher runs with the same command, and nobody may look into."""
    worlds = [rank.world for rank in ranks if rank.world]
    missing = max(worlds, default=0) - len(ranks)
    if missing <= 0:
        return []
    jobs = {(rank.process.parent, rank.process.cmdline): rank.job for rank in ranks}
    closed = []
    for process in running().values():
        job = jobs.get((process.parent, process.cmdline))
        if job is None or process.parent <= 1 or any(process.pid == rank.pid for rank in ranks):
            continue
        try:
            process.environ  # noqa: B018  raises where it is closed
        except NotPermitted as fault:
            closed.append(Candidate(process, job, True, None, None, fault.message))
        except NoSuchProcess:
            continue
    return closed[:missing]


def job_key(candidate: Candidate) -> tuple[str, ...] | None:
    """What the ranks of one job have in common and those of others have not; None: it is no rank."""
    if candidate.not_because or not _is_rank(candidate):
        return None
    return _rendezvous(candidate.process) or (str(candidate.job),)


def _is_rank(candidate: Candidate) -> bool:
    """By its environment, or spawned by multiprocessing."""
    spawned = any(mark in " ".join(candidate.process.cmdline) for mark in SPAWNED)
    return candidate.rank is not None or (candidate.world or 1) > 1 or spawned


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
    return (*where, _network(process)) if _LOOPBACK.match(where[0]) else where


def _network(process: Process) -> str:
    try:
        return os.readlink(f"{process.folder}/ns/net")
    except OSError:
        return ""
