"""CUDA graphs: the host launches forward and backward once each, nodes follow on the device."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.account.idle_causes import DISPATCH_NS, REFILL_NS
from brrrtop.whatif.assumptions import Assumptions
from brrrtop.whatif.edits.fusing import compiled, is_captured, is_compiled
from brrrtop.whatif.regions import entries, model_nodes
from brrrtop.whatif.roofs import Roofs
from brrrtop.whatif.step import Step


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
    named = sum(step.named_ns.values(), np.zeros(len(step)))
    launching = (inner | turns) & (step.before_ns - named <= REFILL_NS)
    before = np.where(launching, named, step.before_ns)
    before = before + np.where(opens | turns, guess.graph_entry_ns, 0.0)
    return replace(
        step,
        before_ns=before,
        call_ns=np.where(inner, 0.0, step.call_ns),
        gap_ns=np.where(inner & (step.gap_ns <= DISPATCH_NS), guess.graph_node_ns, step.gap_ns),
    )
