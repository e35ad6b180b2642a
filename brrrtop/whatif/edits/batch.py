"""Twice the batch: the host does the same, small kernels take the same time, large ones twice as much."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.kernels.traits import Role, Trait
from brrrtop.whatif.assumptions import Assumptions
from brrrtop.whatif.roofs import Roofs
from brrrtop.whatif.step import Step


def double_batch(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step on twice the batch. Its time is of two steps' work."""
    kernels = step.kernels
    if not step.launches.any():
        return None
    by_waves = np.clip(2 * kernels.waves, 1.0, 2.0)
    by_time = np.clip(
        1 + (step.device_ns - guess.small_ns) / (guess.large_ns - guess.small_ns), 1.0, 2.0
    )
    # A norm or a softmax has a block for some rows, so that blocks become more and no larger.
    rows = kernels.is_role(Role.NORM, Role.SOFTMAX) & ~kernels.batch_norm & ~kernels.backward
    by_blocks = np.where(rows, by_waves, np.maximum(by_waves, by_time))
    grows = np.where(np.isfinite(kernels.waves), by_blocks, by_time)
    grows = np.where(kernels.is_role(Role.COPY, Role.SET), 2.0, grows)
    # Updates, weights' conversions and gradients on their way to other ranks are as large as the model.
    weights = kernels.optimizer | kernels.is_role(Role.COMM) | kernels.has(Trait.FOREACH)
    grows = np.where(weights, 1.0, grows)
    grows = 1 + (grows - 1) * guess.twice
    loading = step.named_ns["input"]
    return replace(
        step,
        device_ns=step.device_ns * grows,
        before_ns=step.before_ns + loading,
        batch_ns=2 * step.batch_ns,
        named_ns={**step.named_ns, "input": 2 * loading},
    )
