"""Attention written out, as one fused call."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.kernels.traits import Role
from brrrtop.whatif.assumptions import Assumptions
from brrrtop.whatif.roofs import Roofs
from brrrtop.whatif.step import Step

BACKWARD_FLOP = 1.25
"""A fused backward pass multiplies five times where one written out does four: it recomputes the scores."""


def sdpa(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step with `scaled_dot_product_attention`; None where no attention is written out."""
    rows = step.kernels.eager_attention
    if not rows.any():
        return None
    kernels = step.kernels
    products = rows & kernels.is_role(Role.GEMM, Role.SKINNY)
    peak = roofs.flop_per_s("bf16") or 0.0
    flop = np.where(products, kernels.flop, 0.0) * np.where(kernels.backward, BACKWARD_FLOP, 1.0)
    own = kernels.rates
    rates = np.where(np.isfinite(own), np.minimum(own, peak or np.inf), peak)
    fused = np.where(products, flop / np.maximum(rates * guess.attention_roof, 1.0) * 1e9, 0.0)
    fused = np.where(np.isfinite(fused), fused, np.where(products, step.device_ns, 0.0))
    starts = rows.copy()
    starts[1:] &= ~rows[:-1] | (kernels.backward[1:] != kernels.backward[:-1])
    at = np.flatnonzero(starts)
    run = np.cumsum(starts) - 1
    cost = np.bincount(run[rows], fused[rows], len(at))
    spent = np.bincount(run[rows], step.device_ns[rows], len(at))
    device = step.device_ns.copy()
    device[at] = np.minimum(np.maximum(cost, guess.kernel_floor_ns), spent)
    roles = kernels.roles.copy()
    roles[at] = int(Role.ATTENTION)
    edited = replace(step, device_ns=device, kernels=replace(kernels, roles=roles))
    return edited.take(~rows | starts)
