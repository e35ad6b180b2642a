"""Why nothing was resident: the mechanical class of every gap, then the host's cause.

Mechanics (exact, from launches; a superset of HolisticTraceAnalysis's classes, on the device's
union instead of per stream): the next activity was launched after the gap began (host late), is
being launched (launch), was queued and came within 5 us (back to back) or later (device wait).
Causes of the host's part: what the trainer was seen doing, most specific first; else a
synchronisation that let the queue run dry; else on the way to the next launch, or elsewhere.
Of `elsewhere`, stack samples give `io` its part.

No cause, on purpose: `gil`, since samples say where a thread stands, never whether it holds the
interpreter's lock or waits for it, and the sampler needs that lock itself: late samples look alike
whoever holds it. `throttled`, since low clocks make kernels longer and leave nothing idle: the
advice of that name reads the clocks.
"""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from brrrtop.analysis.facts.host_activity import SET_UP_NS
from brrrtop.analysis.facts.launches import AHEAD_NS, blocking, call_times, unrecorded_from
from brrrtop.analysis.facts.table import WORK, Facts
from brrrtop.model import intervals
from brrrtop.model.account import MECHANICAL_CLASSES
from brrrtop.model.intervals import Cover
from brrrtop.model.tables import I8, Bool, Calls, Marks, Window
from collectors.vocabulary import PAINT, CallClass, MarkClass, Metric

BACK_TO_BACK_NS = 5_000
DISPATCH_NS = 300_000
"""Python between two launches of a training step takes tens of microseconds; a longer stretch
outside any op is the host being elsewhere."""
REFILL_NS = 3_000_000
"""Python and the first launches after a wait take a millisecond or two; who launches nothing for
longer is away. Recorded on an H200: under 1 ms after each of 6 500 waits of loops that read
values back, and 3.3 to 42 ms where the host worked on what it had read."""
_CALLS = {"allocator": CallClass.ALLOC, "compile": CallClass.MODULE}
"""Driver calls that name a cause as marks do."""
Causes = defaultdict[str, I8]
"""Time of every gap by cause."""
STOPPED_NS = 2_000_000
"""A kernel that lasts so much longer than its like was stopped for another process: beside a busy one on an
H200 by 2.5 ms; in 106 recordings of GPUs that nobody shared none did."""
TWIN = 0.02
"""Kernels whose lengths differ by less are of one size. Of large models a few kernels are 2 ms longer than
most of their like, in each step: 4 of 68 recordings of `benchmarks/gains`."""


def _layers(facts: Facts) -> list[tuple[I8, I8]]:
    layers, calls, marks = [], facts.window.calls, facts.window.marks
    for cause, classes in PAINT:
        starts, ends = facts.saves if cause == "checkpoint" else marks.union(*classes)
        if cause in _CALLS:
            rows = calls.classes == _CALLS[cause]
            starts, ends = intervals.merge_unsorted(
                np.concatenate((starts, calls.starts_ns[rows])),
                np.concatenate((ends, calls.ends_ns[rows])),
            )
        layers.append((starts, ends))
    return intervals.paint(layers)


def gaps_of(busy: tuple[I8, I8], low: int, high: int) -> tuple[I8, I8]:
    """The idle intervals of `[low, high)`, given the merged busy ones inside it."""
    starts = np.concatenate(([low], busy[1])).astype(np.int64)
    ends = np.concatenate((busy[0], [high])).astype(np.int64)
    keep = ends > starts
    return starts[keep], ends[keep]


def others_there(window: Window) -> tuple[I8, I8]:
    """When other processes were on the device, merged; never where nobody counted them.

    A count holds until the next one, the first one also before itself. It says that they were
    there, not that they computed.
    """
    gauges, span = window.gauges, window.span
    rows = (gauges.metrics == Metric.FOREIGN_PROCESS_COUNT) & np.isfinite(gauges.values)
    rows &= np.isin(gauges.device_ids, (window.device.device_id, -1))
    if not rows.any():
        return intervals.EMPTY, intervals.EMPTY
    starts = gauges.times_ns[rows].astype(np.int64)
    ends = np.append(starts[1:], max(span.t1_ns, starts[-1]))
    starts[0] = min(span.t0_ns, starts[0])
    there = gauges.values[rows] > 0
    return intervals.merge(starts[there], ends[there])


class GapCauses(Struct, frozen=True, eq=False):
    """The gaps of a span one by one, and what each lost to every cause that has any; shape (n,).

    Causes and mechanics each add up to the gaps.
    """

    starts_ns: I8
    ends_ns: I8
    causes_ns: Mapping[str, I8]
    mechanical_ns: dict[str, int]
    unrecorded_ns: int = 0
    """When nodes of CUDA graphs ran that nobody recorded: no part of these gaps."""


def by_gap(
    facts: Facts, busy: tuple[I8, I8], span: tuple[int, int], others: tuple[I8, I8]
) -> GapCauses:
    """Every idle nanosecond of the span, by cause and by mechanics; `io` is part of `host`.

    Args:
        busy: Merged, and clipped to the span.
        others: When another process was on the device, merged.
    """
    marks = facts.window.marks
    starts, ends = gaps_of(busy, *span)
    causes: Causes = defaultdict(lambda: np.zeros(len(starts), np.int64))
    if not len(starts):
        return GapCauses(starts, ends, causes, dict.fromkeys(MECHANICAL_CLASSES, 0))
    call_starts, call_ends, known = _next_call(facts, starts, ends)
    full_ends = ends
    ends = unrecorded_from(facts, (starts, full_ends), (call_ends, known))
    ends = np.where(Cover(*others).between(ends, full_ends) > 0, full_ends, ends)
    length = ends - starts
    late = known & (call_starts > starts)
    host_ends = np.where(late, np.minimum(ends, call_starts), starts)
    launching = known & (late | (call_ends > starts))
    queued = known & ~launching
    soon = queued & (length < BACK_TO_BACK_NS)
    waited = queued & ~soon
    launch_part = np.where(launching, ends - host_ends, 0)
    parts = (host_ends - starts, launch_part, length[soon], length[waited], length[~known])
    mechanical = dict(zip(MECHANICAL_CLASSES, (int(part.sum()) for part in parts), strict=True))
    shared = np.where(waited, Cover(*others).between(starts, ends), 0)
    causes["other_process"] += shared
    causes["device"] += np.where(waited, length - shared, 0)
    causes["launch"] += np.where(soon, length, 0)
    # Without a launch record the whole gap may be the host's: marks can still name it.
    host_ends = np.where(known, host_ends, ends)
    rest = host_ends - starts
    for (cause, _), layer in zip(PAINT, _layers(facts), strict=True):
        covered = Cover(*layer).between(starts, host_ends)
        causes[cause] += covered
        rest = rest - covered
    faulted = np.where(_ends_in_fault(facts, ends), rest, 0)
    causes["host"] += faulted
    rest = rest - faulted
    rest, launch_part = _sync_times(causes, facts, busy, (starts, rest, launch_part))
    away = np.where(known, _absences(marks, starts, host_ends, rest), 0)
    causes["launch"] += launch_part + np.where(known, rest - away, 0)
    causes["host"] += away
    causes["unknown"] += np.where(known, 0, rest)
    return GapCauses(starts, ends, causes, mechanical, int((full_ends - ends).sum()))


def _next_call(facts: Facts, starts: I8, ends: I8) -> tuple[I8, I8, Bool]:
    """Start and end of the call that launched what ended each gap, and whether it is known."""
    activities = facts.window.activities
    if not len(activities):
        zero = np.zeros(len(starts), np.int64)
        return zero, zero, np.zeros(len(starts), np.bool_)
    order = np.argsort(activities.starts_ns, kind="stable")
    at = np.searchsorted(activities.starts_ns[order], ends, "left")
    rows = order[np.minimum(at, len(order) - 1)]
    call_starts, call_ends, known = call_times(facts)
    return call_starts[rows], call_ends[rows], known[rows] & (at < len(order))


def _ends_in_fault(facts: Facts, ends: I8) -> Bool:
    """Whether a page of managed memory moved as a gap ended: the host was at work, and read or wrote it."""
    acts = facts.window.activities
    migrates = np.unique(acts.starts_ns[facts.migrations & (facts.call_rows < 0)])
    return np.asarray(np.isin(ends, migrates))


def _sync_times(
    causes: Causes, facts: Facts, busy: tuple[I8, I8], gaps: tuple[I8, I8, I8]
) -> tuple[I8, I8]:
    """Charges the refill after a wait to the wait; returns what is left of host and launch parts.

    The gap in which the wait ended is its own: the host slept until the queue was empty. Besides,
    while it waited for W ns of device work it could have run ahead by W ns, so the gaps that
    follow are charged to it up to W, until the host is ahead again (a lead of 10 us). A host that
    then launches nothing for longer than `REFILL_NS` is away with something of its own: not the
    wait's.
    """
    starts, rest, launch_part = gaps
    activities, calls, call_rows = facts.window.activities, facts.window.calls, facts.call_rows
    waits = np.flatnonzero(blocking(facts))
    if not len(waits):
        return rest, launch_part
    drained, away = _drain_times(calls, waits, starts, rest)
    causes["sync"] += drained
    rest = rest - drained
    debts = Cover(*busy).between(calls.starts_ns[waits], calls.ends_ns[waits])
    known = np.flatnonzero(call_rows >= 0)
    leads = activities.starts_ns[known] - calls.ends_ns[call_rows[known]]
    ahead = np.sort(activities.starts_ns[known[leads >= AHEAD_NS]])
    refill = np.where(away, 0, rest)
    need = refill + launch_part
    charged = _spend((calls.starts_ns[waits], debts), ahead, (starts, need))
    causes["sync"] += charged
    from_host = np.minimum(charged, refill)
    return rest - from_host, launch_part - (charged - from_host)


def _drain_times(calls: Calls, waits: I8, starts: I8, rest: I8) -> tuple[I8, Bool]:
    """The part of each gap that is a wait's that came back in it, and whether the host was away.

    A refill belongs to the wait with all of the host's part; of an absence only what was before it.
    """
    began = calls.starts_ns[waits]
    reach = np.maximum.accumulate(calls.ends_ns[waits])
    at = np.searchsorted(began, starts, "right") - 1
    returned = reach[np.maximum(at, 0)]
    drained = (at >= 0) & (returned >= starts)
    waited = np.where(drained, np.minimum(rest, returned - starts), 0)
    away = rest - waited > REFILL_NS
    return np.where(away, waited, np.where(drained, rest, 0)), away


def _spend(waits: tuple[I8, I8], ahead: I8, gaps: tuple[I8, I8]) -> I8:
    """What each gap takes from the debts before it, shape of the gaps.

    A queue's balance (Lindley recursion): debts add, gaps take down to zero, and every time in
    `ahead` empties it. Written as a running minimum, one segment between two resets.
    """
    count = len(waits[0])
    # A wait's debt is due from its start: the device drains before the call returns.
    segments = np.concatenate(
        (np.searchsorted(ahead, waits[0], "right"), np.searchsorted(ahead, gaps[0], "right"))
    )
    times = np.concatenate((waits[0], gaps[0]))
    change = np.concatenate((waits[1], -gaps[1]))
    order = np.lexsort((np.arange(len(times)) >= count, times))
    step = change[order]
    _, segment = np.unique(segments[order], return_inverse=True)
    level = np.cumsum(step)
    reach = int(np.abs(step).sum()) + 1
    opening = np.empty(len(order), np.bool_)
    opening[0] = True
    np.not_equal(segment[1:], segment[:-1], out=opening[1:])
    base = (level - step)[np.flatnonzero(opening)][segment]
    inside = level - base
    # Segments are kept apart by more than any balance can move.
    shifted = np.minimum(inside, 0) - segment * reach
    floor = np.minimum.accumulate(shifted) + segment * reach
    balance = inside - floor
    before = np.where(opening, 0, np.concatenate(([0], balance[:-1])))
    paid = np.empty(len(order), np.int64)
    paid[order] = before + np.maximum(step, 0) - balance
    return np.clip(paid[count:], 0, gaps[1])


def _absences(marks: Marks, starts: I8, ends: I8, rest: I8) -> I8:
    """Of the nameless rest of each gap the long absences; dispatching ops is on the way to a launch.

    Ops that began and ended while the host was late are not: what launched nothing ran on the CPU.
    """
    at = np.maximum(np.searchsorted(starts, marks.starts_ns, "right") - 1, 0)
    within = (marks.starts_ns >= starts[at]) & (marks.ends_ns <= ends[at])
    on_host = (marks.classes == MarkClass.OP) & within
    dispatch = Cover(*marks.take(~on_host).union(MarkClass.OP, MarkClass.OPTIMIZER)).between(
        starts, ends
    )
    away = np.maximum(rest - np.where(dispatch < SET_UP_NS, dispatch, 0), 0)
    return np.where(away > DISPATCH_NS, away, 0)


def is_shared(facts: Facts) -> bool:
    """Whether the device stopped kernels for turns of another process, which their records hold.

    Without MPS processes run one at a time: the account then says when kernels were resident, not when
    they ran.
    """
    window, labels, acts = facts.window, facts.labels, facts.window.activities
    if window.mps or not len(acts) or not len(others_there(window)[0]):
        return False
    lengths = acts.ends_ns - acts.starts_ns
    order = np.lexsort((lengths, labels.group_of))
    counts = np.bincount(labels.group_of, minlength=len(labels.groups))
    usual = lengths[order][np.minimum(np.cumsum(counts) - (counts + 1) // 2, len(order) - 1)]
    stopped = lengths - usual[labels.group_of] >= STOPPED_NS
    stopped &= labels.classes == WORK
    # A kernel that is as long in each step has another one beside it; turns end at any time.
    sorted_ns, groups = lengths[order], labels.group_of[order]
    near = (np.diff(sorted_ns) <= TWIN * sorted_ns[1:]) & (np.diff(groups) == 0)
    has_twin = np.append(near, False) | np.insert(near, 0, False)
    return bool((stopped[order] & ~has_twin).any())
