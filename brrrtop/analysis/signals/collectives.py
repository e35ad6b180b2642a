"""Collectives of a window on this rank: how many, how long, and of what kind where they are alone."""

from __future__ import annotations

from msgspec import Struct

from brrrtop.analysis.kernels.traits import Role
from brrrtop.analysis.signals.joined import Joined
from brrrtop.model import intervals

SHORT_NS = 50_000
_EXCHANGES = r"(?i)SendRecv|All_?to_?All|::(cached_)?(combine|dispatch|notify)|deep_ep::"
"""NCCL's kernel of sends and receives, of which torch makes all-to-alls too; DeepEP's of experts."""


class Collectives(Struct, frozen=True):
    """Collectives of the window on this rank."""

    count: int
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
    exchanged = int(alone[joined.named(_EXCHANGES, rows)[rows]].sum())
    return Collectives(
        count=int(rows.sum()),
        short=int((length < SHORT_NS).sum()),
        exchanged_share=exchanged / int(alone.sum()) if alone.any() else None,
    )
