"""Matched collectives by type, size and group, against the link's rate, and how they say a job is divided."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from brrrtop.analysis.facts.collectives import TYPES, UNKNOWN_SIZE, algorithm_of, name_of
from brrrtop.analysis.ranks.matching import Matched
from brrrtop.model.ranks import CollectiveRow
from brrrtop.model.tables import I8

if TYPE_CHECKING:
    from brrrtop.analysis.ranks.job import AlignedRanks
import re
from collections.abc import Iterable

from brrrtop.model.ranks import Parallelism

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


def collective_rows(job: AlignedRanks, complete: bool = True) -> tuple[CollectiveRow, ...]:
    """By type, size and ranks, most time first.

    Args:
        complete: All ranks are there; else what is left of a stay may still be a wait for a missing one,
            and no rate is told.
    """
    matched, numbers = job.matched, job.numbers
    if not len(matched):
        return ()
    first = np.flatnonzero(np.diff(matched.collective, prepend=-1))
    bounds = [*first.tolist(), len(matched.collective)]
    longest = np.maximum.reduceat(matched.wait_ns, first)
    groups: dict[tuple[object, ...], list[int]] = {}
    for at, (low, high) in enumerate(itertools.pairwise(bounds)):
        ranks = tuple(sorted(numbers[place] for place in matched.rank[low:high].tolist()))
        one, record = job.every[int(matched.rank[low])], int(matched.record[low])
        name = name_of(int(matched.types[at]), one.op_names[record])
        kernel = job.windows[int(matched.rank[low])].names[int(one.name_ids[record])]
        key = (name, algorithm_of(kernel), ranks, int(matched.sizes[at]))
        groups.setdefault(key, []).append(at)
    rate = _link_rate(job)
    rows = [
        _collective_row(key, np.array(places), matched, longest, rate, complete)
        for key, places in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: -(row.wait_ns + row.transfer_ns)))


def _collective_row(
    key: tuple[object, ...],
    at: I8,
    matched: Matched,
    longest: I8,
    rate: float | None,
    complete: bool,
) -> CollectiveRow:
    name, algorithm, ranks, size = key
    assert isinstance(name, str) and isinstance(ranks, tuple) and isinstance(size, int)
    usual = float(np.median(matched.transfer_ns[at]))
    factor = bus_factor(name, len(ranks))
    bus = None
    if complete and factor and size != UNKNOWN_SIZE and usual > 0:
        bus = factor * size / usual * 1e9
    share = bus / rate if bus is not None and rate else None
    return CollectiveRow(
        name=name,
        algorithm=str(algorithm) if algorithm else None,
        ranks=ranks,
        count=len(at),
        size_bytes=None if size == UNKNOWN_SIZE else size,
        transfer_ns=int(matched.transfer_ns[at].sum()),
        wait_ns=int(longest[at].sum()),
        bus_bytes_per_s=bus,
        link_share=share if share is not None and share <= 1 else None,  # more: another link
    )


def _link_rate(job: AlignedRanks) -> float | None:
    """Of the slowest link between the ranks' GPUs; None where one is not known."""
    devices = [window.device for window in job.windows]
    rates = [link_rate(device.name, device.capability) for device in devices]
    known = [rate for rate in rates if rate is not None]
    return min(known) if len(known) == len(rates) else None


def alone_share(job: AlignedRanks) -> float | None:
    """Of the transfers of all-reduces, the part with no kernel beside them, on the median rank."""
    code = next(code for code, (name, _) in enumerate(TYPES) if name == "all-reduce")
    shares = []
    for one in job.every:
        rows = one.types == code
        total = int((one.ends_ns - one.starts_ns)[rows].sum())
        if total:
            shares.append(int(one.alone_ns(one.starts_ns[rows], one.ends_ns[rows]).sum()) / total)
    return float(np.median(shares)) if shares else None


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
