"""Waits of the host that only stack samples show: what was not marked cannot be simulated."""

from __future__ import annotations

from brrrtop.advisories.context import Context, advisory
from brrrtop.advisories.rules.host import sampled
from brrrtop.model.advice import Advisory
from brrrtop.text import units


def dataloader_stall(context: Context) -> Advisory | None:
    """The main thread stood in a loader, by its stack, where no probe marked the wait."""
    stalled = sampled(context, "input")
    if stalled < context.limits.input_idle or context.price("loader-ready") is not None:
        return None
    return advisory(
        context,
        "dataloader-stall",
        says=f"while the GPU idled, the main thread waited for the next batch: {units.share(stalled)} "
        "of the time",
        suggests="DataLoader(..., num_workers=4, persistent_workers=True, prefetch_factor=4)",
        confidence=0.65,
        saves=stalled,
        input_idle_share=stalled,
    )


def sync_point(context: Context) -> Advisory | None:
    """The main thread was reading values back, by its stack, where no call that waits was recorded."""
    lost = sampled(context, "sync")
    if lost < context.limits.sync_idle or context.price("no-sync") is not None:
        return None
    looks = context.estimate.looks
    lines = [str(line) for line in looks.lines if line.reads_as == "sync"] if looks else []
    return advisory(
        context,
        "sync-point",
        says=f"while the GPU idled, the main thread was reading values back: {units.share(lost)} "
        f"of the time{', at ' + lines[0] if lines else ''}",
        suggests="keep values on the device and read them every N steps",
        confidence=0.6,
        saves=lost,
        lines=lines,
        stack_samples=looks.count if looks else 0,
    )
