"""Rules about collectives on one rank, and about the ranks of a job beside each other."""

from __future__ import annotations

from brrrtop.advisories.context import Context
from brrrtop.advisories.job import straggler
from brrrtop.advisories.registry import RANKS, Finding, edit, finding, rule
from brrrtop.analysis.facts.transfers import collectives
from brrrtop.model.advice import WhatIf
from brrrtop.text import units

MOSTLY = 0.5
"""Of exposed communication: more of it in exchanges of activations has a remedy of its own."""
SHORT_A_STEP = 50
"""Collectives under 50 us."""


@edit(
    "exposed-communication", RANKS, "Collectives that nothing hides", "overlap-communication",
    unless="one rank cannot tell a slow link from a late peer: the advice says so",
)  # fmt: skip
def exposed_communication(context: Context, row: WhatIf) -> Finding | None:
    exposed = context.share(context.estimate.account.exposed_comm_ns)
    seen = collectives(context.joined)
    what = "collectives run"
    line = (
        "DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True) or FSDP "
        "prefetch; bf16 gradients halve the bytes"
    )
    if (seen.exchanged_share or 0.0) >= MOSTLY:  # activations: no bucket of gradients holds them
        what = "all-to-all or send and receive runs"
        line = (
            "dist.all_to_all_single(..., async_op=True) beside the part that needs no exchange, such "
            "as shared experts, or in chunks; 8-bit activations halve the bytes"
        )
    return finding(
        f"{units.share(exposed)} of the time only {what}; one rank alone cannot tell a slow link "
        "from a late peer",
        line,
        exposed_share=exposed,
        exchanged_share=seen.exchanged_share,
        collectives_a_step=context.a_step(seen.count),
    )


@rule(
    "tiny-collectives", RANKS, "Many collectives that are all latency",
    when="at least 50 collectives a step under 50 us",
    unless="collectives hidden behind compute",
)  # fmt: skip
def tiny_collectives(context: Context) -> Finding | None:
    seen = collectives(context.joined)
    if context.a_step(seen.short) < SHORT_A_STEP:
        return None
    exposed = context.estimate.account.exposed_comm_ns
    return finding(
        f"{context.a_step(seen.short):.0f} collectives {context.per} last under 50 us: their "
        "price is latency",
        "bucket_cap_mb=25 or more, model.no_sync() while accumulating, or coalesce them",
        waste="a faster link: latency stays",
        confidence=0.55,
        saves=context.share(min(exposed, 20_000 * seen.short)),
        short_a_step=context.a_step(seen.short),
        collectives_a_step=context.a_step(seen.count),
    )


rule(
    "straggler", RANKS, "One rank arrives last", of_job=True,
    when="over two ranks or more: its own work takes 3 % of a step longer than its peers', in most steps, "
    "and most of all waits in collectives are for it",
    unless="one rank alone; ranks that were not recorded together; a rank that only began late; pipeline "
    "stages, whose roles differ",
)(straggler)  # fmt: skip
