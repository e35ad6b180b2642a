"""Replays a step: the host goes from launch to launch, the device follows, waits hold the host up.

The recurrence is max-plus: a node ends at `max(end before, launch + latency) + gap + device time`.
Between two waits it is linear, so each stretch comes down to three numbers (numpy), and only
stretches are walked one by one. The idea of predicting a step's time by replaying an edited
dependency graph is Daydream's (Zhu, Phanishayee, Pekhimenko, USENIX ATC 2020).
"""

from __future__ import annotations

import numpy as np

from brrrtop.whatif.step import Step

PASSES = 4
"""Times the steps are repeated: the last one is told, when what came before the first is forgotten."""


def period_ns(step: Step) -> float:
    """Time of one step in the steady state."""
    if not len(step):
        return 0.0
    segments = _segments(step)
    host = device = 0.0
    begun = ended = 0.0
    for _ in range(PASSES):
        begun, ended = host, device
        for work, reach, spent, waits in segments:
            device = max(device + work, host + reach)
            host = max(host + spent, device) if waits else host + spent
    return max(host - begun, device - ended, step.batch_ns * step.count) / step.count


def _segments(step: Step) -> list[tuple[float, float, float, bool]]:
    """Stretches up to each wait: device time, latest end as the host's start alone would have it,
    host time, and whether it ends in a wait."""
    ends = np.flatnonzero(step.waits)
    if not len(ends) or ends[-1] != len(step) - 1:
        ends = np.append(ends, len(step) - 1)
    starts = np.concatenate(([0], ends[:-1] + 1))
    host = np.cumsum(step.before_ns + step.call_ns)
    opened = np.concatenate(([0.0], host[ends[:-1]]))
    sizes = ends - starts + 1
    called = host - step.call_ns - np.repeat(opened, sizes)
    done = np.cumsum(step.gap_ns + step.device_ns)
    work = done[ends] - np.concatenate(([0.0], done[ends[:-1]]))
    # Gaps belong to the node they are ahead of: it waits for them after its launch as well.
    ahead = done - step.gap_ns - step.device_ns
    reach = np.maximum.reduceat(called + step.latency_ns - ahead, starts) + done[ends]
    spent = host[ends] - opened
    return list(
        zip(work.tolist(), reach.tolist(), spent.tolist(), step.waits[ends].tolist(), strict=True)
    )
