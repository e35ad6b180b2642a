"""What each rank did in the time that all were recorded together, bucket by bucket."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.analysis.account import account
from brrrtop.analysis.account.time_slices import without_other_processes
from brrrtop.analysis.ceilings import ceilings_for
from brrrtop.analysis.kernels import labels
from brrrtop.analysis.kernels.labels import WORK
from brrrtop.analysis.ranks.matching import Matched
from brrrtop.model.account import Account
from brrrtop.model.intervals import holders
from brrrtop.model.tables import I8, ActivityType, Bool, Span, Window, edges
from brrrtop.timeline import correlation

WORKING = ("compute", "memory", "underfilled", "unknown")
"""Buckets of a rank's own kernels."""
NEAR_A_STEP = 0.25
"""Of a step, that a collective may lie from where the step began."""


class Deeds(Struct, frozen=True):
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
        own = window.observed if window.observed is not None else (window.span,)
        mine = [Span(s.t0_ns + offset, s.t1_ns + offset) for s in own]
        spans = mine if spans is None else _common(spans, mine)
    kept, steps = [], 0.0
    in_bursts = any(window.observed is not None for window in windows)
    full = _full(matched, sum(offset is not None for offset in offsets))
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


def _full(matched: Matched, ranks: int) -> Bool:
    """Collectives in which every rank takes part."""
    return np.asarray(np.bincount(matched.collective, minlength=len(matched)) == ranks)


def _common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    both = []
    for a in one:
        for b in other:
            low, high = max(a.t0_ns, b.t0_ns), min(a.t1_ns, b.t1_ns)
            if high > low:
                both.append(Span(low, high))
    return sorted(both, key=lambda span: span.t0_ns)


def deeds(window: Window, spans: Sequence[Span], offset: int) -> Deeds:
    """The account of a rank in these spans, which are on the common clock."""
    own = tuple(Span(s.t0_ns - offset, s.t1_ns - offset) for s in spans)
    call_rows = correlation.call_of(window.activities, window.calls, window.observed)
    window = without_other_processes(window, window)
    window = replace(window, span=Span(own[0].t0_ns, own[-1].t1_ns), observed=own)
    labelled = labels.label(window, ceilings_for(window.device))
    acts = window.activities
    mine = (labelled.classes == WORK) & (acts.types == ActivityType.KERNEL)
    mine &= holders(*edges(own), acts.starts_ns) >= 0
    return Deeds(
        account.book(window, labelled, call_rows),
        int(mine.sum()),
        int((acts.blocks[mine] * acts.threads[mine]).sum()),
    )
