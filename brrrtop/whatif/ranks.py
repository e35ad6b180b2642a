"""What the step would be with no rank later than the others."""

from __future__ import annotations

import numpy as np

from brrrtop.model.advice import WhatIf
from brrrtop.model.ranks import JobSnapshot

LINE = "find what makes the last rank late"
LEAST_DOUBT, DOUBT_SHARE = 0.015, 0.12
"""As of the edits of one step (`brrrtop.whatif.price`)."""


def peers_in_step(job: JobSnapshot) -> WhatIf | None:
    """The price of `peers-in-step`; None where the ranks were not seen together for a whole step.

    Everybody waits for the latest: a step is as much shorter as that one's own work is longer.
    """
    if not job.together_ns or not job.steps or job.steps < 1:
        return None
    late = [row.late_ns for row in job.ranks if row.late_ns is not None]
    if len(late) < 2:
        return None
    lengths = [row.step_ns for row in job.ranks if row.step_ns]
    # One recorded step may lack what lies before its first collective.
    present = max(job.together_ns / job.steps, float(np.median(lengths)) if lengths else 0.0)
    waited = job.waited_for
    most = min(max(late), present)
    saves = most / present
    waits = waited.others_wait_ns if waited is not None and waited.is_slow else most
    doubt = LEAST_DOUBT + DOUBT_SHARE * saves
    low, high = sorted((saves, min(waits / present, 1.0)))
    return WhatIf(
        edit="peers-in-step",
        step_ns=present - most,
        saves=saves,
        saves_low=min(low, saves - doubt),
        saves_high=min(max(high, saves + doubt), 0.99),
        advisory="straggler" if waited is not None and waited.is_slow else None,
        line=LINE,
    )
