"""What kernels' names show of a training step: runs of unfused kernels, updates, recomputation, embeddings.

A run of consecutive memory-side kernels on a stream is broken by anything that is no pointwise, norm,
reduction or softmax kernel; `brrrtop.whatif` says what fusing them wins. The optimizer's update runs per
parameter, in lists (foreach), or in one kernel (fused). Activation checkpointing makes the backward pass
repeat the forward one. Gradients of embedding tables that are kept dense are a whole table of zeros for the
few rows that were read: Autograd fills the gradient of the table with zeros (`at::zeros`, a kernel and no
memset), then adds the rows of the batch into it: at most a sort and seven kernels later (ATen's Embedding.cu
and EmbeddingBackwardKernel.cu). The optimizer goes through all of it.
"""

import re

import numpy as np
from msgspec import Struct

from brrrtop.analysis.facts.table import Facts
from brrrtop.kernel_names.traits import Role, Trait, used
from brrrtop.model import intervals
from brrrtop.model.tables import I8, Bool, edges
from collectors.vocabulary import MarkClass

_STEP = re.compile(r"Optimizer\.step#(\w+)\.step")
"""torch.optim names the range of an update after the optimizer's class."""
FUSED_OPTIMIZERS = ("Adam", "AdamW", "SGD", "Adagrad")
"""Of torch.optim with `fused` on CUDA (its documentation, 2.11)."""
NEAR_KERNELS = 12
"""From the fill to the kernel that adds rows, at most; memsets of the sort not counted."""
_FILL = r"FillFunctor<"
_ADDS_ROWS = r"compute_grad_weight|embedding_backward|sum_and_scatter|EmbeddingBag_acc"
_MEMBERS = (Role.POINTWISE, Role.NORM, Role.REDUCTION, Role.SOFTMAX, Role.LOSS)


class Optimizer(Struct, frozen=True):
    updates: int | None
    """Optimizer steps seen; None without marks."""
    kernels: int
    total_ns: int
    """Kernel time."""
    host_ns: int | None
    """Host time in its ranges; None without marks."""
    span_ns: int
    """Their time on the device with the gaps between neighbours."""
    kind: str | None = None
    """Class of the optimizer, as `SGD`; None where nobody names it, or several differ."""


def optimizer(facts: Facts) -> Optimizer | None:
    starts, ends = facts.window.marks.union(MarkClass.OPTIMIZER)
    ranged = bool(len(starts)) and bool(facts.in_optimizer.any())
    rows = facts.in_optimizer & facts.kernels
    if not ranged and not _believable(facts, rows):
        rows = facts.kernels & facts.is_role(Role.OPTIMIZER)
    if not rows.any():
        return None
    low, high = intervals.clip(starts, ends, facts.window.span.t0_ns, facts.window.span.t1_ns)
    return Optimizer(
        updates=len(starts) if ranged else None,
        kernels=int(rows.sum()),
        total_ns=facts.total_ns(rows),
        host_ns=intervals.total(low, high) if ranged else None,
        span_ns=_span_ns(facts, rows),
        kind=_kind(facts),
    )


def _kind(facts: Facts) -> str | None:
    window = facts.window
    ids = used(window.marks.name_ids, window.marks.classes == MarkClass.OPTIMIZER)
    kinds = {hit[1] for i in ids if (hit := _STEP.match(window.names[i]))}
    kinds = kinds & {*FUSED_OPTIMIZERS} or kinds
    return kinds.pop() if len(kinds) == 1 else None


def has_fused_form(facts: Facts) -> Bool:
    """Rows of updates, but for those of an optimizer that is known by name and has no fused form."""
    marks, names = facts.window.marks, facts.window.names
    ids = used(marks.name_ids, marks.classes == MarkClass.OPTIMIZER)
    named = {i: hit[1] for i in ids if (hit := _STEP.match(names[i]))}
    without = [i for i, kind in named.items() if kind not in FUSED_OPTIMIZERS]
    starts, ends = marks.take(np.isin(marks.name_ids, without)).union(MarkClass.OPTIMIZER)
    return facts.in_optimizer & (intervals.holders(starts, ends, facts.launched_ns) < 0)


def _believable(facts: Facts, rows: Bool) -> bool:
    """Whether rows without ranges are an update per parameter, not clipping or logging: a tenth of them
    are parts of Adam's. Beside a fused update those are the model's own, as of a recurrent cell's states."""
    if (
        not rows.any()
        or (rows & facts.has(Trait.FOREACH)).any()
        or facts.has(Trait.FUSED_STEP).any()
    ):
        return False
    parts = rows & facts.has(Trait.ADAM_PART) & ~facts.is_role(Role.FUSED)
    return bool(parts.sum() * 10 >= rows.sum())


def _span_ns(facts: Facts, rows: Bool) -> int:
    """Kernel time of `rows` and the gaps between neighbours of them, not those to other work."""
    at = np.flatnonzero(rows)
    activities = facts.window.activities
    near = np.diff(at) == 1
    gaps = (activities.starts_ns[at[1:]] - activities.ends_ns[at[:-1]])[near]
    return facts.total_ns(rows) + int(np.maximum(gaps, 0).sum())


def _bursts(facts: Facts) -> I8:
    """Number of the traced span of each activity; all 0 when everything was traced."""
    starts = facts.window.activities.starts_ns
    observed = facts.window.observed
    if observed is None:
        return np.zeros(len(starts), np.int64)
    return np.searchsorted(edges(observed)[0], starts, "right")


def recomputed_ns(facts: Facts, steps: float | None) -> int | None:
    """Time of forward work that runs again between backward work; None where names do not tell.

    Attention and norm kernels say which pass they are of. A step has one long run of forward ones
    and then backward ones; with checkpointing each block's few forward kernels come again before
    its backward ones: runs of at most half the longest, at least three for each long one.

    Args:
        steps: Steps in it; None when unknown. Each has its long run, else a long one is an accident.
    """
    at = np.flatnonzero(facts.is_role(Role.ATTENTION, Role.NORM) & facts.kernels)
    back = facts.has(Trait.BACKWARD)[at]
    if not back.any() or back.all():
        return None
    cut = np.diff(_bursts(facts)[at]) != 0
    edges = np.flatnonzero((np.diff(back.astype(np.int64)) != 0) | cut) + 1
    first, stop = np.concatenate(([0], edges)), np.concatenate((edges, [len(back)]))
    forward, lengths = ~back[first], stop - first
    # A run cut at the edge of what was traced may be longer than it looks.
    loose = np.concatenate(([True], cut, [True]))
    most = int(lengths[forward].max())
    long = forward & (lengths > most // 2)
    short = forward & ~long & ~loose[first] & ~loose[stop]
    whole, runs = int(long.sum()), int(short.sum())
    if most < 4 or whole < (0.5 * steps if steps else 2) or runs < 3 * whole:
        return 0
    # A kernel of known pass stands for those up to the next one, its block's products among them.
    running = np.cumsum(np.where(facts.kernels, facts.durations_ns, 0))[at]
    within = np.repeat(long, lengths)
    each_ns = float(np.median(np.diff(running)[within[1:] & within[:-1]]))
    again = int(lengths[short].sum())
    # What a step recomputes first hides in its long run: forward kernels beyond the backward ones.
    names = facts.window.activities.name_ids[at]
    twice = int((~back).sum()) - int(np.bincount(names[back]).max())
    return int(each_ns * min(max(twice, again), again * (1 + whole / runs)))


class DenseGradients(Struct, frozen=True):
    """Fills of whole tables in the window."""

    fill_ns: int
    name: str
    """Of the fill that takes the most time."""


def dense_gradients(facts: Facts) -> DenseGradients | None:
    """Tables filled with zeros right before an embedding's rows are added; None where none was."""
    kernels = np.flatnonzero(facts.kernels)
    at = np.flatnonzero(facts.named(_FILL)[kernels])
    rows = np.flatnonzero(facts.named(_ADDS_ROWS)[kernels])
    following = np.searchsorted(rows, at)
    near = np.append(rows, len(kernels) + NEAR_KERNELS)[following] - at <= NEAR_KERNELS
    # Of several fills before one embedding, the nearest is the table.
    near[:-1] &= following[1:] != following[:-1]
    fills = kernels[at[near]]
    if not len(fills):
        return None
    lengths, window = facts.durations_ns[fills], facts.window
    largest = int(fills[int(np.argmax(lengths))])
    return DenseGradients(int(lengths.sum()), window.names[window.activities.name_ids[largest]])


class Chains(Struct, frozen=True):
    count: int
    kernels: int
    total_ns: int
    casting_ns: int
    """Conversions in runs: fused, they cost nothing of their own."""
    longest: int
    fused_ns: int
    """Kernels that a compiler has fused already."""
    names: tuple[str, ...]
    """Of the run that takes the most time, in order, at most eight."""


def chains(facts: Facts, excluded: Bool) -> Chains | None:
    """All chains of the window; None when no kernel ran.

    Args:
        excluded: Rows that another fix covers (eager attention, the optimizer): they break chains.
    """
    if not facts.kernels.any():
        return None
    window = facts.window
    activities, no_set = window.activities, ~facts.is_role(Role.SET)
    order = np.lexsort((activities.starts_ns, activities.stream_ids))
    order = order[no_set[order]]
    inside = (facts.is_role(*_MEMBERS) & facts.kernels & ~excluded)[order]
    streams = activities.stream_ids[order]
    breaks = np.ones(len(order) + 1, np.bool_)
    breaks[1:-1] = (inside[1:] != inside[:-1]) | (streams[1:] != streams[:-1])
    edges = np.flatnonzero(breaks)
    first, stop = edges[:-1], edges[1:]
    kept = inside[first] & (stop - first >= 2)
    first, stop = first[kept], stop[kept]
    fused_ns = facts.total_ns(facts.is_role(Role.FUSED))
    if not len(first):
        return Chains(0, 0, 0, 0, 0, fused_ns, ())

    def sums(values: I8) -> I8:
        running = np.concatenate(([0], np.cumsum(values[order])))
        return np.asarray(running[stop] - running[first], np.int64)

    total = sums(facts.durations_ns)
    largest = int(np.argmax(total))
    rows = order[first[largest] : stop[largest]][:8]
    return Chains(
        count=len(first),
        kernels=int((stop - first).sum()),
        total_ns=int(total.sum()),
        casting_ns=int(sums(np.where(facts.has(Trait.CAST), facts.durations_ns, 0)).sum()),
        longest=int((stop - first).max()),
        fused_ns=fused_ns,
        names=tuple(window.names[i] for i in window.activities.name_ids[rows]),
    )
