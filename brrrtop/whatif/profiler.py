"""The step as it runs when nobody watches: recording takes host time for each op and launch.

torch.profiler with shapes makes launch-bound loops 1.5 to 1.9 times as long, the agent's bursts up to
1.6 times. Live the steps between bursts say what is true; of a trace nobody knows it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from brrrtop.whatif.assumptions import Assumptions
from brrrtop.whatif.simulate import period_ns
from brrrtop.whatif.step import Step

CLOSE = 1.01
"""A step that long over the undisturbed one is as long."""
LEAST_SHARE = 0.3
_HALVINGS = 7


def unprofiled(step: Step, guesses: Sequence[Assumptions]) -> list[Step]:
    """The step with the host's time less what recording took of it, under each guess."""
    usual = [guess.profiled_host if step.profiled else guess.watched_host for guess in guesses]
    if step.undisturbed_ns is None:
        return [with_host(step, share) for share in usual]
    limit = step.undisturbed_ns * CLOSE
    whole = period_ns(step)
    share = 1.0 if whole <= limit else _share_for(step, limit)
    less = [with_host(step, min(part, share)) for part in usual]
    # A host that is not waited for may be as much ahead as recording usually holds it back.
    hidden = (period_ns(one) > 0.98 * min(whole, limit) for one in less)
    return [
        one if ahead else with_host(step, share) for one, ahead in zip(less, hidden, strict=True)
    ]


def _share_for(step: Step, limit_ns: float) -> float:
    """The largest part of the host's time with which a step is no longer than that."""
    low, high = LEAST_SHARE, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if period_ns(with_host(step, middle)) <= limit_ns else (low, middle)
        )
    return low


def with_host(step: Step, share: float) -> Step:
    """The step with this part of the host's time between and in calls; what marks name stays."""
    named = sum(step.named_ns.values(), np.zeros(len(step)))
    free = np.maximum(step.before_ns - named, 0.0)
    return replace(step, before_ns=named + free * share, call_ns=step.call_ns * share)
