"""Waits of the host taken away: for the loader, for the device, for collections, logs and saves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from brrrtop.whatif.assumptions import Assumptions
from brrrtop.whatif.roofs import Roofs
from brrrtop.whatif.step import Step

QUIET = ("gc", "logging", "checkpoint", "evaluation")
"""Causes of the host's own work between steps."""


def loader_ready(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step with the next batch always there."""
    edited = _without(step, ("input",))
    return None if edited is None else replace(edited, batch_ns=0.0)


def quiet_host(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step without collections, logging, saves and evaluation."""
    return _without(step, QUIET)


def no_sync(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step without waits for the device, copies that are read back among them; None without any.

    Waits of uploads stay: pinned memory is their fix.
    """
    waits = step.waits & ~step.kernels.uploads
    # A lone wait is gone; a copy that was waited for still runs.
    gone = waits & ~step.launches
    if not waits.any() or gone.all():
        return None
    return replace(step, waits=step.waits & ~waits).without(gone)


def _without(step: Step, causes: Sequence[str]) -> Step | None:
    """The step without named parts of the host's time; None where nobody saw any."""
    gone = sum((step.named_ns[cause] for cause in causes), np.zeros(len(step)))
    if not gone.any():
        return None
    named = {c: np.zeros(len(step)) if c in causes else part for c, part in step.named_ns.items()}
    return replace(step, before_ns=np.maximum(step.before_ns - gone, 0.0), named_ns=named)
