"""Rules about collectives on one rank, and across the ranks of a host."""

from __future__ import annotations

from brrrtop.advisories.context import Context, advisory
from brrrtop.model.advice import Advisory


def tiny_collectives(context: Context) -> Advisory | None:
    """Many collectives that are all latency."""
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
