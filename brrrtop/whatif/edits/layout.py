"""Channels-last images: no conversions around convolutions, norms that read along memory."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.kernels.traits import Role, Trait
from brrrtop.model.tables import Bool
from brrrtop.whatif.assumptions import Assumptions
from brrrtop.whatif.regions import moved_bytes, usual_call_ns
from brrrtop.whatif.roofs import Roofs
from brrrtop.whatif.step import Step


def channels_last(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step with images in `torch.channels_last`; None without channels-first convolutions."""
    laid = laid_out(step, roofs, guess)
    if laid is None:
        return None
    edited, conversions = laid
    kernels = step.kernels
    if not (kernels.group_norm & ~kernels.sequences).any():
        return edited.without(conversions)
    # ATen's group norms take channels-first images alone: conversions stay, as ops of their own.
    added = np.where(conversions, guess.added_op * usual_call_ns(step), 0.0)
    return replace(edited, before_ns=edited.before_ns + added)


def laid_out(step: Step, roofs: Roofs, guess: Assumptions) -> tuple[Step, Bool] | None:
    """The step with convolutions and norms over channels-last images, and its nodes that convert between
    layouts; None without channels-first convolutions."""
    kernels = step.kernels
    layout = kernels.is_role(Role.LAYOUT) & ~kernels.sequences
    first = (kernels.has(Trait.NCHW) & ~kernels.sequences) | layout | kernels.depthwise
    convolving = kernels.is_role(Role.CONV, Role.LAYOUT)
    if not (first & convolving & step.launches).any():
        return None
    own = np.isfinite(kernels.last_over_first) & ~kernels.sequences
    own &= kernels.is_role(Role.CONV, Role.GEMM, Role.SKINNY, Role.POOL)
    conv = first & kernels.is_role(Role.CONV)
    norm = first & kernels.is_role(Role.NORM) & ~kernels.group_norm
    reached = np.where(kernels.has(Trait.HALF), guess.norm_roof_16_bit, guess.norm_roof)
    at_roof = moved_bytes(step, roofs, guess) / (roofs.bytes_per_s * reached) * 1e9
    device = np.where(conv, step.device_ns * guess.layout_conv, step.device_ns)
    measured = step.device_ns * kernels.last_over_first * guess.layout_measured
    device = np.where(own, measured, device)
    dearer = layout & kernels.by_group
    device = np.where(dearer, step.device_ns * guess.by_group, device)
    device = np.where(norm, np.minimum(at_roof, device), device)
    return replace(step, device_ns=device), layout & ~dearer
