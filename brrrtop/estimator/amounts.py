"""What one execution of a kernel does, FLOPs and bytes, and what tells it."""

from __future__ import annotations

from brrrtop.estimator.families import Family
from brrrtop.estimator.names import NameFacts
from brrrtop.estimator.ops import STREAMING, Work
from brrrtop.estimator.walks import Walk, walk_of
from brrrtop.tables import OpSignature

EVIDENCE = ("L0", "L1", "L1.5", "L2", "L3")
NOTHING, NAME, BYTES, SHAPES, COUNTERS = range(5)
"""Into `EVIDENCE`."""


def walked(op: OpSignature | None, facts: NameFacts, blocks: int, threads: int) -> Walk | None:
    """How a strided kernel goes through its op's operands; None where the grid is for another size."""
    if op is None or not facts.strided or not facts.elements_per_thread:
        return None
    walk, each = walk_of(op, facts.tensor_count), facts.elements_per_thread * threads
    return walk if walk and (blocks - 1) * each < walk.elements <= blocks * each else None


def amounts(
    family: Family,
    facts: NameFacts,
    work: Work | None,
    blocks: int,
    threads: int,
    walk: Walk | None = None,
) -> tuple[float | None, float | None, str | None, int]:
    """FLOPs, bytes, precision and evidence level of one execution.

    Args:
        threads: Of a block.
        walk: Through the operands of a strided kernel, where strides are told.
    """
    if work is not None and family.name in work.families and family.name not in STREAMING:
        named = facts.precision if facts.tensor_cores is not None else None
        precision = named or work.precision or facts.precision
        if facts.tensor_cores is False and precision in ("bf16", "fp16"):
            precision = "fp32"  # 16 bits to store, 32 to multiply
        return work.flop or None, work.size_bytes, precision, SHAPES
    each = facts.elements_per_block or (facts.elements_per_thread or 0) * threads
    if each and facts.element_bytes and facts.tensor_count:
        elements = blocks * each
        size = float(elements * facts.tensor_count * facts.element_bytes)
        if work is not None and work.families is STREAMING:
            least = work.size_bytes if walk is None else walk.size_bytes
            told = least if work.exact else min(size, least or size)
            return None, told, facts.precision, SHAPES
        return None, size, facts.precision, BYTES
    if work is not None and family.name in work.families:
        size = work.size_bytes - (work.written if facts.only_reads else 0.0)
        return None, size, facts.precision, SHAPES
    return None, None, facts.precision, NAME
