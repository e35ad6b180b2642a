"""Which whole steps stand for a window: some that follow each other, as long as its steps are; and the host's
part of them: what it does between two calls, and in them."""

import numpy as np
from msgspec import Struct

from brrrtop.analysis.account.idle_causes import BACK_TO_BACK_NS, DISPATCH_NS
from brrrtop.analysis.facts.ranges import host_steps
from brrrtop.analysis.facts.table import Facts
from brrrtop.ledger.account import UNTRACED
from brrrtop.model import intervals
from brrrtop.model.tables import F8, I8, Bool, Window, edges
from collectors.vocabulary import PAINT, MarkClass

LONG_CALL = 4.0
"""Times the usual call: a longer one on a busy device stood before a full launch queue."""
MOST_CALL_NS = 10_000.0
"""Of a usual call: where more is usual, most of them stood before a full queue."""
FULL_QUEUE = 900
"""Launches ahead of the device from which the queue counts as full; it takes 1,024."""
LATE = 0.1
"""Of the batches: workers set the pace where more of them had none ready behind them; of four workers that
are done together it is each fourth."""
NO_WORKERS = ("num_workers=0", "_SingleProcess")
"""In the names of input marks of a loader that loads in the loop itself."""


class Iterations(Struct, frozen=True):
    host: tuple[tuple[int, int], ...]
    """On the host's clock, stretches of steps that follow each other: begin and end."""
    count: int
    measured_ns: float
    """Mean time of one."""

    def holds(self, times_ns: I8) -> Bool:
        """Which times lie in them."""
        inside = np.zeros(len(times_ns), np.bool_)
        for begin, end in self.host:
            inside |= (times_ns >= begin) & (times_ns < end)
        return inside


def iterations(facts: Facts, most_nodes: int) -> Iterations | None:
    """Steps of the window with at most so many nodes, at least one.

    Where no steps are known, all of the window counts as one; None where nothing ran in it.
    """
    window = facts.window
    if not len(window.activities):
        return None
    bounds = _bounds(facts)
    # What the host did before the window begins was cut off it.
    bounds = [pair for pair in bounds if pair[0] >= window.span.t0_ns] or bounds
    bounds = bounds or _whole(facts)
    launched = np.sort(launch_times(facts)[0])
    counts = [int(np.diff(np.searchsorted(launched, pair))[0]) for pair in bounds]
    usual = float(np.median(counts))
    whole = [(pair, n) for pair, n in zip(bounds, counts, strict=True) if 2 * n >= usual and n]
    if not whole:
        return None
    lengths = np.array([pair[1] - pair[0] for pair, _ in whole], np.float64)
    chosen = _nearest(lengths, max(1, int(most_nodes // max(usual, 1.0))))
    pairs = [whole[i][0] for i in chosen]
    return Iterations(tuple(pairs), len(pairs), _measure(facts, pairs))


def whole_steps(facts: Facts) -> list[I8]:
    """Rows of the activities that each whole step launched, in order; empty where no steps are known."""
    if not len(facts.window.activities):
        return []
    launched = launch_times(facts)[0]
    order = np.argsort(launched, kind="stable")
    bounds = np.searchsorted(launched[order], np.array(_bounds(facts), np.int64))
    return [order[low:high] for low, high in bounds.reshape(-1, 2).tolist() if high > low]


def _measure(facts: Facts, pairs: list[tuple[int, int]]) -> float:
    """Mean time of the steps on the device: from the end of what was launched before one to the end
    of what was launched in it. The first step of a source has nothing before it: without it, or
    where it is the only one, from its first start."""
    window, begins = facts.window, launch_times(facts)[0]
    order = np.argsort(begins, kind="stable")
    begins = begins[order]
    reach = np.maximum.accumulate(window.activities.ends_ns[order])
    traced = [] if window.observed is None else [span.t0_ns for span in window.observed]
    total, count = 0, 0
    for number, (begin, end) in enumerate(pairs):
        before, last = np.searchsorted(begins, (begin, end))
        started = int(window.activities.starts_ns[order[before]])
        opened = max((t for t in traced if t <= started), default=None)
        if before and (opened is None or reach[before - 1] >= opened):
            opened = int(reach[before - 1])
        elif opened is None:
            if number + 1 < len(pairs):
                continue
            opened = min(started, max(begin, window.span.t0_ns))
        total, count = total + int(reach[last - 1]) - opened, count + 1
    return total / count


def _nearest(lengths: np.ndarray, most: int) -> list[int]:
    """The run of at most so many whose mean is nearest to the mean of all."""
    size = min(most, len(lengths))
    sums = np.cumsum(np.concatenate(([0.0], lengths)))
    means = (sums[size:] - sums[:-size]) / size
    at = int(np.argmin(np.abs(means - lengths.mean())))
    return list(range(at, at + size))


def launch_times(facts: Facts) -> tuple[I8, I8]:
    """Start and end of the call that launched each activity, shape (n,).

    An activity whose call was not recorded counts as launched with the one that ran before it: its
    own start may be long after. Where no call is known, launches take no time, right at the start.
    """
    acts, calls, call_rows = facts.window.activities, facts.window.calls, facts.call_rows
    known = call_rows >= 0
    if not known.any():
        return acts.starts_ns, acts.starts_ns
    burst = _bursts(facts.window)
    rows = np.arange(len(acts))
    last = np.maximum.accumulate(np.where(known, rows, -1))
    following = np.minimum.accumulate(np.where(known, rows, len(acts))[::-1])[::-1]
    other = (last < 0) | (burst[last] != burst)
    last = np.where(other & (following < len(acts)), following, last)
    at = call_rows[np.minimum(last, len(acts) - 1)]
    return calls.starts_ns[at], np.where(known, calls.ends_ns[at], calls.starts_ns[at])


def _bounds(facts: Facts) -> list[tuple[int, int]]:
    """Begin and end of each whole step on the host's clock."""
    marks, steps = facts.window.marks, facts.steps
    rows = np.flatnonzero(marks.classes == MarkClass.STEP)
    begins, ends = marks.starts_ns[rows], marks.ends_ns[rows]
    if steps.source == "marks":
        times = np.sort(ends[begins == ends])
        begins, ends = times[:-1], times[1:]
    elif steps.source == "annotations":
        ranges = host_steps(facts)
        if not len(ranges):
            return []
        begins, ends = ranges.starts_ns, np.append(ranges.starts_ns[1:], ranges.ends_ns[-1])
    else:
        times = _period_times(facts)
        begins, ends = times[:-1], times[1:]
    pairs = zip(begins.tolist(), ends.tolist(), strict=True)
    return _traced_spans(facts, [(a, b) for a, b in pairs if b > a])


def _whole(facts: Facts) -> list[tuple[int, int]]:
    """The stretch of the host that launched all of the window's last traced span."""
    begins, ends = launch_times(facts)
    bursts = _bursts(facts.window)
    last = bursts == bursts[-1]
    return [(int(begins[last].min()), int(ends[last].max()) + 1)]


def _bursts(window: Window) -> I8:
    """Number of the traced span that each activity ran in."""
    begun, _ = edges(window.observed or ())
    return np.searchsorted(begun, window.activities.starts_ns, "right").astype(np.int64)


def _period_times(facts: Facts) -> I8:
    """When the host launched the kernel that begins each step."""
    window, steps = facts.window, facts.steps
    acts = window.activities
    begins, _ = edges(steps.spans)
    if steps.spans:
        begins = np.append(begins, steps.spans[-1].t1_ns)
    at = np.minimum(np.searchsorted(acts.starts_ns, begins), len(acts) - 1)
    rows = facts.call_rows[at]
    known = rows >= 0
    calls = window.calls.starts_ns
    return np.where(known, calls[np.maximum(rows, 0)], acts.starts_ns[at]) if len(calls) else begins


def _traced_spans(facts: Facts, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of the steps those whose work ran in one traced span, and whose host was traced all along."""
    window = facts.window
    if window.observed is None or not pairs:
        return pairs
    launched = launch_times(facts)[0]
    order = np.argsort(launched, kind="stable")
    bursts = _bursts(window)[order]
    opened = [int(launched.min()), *(span.t0_ns for span in window.observed)]
    at = np.searchsorted(launched[order], np.array(pairs, np.int64))
    return [
        (begin, end)
        for (begin, end), (low, high) in zip(pairs, at.tolist(), strict=True)
        if high > low
        and bursts[low] == bursts[high - 1]
        and opened[bursts[low]] - begin <= UNTRACED * (end - begin)
    ]


class Nodes(Struct, frozen=True, eq=False):
    """Launches and waits of some steps, sorted by their place on the host's clock."""

    starts_ns: I8
    ends_ns: I8
    rows: I8
    calls: I8
    waits: Bool


def before(nodes: Nodes, repeats: Iterations) -> tuple[F8, I8]:
    """Host time between calls, and from when it counts; the first one's wraps round to the last."""
    reach = np.maximum.accumulate(nodes.ends_ns)
    previous = np.concatenate((nodes.starts_ns[:1], reach[:-1]))
    before = np.maximum(nodes.starts_ns - previous, 0).astype(np.float64)
    for begin, end in repeats.host:
        first = int(np.searchsorted(nodes.starts_ns, begin))
        last = int(np.searchsorted(nodes.starts_ns, end)) - 1
        if first > last:
            continue
        tail = max(0, end - int(reach[last]))
        before[first] = max(0, int(nodes.starts_ns[first]) - begin) + tail
        previous[first] = min(begin, int(nodes.starts_ns[first]))
    return before, previous


def without_back_pressure(call: F8, rows: Bool, nodes: Nodes, started: I8) -> F8:
    """Calls without the time they stood before a full launch queue: the device had work meanwhile."""
    if not rows.any():
        return call
    begun = np.searchsorted(np.sort(started[rows]), nodes.ends_ns)
    full = rows & (np.cumsum(rows) - begun > FULL_QUEUE)
    free = rows & ~full
    usual = min(float(np.median(call[free])), MOST_CALL_NS) if free.any() else MOST_CALL_NS / 2
    long = rows & (call > LONG_CALL * usual) & (started > nodes.ends_ns)
    long |= full & (call > usual)
    return np.where(long, usual, call)


def without_calls(
    nodes: Nodes, idle_from: I8, repeats: Iterations, window: Window
) -> tuple[F8, F8]:
    """Host time before each launch and idle time ahead of it, where no calls were recorded.

    Idle time as short as Python between two launches, or within a mark, is the host's; why a longer
    one is idle nobody knows: whatever is edited, it stays.
    """
    spacing, previous = before(nodes, repeats)
    gap = np.maximum(nodes.starts_ns - idle_from, 0).astype(np.float64)
    parts = named(window, previous, nodes.starts_ns, spacing).values()
    marked = sum(parts, np.zeros(len(spacing))) > 0
    host = (gap > BACK_TO_BACK_NS) & ((spacing <= DISPATCH_NS) | marked)
    return np.where(host, spacing, 0.0), np.where(host, 0.0, gap)


def batch_ns(window: Window, repeats: Iterations) -> float:
    """Time that workers take for a step's batch if it is they who set the pace; 0 without workers."""
    marks = window.marks
    rows = np.flatnonzero((marks.classes == MarkClass.INPUT) & repeats.holds(marks.starts_ns))
    names = {window.names[i] for i in np.unique(marks.name_ids[rows])}
    alone = any(word in name for name in names for word in NO_WORKERS)
    return repeats.measured_ns if len(rows) and not alone and _is_late(window) else 0.0


def _is_late(window: Window) -> bool:
    """Whether batches do not lie ready; of a trace nobody knows."""
    marks = window.watched
    if marks is None:
        return True
    ready = marks.values[(marks.classes == MarkClass.INPUT) & (marks.values >= 0)]
    return not len(ready) or bool((ready == 0).mean() >= LATE)


def named(window: Window, previous: I8, begun: I8, before: F8) -> dict[str, F8]:
    """Parts of the host's time between calls that marks name."""
    marks = window.marks
    layers = []
    for _, classes in PAINT:
        rows = np.isin(marks.classes, np.array([int(c) for c in classes]))
        layers.append(intervals.merge_unsorted(marks.starts_ns[rows], marks.ends_ns[rows]))
    painted = intervals.paint(layers)
    low, high = np.minimum(previous, begun), begun
    return {
        cause: np.minimum(intervals.Cover(*layer).between(low, high), before).astype(np.float64)
        for (cause, _), layer in zip(PAINT, painted, strict=True)
    }
