"""All advice on one window: edits whose simulated gain is worth it, and what no edit stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from brrrtop.advisories.context import Context
from brrrtop.advisories.rules import (
    absences,
    compute,
    copies,
    data_quality,
    distributed,
    gradients,
    host,
    memory,
    overhead,
)
from brrrtop.advisories.rules.edits import edit_advice
from brrrtop.advisories.steady import rank
from brrrtop.advisories.thresholds import DEFAULT, Thresholds
from brrrtop.analysis.estimate import Analysis
from brrrtop.analysis.signals.facts import facts
from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.whatif.price import priced

Rule = Callable[[Context], Advisory | None]

GATES: tuple[Rule, ...] = (data_quality.warming_up, data_quality.records_lost)
"""When one of these speaks, nothing else does."""

RULES: tuple[Rule, ...] = (
    overhead.dataloader_stall,
    overhead.sync_point,
    absences.host_stall,
    copies.readback_traffic,
    host.recompilation,
    host.gc_pause,
    host.allocator_retries,
    host.allocation_churn,
    host.checkpoint_stall,
    host.logging_stall,
    host.evaluation_stall,
    host.python_overhead,
    host.graph_breaks,
    memory.low_precision_storage,
    memory.cast_churn,
    memory.needless_copies,
    memory.inefficient_kernel,
    memory.activation_checkpointing,
    memory.remove_checkpointing,
    gradients.embedding_sort,
    gradients.zero_grad_fill,
    compute.tensor_core_alignment,
    compute.fusion_ceiling,
    compute.skinny_products,
    compute.cudnn_benchmark,
    compute.double_precision,
    distributed.tiny_collectives,
    data_quality.misleading_util,
    data_quality.throttled,
    data_quality.idle_clocks,
    data_quality.shared_gpu,
    data_quality.gpu_faults,
    data_quality.monitor_cost,
    data_quality.intensity_tie_breaker,
)

COVERED: dict[str, tuple[str, ...]] = {
    "enable-tf32-or-amp": ("low-precision-storage", "cudnn-benchmark"),
    "use-bf16": ("low-precision-storage",),
    "fuse-pointwise": ("inefficient-kernel",),
    "fused-norm": ("inefficient-kernel",),
    "flash-attention": ("inefficient-kernel", "needless-copies", "fusion-ceiling"),
    "shared-gpu": ("misleading-util", "inefficient-kernel"),
}
"""Advice that another one includes: shown once, as the larger."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What a window is told, and every edit that was simulated for it."""

    given: tuple[Advisory, ...] = ()
    """Largest gain first, what saves nothing last."""
    whatif: tuple[WhatIf, ...] = ()
    """Best first, worthwhile or not."""
    after: tuple[WhatIf, ...] = ()
    """The first of `whatif` with one more edit after it."""


def advise(judged: Analysis, thresholds: Thresholds = DEFAULT) -> Advice:
    """Advice on one window.

    Args:
        judged: The verdict, with the window it is about.
        thresholds: Limits of the rules.
    """
    if not len(judged.window.activities):
        return Advice()
    return advise_on(
        Context(
            estimate=judged.estimate,
            facts=facts(judged.window, judged.estimate, judged.call_rows),
            limits=thresholds,
            ceilings=judged.ceilings,
            # On a GPU that another process has turns of no time is this trainer's alone.
            priced=priced(judged) if judged.window.turns is None else None,
        )
    )


def advise_on(context: Context) -> Advice:
    """The same, for a context that exists already: gates first, then edits, then rules."""
    for gate in GATES:
        found = gate(context)
        if found is not None:
            return Advice((found,))
    named = dict(edit_advice(context))
    edits = {one.kind: one for one in named.values()}
    others = [a for rule in RULES if (a := rule(context)) is not None and a.kind not in edits]
    sure = [a for a in others if a.confidence >= context.limits.confidence]
    covered = {kind for over in (*edits, *(a.kind for a in sure)) for kind in COVERED.get(over, ())}
    given = [a for a in (*edits.values(), *sure) if a.kind not in covered]
    if not any((a.saves or a.saves_at_most or 0.0) >= context.limits.healthy_gain for a in given):
        healthy = data_quality.none_healthy(context)
        if healthy is not None:  # "stop tuning" beside an edit of 3 % would be two verdicts
            named = {}
            given = [a for a in given if a.kind not in edits] + [healthy]
    rows = tuple(
        replace(row, advisory=named[row.edit].kind if row.edit in named else None)
        for row in context.rows
    )
    after = context.priced.following if context.priced else ()
    return Advice(tuple(sorted(given, key=rank)), rows, after)
