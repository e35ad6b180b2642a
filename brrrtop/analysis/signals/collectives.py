"""Collectives of a window on this rank: how many, how long, and of what kind where they are alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from brrrtop.analysis.kernels.traits import Role, used
from brrrtop.analysis.signals.joined import Joined
from brrrtop.model import intervals

SHORT_NS = 50_000
_EXCHANGES = re.compile(
    r"SendRecv|All_?to_?All|::(cached_)?(combine|dispatch|notify)|deep_ep::", re.IGNORECASE
)
"""NCCL's kernel of sends and receives, of which torch makes all-to-alls too; DeepEP's of experts."""


@dataclass(frozen=True, slots=True)
class Collectives:
    """Collectives of the window on this rank."""

    count: int
    total_ns: int
    short: int
    """Under 50 us each: too little to be worth a launch of its own."""
    exchanged_share: float | None
    """Of the time in which collectives run beside no kernel, the part of sends, receives and
    all-to-alls: activations on their way, which no bucket of gradients holds. None: there is none."""


def collectives(joined: Joined) -> Collectives:
    """The window's collectives; copies by the driver are none."""
    activities = joined.window.activities
    rows = joined.is_role(Role.COMM) & joined.kernels
    length = joined.durations_ns[rows]
    work = joined.kernels & ~rows
    cover = intervals.Cover(
        *intervals.merge_unsorted(activities.starts_ns[work], activities.ends_ns[work])
    )
    span = joined.window.span
    low, high = intervals.clip(
        activities.starts_ns[rows], activities.ends_ns[rows], span.t0_ns, span.t1_ns
    )
    alone = high - low - cover.between(low, high)
    exchanges = np.zeros(len(joined.window.names), np.bool_)
    for name_id in used(activities.name_ids, rows):
        exchanges[name_id] = _EXCHANGES.search(joined.window.names[name_id]) is not None
    exchanged = int(alone[exchanges[activities.name_ids[rows]]].sum())
    return Collectives(
        count=int(rows.sum()),
        total_ns=int(length.sum()),
        short=int((length < SHORT_NS).sum()),
        exchanged_share=exchanged / int(alone.sum()) if alone.any() else None,
    )
