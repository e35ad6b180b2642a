"""Rules about time spent moving bytes on the device."""

from brrrtop.advisories.context import Context
from brrrtop.advisories.registry import MEMORY, Finding, edit, finding, rule
from brrrtop.advisories.rules.overhead import ROOMY, compile_line
from brrrtop.analysis.facts.table import of_sequences
from brrrtop.analysis.facts.training import dense_gradients
from brrrtop.kernel_names.traits import Role, Trait
from brrrtop.model.advice import WhatIf
from brrrtop.text import units
from collectors.vocabulary import CopyKind

CASTING = 0.125
"""Autocast over fp32 weights converts each weight once a step: 3-6 % is its price. With the logits of 50
thousand words into the loss (4.5 %) and what fp32 norms read (3 %) it is 12 % in two transformers on an
H200 in which nothing is wrong."""
COPYING = 0.12
"""Attention layouts need some copies: 7 % was seen in a healthy GPT."""
WEAK_ROOF, WEAK_SHARE = 0.3, 0.1
"""Share of the memory roof below which a full-grid kernel is inefficient; kernels with less of the wall
than the second cannot win 5 % by being padded."""
FULL = 0.9
"""Device memory in use: the batch cannot grow."""
RECOMPUTED = 0.03
"""Recomputing less buys memory for nothing."""
INDEXING = 0.15
"""One embedding's lookups and gradient take less."""
_WRITES = r"(?i)sort|scan|scatter|grad|backward|index_put|histogram|unique"
"""Of index kernels: those of an embedding's gradient, which orders places and adds rows up."""
FILLING, FILL_BYTES = 0.02, 64 << 20
"""Of the wall, and bytes a step: fewer zeros are workspaces."""
UPDATE_PASSES = 7
"""Of a table's size, in an Adam update: parameter, gradient and two moments read, three written. The
fill is one. Updates over lists of tensors make more, which are not counted."""


@edit(
    "fuse-pointwise", MEMORY, "Runs of unfused kernels", "compile",
    when=", and the GPU is at work most of the step",
    unless="norms with one pointwise kernel between products; runs beside the critical path; compiled runs",
    covers=("inefficient-kernel",),
)  # fmt: skip
def fuse_pointwise(context: Context, row: WhatIf) -> Finding | None:
    runs, line = context.chains, compile_line(context)
    if context.host_sets_the_pace or context.partly_compiled or context.serves:
        return None
    share = units.share(row.changed_share or 0.0)
    message = f"{share} of the time goes to kernels that torch.compile replaces"
    if row.now is not None and row.then is not None and row.then.kernels < row.now.kernels:
        message += f": {row.now.kernels:.0f} launches {context.per} become {row.then.kernels:.0f}"
    if runs is None or not runs.count:
        return finding(message, line, share=row.changed_share, changed_share=row.changed_share)
    return finding(
        f"{message}; fused ops read and write their tensors once",
        line,
        share=row.changed_share,
        changed_share=row.changed_share,
        chains_a_step=context.a_step(runs.count),
        longest=runs.longest,
        chain_share=context.share(runs.total_ns),
        chain=[name[:80] for name in runs.names],
    )


@edit(
    "channels-last", MEMORY, "Channels-first convolutions", "channels-last",
    unless="a few conversions in a channels-last model; convolutions and norms of sequences; norms "
    "without convolutions; Fourier transforms of the images",
)  # fmt: skip
def channels_last(context: Context, row: WhatIf) -> Finding | None:
    seen = context.facts
    if seen.named(r"_fft\b", seen.kernels).any():
        return None
    conv, layout = seen.is_role(Role.CONV), seen.is_role(Role.LAYOUT)
    first, images = seen.has(Trait.NCHW), ~of_sequences(seen)
    return finding(
        f"{units.share(row.changed_share or 0.0)} of the time goes to channels-first convolutions, the "
        "conversions around them and norms over them",
        "model = model.to(memory_format=torch.channels_last); the same for the images",
        share=row.changed_share,
        conv_share=context.spent(conv),
        nchw_share=context.spent(conv & first & images),
        layout_share=context.spent(layout & images),
    )


@rule(
    "cast-churn", MEMORY, "The same tensors converted again and again",
    when="conversions between float types take 12.5 % of the time",
    unless="one conversion of each weight a step, the price of autocast; arithmetic that converts what it "
    "reads; conversions that flash attention takes with it, or fusing: in its runs",
)  # fmt: skip
def cast_churn(context: Context) -> Finding | None:
    seen, runs = context.facts, context.chains
    casts = seen.kernels & seen.has(Trait.CAST)
    if context.attention is not None:
        casts[context.attention.rows] = False
    all_ns = seen.total_ns(casts)
    spent = max(all_ns - (runs.casting_ns if runs is not None else 0), 0)
    share = context.share(spent)
    if share < CASTING:
        return None
    return finding(
        f"{units.share(share)} of the time converts between float types",
        "keep the parameters in bf16 (model.to(torch.bfloat16)), or enter autocast once "
        "around the whole forward so that its weight cache works; no .float() before a loss, which "
        "computes in fp32 inside",
        confidence=0.6,
        saves=context.removed(spent, round(int(casts.sum()) * spent / max(all_ns, 1))),
        cast_share=share,
    )


@rule(
    "needless-copies", MEMORY, "Kernels that only move elements",
    when="contiguous(), cat and transposes take 12 % of the time",
    unless="the copies that attention layouts need; eager attention; conversions, which are cast-churn",
)  # fmt: skip
def needless_copies(context: Context) -> Finding | None:
    seen = context.facts
    moving = (seen.kernels & seen.has(Trait.COPYING)) | (
        seen.window.activities.copy_kinds == CopyKind.DTOD
    )
    moving &= ~seen.has(Trait.CAST)
    share = context.spent(moving)
    if context.attention is not None or share < COPYING:
        return None
    return finding(
        f"{units.share(share)} of the time only moves elements: contiguous(), cat, transposes",
        "write into a preallocated tensor instead of torch.cat, and drop .contiguous() "
        "where the next op takes strides",
        # At twice the threshold it is over three times what a healthy GPT needs (7 %).
        confidence=0.75 if share >= 2 * COPYING else 0.55,
        saves=context.removed(seen.total_ns(moving), int(moving.sum())),
        copying_share=share,
    )


@rule(
    "inefficient-kernel", MEMORY, "Far under the memory roof",
    when="a full-grid pointwise or softmax kernel with 10 % of the time under 30 % of the "
    "bandwidth, by bytes that are known",
    unless="norms, gathers and sorts, bound by latency; bytes guessed from names alone",
)  # fmt: skip
def inefficient_kernel(context: Context) -> Finding | None:
    """Norms and reductions are left out: their shapes are the model's, and nobody can pad a batch norm."""
    roof = context.ceilings.bytes_per_s if context.ceilings else None
    for row in context.estimate.kernels[:20]:
        share = context.share(row.total_ns)
        if share < WEAK_SHARE or not roof:
            return None
        known = row.bytes_per_s and row.evidence not in ("L0", "L1") and row.underfilled_share < 0.1
        reached = (row.bytes_per_s or 0.0) / roof
        if known and row.family in ("softmax", "elementwise", "activation") and reached < WEAK_ROOF:
            return finding(
                f"{row.family} kernels take {units.share(share)} of the time at "
                f"{units.share(reached)} of the memory bandwidth",
                "pad the innermost size to a multiple of 16 bytes, or use the fused op "
                "that PyTorch has for this",
                waste="fusing its neighbours first",
                confidence=0.55,
                saves=context.device_side(row.total_ns * (1 - reached / 0.9)),
                kernel=row.name,
                bandwidth_share=reached,
            )
    return None


@rule(
    "activation-checkpointing", MEMORY, "Bandwidth-bound and out of memory",
    when="over 90 % of the memory in use and more time on the memory side than in compute",
    unless="a compute-bound run, where recomputing costs real time; one that recomputes already",
)  # fmt: skip
def activation_checkpointing(context: Context) -> Finding | None:
    used, account = context.memory_used, context.estimate.account
    if used is None or used < FULL or context.recomputed_ns:
        return None
    if account.memory_ns < account.compute_ns:
        return None
    return finding(
        f"{units.share(used)} of the device memory is in use and bytes set the pace: "
        "recomputing cheap activations buys memory for little time",
        "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) around "
        "pointwise-heavy blocks",
        waste="offloading activations to the host: PCIe is slower still",
        confidence=0.6,
        memory_used_share=used,
        memory_share=context.share(account.memory_ns),
        compute_share=context.share(account.compute_ns),
    )


@rule(
    "remove-checkpointing", MEMORY, "Recomputing with memory to spare",
    when="forward kernels between backward ones take 3 % of the time, under 60 % of the memory used",
    unless="memory that peaks elsewhere, which the largest reading shows",
)  # fmt: skip
def remove_checkpointing(context: Context) -> Finding | None:
    spent, used = context.recomputed_ns or 0, context.memory_used
    if context.share(spent) < RECOMPUTED or (used is not None and used > ROOMY):
        return None
    kernels = context.facts.kernels
    part = min(spent, 0.33 * context.wall_ns) / max(context.facts.total_ns(kernels), 1)
    free = f" although {units.share(1 - used)} of the memory is free" if used is not None else ""
    return finding(
        f"the backward pass runs forward kernels again{free}",
        "if memory allows, switch activation checkpointing off, or keep it for the "
        "largest blocks only",
        confidence=0.65 if used is not None else 0.5,
        saves=context.removed(
            round(part * context.facts.total_ns(kernels)), round(part * kernels.sum())
        ),
        recomputed_share=context.share(spent),
        memory_used_share=used,
    )


@rule(
    "embedding-sort", MEMORY, "Sorting and scattering indices",
    when="index and sort kernels take 15 % of the time",
    unless="gradients of whole tables, which are zero-grad-fill",
)  # fmt: skip
def embedding_sort(context: Context) -> Finding | None:
    seen = context.facts
    rows = seen.is_role(Role.INDEX) & seen.kernels
    spent, share = seen.total_ns(rows), context.spent(rows)
    if share < INDEXING or _dense_gradients(context) is not None:
        return None
    reads = seen.total_ns(seen.named(_WRITES, rows)) < 0.1 * spent
    return finding(
        f"{units.share(share)} of the time "
        + ("gathers rows at indices" if reads else "sorts, gathers and scatters indices"),
        "gather fewer bytes: once for all who read them, in 16 bits, or by the kernel that "
        "uses the rows; of experts sort the tokens, and do not gather the weights"
        if reads
        else "nn.Embedding(..., sparse=True) with SparseAdam, or a fused embedding-bag kernel",
        waste="tensor-core settings: these kernels multiply no matrices",
        confidence=0.55,
        saves=context.device_side(spent / 2),
        index_share=share,
    )


@rule(
    "zero-grad-fill", MEMORY, "Large buffers set to zero every step",
    when="64 MiB a step or more are set to zero, in 2 % of the time: by memsets, or by fills for the "
    "gradient of a whole embedding table, which the optimizer then goes through",
    unless="small workspaces; zeros that no embedding asked for; one vocabulary beside large products",
)  # fmt: skip
def zero_grad_fill(context: Context) -> Finding | None:
    moved, dense = context.transfers, _dense_gradients(context)
    size = context.a_step(moved.set_bytes)
    if dense is not None or context.share(moved.set_ns) < FILLING or size < FILL_BYTES:
        return dense
    return finding(
        f"{units.size(size)} {context.per} are set to zero",
        "optimizer.zero_grad(set_to_none=True)",
        confidence=0.55,
        saves=context.device_side(moved.set_ns),
        bytes_a_step=size,
    )


def _dense_gradients(context: Context) -> Finding | None:
    """Gradients of embedding tables, zeros but for the rows of the batch."""
    fills, update = dense_gradients(context.facts), context.optimizer
    if fills is None or context.share(fills.fill_ns) < FILLING:
        return None
    # None where the kernel's geometry does not tell its rate.
    rates = [r.bytes_per_s for r in context.estimate.kernels if r.name == fills.name]
    size = context.a_step(fills.fill_ns * (next(filter(None, rates), 0.0)) / 1e9)
    if size < FILL_BYTES:
        return None
    applied = min(update.total_ns, UPDATE_PASSES * fills.fill_ns) if update is not None else 0.0
    return finding(
        f"{units.size(size)} {context.per} of embedding gradients are filled with zeros for the few "
        "rows that a batch reads, and the optimizer goes through all of them: "
        f"{units.share(context.share(fills.fill_ns + applied))} of the time",
        "nn.Embedding(..., sparse=True), these tables in torch.optim.SparseAdam (or SGD)",
        waste="stopping at a fused optimizer: it still goes through every row of every table",
        confidence=0.75,
        saves=context.device_side(fills.fill_ns + applied),
        bytes_a_step=size,
        fill_share=context.share(fills.fill_ns),
        update_share=context.share(applied),
    )
