"""Guided experiments: a doubled batch or 16-bit products, noticed in the kernels and read.

What was predicted is computed from the baseline alone, so that it could have been said before.
"""

from __future__ import annotations

from collections.abc import Iterable

from brrrtop.model.comparison import Experiment
from brrrtop.model.estimate import Estimate, KernelRow, Side

SHORT = frozenset({"bf16", "fp16"})
WIDE = frozenset({"fp32", "tf32"})
GREW = 1.5
"""Blocks of the same kernels that grew by so much mean a larger batch."""
OTHER = 16.0
"""Grown by more than this, it is another model."""


def experiments(
    before: Estimate,
    speedup: float | None,
    changes: tuple[str, ...],
    blocks: float | None,
    precisions: tuple[str | None, str | None],
) -> tuple[Experiment, ...]:
    """The tests that a change amounts to.

    Args:
        before: The baseline.
        speedup: Steps per second, after over before.
        changes: Everything that changed in kind.
        blocks: Median ratio of the grids of the same kernels, after over before.
        precisions: Of the products, before and after.
    """
    found = []
    alone = len(changes) <= 1
    if blocks is not None and GREW <= max(blocks, 1 / blocks) <= OTHER:
        found.append(_batch(before, speedup, blocks, alone))
    old, new = precisions
    if old in WIDE and new in SHORT:
        found.append(_precision(before, speedup, str(old), str(new), alone))
    return tuple(found)


def _batch(before: Estimate, speedup: float | None, blocks: float, alone: bool) -> Experiment:
    work, grew = blocks, 1 / speedup if speedup else None
    says = batch_test(speedup, work)
    if blocks < 1:  # read from the smaller batch to the larger: the same test, backwards
        says = batch_test(1 / speedup if speedup else None, 1 / blocks)
    return Experiment(
        name="batch",
        changed=f"{blocks:.2f} times the blocks in the same kernels: the batch or the shapes",
        predicted=_predicted_time(before, work),
        measured=f"{grew:.2f} times the time" if grew else None,
        says=says,
        alone=alone,
    )


def _predicted_time(before: Estimate, work: float) -> str | None:
    """How the step should follow the work.

    Time in full kernels, input and copies grows with the work. The rest stays as it is at the most
    (upper end); at the least it hides behind the longer kernels (lower end).
    """
    account = before.account
    whole = account.duration_ns
    if not whole or account.unknown_ns > whole // 2:
        return None
    fed = account.exposed_copy_ns + account.idle_ns.get("input", 0)
    grows = (account.compute_ns + account.memory_ns + fed) / whole
    most = 1 - grows + grows * work
    least = max(1.0, grows * work)
    if work < 1:
        return f"at least {most:.2f} times the time"
    if most - least < 0.05:
        return f"{most:.2f} times the time"
    return f"{least:.2f} to {most:.2f} times the time"


def _precision(
    before: Estimate, speedup: float | None, old: str, new: str, alone: bool
) -> Experiment:
    return Experiment(
        name="precision",
        changed=f"precision of the products: {old} to {new}",
        predicted=_predicted_gain(before, old, new),
        measured=f"{speedup:.2f}x as fast" if speedup else None,
        says=precision_test(speedup, old),
        alone=alone,
    )


def _predicted_gain(before: Estimate, old: str, new: str) -> str | None:
    """The most that could be won: products at the new ceiling's pace, memory time halved."""
    account = before.account
    ceilings = before.roofs.flop_per_s if before.roofs else {}
    wide, short = ceilings.get(old), ceilings.get(new)
    if not account.duration_ns or not wide or not short:
        return None
    spared = _products_ns(before.kernels, old) * (1 - wide / short) + account.memory_ns / 2
    left = max(account.duration_ns - spared, account.duration_ns * wide / short)
    return f"at most {account.duration_ns / left:.2f}x as fast"


def _products_ns(rows: Iterable[KernelRow], precision: str) -> float:
    """Time that products and convolutions of this precision spend on arithmetic."""
    return sum(
        row.total_ns
        for row in rows
        if row.precision == precision
        and row.side is Side.COMPUTE
        and row.family.startswith(("gemm", "conv", "attention"))
    )


def batch_test(speedup: float | None, work_ratio: float) -> str:
    """Reads the batch-doubling test: how far the step's time follows its work.

    Args:
        speedup: Steps per second, of the larger batch over the smaller.
        work_ratio: Samples a step, larger over smaller; over 1.
    """
    if speedup is None or work_ratio <= 1:
        return "the test needs steps on both sides and a larger batch"
    grew = 1 / speedup
    if grew - 1 < 0.1 * (work_ratio - 1):
        return (
            f"{work_ratio:.1f} times the work in {grew:.2f} times the time: overhead set the pace"
        )
    if grew > 0.9 * work_ratio:
        return (
            f"{grew:.2f} times the time for {work_ratio:.1f} times the work: the GPU sets the pace"
        )
    return f"{grew:.2f} times the time for {work_ratio:.1f} times the work: partly overhead"


def precision_test(speedup: float | None, from_precision: str) -> str:
    """Reads the 16-bit test.

    Args:
        speedup: Steps per second, of the 16-bit run over the wider.
        from_precision: `fp32` or `tf32`: what the products ran in before.
    """
    if speedup is None:
        return "the test needs steps on both sides"
    if speedup < 1.1:
        return "no gain: neither arithmetic nor bytes set the pace; look at overhead"
    if speedup > 2.2 and from_precision == "fp32":
        return f"{speedup:.1f}x: fp32 arithmetic on the CUDA cores set the pace"
    return f"{speedup:.1f}x: halved bytes explain up to 2x, faster products the rest"
