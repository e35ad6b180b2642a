"""One table of what time can go into: the words of every view for a bucket of the account."""

from collections.abc import Mapping

from msgspec import Struct


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
