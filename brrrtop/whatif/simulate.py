"""Replays a step: the host goes from launch to launch, the device follows, waits hold the host up.

The recurrence is max-plus: a node ends at `max(end before, launch + latency) + gap + device time`.
Between two waits it is linear, so each stretch comes down to three numbers, and stretches in a row
to four. The idea of predicting a step's time by replaying an edited
dependency graph is Daydream's (Zhu, Phanishayee, Pekhimenko, USENIX ATC 2020).

A step runs faster unwatched: recording takes host time for each op and launch. torch.profiler
with shapes makes launch-bound loops 1.5 to 1.9 times as long, the agent's bursts up to 1.6 times. Live,
untraced steps give the true time; a trace has none.
"""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from brrrtop.model.tables import F8, Bool
from brrrtop.whatif.assumptions import Assumptions
from brrrtop.whatif.step import Step

PASSES = 4
"""Times the steps are repeated: the last one is told, when what came before the first is forgotten."""
CLOSE = 1.01
"""A step that long over the undisturbed one is as long."""
LEAST_SHARE = 0.02
"""Steps whose shapes are recorded take the host many times as long as others."""
SHAPED = 0.5
"""Below this part of what was recorded, a guess, the host's time is one of a burst that recorded shapes. No
steady model of `benchmarks/gains` changes by it."""
_HALVINGS = 9


def period_ns(step: Step) -> float:
    if not len(step):
        return 0.0
    whole = _product(*_segments(step))
    done = np.zeros(2)
    begun = done
    for _ in range(PASSES):
        begun, done = done, (whole + done).max(axis=1)
    return max(float((done - begun).max()), step.batch_ns * step.count) / step.count


def _product(work: F8, reach: F8, spent: F8, waits: Bool) -> F8:
    """What all stretches in turn make of the host's time and of the device's: a matrix over (max, +), by
    whose row (the host, the device) is done when that of the column alone had begun at 0.

    Each stretch is such a matrix; neighbours are multiplied until one is left.
    """
    count = len(work)
    # What is beyond the stretches changes nothing.
    product = np.full((2, 2, 1 << (count - 1).bit_length()), -np.inf)
    product[0, 0], product[1, 1] = 0.0, 0.0
    product[0, 0, :count] = np.where(waits, np.maximum(spent, reach), spent)
    product[0, 1, :count] = np.where(waits, work, -np.inf)
    product[1, 0, :count], product[1, 1, :count] = reach, work
    while product.shape[2] > 1:
        first, then = product[:, :, ::2], product[:, :, 1::2]
        product = np.maximum(then[:, :1] + first[:1], then[:, 1:] + first[1:])
    return product[:, :, 0]


def _segments(step: Step) -> tuple[F8, F8, F8, Bool]:
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
    return work, reach, spent, step.waits[ends]


def unprofiled(step: Step, guesses: Sequence[Assumptions]) -> list[Step]:
    """The step with the host's time less what recording took of it, under each guess."""
    usual = [guess.profiled_host if step.profiled else guess.watched_host for guess in guesses]
    if step.undisturbed_ns is None:
        return [with_host(step, share) for share in usual]
    # However fast the host is, the device does not get faster: its time differs from burst to burst too.
    device = period_ns(with_host(step, LEAST_SHARE))
    limit = max(step.undisturbed_ns, device) * CLOSE
    whole = period_ns(step)
    share = 1.0 if whole <= limit else _share_for(step, limit)
    # Recording shapes holds the host up more than a burst usually does, until it seems to set the pace of a
    # step that the GPU sets the pace of: how far it was ahead is then unknown.
    parts = [
        min(part, share) if share > SHAPED else share * guess.hidden_host
        for part, guess in zip(usual, guesses, strict=True)
    ]
    less = [with_host(step, part) for part in parts]
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
    free = np.maximum(step.before_ns - step.marked_ns, 0.0)
    return replace(step, before_ns=step.marked_ns + free * share, call_ns=step.call_ns * share)
