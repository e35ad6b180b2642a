"""Rules about time spent moving bytes on the device. A-numbers: regime-theory, section 4.2."""

from __future__ import annotations

from brrrtop import units
from brrrtop.advisories.context import Context, advisory
from brrrtop.estimator.embeddings import DenseGradients
from brrrtop.estimator.traits import Trait, traits_of
from brrrtop.model import Advisory
from collectors.wire import Metric

CONV_PART = 0.3
"""Part of a channels-first convolution that its layout can cost beside the conversions (A34)."""
FILL_BYTES = 64 << 20
"""Bytes set to zero a step from which it shows (A27)."""
UPDATE_PASSES = 7
"""Of a table's size, in an Adam update: parameter, gradient and two moments read, three written. The
fill is one. Updates over lists of tensors make more, which are not counted."""
CHANNELED = frozenset({"norm", "pool"})
"""Families with kernels of their own for each memory format."""


def fuse_pointwise(context: Context) -> Advisory | None:
    """A30: runs of unfused pointwise kernels, each reading what the one before wrote."""
    found = context.facts.chains
    if found is None or not found.count:
        return None
    apart = needless_copies(context) is not None  # which has the copies, in chains or out of them
    saved = context.device_side(found.left_ns if apart else found.fusable_ns)
    long = found.length_p50 >= context.limits.chain_length
    if saved < context.limits.chain_share or not (long or saved >= context.limits.strong_chain):
        return None
    return advisory(
        context,
        "fuse-pointwise",
        says=f"{units.share(context.share(found.total_ns))} of the time goes to runs of unfused "
        f"kernels, typically {found.length_p50:.0f} pointwise ones in a row: each reads and "
        "writes the whole tensor again",
        suggests="torch.compile the block, or one Triton kernel for the run",
        waste="TF32, tensor cores or a GPU with more FLOPS: these kernels move bytes",
        confidence=0.9 if long and saved >= 2 * context.limits.chain_share else 0.6,
        saves=saved,
        chains_a_step=context.a_step(found.count),
        chain_length_p50=found.length_p50,
        longest=found.longest,
        chain_share=context.share(found.total_ns),
        chain=[name[:80] for name in found.names],
    )


def fused_norm(context: Context) -> Advisory | None:
    """A31: a norm written out as seven kernels."""
    spent = context.facts.eager_norm_ns
    if context.share(spent) < context.limits.norm_share:
        return None
    return advisory(
        context,
        "fused-norm",
        says=f"a norm written out (square, mean, rsqrt, multiply) takes "
        f"{units.share(context.share(spent))} of the time",
        suggests="torch.nn.functional.rms_norm(x, x.shape[-1:], weight) or nn.LayerNorm",
        waste="a GPU with more FLOPS: a norm moves bytes",
        confidence=0.7,
        saves=context.device_side(0.75 * spent),
        norm_share=context.share(spent),
    )


def low_precision_storage(context: Context) -> Advisory | None:
    """A32: memory-bound on fp32 tensors."""
    moved = context.facts.precision
    memory = context.share(context.estimate.account.memory_ns)
    if memory < context.limits.storage_memory or not moved.streaming_ns:
        return None
    if moved.float_streaming_ns < 0.6 * moved.streaming_ns:
        return None
    # What fusing or sparse gradients never write needs no fewer bytes.
    fused = context.facts.chains if fuse_pointwise(context) is not None else None
    left = moved.float_streaming_ns - (fused.fusable_ns if fused is not None else 0)
    zeros = context.facts.dense_gradients if _dense_gradients(context) is not None else None
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
    """A33: autocast converts the same tensors again and again."""
    used, runs = context.facts.precision, context.facts.chains
    spent = used.cast_ns
    if runs is not None and fuse_pointwise(context) is not None:  # which has those in its runs
        spent = max(spent - runs.casting_ns, 0)
    if context.share(spent) < context.limits.cast_share:
        return None
    return advisory(
        context,
        "cast-churn",
        says=f"{units.share(context.share(spent))} of the time converts between float types",
        suggests="keep the parameters in bf16 (model.to(torch.bfloat16)), or enter autocast once "
        "around the whole forward so that its weight cache works; no .float() before a loss, which "
        "computes in fp32 inside",
        confidence=0.6,
        saves=context.removed(spent, round(used.cast_kernels * spent / max(used.cast_ns, 1))),
        cast_share=context.share(spent),
    )


def _norms_ns(context: Context) -> float:
    """Most that norms and pools of channels-first images can lose: all above their bytes' time.

    Where bytes are unknown, the room that a block a channel leaves empty, and at least as much of it
    as of a convolution.
    """
    other = context.facts.precision.nchw_other_ns
    roof = context.ceilings.bytes_per_s if context.ceilings else None
    seen = lost = 0.0
    for row in context.estimate.kernels:
        if row.family in CHANNELED and traits_of(row.name) & Trait.NCHW:
            empty = row.underfilled_share * context.facts.vacant.get(row.name, 0.0)
            part = max(empty, CONV_PART)
            if roof and row.bytes_per_s:
                part = max(1 - row.bytes_per_s / roof, 0.0)
            seen += row.total_ns
            lost += row.total_ns * part
    # Norms of sequences have such names too, and are not in `other`.
    images = min(other / seen, 1.0) if seen else 0.0
    return lost * images + CONV_PART * max(other - seen, 0.0)


def channels_last(context: Context) -> Advisory | None:
    """A34: convolutions on channels-first tensors, converted on the way."""
    used = context.facts.precision
    convolving = used.conv_ns + used.layout_ns
    if context.share(convolving) < context.limits.conv_least or context.capability < (7, 0):
        return None
    if context.share(convolving + used.nchw_other_ns) < context.limits.conv_share:
        return None
    first = used.nchw_ns + used.layout_ns + used.nchw_other_ns
    if first < context.limits.nchw_part * (convolving + used.nchw_other_ns):
        return None
    spent = (
        (used.nchw_ns, "convolves channels-first tensors"),
        (used.layout_ns, "converts layouts"),
        (used.nchw_other_ns, "normalises and pools channels-first images"),
    )
    return advisory(
        context,
        "channels-last",
        says=", ".join(
            f"{units.share(context.share(ns))}{' of the time' if not at else ''} {what}"
            for at, (ns, what) in enumerate(sorted(spent, reverse=True))
            if not at or context.share(ns) >= context.limits.worth_share
        ),
        suggests="model = model.to(memory_format=torch.channels_last); the same for the images",
        waste="cudnn.benchmark alone: the layout stays",
        confidence=0.75,
        saves=context.device_side(used.layout_ns + CONV_PART * used.nchw_ns + _norms_ns(context)),
        conv_share=context.share(used.conv_ns),
        nchw_share=context.share(used.nchw_ns),
        layout_share=context.share(used.layout_ns),
        channels_first_norm_share=context.share(used.nchw_other_ns),
    )


def channels_first_ns(context: Context) -> float:
    """Underfilled time of norms that `channels_last` is about: one block a channel, by design."""
    if channels_last(context) is None:
        return 0.0
    return sum(
        row.total_ns * row.underfilled_share
        for row in context.estimate.kernels
        if row.family in CHANNELED and traits_of(row.name) & Trait.NCHW
    )


def needless_copies(context: Context) -> Advisory | None:
    """A35: kernels that only move elements."""
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
        # Twice what layouts of attention were ever seen to need is not needed.
        confidence=0.75 if context.share(spent) >= 2 * context.limits.copying_share else 0.55,
        saves=context.removed(spent, context.facts.precision.copying_kernels),
        copying_share=context.share(spent),
    )


def inefficient_kernel(context: Context) -> Advisory | None:
    """A36: a full-grid memory kernel far under its roof.

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


def _memory_used(context: Context) -> float | None:
    """Largest share of device memory in use; None without readings."""
    total = context.facts.readings.mean(Metric.MEMORY_TOTAL_BYTES)
    used = context.facts.readings.largest.get(int(Metric.MEMORY_USED_BYTES))
    return used / total if total and used is not None else None


def activation_checkpointing(context: Context) -> Advisory | None:
    """A37: memory is full and bandwidth, not arithmetic, sets the pace."""
    used = _memory_used(context)
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
    """A38: activations are recomputed although memory is free."""
    spent, used = context.facts.recomputed_ns, _memory_used(context)
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


def embedding_sort(context: Context) -> Advisory | None:
    """A39: sorting and scattering indices."""
    spent = context.facts.precision.index_ns
    if context.share(spent) < context.limits.index_share or _dense_gradients(context) is not None:
        return None
    return advisory(
        context,
        "embedding-sort",
        says=f"{units.share(context.share(spent))} of the time sorts, gathers and scatters indices",
        suggests="nn.Embedding(..., sparse=True) with SparseAdam, or a fused embedding-bag kernel",
        waste="tensor-core settings: nothing here multiplies matrices",
        confidence=0.55,
        saves=context.device_side(spent / 2),
        index_share=context.share(spent),
    )


def _filled_bytes(context: Context, found: DenseGradients) -> float | None:
    """Bytes of zeros; None where the kernel's geometry does not tell its rate."""
    rows = (row for row in context.estimate.kernels if row.name == found.name)
    rates = [row.bytes_per_s for row in rows if row.bytes_per_s]
    return found.fill_ns * rates[0] / 1e9 if rates else None


def _dense_gradients(context: Context) -> Advisory | None:
    """A27: gradients of embedding tables, zeros but for the rows of the batch."""
    found = context.facts.dense_gradients
    if found is None or context.share(found.fill_ns) < context.limits.fill_share:
        return None
    size = _filled_bytes(context, found)
    if size is None or context.a_step(size) < FILL_BYTES:
        return None
    update = context.facts.optimizer
    applied = min(update.total_ns, UPDATE_PASSES * found.fill_ns) if update is not None else 0.0
    return advisory(
        context,
        "zero-grad-fill",
        says=f"{units.size(context.a_step(size))} {context.per} of embedding gradients are filled "
        "with zeros for the few rows that a batch reads, and the optimizer goes through all of "
        f"them: {units.share(context.share(found.fill_ns + applied))} of the time",
        suggests="nn.Embedding(..., sparse=True), these tables in torch.optim.SparseAdam (or SGD)",
        waste="a fused optimizer alone: it still goes through every row of every table",
        confidence=0.75,
        saves=context.device_side(found.fill_ns + applied),
        bytes_a_step=context.a_step(size),
        fill_share=context.share(found.fill_ns),
        update_share=context.share(applied),
    )


def zero_grad_fill(context: Context) -> Advisory | None:
    """A27: large buffers are filled with zeros every step."""
    dense = _dense_gradients(context)
    if dense is not None:
        return dense
    moved = context.facts.transfers
    if context.share(moved.set_ns) < context.limits.fill_share:
        return None
    if context.a_step(moved.set_bytes) < FILL_BYTES:
        return None
    return advisory(
        context,
        "zero-grad-fill",
        says=f"{units.size(context.a_step(moved.set_bytes))} {context.per} are set to zero",
        suggests="optimizer.zero_grad(set_to_none=True)",
        confidence=0.55,
        saves=context.device_side(moved.set_ns),
        bytes_a_step=context.a_step(moved.set_bytes),
    )
