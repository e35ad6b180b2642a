"""Rules about copies between host and device."""

from __future__ import annotations

from typing import Any

from brrrtop.advisories.context import Context
from brrrtop.advisories.registry import OVERHEAD, Finding, edit, finding, rule
from brrrtop.analysis.facts.transfers import Copies
from brrrtop.model.advice import WhatIf
from brrrtop.text import units

EXPOSED = 0.02
"""Of the wall: copies back that nothing hides."""
READBACK_BYTES = 1_000_000
"""A step: less is scalars and labels."""


def _uploads(context: Context) -> tuple[bool, Copies]:
    """Whether most time of uploads is from pageable memory, and those of that kind."""
    moved = context.transfers
    pageable = moved.pageable_up.total_ns > moved.pinned_up.total_ns
    return pageable, moved.pageable_up if pageable else moved.pinned_up


def _evidence(context: Context, up: Copies) -> dict[str, Any]:
    return {
        "bytes_a_step": context.a_step(up.size_bytes),
        "bytes_per_s": up.bytes_per_s,
        "exposed_share": context.share(up.exposed_ns),
    }


@edit(
    "pin-memory", OVERHEAD, "Uploads from pageable memory", "pinned-copies",
    when=", and most of what is uploaded is pageable",
    unless="scalars and labels; uploads hidden behind kernels",
)  # fmt: skip
def pin_memory(context: Context, row: WhatIf) -> Finding | None:
    pageable, up = _uploads(context)
    if not pageable:
        return None
    return finding(
        f"{units.size(context.a_step(up.size_bytes))} {context.per} from pageable memory at "
        f"{units.rate(up.bytes_per_s or 0.0, 'B/s')}, "
        f"{units.share(context.share(up.exposed_ns))} of the time with the GPU idle",
        "DataLoader(..., pin_memory=True), or tensor.pin_memory(), and .to(device, non_blocking=True)",
        **_evidence(context, up),
    )


@edit(
    "overlap-copies", OVERHEAD, "Pinned uploads that nothing hides", "pinned-copies",
    when=", and what is uploaded is pinned",
    unless="copies beside kernels",
)  # fmt: skip
def overlap_copies(context: Context, row: WhatIf) -> Finding | None:
    pageable, up = _uploads(context)
    if pageable:
        return None
    return finding(
        f"{units.size(context.a_step(up.size_bytes))} {context.per} are uploaded while no kernel "
        f"runs: {units.share(context.share(up.exposed_ns))} of the time",
        "prefetch the next batch on a side stream: with torch.cuda.stream(copies): "
        "batch = batch.to(device, non_blocking=True)",
        **_evidence(context, up),
    )


def _readback_part(context: Context) -> float:
    """Part of the waits that are for large copies back."""
    waits, moved = context.syncs, context.transfers
    large = moved.pageable_down.large + moved.pinned_down.large
    count = waits.count if waits is not None else 0
    return min(large / max(count, large, 1), 1.0)


def are_for_readbacks(context: Context) -> bool:
    """Whether most waits go with the advice on copies back."""
    return _readback_part(context) >= 0.5 and readback_traffic(context) is not None


@rule(
    "readback-traffic", OVERHEAD, "Large copies back to the host",
    when="at least 1 MB a step and 2 % of the time, with nothing beside it",
    unless="scalars read back: those are sync-points; the copies of a save", any_program=True,
)  # fmt: skip
def readback_traffic(context: Context) -> Finding | None:
    """What the host does with the copies goes with them, as far as it takes no longer than they do: more
    is the host's own work."""
    ways = (context.transfers.pageable_down, context.transfers.pinned_down)
    after, exposed = sum(one.after_ns for one in ways), sum(one.exposed_ns for one in ways)
    size = context.a_step(sum(one.size_bytes for one in ways))
    if context.share(exposed) < EXPOSED or size < READBACK_BYTES:
        return None
    waits = context.idle("sync") * _readback_part(context)
    return finding(
        f"{units.size(size)} {context.per} are copied back to the host, "
        f"{units.share(context.share(exposed))} of the time with nothing beside it",
        "reduce on the device first, and copy to pinned memory without waiting for it",
        confidence=0.75,
        saves=context.share(exposed) + max(waits, context.share(min(after, exposed))),
        bytes_a_step=size,
        exposed_share=context.share(exposed),
    )
