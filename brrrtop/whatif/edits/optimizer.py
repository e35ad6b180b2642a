"""A fused update: each parameter is read and written once, in a handful of launches."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.kernels.traits import Role, Trait
from brrrtop.whatif.assumptions import Assumptions
from brrrtop.whatif.roofs import Roofs
from brrrtop.whatif.step import Step

LAUNCHES = 4
"""Of a fused update of some 150 tensors: 36 of each of four lists fit a launch (ATen's
MultiTensorApply.cuh)."""
PASSES = 0.4
"""Traffic of a fused Adam (7 accesses an element) over that of one over lists (some 18)."""


def fused_optimizer(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step with `fused=True`; None where the update is fused, or none is seen."""
    kernels = step.kernels
    fused = kernels.has(Trait.FUSED_STEP)
    update = kernels.optimizer & step.launches & kernels.is_role(Role.OPTIMIZER, Role.POINTWISE)
    if not update.any() or fused.any():
        return None
    many = int(update.sum()) / step.count > LAUNCHES
    if not many:
        return None
    host = np.where(update, step.before_ns + step.call_ns, 0.0)
    at = np.flatnonzero(update)
    kept = at[np.linspace(0, len(at) - 1, min(len(at), LAUNCHES * step.count)).astype(int)]
    before, call = step.before_ns.copy(), step.call_ns.copy()
    device, gap = step.device_ns.copy(), step.gap_ns.copy()
    share = guess.fused_optimizer_host / len(kept)
    total_host, total_device = host.sum(), device[update].sum()
    before[update] = call[update] = device[update] = gap[update] = 0.0
    before[kept] = total_host * share
    device[kept] = np.maximum(total_device * PASSES / len(kept), guess.kernel_floor_ns)
    keep = ~update
    keep[kept] = True
    return replace(step, before_ns=before, call_ns=call, device_ns=device, gap_ns=gap).take(keep)
