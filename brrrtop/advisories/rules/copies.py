"""Rules about copies between host and device."""

from __future__ import annotations

from brrrtop.advisories.context import Context, advisory
from brrrtop.model.advice import Advisory
from brrrtop.text import units


def _readback_part(context: Context) -> float:
    """Part of the waits that are for large copies back."""
    found, moved = context.facts.syncs, context.facts.transfers
    large = moved.pageable_down.large + moved.pinned_down.large
    waits = found.count if found is not None else 0
    if found is not None and found.from_copies:  # told from the small copies alone
        waits += large
    return min(large / max(waits, large, 1), 1.0)


def readback_waits(context: Context) -> float:
    """Share of the wall idle after waits for large copies back: their part of all waits."""
    return context.waited * _readback_part(context)


def are_for_readbacks(context: Context) -> bool:
    """Whether most waits go with the advice on copies back."""
    return _readback_part(context) >= 0.5 and readback_traffic(context) is not None


def readback_traffic(context: Context) -> Advisory | None:
    """Downloads that no kernel hides.

    What the host does with the copies goes with them, as far as it takes no longer than they do: more
    is the host's own work. Ops on CPU tensors have their like on the device, and go however long.
    """
    found = context.facts.transfers
    after = found.pageable_down.after_ns + found.pinned_down.after_ns
    exposed = found.pageable_down.exposed_ns + found.pinned_down.exposed_ns
    size = found.pageable_down.size_bytes + found.pinned_down.size_bytes
    if context.share(exposed) < context.limits.readback:
        return None
    if context.a_step(size) < context.limits.pageable_bytes:
        return None
    computing = computed_on_copies(context)
    work = context.facts.cpu_work
    op = work.names[0][0] if computing and work is not None else None
    return advisory(
        context,
        "readback-traffic",
        says=f"{units.size(context.a_step(size))} {context.per} are copied back to the host, "
        f"{units.share(context.share(exposed))} of the time with nothing beside it"
        + (f", and the GPU waits {units.share(computing)} for {op} on the CPU" if op else ""),
        suggests=f"keep the tensors of {op} on the device, where it takes next to nothing; else copy "
        "to pinned memory with non_blocking=True and compute in a thread, every N steps"
        if op
        else "reduce on the device first, and copy to pinned memory with non_blocking=True",
        confidence=0.75,
        saves=context.share(exposed)
        + max(readback_waits(context), context.share(min(after, exposed)))
        + computing,
        bytes_a_step=context.a_step(size),
        exposed_share=context.share(exposed),
        computed_on_the_host_share=computing or None,
        computed_by=op,
    )


def computed_on_copies(context: Context) -> float:
    """Share of the wall idle while ops of the framework run on the host on what was copied there."""
    work = context.facts.cpu_work
    share = context.share(work.after_reads_ns) if work is not None else 0.0
    return share if share >= context.limits.readback else 0.0
