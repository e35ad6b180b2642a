"""The step as it runs without a profiler, which takes host time for each op and call it records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brrrtop.whatif.assumptions import Assumptions
from brrrtop.whatif.step import Step

LEAST_LEFT = 0.3
"""Of the host's time between two calls, however many ops were recorded there."""


def unprofiled(step: Step, guess: Assumptions) -> Step:
    """The step with the host's time less what recording took of it."""
    if not step.records.any():
        return step
    spent = step.records * guess.profiled_record_ns
    named = sum(step.named_ns.values(), np.zeros(len(step)))
    free = step.before_ns - named
    before = named + np.maximum(free - spent, LEAST_LEFT * free)
    return replace(step, before_ns=before)
