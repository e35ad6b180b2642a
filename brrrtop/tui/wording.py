"""The words only the screen has: sides, evidence and how sure, each said one way everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from brrrtop.model.estimate import Side

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
        "L0": "nothing: no name that is known, no shapes, no counters",
        "L1": "name and grid",
        "L1.5": "bytes from the op's name and grid",
        "L2": "shapes: FLOPs and bytes against the ceilings",
        "L3": "hardware counters",
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
