"""Fewer kernels and launches: `torch.compile` (runs of kernels become one, convolutions go channels-last),
CUDA graphs (one launch forward and one backward) and a fused update."""

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.account.idle_causes import DISPATCH_NS, REFILL_NS
from brrrtop.kernel_names.traits import Role, Trait
from brrrtop.model.tables import F8, I8, Bool
from brrrtop.whatif.assumptions import (
    Assumptions,
    Roofs,
    after_wait,
    entries,
    model_nodes,
    moved_bytes,
    usual_call_ns,
)
from brrrtop.whatif.edits.layout_precision_attention import laid_out
from brrrtop.whatif.step import Step

CONTRACTIONS = (Role.GEMM, Role.CONV, Role.ATTENTION, Role.SKINNY)
_ANCHORS = (Role.NORM, Role.REDUCTION, Role.SOFTMAX, Role.LOSS)
"""Need whole rows or images before they can go on, so each keeps a pass of its own."""
_FUSABLE = (Role.POINTWISE, Role.POOL, Role.INDEX, *_ANCHORS)
BATCH_NORM_CALLS = 3.0
"""Kernels that a generated norm over batches is split into."""
ATOMIC_BYTES = 104.0
"""Bytes that a generated kernel moves in the time of the four additions to each element by the backward
pass of an interpolation between two rows and two columns: some 9 ps each on an H200."""
COMPILED = 0.5
"""Part of the time between contractions in generated kernels from which a step counts as compiled."""
UPDATE_LAUNCHES = 4
"""Of a fused update of some 150 tensors: 36 of each of four lists fit a launch (ATen's
MultiTensorApply.cuh)."""
UPDATE_PASSES = 0.4
"""Traffic of a fused Adam (7 accesses an element) over that of one over lists (some 18)."""


def compiled(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step with forward and backward compiled in the default mode; None: it is, or nothing would."""
    region = model_nodes(step)
    if not region.any() or is_compiled(step) or is_captured(step) or not roofs.has_triton:
        return None
    convolutions = step.kernels.is_role(Role.CONV)
    unknown = not np.isfinite(step.kernels.flop[convolutions]).any()
    fixed = (region & step.kernels.keeps_layout).any() or (unknown and guess.keeps_layout)
    laid = None if fixed else laid_out(step, roofs, guess)
    fused = _fuse(step if laid is None else laid[0].take(~laid[1]), roofs, guess)
    return _launch_times(step, fused, guess)


def is_compiled(step: Step) -> bool:
    """True if generated kernels do most of what can be fused already."""
    kernels = step.kernels
    region = model_nodes(step) & ~kernels.is_role(*CONTRACTIONS)
    made = step.device_ns[region & kernels.is_role(Role.FUSED)].sum()
    return bool(made > COMPILED * step.device_ns[region].sum())


def is_captured(step: Step) -> bool:
    """Whether CUDA graphs launch most of forward and backward: what they hold is not traced again."""
    region = model_nodes(step)
    return bool(2 * (region & step.kernels.captured).sum() > region.sum())


def _fuse(step: Step, roofs: Roofs, guess: Assumptions) -> Step:
    """The step with each run of fusable kernels as one, at the roof that a compiler reaches."""
    kernels = step.kernels
    fusable = model_nodes(step) & kernels.is_role(*_FUSABLE) & ~kernels.sorting
    fusable &= ~kernels.interpolating | np.isfinite(kernels.elements)
    order = np.flatnonzero(step.launches & ~kernels.is_role(Role.SET))
    backward = kernels.backward[order]
    turns = np.concatenate(([False], backward[1:] != backward[:-1]))
    first, size = _runs(fusable[order], _apart(step)[order] | turns)
    if not len(first):
        return step
    run = np.repeat(np.arange(len(first)), size)
    inside = np.arange(len(run)) - np.repeat(np.cumsum(size) - size, size)
    members = order[np.repeat(first, size) + inside]
    spent = np.bincount(run, step.device_ns[members], len(first))
    cost = _cost(step, members, run, len(first), roofs, guess)
    device = step.device_ns.copy()
    device[members] = 0.0
    lead = members[inside == 0]
    scattered = np.bincount(run, kernels.interpolating[members], len(first)) > 0
    device[lead] = np.where(scattered, cost, np.minimum(cost, spent))
    anchors = np.bincount(run, kernels.is_role(*_ANCHORS)[members], len(first))
    kept = np.ones(len(step), np.bool_)
    # As many launches stay as passes over whole rows, one at least.
    kept[members[inside >= np.maximum(anchors, 1)[run]]] = False
    roles = kernels.roles.copy()
    roles[lead[size > 1]] = int(Role.FUSED)
    edited = replace(step, device_ns=device, kernels=replace(kernels, roles=roles))
    return edited.take(kept)


def _apart(step: Step) -> Bool:
    """Launches before which the host waited, or did what no compiler takes over, in model order."""
    waits = np.concatenate(([0], np.cumsum(step.waits)[:-1]))
    up_to_launch = np.concatenate(([0], np.where(step.launches, waits, 0)[:-1]))
    after = step.launches & (waits > np.maximum.accumulate(up_to_launch))
    # In what marks name, or longer elsewhere than Python between two launches is.
    return np.asarray(after | (step.marked_ns > 0) | (step.before_ns > REFILL_NS))


def _runs(fusable: Bool, apart: Bool) -> tuple[I8, I8]:
    """First places and lengths of the runs: fusable nodes in a row, none of them apart from the last."""
    starts = fusable.copy()
    starts[1:] &= ~fusable[:-1] | apart[1:]
    first = np.flatnonzero(starts)
    number = np.cumsum(starts) - 1
    return first, np.bincount(number[fusable], minlength=len(first)).astype(np.int64)


def _cost(step: Step, members: I8, run: I8, runs: int, roofs: Roofs, guess: Assumptions) -> F8:
    """Time of each run as one kernel: what it must move, over the bandwidth that is reached.

    It goes once through the run's largest tensor, in the narrowest type that goes in or out; a norm over
    whole batches reads it again, for its statistics. Of the other operands a part stays, but in attention,
    whose scores have none.
    """
    kernels = step.kernels
    index = kernels.is_role(Role.INDEX)[members]
    size = moved_bytes(step, roofs, guess)[members]
    size = np.where(index & np.isnan(kernels.size_bytes[members]), 0.0, size)
    elements = kernels.elements[members]
    elements = np.where(np.isfinite(elements), elements, size / 4)
    largest, once = np.zeros(runs), np.full(runs, np.inf)
    np.maximum.at(largest, run, elements)
    weighty = elements > 0.5 * largest[run]
    np.minimum.at(once, run[weighty], size[weighty])
    batches = np.bincount(run, np.where(kernels.batch_norm[members], size, 0.0), runs)
    whole = np.maximum(once, guess.batch_norm_passes * batches)
    scores = np.bincount(run, kernels.is_role(Role.SOFTMAX)[members], runs) > 0
    others = np.where(scores, 0.0, np.maximum(np.bincount(run, size, runs) - once, 0.0))
    moved = whole + guess.extra_operands * others
    added = np.where(kernels.interpolating[members], elements, 0.0)
    moved += ATOMIC_BYTES * np.bincount(run, added, runs)
    time = moved / (roofs.bytes_per_s * guess.fused_roof) * 1e9
    gathered = np.bincount(run, np.where(index, step.device_ns[members], 0.0), runs)
    least = np.maximum(guess.index_time * gathered, guess.kernel_floor_ns)
    return np.asarray(np.maximum(time, least))


def _launch_times(eager: Step, step: Step, guess: Assumptions) -> Step:
    """Forward and backward launched by generated code, one entry each.

    A generated call costs the host about as much as an eager one of the same model, with guards and
    wrappers: what is won is that there are fewer.
    """
    region = model_nodes(step)
    opens, turns = entries(step, region)
    inner = region & ~opens & ~after_wait(step) & (step.before_ns - step.marked_ns <= REFILL_NS)
    usual = usual_call_ns(eager)
    calls = np.where(step.kernels.batch_norm, BATCH_NORM_CALLS, 1.0)
    spent = step.marked_ns + calls * np.maximum(usual * guess.compiled_launch - step.call_ns, 0.0)
    before = np.where(inner, spent, step.before_ns)
    before = before + np.where(opens | turns, guess.compiled_entry_ns, 0.0)
    return replace(step, before_ns=before)


def reduce_overhead(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step compiled with `mode="reduce-overhead"`; a compiled one as it is, in CUDA graphs."""
    if is_captured(step):
        return None
    generated = step if is_compiled(step) else compiled(step, roofs, guess)
    return None if generated is None else captured(generated, guess)


def captured(step: Step, guess: Assumptions) -> Step:
    """Forward and backward as one launch each."""
    region = model_nodes(step)
    opens, turns = entries(step, region)
    inner = region & ~opens & ~turns
    launching = (inner | turns) & (step.before_ns - step.marked_ns <= REFILL_NS)
    before = np.where(launching, step.marked_ns, step.before_ns)
    before = before + np.where(opens | turns, guess.compiled_entry_ns, 0.0)
    return replace(
        step,
        before_ns=before,
        call_ns=np.where(inner, 0.0, step.call_ns),
        gap_ns=np.where(inner & (step.gap_ns <= DISPATCH_NS), guess.graph_node_ns, step.gap_ns),
    )


def fused_optimizer(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step with `fused=True`; None where the update is fused, or none is seen."""
    kernels = step.kernels
    fused = kernels.has(Trait.FUSED_STEP)
    update = kernels.fusable & step.launches & kernels.is_role(Role.OPTIMIZER, Role.POINTWISE)
    many = int(update.sum()) / step.count > UPDATE_LAUNCHES
    if fused.any() or not many:
        return None
    host = np.where(update, step.before_ns + step.call_ns, 0.0)
    at = np.flatnonzero(update)
    kept = at[np.linspace(0, len(at) - 1, min(len(at), UPDATE_LAUNCHES * step.count)).astype(int)]
    before, call = step.before_ns.copy(), step.call_ns.copy()
    device, gap = step.device_ns.copy(), step.gap_ns.copy()
    share = guess.fused_optimizer_host / len(kept)
    total_host, total_device = host.sum(), device[update].sum()
    before[update] = call[update] = device[update] = gap[update] = 0.0
    before[kept] = total_host * share
    device[kept] = np.maximum(total_device * UPDATE_PASSES / len(kept), guess.kernel_floor_ns)
    keep = ~update
    keep[kept] = True
    return replace(step, before_ns=before, call_ns=call, device_ns=device, gap_ns=gap).take(keep)
