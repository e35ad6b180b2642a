"""The words both views use for what the snapshot says. No numbers, no colour, no layout."""

from __future__ import annotations

from brrrtop.model import Account, Estimate, Regime, Side

SIDE_LETTERS = {
    Side.COMPUTE: "C",
    Side.MEMORY: "M",
    Side.UNDERFILLED: "U",
    Side.COMM: "N",
    Side.COPY: "H",
    Side.UNKNOWN: "?",
}
"""One letter a side, for screens and printers without colour. N: network, H: host copy."""

REGIMES = {
    Regime.COMPUTE: "COMPUTE-BOUND",
    Regime.MEMORY: "MEMORY-BOUND",
    Regime.OVERHEAD: "OVERHEAD-BOUND",
    Regime.MIXED: "MIXED",
    Regime.UNKNOWN: "UNKNOWN",
}

REGIME_MEANS = {
    Regime.COMPUTE: "the arithmetic units set the pace",
    Regime.MEMORY: "moving bytes to and from the GPU's memory sets the pace",
    Regime.OVERHEAD: "the GPU mostly waits or runs part-empty",
    Regime.MIXED: "no single thing holds it back",
    Regime.UNKNOWN: "the evidence does not carry a verdict",
}

CAUSES = {
    "compute": "compute kernels",
    "memory": "memory-bound kernels",
    "underfilled": "part-empty kernels",
    "exposed_comm": "exposed communication",
    "exposed_copy": "exposed copies",
    "input": "idle: waiting for input",
    "launch": "idle: launching",
    "sync": "idle: after a sync",
    "allocator": "idle: allocator",
    "compile": "idle: compiling",
    "gc": "idle: garbage collection",
    "checkpoint": "idle: checkpoint",
    "logging": "idle: logging",
    "evaluation": "idle: evaluation",
    "host": "idle: host elsewhere",
    "device": "idle: queued work waits",
    "idle_unknown": "idle: cause not known",
    "unknown": "not classed",
}
"""A bucket of the account in a few words. The idle cause `unknown` goes by `idle_unknown`."""

CAUSE_MEANS = {
    "compute": "the arithmetic units are the limit",
    "memory": "memory bandwidth is the limit",
    "underfilled": "too little work in a kernel to fill the GPU",
    "exposed_comm": "a collective runs and nothing computes beside it",
    "exposed_copy": "a copy to or from the host runs and nothing computes beside it",
    "input": "the trainer waits for its next batch",
    "launch": "the CPU cannot launch kernels as fast as the GPU finishes them",
    "sync": "the CPU waited for the GPU, so that the GPU then waits for the CPU",
    "allocator": "the memory allocator went to the driver",
    "compile": "something is being compiled",
    "gc": "Python collects garbage",
    "checkpoint": "a checkpoint is written",
    "logging": "the trainer writes its logs",
    "evaluation": "the trainer evaluates",
    "host": "the CPU is busy elsewhere; nobody recorded with what",
    "device": "work is queued and waits for something on the device",
    "unknown": "nobody recorded why",
}


def buckets(account: Account) -> tuple[tuple[str, int], ...]:
    """Every bucket of the account by its key in `CAUSES` with its ns; they add up to the window."""
    busy = (
        ("compute", account.compute_ns),
        ("memory", account.memory_ns),
        ("underfilled", account.underfilled_ns),
        ("exposed_comm", account.exposed_comm_ns),
        ("exposed_copy", account.exposed_copy_ns),
    )
    idle = tuple(
        ("idle_unknown" if cause == "unknown" else cause, time_ns)
        for cause, time_ns in account.idle_ns.items()
    )
    return (*busy, *idle, ("unknown", account.unknown_ns))


def cause(key: str) -> str:
    """The words for a bucket or cause; one nobody has named yet goes by its key."""
    return CAUSES.get(key, key.replace("_", " "))


def verdict(estimate: Estimate) -> str:
    """The regime and its largest reason in one line, without numbers."""
    headline = REGIMES[estimate.regime]
    reason = estimate.cause
    if reason and reason != estimate.regime and estimate.regime is not Regime.UNKNOWN:
        headline += f" ({reason.replace('_', ' ')})"
    return headline


def because(estimate: Estimate) -> str:
    """What the verdict means, as a sentence without its full stop."""
    if estimate.regime in (Regime.OVERHEAD, Regime.MIXED) and estimate.cause in CAUSE_MEANS:
        return CAUSE_MEANS[estimate.cause]
    return REGIME_MEANS[estimate.regime]
