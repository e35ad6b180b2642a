"""Changes that tell what sets the pace: a doubled batch or 16-bit products, noticed in the kernels."""

from __future__ import annotations

from brrrtop.model.comparison import Experiment
from brrrtop.model.estimate import Estimate, Side

GREW, OTHER = 1.5, 16.0
"""Blocks of the same kernels that grew by so much mean a larger batch; by more, another model."""


def experiments(
    before: Estimate,
    speedup: float | None,
    alone: bool,
    blocks: float | None,
    precisions: tuple[str | None, str | None],
) -> tuple[Experiment, ...]:
    """The tests that a change amounts to.

    Args:
        before: The baseline.
        speedup: Steps per second, after over before.
        alone: Nothing else changed in kind.
        blocks: Median ratio of the grids of the same kernels, after over before.
        precisions: Of the products, before and after.
    """
    tests = []
    if blocks is not None and GREW <= max(blocks, 1 / blocks) <= OTHER:
        changed = f"{blocks:.2f} times the blocks in the same kernels: the batch or the shapes"
        measured = f"{1 / speedup:.2f} times the time" if speedup else None
        # Read from the smaller batch to the larger, whichever came first.
        faster = 1 / speedup if speedup and blocks < 1 else speedup
        says = batch_test(faster, max(blocks, 1 / blocks))
        predicted = _predicted_time(before, blocks)
        tests.append(Experiment("batch", changed, predicted, measured, says, alone))
    old, new = precisions
    if old in ("fp32", "tf32") and new in ("bf16", "fp16"):
        predicted = _predicted_gain(before, old, new)
        measured = f"{speedup:.2f}x as fast" if speedup else None
        changed = f"precision of the products: {old} to {new}"
        says = precision_test(speedup, old)
        tests.append(Experiment("precision", changed, predicted, measured, says, alone))
    return tuple(tests)


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
    most, least = 1 - grows + grows * work, max(1.0, grows * work)
    if work < 1:
        return f"at least {most:.2f} times the time"
    return f"{'' if most - least < 0.05 else f'{least:.2f} to '}{most:.2f} times the time"


def _predicted_gain(before: Estimate, old: str, new: str) -> str | None:
    """The most that could be won: products at the new ceiling's pace, memory time halved."""
    rates = before.roofs.flop_per_s if before.roofs else {}
    whole, wide, short = before.account.duration_ns, rates.get(old), rates.get(new)
    if not whole or not wide or not short:
        return None
    products = (r.total_ns for r in before.kernels if r.precision == old and r.side is Side.COMPUTE)
    spared = sum(products) * (1 - wide / short) + before.account.memory_ns / 2
    return f"at most {whole / max(whole - spared, whole * wide / short):.2f}x as fast"


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
    paced = "the GPU sets the pace" if grew > 0.9 * work_ratio else "partly overhead"
    return f"{grew:.2f} times the time for {work_ratio:.1f} times the work: {paced}"


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
