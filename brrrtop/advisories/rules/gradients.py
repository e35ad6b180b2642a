"""Rules about embedding tables: indices, and gradients that are zeros but for a batch's rows."""

from __future__ import annotations

from brrrtop.advisories.context import Context, advisory
from brrrtop.analysis.signals.embeddings import DenseGradients
from brrrtop.model.advice import Advisory
from brrrtop.text import units

FILL_BYTES = 64 << 20
"""Bytes set to zero a step from which it shows."""
UPDATE_PASSES = 7
"""Of a table's size, in an Adam update: parameter, gradient and two moments read, three written. The
fill is one. Updates over lists of tensors make more, which are not counted."""


def embedding_sort(context: Context) -> Advisory | None:
    """Sorting and scattering indices."""
    spent = context.facts.precision.index_ns
    if context.share(spent) < context.limits.index_share or dense_gradients(context) is not None:
        return None
    reads = context.facts.precision.looked_up_ns > 0.9 * spent
    return advisory(
        context,
        "embedding-sort",
        says=f"{units.share(context.share(spent))} of the time "
        + ("gathers rows at indices" if reads else "sorts, gathers and scatters indices"),
        suggests="gather fewer bytes: once for all who read them, in 16 bits, or by the kernel that "
        "uses the rows; of experts sort the tokens, and do not gather the weights"
        if reads
        else "nn.Embedding(..., sparse=True) with SparseAdam, or a fused embedding-bag kernel",
        waste="tensor-core settings: these kernels multiply no matrices",
        confidence=0.55,
        saves=context.device_side(spent / 2),
        index_share=context.share(spent),
    )


def _filled_bytes(context: Context, found: DenseGradients) -> float | None:
    """Bytes of zeros; None where the kernel's geometry does not tell its rate."""
    rows = (row for row in context.estimate.kernels if row.name == found.name)
    rates = [row.bytes_per_s for row in rows if row.bytes_per_s]
    return found.fill_ns * rates[0] / 1e9 if rates else None


def dense_gradients(context: Context) -> Advisory | None:
    """Gradients of embedding tables, zeros but for the rows of the batch."""
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
        waste="stopping at a fused optimizer: it still goes through every row of every table",
        confidence=0.75,
        saves=context.device_side(found.fill_ns + applied),
        bytes_a_step=context.a_step(size),
        fill_share=context.share(found.fill_ns),
        update_share=context.share(applied),
    )


def zero_grad_fill(context: Context) -> Advisory | None:
    """Large buffers are filled with zeros every step."""
    dense = dense_gradients(context)
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
