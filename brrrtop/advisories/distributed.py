"""Rules about collectives on one rank, and across the ranks of a host. A51-A53."""

from __future__ import annotations

from collections.abc import Mapping

from brrrtop import units
from brrrtop.advisories.context import Context, advisory
from brrrtop.advisories.thresholds import DEFAULT, Thresholds
from brrrtop.model import Advisory, Estimate


def tiny_collectives(context: Context) -> Advisory | None:
    """A53: many collectives that are all latency."""
    found = context.facts.collectives
    if context.a_step(found.short) < context.limits.short_collectives:
        return None
    exposed = context.estimate.account.exposed_comm_ns
    lost = min(exposed, 20_000 * found.short)
    return advisory(
        context,
        "tiny-collectives",
        says=f"{context.a_step(found.short):.0f} collectives {context.per} last under 50 us: their "
        "price is latency",
        suggests="bucket_cap_mb=25 or more, model.no_sync() while accumulating, or coalesce them",
        waste="a faster link: latency stays",
        confidence=0.55,
        saves=context.share(lost),
        short_a_step=context.a_step(found.short),
        collectives_a_step=context.a_step(found.count),
    )


def straggler(
    ranks: Mapping[int, Estimate], limits: Thresholds = DEFAULT
) -> tuple[int, Advisory] | None:
    """A52: the rank the others wait for, and what to do; None below two ranks or without one.

    The straggler spends the least time in exposed collectives: it arrives last, the others wait.

    Args:
        ranks: Estimates of the same stretch of wall time by rank.
        limits: As for the rules of one rank.
    """
    if len(ranks) < 2:
        return None
    waited = {
        rank: e.account.exposed_comm_ns / max(e.account.duration_ns, 1) for rank, e in ranks.items()
    }
    late = min(waited, key=lambda rank: waited[rank])
    others = sorted(share for rank, share in waited.items() if rank != late)
    lag = others[len(others) // 2] - waited[late]
    if lag < limits.straggler_share:
        return None
    own = ranks[late]
    idle = max(own.account.idle_ns, key=lambda c: own.account.idle_ns[c])
    large = own.account.idle_ns[idle] >= 0.5 * lag * own.account.duration_ns
    cause = idle if large else "its own work"
    return late, Advisory(
        kind="straggler",
        says=f"rank {late} arrives last: the others wait {units.share(lag)} of the time for it, "
        f"and it spends that in {cause.replace('_', ' ')}",
        confidence=0.8 if len(ranks) > 2 else 0.7,
        saves_at_most=round(lag, 4),
        evidence={"rank": late, "lag_share": lag, "cause": cause},
        suggests=f"look at rank {late} alone: its loader, its clocks, its host",
        waste="tuning NCCL: the collectives are waits",
    )
