"""What each rank did while all were recorded, bucket by bucket, and who is late beside its peers, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.analysis.account import account
from brrrtop.analysis.estimate import facts_of
from brrrtop.analysis.facts.labels import WORK
from brrrtop.analysis.kernels.compute_or_memory import label
from brrrtop.analysis.ranks.matching import Matched
from brrrtop.model.account import Account
from brrrtop.model.intervals import holders
from brrrtop.model.ranks import Lateness
from brrrtop.model.tables import F8, I8, Span, Window, edges
from collectors.vocabulary import Metric

WORKING = ("compute", "memory", "underfilled", "unknown")
"""Buckets of a rank's own kernels."""
NEAR_A_STEP = 0.25
"""Of a step, that a collective may lie from where the step began."""


MORE = 1.03
"""Kernels, or threads in them, over those of the peers, from which it is more work that is done."""
HELD_DOWN = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""NVML's clocks-event reasons for power and temperature, software's and hardware's."""
CLOCK_DROP = 0.97
"""Of the peers' SM clock."""


class RankActivity(Struct, frozen=True):
    """Of one rank, while all were recorded."""

    account: Account
    kernels: int
    """Collectives and copies left out."""
    threads: int
    """Of these kernels."""

    @property
    def buckets_ns(self) -> dict[str, int]:
        """By bucket, but for collectives: the ranks' sums differ by what they wait for each other."""
        booked = self.account
        return {
            "compute": booked.compute_ns,
            "memory": booked.memory_ns,
            "underfilled": booked.underfilled_ns,
            "unknown": booked.unknown_ns,
            "exposed_copy": booked.exposed_copy_ns,
            **{f"idle_{cause}": time_ns for cause, time_ns in booked.idle_ns.items()},
        }


def shared_spans(
    windows: Sequence[Window], offsets: Sequence[int | None], matched: Matched,
    step_ns: float | None,
) -> tuple[tuple[Span, ...], float | None]:  # fmt: skip
    """When all placed ranks were recorded, each span from one collective's end to another's; and how
    many steps that are, whole ones where there is one.

    At those ends all ranks are level: what one of them is later at the next was lost in between. Bursts that
    share less than a step are left out: in a part of one, ranks do the same work at other times.
    """
    spans: list[Span] | None = None
    for window, offset in zip(windows, offsets, strict=True):
        if offset is None:
            continue
        mine = [Span(s.t0_ns + offset, s.t1_ns + offset) for s in window.traced]
        spans = mine if spans is None else _common(spans, mine)
    kept, steps = [], 0.0
    in_bursts = any(window.observed is not None for window in windows)
    placed = sum(offset is not None for offset in offsets)
    full = np.bincount(matched.collective, minlength=len(matched)) == placed
    # Collectives in which every rank takes part.
    ends = matched.ends_ns[full] if full.any() else matched.ends_ns
    for span in spans or ():
        inside = ends[(ends >= span.t0_ns) & (ends <= span.t1_ns)]
        if len(inside) > 1 and inside[-1] > inside[0]:
            begin, count = _whole_steps(inside, step_ns)
            if step_ns and count < 1 and in_bursts:
                continue
            kept.append(Span(begin, int(inside[-1])))
            steps += count
    return tuple(kept), steps or None


def _whole_steps(ends: I8, step_ns: float | None) -> tuple[int, float]:
    """The end from which it is a whole number of steps to the last one, and that number; the first end and
    a fraction where no end is near enough."""
    if not step_ns:
        return int(ends[0]), 0.0
    steps = (int(ends[-1]) - int(ends[0])) / step_ns
    whole = int(steps + NEAR_A_STEP)
    if whole:
        goal = int(ends[-1]) - whole * step_ns
        at = int(np.argmin(np.abs(ends - goal)))
        if abs(int(ends[at]) - goal) < NEAR_A_STEP * step_ns:
            return int(ends[at]), float(whole)
    return int(ends[0]), steps


def _common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    pairs = (Span(max(a.t0_ns, b.t0_ns), min(a.t1_ns, b.t1_ns)) for a in one for b in other)
    return sorted((span for span in pairs if span.duration_ns > 0), key=lambda span: span.t0_ns)


def deeds(window: Window, spans: Sequence[Span], offset: int) -> RankActivity:
    """The account of a rank in these spans, which are on the common clock."""
    own = tuple(Span(s.t0_ns - offset, s.t1_ns - offset) for s in spans)
    facts = facts_of(window)
    together = replace(window, span=Span(own[0].t0_ns, own[-1].t1_ns), observed=own)
    facts = facts.of(together, facts.call_rows)
    facts = facts.labelled(label(facts))
    acts = window.activities
    mine = (facts.labels.classes == WORK) & facts.kernels
    mine &= holders(*edges(own), acts.starts_ns) >= 0
    return RankActivity(
        account.book(facts),
        int(mine.sum()),
        int((acts.blocks[mine] * acts.threads[mine]).sum()),
    )


def later_than_peers(values: F8) -> F8:
    """The median of the others less one's own, shape of `values`; NaN for a rank alone."""
    out = np.full(len(values), np.nan)
    for place in range(len(values)):
        others = np.delete(values, place)
        others = others[~np.isnan(others)]
        if len(others):
            out[place] = float(np.median(others)) - values[place]
    return out


def excess_by_cause_ns(every: Sequence[RankActivity | None], place: int) -> dict[str, float]:
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
    more: Mapping[str, float], every: Sequence[RankActivity | None], place: int,
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
    every: Sequence[RankActivity | None], place: int, gauges: Sequence[Mapping[int, float]]
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
