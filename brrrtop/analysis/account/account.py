"""Books every nanosecond of a window exactly once, for one device, and says what that comes to.

Busy time by the sweep line, idle time by cause; the buckets add up to the window to the
nanosecond, and cutting a window in two gives the same totals.

The verdict is the largest share of the split; `mixed` when the two largest are within 10 points,
Nsight Compute's own margin between its compute and memory verdicts; `unknown` when too much is unknown
or the confidence is below the floor. Its confidence comes from the lead and from what may lie elsewhere: of
every kernel's time the part that its certainty leaves open (`roofline`), and all that is unknown, counts for
the runner-up. It is 0.5 where a verdict is about to tip into another, and 0.8 at a lead of 35 points without
any doubt.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.analysis.account import idle_causes
from brrrtop.analysis.facts.stack_samples import io_part
from brrrtop.analysis.facts.table import BUCKETS, COMM, TRANSFER, WORK, Facts, Labels
from brrrtop.model import intervals
from brrrtop.model.account import IDLE_CAUSES, MECHANICAL_CLASSES, Account, Split
from brrrtop.model.estimate import Regime, Side
from brrrtop.model.intervals import Cover
from brrrtop.model.tables import F8, I8, Activities, Bool, Calls, Marks, Window, edges

Table = TypeVar("Table", Activities, Calls, Marks)
BUSY = tuple(
    "compute_ns memory_ns underfilled_ns exposed_comm_ns exposed_copy_ns unknown_ns".split()
)
"""Buckets in which the device is active."""


def book(facts: Facts) -> Account:
    span = facts.window.span
    low, high = span.t0_ns, span.t1_ns
    others = idle_causes.others_there(facts.window)
    if facts.window.observed is not None:
        clock = Cover(*edges(facts.window.observed))  # spans nobody traced take no time
        others = intervals.merge(*(clock.up_to(times) for times in others))
        low, high = (int(t) for t in clock.up_to(np.array([low, high], np.int64)))
        window = facts.window
        on_clock = replace(
            window,
            activities=_on_clock(window.activities, clock),
            calls=_on_clock(window.calls, clock),
            marks=_on_clock(window.marks, clock),
        )
        facts = replace(facts, window=on_clock)
    acts = facts.window.activities
    starts, ends = intervals.clip(acts.starts_ns, acts.ends_ns, low, high)
    buckets = charge(starts, ends, facts.labels)
    busy = intervals.merge(starts, ends)
    gaps = idle_causes.by_gap(facts, busy, (low, high), others)
    causes = dict.fromkeys(IDLE_CAUSES, 0)
    causes |= {cause: int(times.sum()) for cause, times in gaps.causes_ns.items()}
    causes["io"] = int(causes["host"] * io_part(facts.stack_samples))
    causes["host"] -= causes["io"]
    causes, unknown_ns = _with_losses(causes, buckets["unknown"], facts.window)
    return Account(
        duration_ns=high - low,
        compute_ns=buckets["compute"],
        memory_ns=buckets["memory"],
        underfilled_ns=buckets["underfilled"],
        exposed_comm_ns=buckets["comm"],
        exposed_copy_ns=buckets["copy"],
        idle_ns=causes,
        unknown_ns=unknown_ns + gaps.unrecorded_ns,
        mechanical_ns=gaps.mechanical_ns,
        busy_ns=intervals.total(*busy),
        unrecorded_ns=gaps.unrecorded_ns,
    )


def _on_clock(table: Table, clock: Cover) -> Table:
    starts, ends = clock.up_to(table.starts_ns), clock.up_to(table.ends_ns)
    return replace(table, starts_ns=starts, ends_ns=ends)


def _with_losses(
    causes: dict[str, int], unknown_ns: int, window: Window
) -> tuple[dict[str, int], int]:
    """Idle time less the part that lost records may have filled, which is nobody's to name.

    What a file lacks that breaks off is taken to have been as long as what it has.
    """
    acts = window.activities
    records, lost, torn = len(acts), max(0, window.lost_records), window.torn_records
    idle = sum(causes.values())
    if not records or not idle or not (lost or torn):
        return causes, unknown_ns
    usual = float((acts.ends_ns - acts.starts_ns).mean())
    share = lost / (lost + records) + torn * usual / idle
    kept = {cause: value - int(value * min(1.0, share)) for cause, value in causes.items()}
    return kept, unknown_ns + idle - sum(kept.values())


def split_of(account: Account) -> Split:
    """The three-way split; all unknown for an empty window."""
    whole = account.duration_ns
    if whole <= 0:
        return Split(0.0, 0.0, 0.0, 1.0)
    return Split(
        account.compute_ns / whole,
        account.memory_ns / whole,
        account.overhead_ns / whole,
        account.unknown_ns / whole,
    )


def charge(starts: I8, ends: I8, labels: Labels) -> dict[str, int]:
    """The sweep line: each busy nanosecond of activities already clipped to the window in one bucket.

    Kernels come before collectives and collectives before copies where they overlap; kernels that
    overlap share the time by the SMs they reach.

    Args:
        starts, ends: Shape (n,), sorted by start, empty intervals allowed.
        labels: Of the same activities.
    """
    keep = np.flatnonzero(ends > starts)
    starts, ends = starts[keep], ends[keep]
    part = labels.take(keep)
    alone = _alone(starts, ends)
    times = [int((ends - starts)[alone & (part.buckets == k)].sum()) for k in range(len(BUCKETS))]
    crowd = np.flatnonzero(~alone)
    if len(crowd):
        shared = _crowd(starts[crowd], ends[crowd], part.take(crowd))
        times = [one + more for one, more in zip(times, shared, strict=True)]
    return dict(zip(BUCKETS, times, strict=True))


def _alone(starts: I8, ends: I8) -> Bool:
    """Which intervals overlap no other."""
    alone = np.ones(len(starts), np.bool_)
    if len(starts):
        reach = np.maximum.accumulate(ends)
        overlap = starts[1:] < reach[:-1]
        alone[1:] &= ~overlap
        # One that began earlier may still be open past its direct successor.
        alone[:-1] &= ~overlap & (reach[:-1] == ends[:-1])
    return alone


def _crowd(starts: I8, ends: I8, labels: Labels) -> list[int]:
    """Time by bucket of intervals that overlap."""
    points = intervals.distinct(np.concatenate((starts, ends)))
    lengths = np.diff(points)
    low, high = np.searchsorted(points, starts), np.searchsorted(points, ends)

    def open_sum(values: F8) -> F8:
        steps = np.bincount(low, values, len(points)) - np.bincount(high, values, len(points))
        return np.cumsum(steps)[:-1]

    work, comm, copy = (
        np.rint(open_sum((labels.classes == one).astype(np.float64))) > 0
        for one in (WORK, COMM, TRANSFER)
    )
    weights = np.where(labels.classes == WORK, labels.weights, 0.0)
    whole = np.maximum(open_sum(weights), 1e-12)
    times = []
    for bucket in range(BUCKETS.index("comm")):
        shares = np.clip(open_sum(np.where(labels.buckets == bucket, weights, 0.0)) / whole, 0, 1)
        times.append(int((lengths * np.where(work, shares, 0.0)).sum()))  # `@` is slow for integers
    # What rounding leaves is nobody's: the largest takes it, and the sum is exact.
    times[int(np.argmax(times))] += int(lengths[work].sum()) - sum(times)
    return [*times, int(lengths[~work & comm].sum()), int(lengths[~work & ~comm & copy].sum())]


def add(accounts: Sequence[Account]) -> Account:
    causes = dict.fromkeys(IDLE_CAUSES, 0)
    mechanical = dict.fromkeys(MECHANICAL_CLASSES, 0)
    totals = dict.fromkeys(("duration_ns", *BUSY, "busy_ns", "unrecorded_ns"), 0)
    for one in accounts:
        for cause, ns in one.idle_ns.items():
            causes[cause] += ns
        for name, ns in one.mechanical_ns.items():
            mechanical[name] += ns
        for name in totals:
            totals[name] += getattr(one, name)
    return Account(**totals, idle_ns=causes, mechanical_ns=mechanical)


MARGIN = 0.10
FLOOR = 0.30
"""Below this confidence no verdict is given."""
MOST_UNKNOWN = 0.35
LEAST_ACTIVITIES = 8
"""With fewer, a verdict is no surer than of a run that begins: the next one may change it."""
_CLEAR_SLOPE = 1.2
"""Confidence per share of lead."""
_MIXED_SLOPE = 2.0
_MOST = 0.99
MOST_AT_START = 0.5
"""While a run warms up, whose first steps say little of the others: of 52 verdicts that were called 95 % sure
and more, the nine wrong ones were of such traces (`docs/confidence.md`)."""
_SIDE = {
    Regime.COMPUTE: Side.COMPUTE,
    Regime.MEMORY: Side.MEMORY,
    Regime.OVERHEAD: Side.UNDERFILLED,
}


class Verdict(Struct, frozen=True):
    regime: Regime
    cause: str | None
    confidence: float
    runner_up: Regime | None


def judge(
    account: Account, split: Split, uncertainty_by_bound: Mapping[Side, float], activities: int,
    warming_up: bool = False, shared: bool = False,
) -> Verdict:  # fmt: skip
    """The regime of a window.

    Args:
        uncertainty_by_bound: Of each side's kernel time, the part that may well be on another side.
        activities: Records behind it; a handful says nothing.
        shared: Another process has turns of the device (`idle_causes.is_shared`).
        warming_up: The window is of the run's first steps, or something was compiled or loaded in it.
    """
    if (
        account.duration_ns <= 0 or activities < 2
    ):  # a span that ends with its one activity says nothing
        return Verdict(Regime.UNKNOWN, None, 0.0, None)
    if shared:
        return Verdict(Regime.UNKNOWN, "other_process", 0.0, None)
    shares = {
        Regime.COMPUTE: split.compute,
        Regime.MEMORY: split.memory,
        Regime.OVERHEAD: split.overhead,
    }
    booked = {
        Regime.COMPUTE: account.compute_ns,
        Regime.MEMORY: account.memory_ns,
        Regime.OVERHEAD: account.underfilled_ns,
    }
    open_ = {
        r: uncertainty_by_bound.get(_SIDE[r], 0.0) * booked[r] / account.duration_ns for r in booked
    }
    first, second = sorted(shares, key=lambda r: -shares[r])[:2]
    lead = shares[first] - shares[second]
    overhead_counts = first is Regime.OVERHEAD or (second is Regime.OVERHEAD and lead < MARGIN)
    cause = _cause(account) if overhead_counts else None
    sure = confidence(shares, open_, split.unknown)
    if warming_up or activities < LEAST_ACTIVITIES:
        sure = min(sure, MOST_AT_START)
    if (split.unknown > MOST_UNKNOWN and lead < split.unknown + MARGIN) or sure < FLOOR:
        # What is not known may be anything: it has to be less than what is nearest.
        near = shares[first] > split.unknown
        return Verdict(Regime.UNKNOWN, cause if near else None, sure, first if near else None)
    if lead < MARGIN:
        return Verdict(Regime.MIXED, cause, sure, first)
    return Verdict(first, cause, sure, second)


def confidence(
    shares: Mapping[Regime, float], uncertainty_by_bound: Mapping[Regime, float], unknown: float
) -> float:
    """How sure the verdict is, 0..0.99; never more for more unknown time.

    Clear, as far as a share leads each other one even with all that may belong there; mixed, as far as
    nothing that is open could part the two largest.

    Args:
        shares: Of the wall time.
        uncertainty_by_bound: Part of each share that may belong to another.
        unknown: Share that nobody can class.
    """
    every = sum(uncertainty_by_bound.values())
    clear = max(
        min(shares[r] - shares[o] - (every - uncertainty_by_bound[o]) for o in shares if o is not r)
        for r in shares
    )
    first, second = sorted(shares.values())[:-3:-1]
    by_lead = 0.5 + _CLEAR_SLOPE * (clear - unknown - MARGIN)
    mixed = 0.5 + _MIXED_SLOPE * (MARGIN - (first - second) - every - 2 * unknown)
    return round(min(_MOST, max(0.0, by_lead, mixed)), 3)


def parts_of_overhead(account: Account) -> dict[str, int]:
    return {
        **account.idle_ns,
        "exposed_comm": account.exposed_comm_ns,
        "exposed_copy": account.exposed_copy_ns,
        "underfilled": account.underfilled_ns,
    }


def _cause(account: Account) -> str | None:
    """The largest part of the overhead."""
    parts = parts_of_overhead(account)
    best = max(parts, key=lambda cause: parts[cause])
    return best if parts[best] > 0 else None
