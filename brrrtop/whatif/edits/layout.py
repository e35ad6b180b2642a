"""Channels-last images: no conversions around convolutions, norms that read along memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brrrtop.analysis.kernels.traits import Role, Trait
from brrrtop.whatif.assumptions import Assumptions
from brrrtop.whatif.roofs import Roofs
from brrrtop.whatif.step import Step


def channels_last(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step with images in `torch.channels_last`; None without channels-first convolutions."""
    kernels = step.kernels
    layout = kernels.is_role(Role.LAYOUT) & ~kernels.sequences
    first = (kernels.has(Trait.NCHW) & ~kernels.sequences) | layout | kernels.depthwise
    convolving = kernels.is_role(Role.CONV, Role.LAYOUT)
    if not (first & convolving & step.launches).any():
        return None
    conv = first & kernels.is_role(Role.CONV) & ~kernels.depthwise
    norm = first & kernels.is_role(Role.NORM)
    reached = np.where(kernels.has(Trait.HALF), guess.norm_roof_16_bit, guess.norm_roof)
    at_roof = kernels.size_bytes / (roofs.bytes_per_s * reached) * 1e9
    norm_ns = np.where(np.isfinite(at_roof), np.minimum(at_roof, step.device_ns), step.device_ns)
    device = np.where(conv, step.device_ns * guess.layout_conv, step.device_ns)
    device = np.where(kernels.depthwise, step.device_ns * guess.depthwise, device)
    device = np.where(norm, norm_ns, device)
    return replace(step, device_ns=device).take(~layout)
