"""Rules about time spent moving bytes on the device."""

from __future__ import annotations

from brrrtop.advisories.context import Context, advisory
from brrrtop.advisories.rules.gradients import dense_gradients
from brrrtop.model.advice import Advisory
from brrrtop.text import units


def low_precision_storage(context: Context) -> Advisory | None:
    """Memory-bound on fp32 tensors."""
    moved = context.facts.precision
    memory = context.share(context.estimate.account.memory_ns)
    if memory < context.limits.storage_memory or not moved.streaming_ns:
        return None
    if moved.float_streaming_ns < 0.6 * moved.streaming_ns:
        return None
    # What fusing or sparse gradients never write needs no fewer bytes.
    runs = context.facts.chains
    fused = runs if runs is not None and context.price("compile") is not None else None
    left = moved.float_streaming_ns - (fused.fusable_ns if fused is not None else 0)
    zeros = context.facts.dense_gradients if dense_gradients(context) is not None else None
    left -= zeros.fill_ns if zeros is not None else 0
    return advisory(
        context,
        "low-precision-storage",
        says=f"{units.share(memory)} of the time moves bytes, most of them fp32",
        suggests="with torch.autocast('cuda', torch.bfloat16): — or bf16 parameters",
        waste="concluding from a small gain that bf16 is useless: halved bytes win at most 2x",
        confidence=0.65,
        saves=context.device_side(left / 2),
        memory_share=memory,
        fp32_share=moved.float_streaming_ns / moved.streaming_ns,
    )


def cast_churn(context: Context) -> Advisory | None:
    """Autocast converts the same tensors again and again, outside runs that fusing takes whole."""
    used, runs = context.facts.precision, context.facts.chains
    spent = max(used.cast_ns - (runs.casting_ns if runs is not None else 0), 0)
    share = context.share(spent)
    if share < context.limits.cast_share:
        return None
    saves = context.removed(spent, round(used.cast_kernels * spent / max(used.cast_ns, 1)))
    return advisory(
        context,
        "cast-churn",
        says=f"{units.share(share)} of the time converts between float types",
        suggests="keep the parameters in bf16 (model.to(torch.bfloat16)), or enter autocast once "
        "around the whole forward so that its weight cache works; no .float() before a loss, which "
        "computes in fp32 inside",
        confidence=0.6,
        saves=saves,
        cast_share=share,
    )


def needless_copies(context: Context) -> Advisory | None:
    """Kernels that only move elements."""
    attention = context.facts.attention
    spent = context.facts.precision.copying_ns
    if attention is not None or context.share(spent) < context.limits.copying_share:
        return None
    return advisory(
        context,
        "needless-copies",
        says=f"{units.share(context.share(spent))} of the time only moves elements: contiguous(), "
        "cat, transposes",
        suggests="write into a preallocated tensor instead of torch.cat, and drop .contiguous() "
        "where the next op takes strides",
        # At twice the threshold it is over three times what a healthy GPT needs (7 %).
        confidence=0.75 if context.share(spent) >= 2 * context.limits.copying_share else 0.55,
        saves=context.removed(spent, context.facts.precision.copying_kernels),
        copying_share=context.share(spent),
    )


def inefficient_kernel(context: Context) -> Advisory | None:
    """A full-grid memory kernel far under its roof.

    Norms and reductions are left out: their shapes are the model's, and nobody can pad a batch norm.
    """
    tuned = {"softmax", "elementwise", "activation"}
    roof = context.ceilings.bytes_per_s if context.ceilings else None
    for row in context.estimate.kernels[:20]:
        share = context.share(row.total_ns)
        if share < context.limits.weak_share or not roof:
            return None
        if row.family not in tuned or row.underfilled_share >= 0.1 or not row.bytes_per_s:
            continue
        reached = row.bytes_per_s / roof
        if reached < context.limits.weak_roof and row.evidence not in ("L0", "L1"):
            return advisory(
                context,
                "inefficient-kernel",
                says=f"{row.family} kernels take {units.share(share)} of the time at "
                f"{units.share(reached)} of the memory bandwidth",
                suggests="pad the innermost size to a multiple of 16 bytes, or use the fused op "
                "that PyTorch has for this",
                waste="fusing its neighbours first",
                confidence=0.55,
                saves=context.device_side(row.total_ns * (1 - reached / 0.9)),
                kernel=row.name,
                bandwidth_share=reached,
            )
    return None


def activation_checkpointing(context: Context) -> Advisory | None:
    """Memory is full and bandwidth, not arithmetic, sets the pace."""
    used = context.memory_used
    account = context.estimate.account
    if used is None or used < context.limits.memory_full:
        return None
    if account.memory_ns < account.compute_ns or context.facts.recomputed_ns:
        return None
    return advisory(
        context,
        "activation-checkpointing",
        says=f"{units.share(used)} of the device memory is in use and bytes set the pace: "
        "recomputing cheap activations buys memory for little time",
        suggests="torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) around "
        "pointwise-heavy blocks",
        waste="offloading activations to the host: PCIe is slower still",
        confidence=0.6,
        memory_used_share=used,
        memory_share=context.share(account.memory_ns),
        compute_share=context.share(account.compute_ns),
    )


def remove_checkpointing(context: Context) -> Advisory | None:
    """Activations are recomputed although memory is free."""
    spent, used = context.facts.recomputed_ns, context.memory_used
    if not spent or (used is not None and used > context.limits.memory_roomy):
        return None
    if context.share(spent) < context.limits.recompute_share:
        return None
    return advisory(
        context,
        "remove-checkpointing",
        says="the backward pass runs forward kernels again"
        + (f" although {units.share(1 - used)} of the memory is free" if used is not None else ""),
        suggests="if memory allows, switch activation checkpointing off, or keep it for the "
        "largest blocks only",
        confidence=0.65 if used is not None else 0.5,
        saves=context.device_side(min(spent, 0.33 * context.wall_ns)),
        recomputed_share=context.share(spent),
        memory_used_share=used,
    )
