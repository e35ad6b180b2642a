"""Rules about kernels too small for the device. A-numbers: regime-theory, section 4.2."""

from __future__ import annotations

from brrrtop import units
from brrrtop.advisories.context import Context, advisory
from brrrtop.advisories.memory import channels_first_ns
from brrrtop.advisories.overhead import launch_idle
from brrrtop.model import Advisory
from collectors.wire import Metric


def underfilled_kernels(context: Context) -> Advisory | None:
    """A59: kernels too small for the device, while the host keeps up."""
    # A norm of channels-first images has a block a channel: no batch would fill the GPU.
    by_layout = channels_first_ns(context)
    share = context.share(max(context.estimate.account.underfilled_ns - by_layout, 0.0))
    if (
        share < context.limits.underfilled
        or launch_idle(context) + context.idle("host", "io", "sync") > share
    ):
        return None
    rows = context.estimate.kernels
    worst = max(rows, key=lambda r: r.total_ns * r.underfilled_share, default=None)
    room = context.facts.vacant
    empty = sum(r.total_ns * r.underfilled_share * room.get(r.name, 1.0) for r in rows)
    return advisory(
        context,
        "underfilled-kernels",
        says=f"{units.share(share)} of the time kernels run that do not fill the GPU"
        + (f", most in {worst.family}" if worst else ""),
        suggests="a bigger batch, or torch.compile / grouped ops to make fewer, larger kernels",
        waste="tuning these kernels: they have too little to do",
        confidence=0.7 if share >= 2 * context.limits.underfilled else 0.5,
        saves=min(share, context.share(max(empty - by_layout, 0.0))),
        underfilled_share=share,
        kernel=worst.name if worst else None,
    )


def bigger_batch(context: Context) -> Advisory | None:
    """A12: overhead that a step pays once, and memory for twice the batch.

    The forecast and the prize are of one model: that part stays, all the rest doubles.
    """
    used = context.facts.readings
    from_total = used.means.get(int(Metric.MEMORY_TOTAL_BYTES))
    in_use = used.largest.get(int(Metric.MEMORY_USED_BYTES))
    if not from_total or in_use is None or in_use / from_total > context.limits.memory_roomy:
        return None
    account = context.estimate.account
    fixed = launch_idle(context) + context.share(account.underfilled_ns)
    if fixed < context.limits.batch_overhead or context.idle("input") > fixed:
        return None
    return advisory(
        context,
        "bigger-batch",
        says=f"{units.share(fixed)} of a step does not grow with the batch, and "
        f"{units.share(1 - in_use / from_total)} of the memory is free",
        suggests=f"double the batch: expect a step {2 - fixed:.2f} times as long for twice the "
        "work (rescale the learning rate)",
        waste="gradient accumulation: the same kernels, run twice",
        confidence=0.7,
        saves=fixed / 2,
        fixed_share=fixed,
        memory_used_share=in_use / from_total,
        predicted_step_ratio=2 - fixed,
    )
