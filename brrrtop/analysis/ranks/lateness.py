"""Who is late, since when, and because of what: each rank's account beside those of its peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from brrrtop.analysis.ranks.accounts import WORKING, Deeds
from brrrtop.model.ranks import Lateness
from brrrtop.model.tables import F8
from brrrtop.model.vocabulary import Metric

MORE = 1.03
"""Kernels, or threads in them, over those of the peers, from which it is more work that is done."""
HELD_DOWN = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""NVML's clocks-event reasons for power and temperature, software's and hardware's."""
CLOCK_DROP = 0.97
"""Of the peers' SM clock."""


def later_than_peers(values: F8) -> F8:
    """The median of the others less one's own, shape of `values`; NaN for a rank alone."""
    out = np.full(len(values), np.nan)
    for place in range(len(values)):
        others = np.delete(values, place)
        others = others[~np.isnan(others)]
        if len(others):
            out[place] = float(np.median(others)) - values[place]
    return out


def grown(every: Sequence[Deeds | None], place: int) -> dict[str, float]:
    """By bucket: what this rank takes more than the median of its peers, ns; negative where less."""
    mine = every[place]
    others = [one.buckets_ns for at, one in enumerate(every) if one is not None and at != place]
    if mine is None or not others:
        return {}
    return {
        bucket: time_ns - float(np.median([one.get(bucket, 0) for one in others]))
        for bucket, time_ns in mine.buckets_ns.items()
    }


def cause_of(
    more: Mapping[str, float], every: Sequence[Deeds | None], place: int,
    gauges: Sequence[Mapping[int, float]],
) -> str:  # fmt: skip
    """What a late rank takes more of: an idle cause, or a `Lateness`."""
    parts = {bucket.removeprefix("idle_"): ns for bucket, ns in more.items() if "idle_" in bucket}
    work = sum(more.get(bucket, 0.0) for bucket in WORKING)
    copies = more.get("exposed_copy", 0.0)
    idle = max(parts, key=lambda cause: parts[cause], default="unknown")
    if max(work, copies) < parts.get(idle, 0.0):
        return idle
    if copies > work:
        return Lateness.COPIES.value
    return _of_work(every, place, gauges).value


def _of_work(
    every: Sequence[Deeds | None], place: int, gauges: Sequence[Mapping[int, float]]
) -> Lateness:
    mine = every[place]
    others = [one for at, one in enumerate(every) if one is not None and at != place]
    assert mine is not None and others
    kernels = float(np.median([one.kernels for one in others]))
    threads = float(np.median([one.threads for one in others]))
    if mine.kernels > MORE * kernels or mine.threads > MORE * threads:
        return Lateness.MORE_WORK
    return Lateness.THROTTLED if _is_throttled(place, gauges) else Lateness.SLOWER_GPU


def _is_throttled(place: int, gauges: Sequence[Mapping[int, float]]) -> bool:
    """Whether its clocks are below those of the others, and the driver says that it holds them down."""
    own = gauges[place]
    clocks = [one[Metric.SM_CLOCK_HZ] for one in gauges if one.get(Metric.SM_CLOCK_HZ)]
    slower = len(clocks) > 1 and own.get(Metric.SM_CLOCK_HZ, np.inf) < CLOCK_DROP * np.median(
        clocks
    )
    reasons = int(own.get(Metric.CLOCK_EVENT_REASONS, 0))
    return bool(slower) and bool(reasons & HELD_DOWN)
