"""Groups of kernels → the rows of the kernel table, and how certain the sides are."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from brrrtop.estimator import families
from brrrtop.estimator.amounts import EVIDENCE
from brrrtop.estimator.judging import Group, charge_compute
from brrrtop.estimator.labels import COMM, TRANSFER, Labels
from brrrtop.model import KernelRow, Side
from brrrtop.tables import I8

NOT_MOVED = 1.2
"""Above the ceiling by more than the ceiling is uncertain: caches served what the shapes count."""


def side_of(group: Group, underfilled: float) -> Side:
    """The one word for a group: what most of its time is."""
    if group.family.kind == families.COMM:
        return Side.COMM
    if group.family.kind == families.COPY:
        return Side.COPY
    if group.unknown:
        return Side.UNKNOWN
    if underfilled > 0.5:
        return Side.UNDERFILLED
    return Side.COMPUTE if group.compute_probability >= 0.5 else Side.MEMORY


def rows_of(labels: Labels, durations_ns: I8) -> tuple[KernelRow, ...]:
    """One row a name and side, largest first.

    The same function can be on either side by its shape, so a name may have two rows.
    """
    if not labels.groups:
        return ()
    weight = durations_ns.astype(np.float64)
    totals = np.bincount(labels.group_of, weight, len(labels.groups))
    under = np.bincount(labels.group_of, weight * labels.underfilled, len(labels.groups))
    counts = np.bincount(labels.group_of, minlength=len(labels.groups))
    merged: dict[tuple[str, Side], list[int]] = defaultdict(list)
    for index, group in enumerate(labels.groups):
        if counts[index]:
            share = under[index] / totals[index] if totals[index] else 0.0
            merged[(group.name, side_of(group, share))].append(index)
    whole = float(totals.sum()) or 1.0
    rows = [
        _row(labels, members, side, totals, under, counts, whole)
        for (_, side), members in merged.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.name)))


def _row(
    labels: Labels,
    members: list[int],
    side: Side,
    totals: np.ndarray,
    under: np.ndarray,
    counts: np.ndarray,
    whole: float,
) -> KernelRow:
    groups = [labels.groups[m] for m in members]
    times = totals[members]
    total = float(times.sum())
    shares = times / total if total else np.full(len(members), 1 / len(members))
    level = groups[int(np.argmax(times))].level
    roof = [share_of_roof(g, side) for g in groups]
    measured = [(s, r) for s, r in zip(shares, roof, strict=True) if r is not None and s > 0]
    flop = [(g.flop, counts[m]) for g, m in zip(groups, members, strict=True)]
    size = [(g.size_bytes, counts[m]) for g, m in zip(groups, members, strict=True)]
    confidence = float(sum(s * g.certainty for s, g in zip(shares, groups, strict=True)))
    compute = float(
        sum(s * charge_compute(g.compute_probability) for s, g in zip(shares, groups, strict=True))
    )
    aimed = float(
        sum(
            s * charge_compute(g.aimed.compute_probability)
            for s, g in zip(shares, groups, strict=True)
        )
    )
    sided = side in (Side.COMPUTE, Side.MEMORY, Side.UNDERFILLED)
    return KernelRow(
        name=groups[0].name,
        family=groups[0].family.name,
        side=side,
        count=int(counts[members].sum()),
        total_ns=round(total),
        share=total / whole,
        evidence=EVIDENCE[level],
        confidence=round(confidence, 3),
        roof_share=sum(s * r for s, r in measured) / sum(s for s, _ in measured)
        if measured
        else None,
        underfilled_share=float(under[members].sum() / total) if total else 0.0,
        flop_per_s=_rate(flop, total),
        bytes_per_s=_rate(size, total),
        precision=groups[int(np.argmax(times))].precision,
        blocks_p50=int(np.median([g.blocks for g in groups])) or None,
        compute_share=compute if sided else 0.0,
        on_chip_share=aimed - compute if sided else 0.0,
    )


def share_of_roof(group: Group, side: Side) -> float | None:
    """Share of its side's ceiling, at most 1; None where the shapes' bytes cannot have moved.

    What waits for its own SM's memory is nowhere near the ceiling of the DRAM: its arithmetic's is shown.
    """
    share = None
    on_chip = side is Side.MEMORY and group.aimed.compute_probability >= 0.5
    if side is Side.COMPUTE or on_chip:
        share = group.compute_share_of_roof
    elif side is Side.MEMORY:
        share = group.memory_share_of_roof
    return None if share is None or share > NOT_MOVED else min(share, 1.0)


def _rate(parts: list[tuple[float | None, int]], total_ns: float) -> float | None:
    if not total_ns or any(amount is None for amount, _ in parts):
        return None
    return sum((amount or 0.0) * count for amount, count in parts) / (total_ns * 1e-9)


def evidence_shares(labels: Labels, durations_ns: I8) -> dict[str, float]:
    """Share of the kernel time behind each level of evidence, transfers left out."""
    shares: dict[str, float] = {}
    if not labels.groups:
        return shares
    levels = np.array([g.level for g in labels.groups])[labels.group_of]
    work = (labels.classes != COMM) & (labels.classes != TRANSFER)
    total = float(durations_ns[work].sum())
    if not total:
        return shares
    sums = np.bincount(levels[work], durations_ns[work].astype(np.float64), len(EVIDENCE))
    return {EVIDENCE[k]: float(v / total) for k, v in enumerate(sums) if v > 0}
