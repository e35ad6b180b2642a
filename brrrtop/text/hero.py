"""The verdict for one who never read about regimes: what the GPU does, why, and what would help."""

from __future__ import annotations

from collections.abc import Mapping

from brrrtop.model.advice import Advisory
from brrrtop.model.estimate import Estimate, Regime
from brrrtop.model.snapshot import SinceAttach, Snapshot
from brrrtop.text import phrases, units

HOUR_NS = 3.6e12
WORTH_SAYING = 0.05
"""A smaller gain is no reason to change anything."""

IDLE_PHRASES: Mapping[str, str] = {
    "idle_launch": "waits for Python to launch the next kernel",
    "idle_sync": "waits for Python, which waited for the GPU",
    "idle_allocator": "waits for the memory allocator",
    "idle_compile": "waits for torch.compile",
    "idle_gc": "waits for Python's garbage collector",
    "idle_checkpoint": "waits while a checkpoint is saved",
    "idle_logging": "waits while the loop logs",
    "idle_evaluation": "waits while the loop evaluates",
    "idle_io": "waits while the loop reads or writes files",
    "idle_host": "waits for the loop, which is busy with something else",
    "idle_device": "waits in its own queue",
    "idle_other_process": "works for another process",
    "idle_unknown": "waits; the cause is not known",
    "exposed_comm": "waits for the other GPUs",
    "exposed_copy": "waits for copies from and to the host",
    "underfilled": "runs kernels too small to fill it",
}
"""What the GPU does while it does not compute, after `the GPU`; `idle_input` has words of its own."""

GAIN_PHRASES: Mapping[str, str] = {
    "dataloader-stall": "the batch ready",
    "launch-bound-compile": "torch.compile",
    "cuda-graphs": "CUDA graphs",
    "sync-point": "no waits for the GPU in the loop",
    "fused-optimizer": "a fused optimizer",
    "pin-memory": "pinned memory",
    "overlap-copies": "copies that overlap",
    "underfilled-kernels": "a bigger batch",
    "bigger-batch": "a bigger batch, per sample",
    "host-stall": "that work off the loop",
    "python-overhead": "that line out of the loop",
    "gc-pause": "no collections in the loop",
    "allocator-retries": "memory to spare",
    "allocation-churn": "no allocations in the loop",
    "checkpoint-stall": "saves in the background",
    "logging-stall": "less logging",
    "fuse-pointwise": "torch.compile",
    "fused-norm": "a fused norm",
    "enable-tf32-or-amp": "tensor cores in use",
    "use-bf16": "bf16",
    "low-precision-storage": "tensors in bf16",
    "channels-last": "channels-last",
    "flash-attention": "fused attention",
    "tensor-core-alignment": "padded sizes",
    "exposed-communication": "communication hidden behind compute",
    "straggler": "no late rank",
}
"""What a gain comes with, by the id of its advice."""


def headline_text(snapshot: Snapshot) -> str:
    """`GPU idle 92%: it waits for your DataLoader (0 workers) – about 12× faster with the batch ready`.

    Empty while nothing is judged.
    """
    estimate = snapshot.estimate
    if estimate is None or estimate.regime is Regime.UNKNOWN:
        return ""
    gain = promised(snapshot.advisories[0]) if snapshot.advisories else ""
    return f"{_does(estimate, snapshot)}{' – ' if gain else ''}{gain}"


def _does(estimate: Estimate, snapshot: Snapshot) -> str:
    whole = estimate.account.duration_ns or 1
    share = {bucket: ns / whole for bucket, ns in phrases.buckets(estimate.account)}
    largest = max(share, key=lambda bucket: share[bucket])
    idle = sum(value for bucket, value in share.items() if bucket.startswith("idle_"))
    if estimate.regime is Regime.COMPUTE:
        return f"GPU computes {units.share(share['compute'])} of the time"
    if estimate.regime is Regime.MEMORY:
        return (
            f"GPU spends {units.share(share['memory'])} of the time moving tensors, not computing"
        )
    lost = {
        bucket: value
        for bucket, value in share.items()
        if bucket in IDLE_PHRASES or bucket == INPUT
    }
    cause = max(lost, key=lambda bucket: lost[bucket])
    if estimate.regime is Regime.MIXED:
        return (
            f"GPU computes {units.share(share['compute'])}, moves tensors {units.share(share['memory'])}, "
            f"{_waits(cause, snapshot)} {units.share(lost[cause])} of the time"
        )
    if largest.startswith("idle_") or cause.startswith("idle_"):
        return f"GPU idle {units.share(idle)}: it {_waits(cause, snapshot)}{_at(estimate, cause)}"
    return f"GPU {_waits(cause, snapshot)} {units.share(lost[cause])} of the time"


INPUT = "idle_input"


def _waits(bucket: str, snapshot: Snapshot) -> str:
    if bucket != INPUT:
        return IDLE_PHRASES[bucket]
    workers = snapshot.tables.loaders[0].workers if snapshot.tables.loaders else None
    if workers is None:
        return "waits for the next batch"
    return f"waits for your DataLoader ({workers} worker{'s' * (workers != 1)})"


def _at(estimate: Estimate, bucket: str) -> str:
    """The line that samples found the main thread at."""
    line = phrases.away_at(estimate, bucket.removeprefix("idle_"))
    return f" at {line.place}" if line is not None else ""


def promised(advisory: Advisory) -> str:
    """`about 2.9× faster with torch.compile`; empty for advice that wins too little, or may lose."""
    saves = advisory.saves if advisory.saves is not None else advisory.saves_at_most
    if saves is None or not WORTH_SAYING <= saves < 1 or (advisory.safe or 0.0) < 0:
        return ""
    times = 1 / (1 - saves)
    about = "about" if advisory.saves is not None else "at most"
    faster = units.times_as_fast(saves)
    if times < 1.5:
        faster = units.share(times - 1)
    return f"{about} {faster} faster with {GAIN_PHRASES.get(advisory.kind, advisory.kind.replace('-', ' '))}"


def cost(snapshot: Snapshot) -> str:
    """`0.4 GPU-hours watched, 96% lost, most of it idle: input 92% (waiting for the next batch)`.

    Empty while nothing was watched.
    """
    since = snapshot.since_attach
    if not since.duration_ns:
        return ""
    lost = {
        bucket: ns / since.duration_ns
        for bucket, ns in since.buckets_ns.items()
        if bucket in IDLE_PHRASES or bucket == INPUT
    }
    share = since.lost_ns / since.duration_ns
    text = f"{_amount(since)}, {units.share(share)} lost"
    if not lost or share < WORTH_SAYING:
        return text
    most = max(lost, key=lambda bucket: lost[bucket])
    return f"{text}, most of it {phrases.bucket(most)} {units.share(lost[most])} ({phrases.meaning(most)})"


def _amount(since: SinceAttach) -> str:
    hours = since.duration_ns / HOUR_NS
    if hours >= 0.095:
        return (
            f"{hours:.1f} GPU-hours watched" if hours < 99.5 else f"{hours:,.0f} GPU-hours watched"
        )
    return f"{units.duration(since.duration_ns)} of the GPU watched"
