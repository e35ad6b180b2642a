"""Copies from pinned memory that overlap, and collectives that the backward pass hides."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.kernels.traits import Role
from brrrtop.model.tables import Bool
from brrrtop.whatif.assumptions import Assumptions
from brrrtop.whatif.roofs import Roofs
from brrrtop.whatif.step import Step


def pinned_copies(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step with host copies from pinned memory, beside kernels; None without any to the device."""
    copies = step.kernels.uploads & step.launches
    if not copies.any() or step.device_ns[copies].sum() <= 0:
        return None
    faster = step.kernels.size_bytes / guess.pinned_bytes_per_s * 1e9
    faster = np.where(np.isfinite(faster), np.minimum(faster, step.device_ns), step.device_ns)
    edited = replace(step, waits=step.waits & ~copies)
    return _hide(edited, copies, np.where(copies, faster, 0.0).sum(), 1.0)


def overlap_communication(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step with collectives behind the backward pass, as far as that is long enough."""
    collectives = step.kernels.is_role(Role.COMM) & step.launches
    alone = step.device_ns[collectives].sum()
    if alone <= 0:
        return None
    return _hide(step, collectives, alone, guess.hidden_communication)


def _hide(step: Step, rows: Bool, needs_ns: float, part: float) -> Step:
    """The step with these nodes beside all others: what does not fit is left on them."""
    beside = step.device_ns[~rows & step.launches].sum()
    left = max(needs_ns - part * beside, (1 - part) * needs_ns, 0.0)
    had = step.device_ns[rows].sum()
    device = np.where(rows, step.device_ns * (left / had if had else 0.0), step.device_ns)
    return replace(step, device_ns=device)
