"""All rules over one window, ranked by what they can win. Every rule is asked; most abstain."""

from __future__ import annotations

from collections.abc import Callable

from brrrtop.advisories import (
    absences,
    compute,
    copies,
    distributed,
    gradients,
    grids,
    host,
    hygiene,
    memory,
    overhead,
)
from brrrtop.advisories.context import Context
from brrrtop.advisories.steady import rank
from brrrtop.advisories.thresholds import DEFAULT, Thresholds
from brrrtop.estimator.estimate import Judged
from brrrtop.estimator.facts import facts
from brrrtop.model import Advisory

Rule = Callable[[Context], Advisory | None]

GATES: tuple[Rule, ...] = (hygiene.warming_up, hygiene.records_lost)
"""When one of these speaks, nothing else does."""

RULES: tuple[Rule, ...] = (
    overhead.dataloader_stall,
    overhead.launch_bound_compile,
    overhead.sync_point,
    overhead.cuda_graphs,
    overhead.fused_optimizer,
    absences.host_stall,
    copies.pin_memory,
    copies.overlap_copies,
    copies.readback_traffic,
    grids.underfilled_kernels,
    grids.bigger_batch,
    host.recompilation,
    host.gc_pause,
    host.allocator_retries,
    host.allocation_churn,
    host.checkpoint_stall,
    host.logging_stall,
    host.evaluation_stall,
    host.python_overhead,
    host.graph_breaks,
    memory.fuse_pointwise,
    memory.fused_norm,
    memory.low_precision_storage,
    memory.cast_churn,
    memory.channels_last,
    memory.needless_copies,
    memory.inefficient_kernel,
    memory.activation_checkpointing,
    memory.remove_checkpointing,
    gradients.embedding_sort,
    gradients.zero_grad_fill,
    compute.enable_tf32_or_amp,
    compute.use_bf16,
    compute.tensor_core_alignment,
    compute.flash_attention,
    compute.fusion_ceiling,
    compute.skinny_products,
    compute.cudnn_benchmark,
    compute.double_precision,
    distributed.exposed_communication,
    distributed.tiny_collectives,
    hygiene.misleading_util,
    hygiene.throttled,
    hygiene.idle_clocks,
    hygiene.shared_gpu,
    hygiene.gpu_faults,
    hygiene.monitor_cost,
    hygiene.intensity_tie_breaker,
)

COVERED: dict[str, tuple[str, ...]] = {
    "launch-bound-compile": ("underfilled-kernels",),
    "enable-tf32-or-amp": ("low-precision-storage", "cudnn-benchmark"),
    "use-bf16": ("low-precision-storage",),
    "fuse-pointwise": ("inefficient-kernel",),
    "flash-attention": ("inefficient-kernel", "needless-copies", "fusion-ceiling"),
    "shared-gpu": ("misleading-util", "inefficient-kernel"),
}
"""Advice that another one includes: shown once, as the larger."""


def advise(judged: Judged, thresholds: Thresholds = DEFAULT) -> tuple[Advisory, ...]:
    """Advice on one window: largest bound times confidence first, what saves nothing last.

    Args:
        judged: The verdict, with the window it is about.
        thresholds: Limits of the rules.
    """
    if not len(judged.window.activities):
        return ()
    return advise_on(
        Context(
            estimate=judged.estimate,
            facts=facts(judged.window, judged.estimate, judged.call_rows),
            limits=thresholds,
            ceilings=judged.ceilings,
        )
    )


def advise_on(context: Context) -> tuple[Advisory, ...]:
    """The same, for a context that exists already: all rules, gates first."""
    for gate in GATES:
        found = gate(context)
        if found is not None:
            return (found,)
    given = [a for rule in RULES if (a := rule(context)) is not None]
    sure = [a for a in given if a.confidence >= context.limits.confidence]
    kinds = {a.kind for a in sure}
    covered = {kind for over in kinds for kind in COVERED.get(over, ())}
    sure = [a for a in sure if a.kind not in covered]
    if not any(_matters(a, context.limits) for a in sure):
        healthy = hygiene.none_healthy(context)
        if healthy is not None:
            sure.append(healthy)
    return tuple(sorted(sure, key=rank))


def _matters(advisory: Advisory, limits: Thresholds) -> bool:
    """Whether a run with this advice can no longer be called healthy."""
    saved = advisory.saves_at_most or 0.0
    return saved > 0 and (advisory.confidence > limits.confidence or saved >= limits.large_share)
