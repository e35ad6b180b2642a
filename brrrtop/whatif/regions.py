"""What edits ask: forward and backward of a step (their nodes, where they begin, the pace of launches, what
they move), and what the device can do."""

import numpy as np
from msgspec import Struct

from brrrtop.analysis.ceilings import Ceilings
from brrrtop.kernel_names.traits import Role, Trait
from brrrtop.model.tables import F8, Bool
from brrrtop.whatif.assumptions import Assumptions
from brrrtop.whatif.step import Step

USUAL_MEMORY = 0.7
"""Share of the bandwidth that a kernel of unknown bytes is taken to reach."""


class Roofs(Struct, frozen=True):
    ceilings: Ceilings | None
    bytes_per_s: float

    @property
    def has_triton(self) -> bool:
        """Whether Triton generates code for this GPU: from compute capability 7.0 on (its README)."""
        capability = self.ceilings.capability if self.ceilings else None
        return capability is None or capability >= (7, 0)

    def flop_per_s(self, precision: str) -> float | None:
        return self.ceilings.rate(precision, True) if self.ceilings else None


def roofs_of(ceilings: Ceilings | None) -> Roofs | None:
    if ceilings is None or not ceilings.bytes_per_s:
        return None
    return Roofs(ceilings, ceilings.bytes_per_s)


def model_nodes(step: Step) -> Bool:
    """Nodes of forward and backward: no update, no collective, no copy to or from the host."""
    kernels = step.kernels
    outside = kernels.optimizer | kernels.recurrent | kernels.is_role(Role.COMM, Role.COPY)
    return np.asarray(step.launches & ~outside)


def usual_call_ns(step: Step) -> float:
    """Mean host time from one launch of the model to the next. Conversions between layouts are launched
    from within an op, and count as part of its launch."""
    region = model_nodes(step)
    opens, _ = entries(step, region)
    inner = region & ~opens & ~after_wait(step)
    ops = inner & ~step.kernels.is_role(Role.LAYOUT)
    if not ops.any():
        return 0.0
    spent = np.maximum(step.before_ns - step.marked_ns, 0.0) + step.call_ns
    return float(spent[inner].sum() / ops.sum())


def entries(step: Step, region: Bool) -> tuple[Bool, Bool]:
    """First nodes of compiled code: of the forward pass, and of each part of it after a value that the loop
    reads (Dynamo breaks the graph there); and of the backward pass."""
    backward = step.kernels.backward
    at = np.flatnonzero(region)
    opens, turns = np.zeros(len(step), np.bool_), np.zeros(len(step), np.bool_)
    if not len(at):
        return opens, turns
    # A copy in the middle of a pass does not begin another one, an update does.
    updates = np.cumsum(step.kernels.optimizer)[at]
    later = np.concatenate(([True], updates[1:] != updates[:-1]))
    opens[at] = later
    first = np.concatenate(([False], backward[at][1:] & ~backward[at][:-1])) & ~later
    turns[at] = first & (
        np.cumsum(first) - np.maximum.accumulate(np.where(later, np.cumsum(first), 0)) <= 1
    )
    return opens | (region & after_wait(step)), turns


def after_wait(step: Step) -> Bool:
    return np.concatenate(([True], step.waits[:-1])).astype(np.bool_)


def moved_bytes(step: Step, roofs: Roofs, guess: Assumptions) -> F8:
    """Bytes of each node, where unknown what it would move in its time at a usual rate.

    In less than a wave, part of the memory's rate is left unused.
    """
    kernels = step.kernels
    filled = np.where(np.isfinite(kernels.waves), np.minimum(kernels.waves, 1.0), 1.0)
    norms = kernels.batch_norm & kernels.has(Trait.NCHW)
    share = USUAL_MEMORY * filled * np.where(norms, guess.first_norm, 1.0)
    usual = step.device_ns * 1e-9 * roofs.bytes_per_s * share
    return np.where(np.isfinite(kernels.size_bytes), kernels.size_bytes, usual)
