"""How far ahead of the GPU the host runs: launch lead, and rho; and what of launches nobody recorded.

lead = kernel start - end of the call that launched it. Below 10 us nothing was queued: the GPU
waited for the host, or was about to; on an idle H200 a launch takes some 4 us.

Live, only the calls worth their price bring rows: those behind memsets do not. Such a memset
stands before a kernel that needs it, launched by the same thread right after it.

Profilers at times bring a few of a graph's nodes and no others (kineto#1062, HolisticTraceAnalysis#290).
What is missing looks like an idle device with work in its queue. Within a launch nothing waits for the
host, so a device that is idle between two nodes of one launch, or between its call and its first
recorded node, ran what is not in the file.
"""

import numpy as np

from brrrtop.analysis.facts.table import Facts
from brrrtop.model import intervals
from brrrtop.model.estimate import Launch
from brrrtop.model.tables import I8, Activities, ActivityType, Bool, picked
from collectors.vocabulary import CallClass, CopyKind, MemoryKind

AHEAD_NS = 10_000
LOADING_NS = 1_000_000
"""A launch that takes longer on an idle device did something else: the first one of a kernel loads its
module (lazy loading, CUDA programming guide): 1 to 24 ms in A100 traces, 0.6 s and 3 s where it sets
a library up; a launch of a kernel that is loaded takes 5 to 20 us."""
_FIRSTS = 0.8
"""Part of such time in first launches: below it they were slow for another reason, as a lock."""
LONGEST_GAP_NS = 20_000
"""Between two nodes of a graph, and between a launch's return and its first node. One trace of 70
launches that brought 345 nodes had 20 % of its window in longer ones; traces with all nodes 0 to 0.06 %."""
WAIT_NS = 20_000
"""A copy call that takes longer than this blocked on the device: an asynchronous one returns in
a few microseconds."""
_NEVER = np.iinfo(np.int64).max


def launch_lead(facts: Facts) -> Launch:
    """Lead and rho over the kernels whose launch is known; all `None` when none is."""
    activities, calls, call_rows = facts.window.activities, facts.window.calls, facts.call_rows
    known = (call_rows >= 0) & facts.kernels
    if not known.any():
        return Launch()
    leads = activities.starts_ns[known] - calls.ends_ns[call_rows[known]]
    durations = activities.ends_ns[known] - activities.starts_ns[known]
    ahead = leads >= AHEAD_NS
    total = int(durations.sum())
    return Launch(
        lead_p50_ns=int(np.median(leads)),
        share_under_10us=float(np.count_nonzero(~ahead) / len(leads)),
        rho=float(durations[ahead].sum() / total) if total else None,
        count=len(leads),
    )


def loading_ns(facts: Facts) -> int:
    """Device idle while kernels were loaded (`loads`)."""
    return int(loads(facts)[0].sum())


def loads(facts: Facts) -> tuple[I8, I8]:
    """How long the device idled in each of the first launches of kernels, which load modules and set
    libraries up, and when these launches ended.

    Profilers seldom record the loads as calls of their own. None where later launches, of kernels that
    are loaded, idle the device as long.
    """
    acts, calls, call_rows = facts.window.activities, facts.window.calls, facts.call_rows
    rows = np.flatnonzero((call_rows >= 0) & facts.kernels)
    begun, ended = calls.starts_ns[call_rows[rows]], calls.ends_ns[call_rows[rows]]
    if not (ended - begun >= LOADING_NS).any():
        return intervals.EMPTY, intervals.EMPTY
    order = np.argsort(begun, kind="stable")
    rows, begun, ended = rows[order], begun[order], ended[order]
    first = np.zeros(len(rows), np.bool_)
    first[np.unique(acts.name_ids[rows], return_index=True)[1]] = True
    _, low, high = facts.gaps
    long = ended - begun >= LOADING_NS
    idle = np.where(long, intervals.Cover(low, high).between(begun, ended), 0)
    first &= (idle > 0) & bool(idle[first].sum() >= _FIRSTS * idle.sum())
    return idle[first], ended[first]


def call_times(facts: Facts) -> tuple[I8, I8, Bool]:
    """When each activity was launched.

    Where calls of copies or memsets were not recorded at all, such a call is taken to lie as long
    before its activity as the calls of kernels that found the device waiting (medians), and not
    after the next recorded launch into its stream.

    Returns:
        Starts and ends of the calls in ns, and whether both are known; each of shape (n,).
    """
    activities, calls, call_rows = facts.window.activities, facts.window.calls, facts.call_rows
    known = call_rows >= 0
    starts, ends = (picked(times, call_rows, 0) for times in (calls.starts_ns, calls.ends_ns))
    leads = activities.starts_ns - ends
    late = known & facts.kernels & (leads < AHEAD_NS)
    missing = _is_unrecorded(activities, known)
    if not late.any() or not missing.any():
        return starts, ends, known
    usual = int(np.median((activities.starts_ns - starts)[late]))
    length = int(np.median((ends - starts)[late]))
    next_starts = _next_launch(activities, starts, known)
    supposed = np.minimum(activities.starts_ns - usual, next_starts)
    starts = np.where(missing, supposed, starts)
    ends = np.where(missing, np.minimum(supposed + length, next_starts), ends)
    return starts, ends, known | missing


def _is_unrecorded(activities: Activities, known: Bool) -> Bool:
    """Copies and memsets of a type without recorded calls, which a recorded launch follows."""
    missing = np.zeros(len(known), np.bool_)
    for kind in (ActivityType.COPY, ActivityType.MEMSET):
        rows = activities.types == kind
        if not known[rows].any():
            missing |= rows & ~known & (activities.graph_ids == 0)
    return missing & (_next_launch(activities, activities.starts_ns, known) >= 0)


def _next_launch(activities: Activities, starts: I8, known: Bool) -> I8:
    order = np.lexsort((activities.starts_ns, activities.stream_ids))
    count = len(order)
    places = np.where(known[order], np.arange(count), count)
    following = np.minimum.accumulate(places[::-1])[::-1]
    rows = order[np.minimum(following, count - 1)]
    same = (following < count) & (activities.stream_ids[rows] == activities.stream_ids[order])
    next_launch = np.empty(count, np.int64)
    next_launch[order] = np.where(same, starts[rows], -1)
    return next_launch


def unrecorded_from(facts: Facts, gaps: tuple[I8, I8], launched: tuple[I8, Bool]) -> I8:
    """Where in each gap the time begins in which unrecorded nodes ran; the gap's end where none did.

    Args:
        gaps: Starts and ends of the device's idle time.
        launched: End of the call that launched what ends each gap, and whether it was recorded.
    """
    activities, (starts, ends) = facts.window.activities, gaps
    # Old profilers write no graph ids, but tell the call.
    by_call = picked(facts.window.calls.classes, facts.call_rows, -1) == CallClass.GRAPH_LAUNCH
    nodes = np.flatnonzero((activities.graph_ids > 0) | by_call)
    if not len(nodes):
        return ends
    # Of the nodes that begin as a gap ends, the one whose launch came first.
    launches, first = np.unique(activities.correlations[nodes], return_index=True)
    begun = activities.starts_ns[nodes[first]][
        np.searchsorted(launches, activities.correlations[nodes])
    ]
    begun[activities.correlations[nodes] == 0] = _NEVER
    order = np.lexsort((begun, activities.starts_ns[nodes]))
    times, begun = activities.starts_ns[nodes[order]], begun[order]
    at = np.minimum(np.searchsorted(times, ends), len(times) - 1)
    call_ends, known = launched
    returned = np.where(known, np.clip(call_ends, starts, ends), ends)
    hidden = np.where(begun[at] < starts, starts, returned)
    return np.where((times[at] == ends) & (ends - hidden > LONGEST_GAP_NS), hidden, ends)


def blocking(facts: Facts) -> Bool:
    """Which calls made the host wait for the device: synchronisations and blocking copies."""
    activities, calls, call_rows = facts.window.activities, facts.window.calls, facts.call_rows
    waits: Bool = calls.classes == CallClass.SYNC
    copies = (activities.types == ActivityType.COPY) & (call_rows >= 0)
    copies &= (activities.copy_kinds == CopyKind.DTOH) | (
        (activities.copy_kinds == CopyKind.HTOD)
        & np.isin(activities.src_kinds, (MemoryKind.PAGEABLE, MemoryKind.UNKNOWN))
    )
    rows = call_rows[copies]
    long = calls.ends_ns[rows] - calls.starts_ns[rows] > WAIT_NS
    waits[rows[long]] = True
    return waits
