"""What one execution of a kernel does, FLOPs and bytes, and what tells it."""

from __future__ import annotations

from brrrtop.analysis.kernels.ops import STREAMING, Work
from brrrtop.kernel_names.facts import NameFacts
from brrrtop.kernel_names.families import Family

EVIDENCE = ("L0", "L1", "L1.5", "L2", "L3")
NOTHING, NAME, BYTES, SHAPES, COUNTERS = range(5)
"""Into `EVIDENCE`."""


def amounts(
    family: Family, facts: NameFacts, work: Work | None, blocks: int, threads: int
) -> tuple[float | None, float | None, str | None, int]:
    """FLOPs, bytes, precision and evidence level of one execution.

    Args:
        work: Of the op that launched it; None where its shapes are not known.
        threads: Of a block.
    """
    if work is not None and family.name in work.families and family.name not in STREAMING:
        named = facts.precision if facts.tensor_cores is not None else None
        precision = named or work.precision or facts.precision
        if facts.tensor_cores is False and precision in ("bf16", "fp16"):
            precision = "fp32"  # 16 bits to store, 32 to multiply
        return work.flop or None, work.size_bytes, precision, SHAPES
    each = facts.elements_per_block or (facts.elements_per_thread or 0) * threads
    if each and facts.element_bytes and facts.tensor_count:
        size = float(blocks * each * facts.tensor_count * facts.element_bytes)
        if work is not None and work.families is STREAMING:
            # One op may have several launches: none does more than its grid has room for.
            part = min(1.0, blocks * each / work.flop) if work.exact and work.flop else 1.0
            least = work.size_bytes * part
            size_bytes = least if work.exact else min(size, least or size)
            return None, size_bytes, facts.precision, SHAPES
        return None, size, facts.precision, BYTES
    if work is not None and family.name in work.families:
        size = work.size_bytes - (work.written if facts.only_reads else 0.0)
        return None, size, facts.precision, SHAPES
    return None, None, facts.precision, NAME
