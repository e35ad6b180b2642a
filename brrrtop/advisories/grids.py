"""Rules about kernels too small for the device. A-numbers: regime-theory, section 4.2."""

from __future__ import annotations

from brrrtop import units
from brrrtop.advisories.context import Context, advisory
from brrrtop.advisories.memory import channels_first_ns, memory_used
from brrrtop.advisories.overhead import launch_idle
from brrrtop.model import Advisory

NEARLY_EMPTY = 0.9
"""Part of the device that stays empty, on average, while kernels run that do not fill it: a batch nearly ten
times as large would not fill it either."""


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


def _nearly_empty(context: Context) -> bool:
    """Whether kernels that leave most of the device empty are most of the time."""
    share = context.share(context.estimate.account.underfilled_ns)
    if share < context.limits.mostly_waiting or underfilled_kernels(context) is None:
        return False
    small = [(r.total_ns * r.underfilled_share, r.name) for r in context.estimate.kernels]
    empty = sum(ns * context.facts.vacant.get(name, 0.0) for ns, name in small)
    return empty >= NEARLY_EMPTY * sum(ns for ns, _ in small)


def bigger_batch(context: Context) -> Advisory | None:
    """A12: overhead that a step pays once, and memory for twice the batch.

    The forecast and the prize are of one model: that part stays, all the rest doubles. Where nobody
    read the memory in use, a device that is next to empty tells of a small batch too.
    """
    used = memory_used(context)
    if not _nearly_empty(context) if used is None else used > context.limits.memory_roomy:
        return None
    account = context.estimate.account
    fixed = launch_idle(context) + context.share(account.underfilled_ns)
    if fixed < context.limits.batch_overhead or context.idle("input") > fixed:
        return None
    room = f"{units.share(1 - used)} of the memory is free" if used is not None else None
    return advisory(
        context,
        "bigger-batch",
        says=f"{units.share(fixed)} of a step does not grow with the batch, and "
        + (room or "its kernels leave most of the GPU empty"),
        suggests=f"double the batch{'' if room else ', if memory allows'}: expect a step "
        f"{2 - fixed:.2f} times as long for twice the work (rescale the learning rate)",
        waste="gradient accumulation: the same kernels, run twice",
        confidence=0.7 if room else 0.55,
        saves=fixed / 2,
        fixed_share=fixed,
        memory_used_share=used,
        predicted_step_ratio=2 - fixed,
    )
