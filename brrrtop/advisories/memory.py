"""Rules about time spent moving bytes on the device. A-numbers: regime-theory, section 4.2."""

from __future__ import annotations

from brrrtop import units
from brrrtop.advisories.context import Context, advisory
from brrrtop.advisories.gradients import dense_gradients
from brrrtop.estimator.chains import Chains
from brrrtop.estimator.traits import Trait, traits_of
from brrrtop.model import Advisory, Regime
from collectors.wire import Metric

CONV_PART = 0.3
"""Part of a channels-first convolution that its layout can cost beside the conversions (A34)."""
NORM_BACKWARD = 2.0
"""Of the forward kernels of a norm written out, its backward ones: each reads a gradient and an input
and writes a gradient. A transformer with layer norms in fp32 took 2.8 times as long on an H200."""
SHORT_NS = 4_000
"""A kernel of an H200 takes 1 to 2 us with nothing to do: shorter than twice that, its bytes are not
what it takes time for (A30)."""
CHANNELED = frozenset({"norm", "pool"})
"""Families with kernels of their own for each memory format."""


def _fusing(context: Context) -> float:
    """Most of the wall that fusing runs of pointwise kernels can win; 0 where there are none to fuse.

    Nothing, too, where bare copies take longer than all kernels: hidden behind those, as they should
    be, they still set the pace.
    """
    found, account = context.facts.chains, context.estimate.account
    if found is None or not found.count or 2 * account.exposed_copy_ns > account.worked_ns:
        return 0.0
    apart = needless_copies(context) is not None  # which has the copies, in chains or out of them
    saved = context.device_side(found.left_ns if apart else found.fusable_ns)
    limits = context.limits
    long = found.length_p50 >= limits.chain_length
    least = limits.chain_waiting if context.waiting > limits.mostly_waiting else limits.chain_share
    moving = context.estimate.regime in (Regime.MEMORY, Regime.MIXED)
    strong = limits.moving_chain if moving else limits.strong_chain
    return saved if saved >= least and (long or saved >= strong) else 0.0


def _is_in_runs(context: Context, saves: float) -> bool:
    """Whether what has a cause of its own is but a small part of the runs that fusing takes whole."""
    return saves < context.limits.named_part * _fusing(context)


def _norms_written_out(context: Context) -> float:
    """Most of the wall that a norm of one kernel can win; 0 where none is written out."""
    spent = context.facts.eager_norm_ns
    if context.share(spent) < context.limits.norm_share:
        return 0.0
    backward = NORM_BACKWARD if context.facts.optimizer is not None else 0.0
    saves = context.device_side(0.75 * spent * (1 + backward))
    return 0.0 if _is_in_runs(context, saves) else saves


def _casting(context: Context) -> tuple[float, float]:
    """Most of the wall that keeping one type can win, and the conversions' share; else zeros."""
    used, runs = context.facts.precision, context.facts.chains
    spent = used.cast_ns
    saves = context.removed(spent, used.cast_kernels)
    if runs is not None and _is_in_runs(context, saves):
        spent = max(spent - runs.casting_ns, 0)
        saves = context.removed(spent, round(used.cast_kernels * spent / max(used.cast_ns, 1)))
    share = context.share(spent)
    return (saves, share) if share >= context.limits.cast_share else (0.0, 0.0)


def fuse_pointwise(context: Context) -> Advisory | None:
    """A30: runs of unfused pointwise kernels, each reading what the one before wrote.

    A norm or conversions that make up most of them have advice of their own: this is about the rest.
    """
    found, whole = context.facts.chains, _fusing(context)
    if found is None or not whole:
        return None
    named = {"norms": _norms_written_out(context), "conversions": 0.0}
    if found.casting_ns:
        casts, share = _casting(context)
        named["conversions"] = (
            casts * min(context.share(found.casting_ns) / share, 1) if share else 0
        )
    parts = [
        name for name, part in named.items() if part and part >= whole * context.limits.named_part
    ]
    saved = whole - sum(named[name] for name in parts)
    if saved < context.limits.chain_share:
        return None
    long = found.length_p50 >= context.limits.chain_length
    beside = f" ({' and '.join(parts)} not counted in what it saves)" if parts else ""
    short = found.total_ns < SHORT_NS * found.kernels
    return advisory(
        context,
        "fuse-pointwise",
        says=f"{units.share(context.share(found.total_ns))} of the time goes to runs of unfused "
        f"kernels, typically {found.length_p50:.0f} pointwise ones in a row: "
        f"{_each_costs(context, found)}{beside}",
        suggests="torch.compile the block, or one Triton kernel for the run",
        waste="a faster GPU, or fewer bytes: the kernels would take as long"
        if short
        else "TF32, tensor cores or a GPU with more FLOPS: these kernels move bytes",
        confidence=0.9 if long and saved >= 2 * context.limits.chain_share else 0.6,
        saves=saved,
        chains_a_step=context.a_step(found.count),
        chain_length_p50=found.length_p50,
        longest=found.longest,
        chain_share=context.share(found.total_ns),
        chain=[name[:80] for name in found.names],
    )


def _each_costs(context: Context, found: Chains) -> str:
    if found.total_ns < SHORT_NS * found.kernels:
        return "each takes its few microseconds however little it moves"
    return "each reads and writes the whole tensor again"


def fused_norm(context: Context) -> Advisory | None:
    """A31: a norm written out in pointwise kernels and means."""
    saves = _norms_written_out(context)
    if not saves:
        return None
    share = context.share(context.facts.eager_norm_ns)
    trained = context.facts.optimizer is not None
    return advisory(
        context,
        "fused-norm",
        says=f"a norm written out (square, mean, root, multiply) takes {units.share(share)} of the "
        f"time{' forward, and backward about twice that' if trained else ''}",
        suggests="torch.nn.functional.rms_norm(x, x.shape[-1:], weight) or nn.LayerNorm",
        waste="a GPU with more FLOPS: a norm moves bytes",
        confidence=0.7,
        saves=saves,
        norm_share=share,
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
    fused = context.facts.chains if _fusing(context) else None
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
    """A33: autocast converts the same tensors again and again."""
    saves, share = _casting(context)
    if not saves:
        return None
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
            part = max(context.facts.vacant.get(row.name, 0.0), CONV_PART)
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
        # At twice the threshold it is over three times what a healthy GPT needs (7 %).
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


def memory_used(context: Context) -> float | None:
    """Largest share of device memory in use; None without readings."""
    total = context.facts.readings.mean(Metric.MEMORY_TOTAL_BYTES)
    used = context.facts.readings.largest.get(int(Metric.MEMORY_USED_BYTES))
    return used / total if total and used is not None else None


def activation_checkpointing(context: Context) -> Advisory | None:
    """A37: memory is full and bandwidth, not arithmetic, sets the pace."""
    used = memory_used(context)
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
    spent, used = context.facts.recomputed_ns, memory_used(context)
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
