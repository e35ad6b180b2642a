"""What time can go into: one table, the words of every view for a bucket of the account. And sentences about
the ranks of a job: who waits for whom, and why. No colour, no layout.
"""

from collections.abc import Mapping

from msgspec import Struct

from brrrtop.model.ranks import JobSnapshot, Lateness, Parallelism, RankRow, WaitedFor
from brrrtop.text import units


class Words(Struct, frozen=True):
    badge: str
    """What holds a run back whose largest bucket it is, in capitals."""
    names: tuple[str, ...]
    """In a word or three, and shorter."""
    gpu_does: str
    """What the GPU does in that time, after `the GPU`."""
    meaning: str
    """What the time went into, as a clause."""


CAUSES: Mapping[str, Words] = {
    "compute": Words(
        "COMPUTE-BOUND", ("compute",), "computes", "arithmetic units set the pace"
    ),
    "memory": Words(
        "BANDWIDTH-BOUND", ("moves tensors", "moves"), "moves tensors", "memory bandwidth sets the pace"
    ),
    "underfilled": Words(
        "KERNELS TOO SMALL", ("small kernels", "small"), "runs kernels too small to fill it",
        "kernels too small to fill the GPU",
    ),
    "exposed_comm": Words(
        "WAITS FOR OTHER GPUS", ("communication", "comm"), "waits for the other GPUs",
        "collectives with no compute beside them",
    ),
    "exposed_copy": Words(
        "WAITS FOR COPIES", ("copies",), "waits for copies from and to the host",
        "copies with no compute beside them",
    ),
    "idle_input": Words(
        "WAITS FOR DATA", ("waits for data", "data"), "waits for the next batch",
        "waiting for the next batch",
    ),
    "idle_io": Words(
        "WAITS FOR FILES", ("waits for files", "files"), "waits while the loop reads or writes files",
        "the loop itself is in file or network work, decoding included",
    ),
    "idle_launch": Words(
        "LAUNCHES TOO SLOW", ("waits for launches", "launches"),
        "waits for Python to launch the next kernel", "waiting for the next kernel launch",
    ),
    "idle_sync": Words(
        "WAITS FOR SYNCS", ("waits after syncs", "syncs"), "waits for Python, which waited for the GPU",
        "the host waits for the GPU, then the GPU for the host",
    ),
    "idle_allocator": Words(
        "WAITS FOR MEMORY", ("allocator",), "waits for the memory allocator",
        "the memory allocator went to the driver",
    ),
    "idle_compile": Words(
        "COMPILES", ("compiles",), "waits for torch.compile", "torch.compile is at work"
    ),
    "idle_gc": Words(
        "COLLECTS GARBAGE", ("garbage collection", "gc"), "waits for Python's garbage collector",
        "Python's garbage collector runs",
    ),
    "idle_checkpoint": Words(
        "SAVES", ("saves",), "waits while a checkpoint is saved", "a checkpoint is written"
    ),
    "idle_logging": Words("LOGS", ("logs",), "waits while the loop logs", "the host is logging"),
    "idle_evaluation": Words(
        "EVALUATES", ("evaluates", "eval"), "waits while the loop evaluates", "an evaluation runs"
    ),
    "idle_host": Words(
        "LOOP IS BUSY", ("waits for the loop", "loop"),
        "waits for the loop, which is busy with something else", "the loop is busy with something else",
    ),
    "idle_device": Words(
        "WAITS IN ITS QUEUE", ("queue",), "waits in its own queue", "queued work waited on the device"
    ),
    "idle_other_process": Words(
        "SHARES ITS GPU", ("other process",), "works for another process",
        "queued work waited while another process was on the GPU",
    ),
    "idle_unknown": Words(
        "GPU IS IDLE", ("idle",), "waits; the cause is not known", "the cause is not known"
    ),
    "unknown": Words("UNKNOWN", ("unknown",), "runs what is not known", "kind not known"),
}  # fmt: skip
"""By bucket: busy time by its bound, `idle_` and an idle cause, and time of which nothing is known."""


def words_of(cause: str) -> Words:
    """The words for `Estimate.cause`; those of unknown idle time for another one."""
    return CAUSES.get(f"idle_{cause}") or CAUSES.get(cause, CAUSES["idle_unknown"])


def name(bucket: str) -> str:
    """A bucket in a word or three: `waits for data`."""
    known = CAUSES.get(bucket)
    return known.names[0] if known else bucket


def meaning(bucket: str) -> str:
    """What time in this bucket went into; empty for one without a description."""
    known = CAUSES.get(bucket)
    return known.meaning if known else ""


_CAUSES = {
    "input": "it waits for its next batch",
    "launch": "its host launches kernels too late",
    "sync": "its host waits for its GPU, then its GPU for the host",
    "allocator": "its memory allocator went to the driver",
    "compile": "torch.compile is at work in it",
    "gc": "Python's garbage collector runs in it",
    "checkpoint": "it writes a checkpoint",
    "logging": "it is logging",
    "evaluation": "it runs an evaluation",
    "io": "its loop is in file or network work",
    "host": "its loop does something else between launches",
    "device": "its queued work waits on its GPU",
    "other_process": "another process is on its GPU",
    Lateness.MORE_WORK.value: "it has more work than the others",
    Lateness.SLOWER_GPU.value: "the same kernels take longer on its GPU",
    Lateness.THROTTLED.value: "its GPU's clocks are held down",
    Lateness.COPIES.value: "it copies more to and from its host",
    Lateness.BEGAN_LATE.value: "it began late",
}
_FIXES = {
    "input": "more or faster loader workers on that rank's host, and evenly sized shards",
    "host": "remove the work only this rank does between steps, or do it on all",
    "launch": "pin each rank to its own cores (numactl, taskset), or torch.compile the step",
    "gc": "gc.freeze() after the first steps and gc.collect() every N steps on all ranks together",
    "checkpoint": "save from a thread, or on all ranks at once (torch.distributed.checkpoint)",
    "logging": "log every N steps, from a thread",
    "evaluation": "evaluate on all ranks, each a part",
    "other_process": "nvidia-smi --query-compute-apps=pid,used_memory --format=csv, then move one of them",
    Lateness.MORE_WORK.value: "equal batches on all ranks: drop_last=True, length-bucketed or padded samples",
    Lateness.SLOWER_GPU.value: "nvidia-smi -q -d CLOCK,PERFORMANCE,ECC on that GPU, or take its host out",
    Lateness.THROTTLED.value: "nvidia-smi -q -d POWER,TEMPERATURE on that GPU: cooling or its power limit",
    Lateness.COPIES.value: "pin_memory=True and non_blocking copies on that rank",
}
NAMED = 8
"""Missing ranks, by their numbers."""
PARALLEL = {
    Parallelism.DDP: "data parallel (DDP)",
    Parallelism.FSDP: "sharded data parallel (FSDP, ZeRO-3)",
    Parallelism.ZERO: "sharded optimizer (ZeRO-1 or 2)",
    Parallelism.TENSOR: "tensor parallel",
    Parallelism.PIPELINE: "pipeline parallel",
    Parallelism.EXCHANGE: "all-to-all (experts or embeddings)",
}


def because(waited: WaitedFor) -> str:
    if waited.place:
        return f"its main thread is at {waited.place}"
    return _CAUSES.get(waited.cause, "the cause is not known")


def fix(waited: WaitedFor) -> str:
    return _FIXES.get(
        waited.cause, f"look at that rank by itself: {waited.cause.replace('_', ' ')}"
    )


def sentence(job: JobSnapshot) -> str:
    waited = job.waited_for
    if waited is None:
        if job.missing and job.matched:
            return (
                f"{missing(job)}: transfers are at most, waits at least what is shown, and who waits for "
                "whom is not known"
            )
        if job.undecided:
            return "the ranks were compared in one burst so far: the next one decides"
        if job.together_ns:
            return "no rank is waited for: the ranks keep pace with each other"
        return job.notes[-1] if job.notes else "one rank alone: nothing to compare it with"
    if not waited.is_slow:
        return (
            f"rank {waited.rank} is last in {waited.last_in} of {waited.of} collectives, yet not slow: "
            f"it began {units.duration(waited.late_ns)} after the first rank; the others wait "
            f"{units.duration(waited.others_wait_ns)} in {waited.collective}"
        )
    return f"{lateness(waited)}: {because(waited)}"


def lateness(waited: WaitedFor) -> str:
    """By how much a slow rank is late."""
    when = "each step" if waited.per_step else "in what was recorded"
    return f"rank {waited.rank} is {units.duration(waited.late_ns)} late {when}"


def missing(job: JobSnapshot) -> str:
    """`4 of 8 ranks are missing (4, 5, 6, 7)`."""
    whole = max(job.world or 0, len(job.ranks))
    absent = sorted(set(range(whole)) - {row.rank for row in job.ranks})
    named = ", ".join(map(str, absent[:NAMED])) + (" …" if len(absent) > NAMED else "")
    are = "is" if job.missing == 1 else "are"
    if len(absent) == job.missing:
        return f"{job.missing} of {whole} ranks {are} missing ({named})"
    return f"{job.missing} of {whole} ranks {are} not seen beside the others"


def transfer(job: JobSnapshot) -> str:
    """`transfer 217 us in all`, a bound while ranks are missing; empty where none is known."""
    if job.transfer_ns is None:
        return ""
    bound = "at most " if job.missing else ""
    return f"transfer {bound}{units.duration(job.transfer_ns)} in all"


def parallel(job: JobSnapshot) -> str:
    names = " + ".join(PARALLEL[one] for one in job.parallelism)
    return names + (f", bubble {units.share(job.bubble)}" if job.bubble is not None else "")


def rank_name(row: RankRow) -> str:
    return f"rank {row.rank}" if row.rank is not None else row.label
