"""Rates of collectives against the link they run over, and how a job is divided, by its collectives."""

from __future__ import annotations

import re
from collections.abc import Iterable

from brrrtop.model.ranks import CollectiveRow, Parallelism

_NVLINK_2, _NVLINK_3, _NVLINK_4, _NVLINK_5 = 150e9, 300e9, 450e9, 900e9
_EXPORT = 200e9
_NONE = 0.0
_LINKS: tuple[tuple[re.Pattern[str], float], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), rate)
    for pattern, rate in (
        (r"\bG?B[123]00\b", _NVLINK_5),
        (r"[AH]800", _EXPORT),
        (r"H[12]00 NVL|PCIe", _NONE),
        (r"G?H200|H100|H20\b", _NVLINK_4),
        (r"A100", _NVLINK_3),
        (r"V100", _NVLINK_2),
    )
)
"""NVLink's bytes/s one way, by generation, from NVIDIA's product pages, which state both ways together.
Boards in PCIe slots may be bridged in pairs or not, which no name tells: they count as not."""
PCIE_BYTES_PER_S = {7: 16e9, 8: 32e9, 9: 64e9, 10: 64e9, 12: 64e9}
"""Of 16 lanes, one way, by the major compute capability's generation."""

GATHERS_PER_SCATTER = 1.5
"""FSDP gathers weights forward and backward, and scatters gradients once."""
TENSOR_ALONE = 0.8
TENSOR_A_STEP = 16


def link_rate(device: str | None, capability: tuple[int, int] | None) -> float | None:
    """Bytes/s one way over the link that all such GPUs of a host have; None where it is unknown."""
    if device is None:
        return None
    for pattern, rate in _LINKS:
        if pattern.search(device):
            return rate or PCIE_BYTES_PER_S.get(capability[0] if capability else 0)
    return PCIE_BYTES_PER_S.get(capability[0]) if capability else None


def bus_factor(name: str, ranks: int) -> float | None:
    """Bytes over the slowest link of a ring for each byte of the collective, as NCCL's tests count."""
    if ranks < 2:
        return None
    factors = {
        "all-reduce": 2 * (ranks - 1) / ranks,
        "all-gather": (ranks - 1) / ranks,
        "reduce-scatter": (ranks - 1) / ranks,
        "all-to-all": (ranks - 1) / ranks,
        "broadcast": 1.0,
        "reduce": 1.0,
        "send-recv": 1.0,
    }
    return factors.get(name)


def parallelism(
    rows: Iterable[CollectiveRow], steps: float | None, world: int, alone: float | None
) -> tuple[Parallelism, ...]:
    """How the job is divided, by the collectives of a step; empty where nothing can be told.

    Args:
        alone: Share of the time of all-reduces in which no kernel runs beside them.
    """
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.name] = counts.get(row.name, 0) + row.count
        if row.name == "send-recv" and len(row.ranks) > 2:
            counts["all-to-all"] = counts.get("all-to-all", 0) + row.count
    per = max(steps or 1.0, 1.0)
    gathers, scatters = counts.get("all-gather", 0) / per, counts.get("reduce-scatter", 0) / per
    reduces = counts.get("all-reduce", 0) / per
    kinds = []
    if scatters >= 1 and gathers >= 1:
        whole = gathers >= GATHERS_PER_SCATTER * scatters
        kinds.append(Parallelism.FSDP if whole else Parallelism.ZERO)
    if counts.get("all-to-all"):
        kinds.append(Parallelism.EXCHANGE)
    elif counts.get("send-recv") and world > 2:
        kinds.append(Parallelism.PIPELINE)
    if reduces >= 1:
        tensor = reduces >= TENSOR_A_STEP and (alone or 0.0) >= TENSOR_ALONE
        if tensor:
            kinds.append(Parallelism.TENSOR)
        elif not kinds or Parallelism.EXCHANGE in kinds:
            kinds.append(Parallelism.DDP)
    return tuple(kinds)
