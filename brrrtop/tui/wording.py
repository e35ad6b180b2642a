"""The words of the screen: causes, sides, buckets and how sure, each said one way everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from brrrtop.model import Regime, Side

CAUSES: Mapping[str, str] = MappingProxyType(
    {
        "input": "waiting for the next batch",
        "launch": "waiting for the next kernel launch",
        "sync": "the host waits for the GPU, then the GPU for the host",
        "allocator": "the memory allocator went to the driver",
        "compile": "torch.compile is at work",
        "gc": "Python's garbage collector runs",
        "checkpoint": "a checkpoint is written",
        "logging": "the host is logging",
        "evaluation": "an evaluation runs",
        "host": "the host was elsewhere, nobody saw where",
        "device": "queued work waited on the device",
        "unknown": "the cause is not known",
        "idle": "the GPU had nothing to do",
        "exposed_comm": "collectives with no compute beside them",
        "exposed_copy": "copies with no compute beside them",
        "underfilled": "kernels too small to fill the GPU",
        "compute": "arithmetic units set the pace",
        "memory": "memory bandwidth sets the pace",
    }
)

BUCKETS: Mapping[str, str] = MappingProxyType(
    {
        "compute": "compute",
        "memory": "memory",
        "underfilled": "underfilled",
        "comm": "exposed comm",
        "copy": "exposed copy",
        "idle": "idle, cause unknown",
        "unknown": "unknown",
        **{c: f"idle: {c}" for c in (
            "input", "launch", "sync", "allocator", "compile", "gc",
            "checkpoint", "logging", "evaluation", "host", "device",
        )},
    }
)  # fmt: skip

SIDES: Mapping[Side, str] = MappingProxyType(
    {
        Side.COMPUTE: "compute side of the roof",
        Side.MEMORY: "memory side of the roof",
        Side.UNDERFILLED: "does not fill the GPU",
        Side.COMM: "collective between GPUs",
        Side.COPY: "copy",
        Side.UNKNOWN: "side not known",
    }
)

EVIDENCE: Mapping[str, str] = MappingProxyType(
    {
        "L1": "name and grid",
        "L1.5": "bytes from the op's name and grid",
        "L2": "shapes: FLOPs and bytes against the ceilings",
        "L3": "hardware counters",
    }
)

REGIMES: Mapping[Regime, str] = MappingProxyType(
    {
        Regime.COMPUTE: "the arithmetic units are the limit",
        Regime.MEMORY: "moving tensors is the limit",
        Regime.OVERHEAD: "the GPU waits for something else",
        Regime.MIXED: "no single limit",
        Regime.UNKNOWN: "not enough evidence for a verdict",
    }
)


def sureness(confidence: float) -> str:
    """0.93 → `very sure`: the word beside the number."""
    for least, word in ((0.9, "very sure"), (0.7, "sure"), (0.5, "fairly sure"), (0.25, "unsure")):
        if confidence >= least:
            return word
    return "a guess"


def evidence(levels: str) -> str:
    """`L2+L3` → what these levels of evidence are."""
    return " and ".join(EVIDENCE.get(level, level) for level in levels.split("+"))
