"""Where training steps begin and end: from marks, else from the period of the kernel sequence."""

import re
from typing import Any

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.facts.launches import loading_ns
from brrrtop.analysis.facts.ranges import HostSteps, host_steps, lies_within_ranges
from brrrtop.analysis.facts.table import Facts, figures_of_ops
from brrrtop.model.estimate import Steps
from brrrtop.model.intervals import Cover, holders
from brrrtop.model.run import WARM_UP_STEPS
from brrrtop.model.tables import I8, Bool, Marks, OpSignature, Span, Window, edges, picked, spans_of
from collectors.vocabulary import CallClass, MarkClass

LOADING_SHARE = 0.2
"""Of the window idle while kernels load: more than that is not the run's steady state."""
SET_UP_NS = 50_000_000
"""Of a call for memory: a context takes 100 ms to 4 s, a large allocation a few."""
_DILUTED = 2 * WARM_UP_STEPS
"""In more steps than this a warm-up no longer shapes the whole."""
_ALGORITHMS = (
    "implicit_(convolve|gemm)",
    "explicit_convolve|im2col",
    "winograd_nonfused",
    "fft[12]d",
)
"""Kinds of cuDNN's algorithms for convolutions, by names of kernels."""
_LEAST_KERNELS = 12
_LEAST_STARTS = 3
"""Of steps: fewer show no distances that could be alike."""
_TRIED = 64
_MOST_LAYERS, _OTHERS = 128, 0.5
"""No model has more alike. Of what comes before the first step, at least that part is like a step's end."""
_MATCH_SHARE = 0.9
_LEAST_OF_ALL = 0.5
"""Of all kernels, and of the time, that the steps of a period take: else most of it is something else."""
_AHEAD = 0.9
"""A host whose marks are closer than this many median steps was ahead of the GPU."""
_UNEVEN = 1.5
"""Times the time from the first kernel on that the ranges of evenly waiting steps are."""
_RAN = 0.9
"""A step of whose launches fewer than these were seen to run was cut; a few records may be lost."""
ENOUGH = 0.5
"""Part of the traced time that whole steps must hold; and part of the usual number of launches that
a step must have: one whose tracing stopped halfway has fewer."""
_OF_SAMPLES = re.compile(r"conv|(?<!vector_)norm|attention|softmax|pool|gelu|relu|silu|addmm")
"""Ops over activations, samples first: weights go through none of them as the first tensor."""
SEEN, ALIKE = 0.1, 0.9
"""Of these ops: so many lead with the samples, and so many with a multiple: windows, heads, tokens."""


def find_steps(facts: Facts) -> Steps:
    """The whole steps of the window; empty when nothing repeats."""
    steps = _find(facts)
    return replace(steps, warming_up=_warming_up(facts, steps))


def _find(facts: Facts) -> Steps:
    marks = facts.window.marks
    ranges = host_steps(facts)
    if len(ranges):
        return _from_ranges(ranges, facts)
    rows = np.flatnonzero(marks.classes == MarkClass.STEP)
    if len(rows) >= 2:
        return _from_points(marks, rows, facts.window)
    return _from_period(facts)


def _warming_up(facts: Facts, steps: Steps) -> bool:
    """It has not begun to train yet, a compile ran, loading kernels or setting the device up shaped the
    window, or of a few steps only the first ones loaded any, as CUDA does at each one's first launch.
    Without steps, the last load came after half of what the GPU did, or loads and calls for memory shaped
    the window."""
    window = facts.window
    if window.stage or (window.marks.classes == MarkClass.COMPILE).any():
        return True
    if not steps.spans and _tries_convolutions(window):
        return True
    traced_ns = sum(span.duration_ns for span in window.traced)
    if traced_ns and max(loading_ns(facts), _set_up_ns(facts)) >= LOADING_SHARE * traced_ns:
        return True
    loads = window.calls.starts_ns[window.calls.classes == CallClass.MODULE]
    loads = loads[loads >= window.span.t0_ns]
    if not len(loads) or len(steps.spans) > _DILUTED:
        return False
    if steps.spans:
        return bool(loads[-1] < steps.spans[:WARM_UP_STEPS][-1].t1_ns)
    after = window.activities.starts_ns >= loads[-1]
    begins_ns = int(_idle_in(facts, CallClass.MODULE, CallClass.ALLOC).sum())
    late = facts.total_ns(after) < facts.total_ns(~after)
    return late or begins_ns >= LOADING_SHARE * traced_ns


def _tries_convolutions(window: Window) -> bool:
    """Whether cuDNN looks for its quickest algorithms: it runs one of each kind, in memory that it takes."""
    names = [window.names[i] for i in np.unique(window.activities.name_ids)]
    kinds = sum(any(re.search(kind, name) for name in names) for kind in _ALGORITHMS)
    taken = int((window.calls.classes == CallClass.ALLOC).sum())
    return kinds == len(_ALGORITHMS) <= taken


def _idle_in(facts: Facts, *classes: CallClass) -> I8:
    """How long the device idled in each call of these classes."""
    calls, (_, low, high) = facts.window.calls, facts.gaps
    rows = np.flatnonzero(np.isin(calls.classes, classes))
    return Cover(low, high).between(calls.starts_ns[rows], calls.ends_ns[rows])


def _set_up_ns(facts: Facts) -> int:
    """The longest call that takes memory while the device idles, where it is no mere allocation and more
    follow: a process's first one sets up CUDA, and what comes then takes its memory for the first time."""
    idle = _idle_in(facts, CallClass.ALLOC)
    longest = int(idle.max(initial=0))
    if longest < SET_UP_NS or len(idle) - 1 - int(idle.argmax()) < WARM_UP_STEPS:
        return 0
    return longest


def on_device(steps: Steps, whole: tuple[Span, ...], judged_ns: int) -> Steps:
    """The same as steps of the GPU, whose time is accounted for; marks are the host's.

    A host that runs ahead, as it does in a burst after a wait, passes many marks while the GPU does
    one step: those bound no step of the GPU, and between them fewer end than it is judged on. Where
    most marks are of such a host, their distance is no step's length either: a step on the device is.

    Args:
        steps: As the marks tell them.
        whole: Steps on the device that are judged; empty where none were told apart.
        judged_ns: The time accounted for.
    """
    mean_ns = sum(span.duration_ns for span in steps.spans) / max(1, len(steps.spans))
    if whole:
        step_ns, usual = steps.step_ns, int(np.median([span.duration_ns for span in whole]))
        if steps.spans and max(mean_ns, step_ns or 0) < _AHEAD * usual:
            step_ns = usual
        return replace(steps, count=len(whole), spans=whole, step_ns=step_ns)
    if steps.source != "marks" or not steps.step_ns or mean_ns > _AHEAD * steps.step_ns:
        return steps
    return replace(steps, count=max(1, round(judged_ns / steps.step_ns)), spans=())


def between_steps(steps: Steps) -> Span | None:
    """From the first step's start to the last one's: whole steps with the waits between them.

    Where steps are ranges, the last one ends with its last kernel, so that a window of them lacks
    one wait. None below three steps, and where steps are told by points.
    """
    if steps.source != "annotations" or len(steps.spans) < 3:
        return None
    return Span(steps.spans[0].t0_ns, steps.spans[-1].t0_ns)


def _from_ranges(ranges: HostSteps, facts: Facts) -> Steps:
    rows = _run_through(ranges, facts)
    if not len(rows):
        return Steps()
    starts, ends = ranges.starts_ns[rows], ranges.ends_ns[rows]
    gpu = _gpu_boundaries(facts, starts)
    if len(rows) == 1:  # of more steps each holds the wait for the next one's first work
        gpu[0] = min(gpu[0], max(int(starts[0]), facts.window.span.t0_ns))
    last = _gpu_end(facts, int(ends[-1]))
    spans = [Span(int(a), int(b)) for a, b in zip(gpu, [*gpu[1:], max(last, gpu[-1])], strict=True)]
    durations = np.array([s.duration_ns for s in spans], np.int64)
    if len(rows) > 1 and ends[-1] - starts[0] >= durations.sum():
        # The host sets the pace: as long as its own ranges.
        if (
            ends[-1] - starts[0] > _UNEVEN * durations.sum()
        ):  # most was waited before the first kernel
            spans[0] = Span(min(int(starts[0]), spans[0].t0_ns), spans[0].t1_ns)
        durations = np.append(np.diff(starts), ends[-1] - starts[-1])
    return Steps(
        count=len(rows),
        step_ns=int(np.median(durations)),
        source="annotations",
        confidence=ranges.confidence if len(rows) > 1 else 0.8,
        spans=tuple(spans),
    )


def _run_through(ranges: HostSteps, facts: Facts) -> I8:
    """The ranges without those at either end whose launches did not all run in the window.

    The host is ahead: a step that it has left may just have begun on the device.
    """
    calls, call_rows = facts.window.calls, facts.call_rows
    launches = np.flatnonzero(np.isin(calls.classes, (CallClass.LAUNCH, CallClass.GRAPH_LAUNCH)))
    rows = np.arange(len(ranges))
    if not len(launches):
        return rows
    ran = np.zeros(len(calls), np.bool_)
    ran[call_rows[call_rows >= 0]] = True
    done = np.concatenate([[0], np.cumsum(ran[launches])])
    times = calls.starts_ns[launches]
    low, high = (np.searchsorted(times, t) for t in (ranges.starts_ns, ranges.ends_ns))
    count = high - low
    cut = (count == 0) | (done[high] - done[low] < _RAN * count)
    kept = np.flatnonzero(~cut)
    return rows[kept[0] : kept[-1] + 1] if len(kept) else rows[:0]


def _gpu_end(facts: Facts, host_end_ns: int) -> int:
    """End of the device work launched before a host time; of all of it when no launch is known."""
    launched = picked(facts.window.calls.starts_ns, facts.call_rows, -1)
    ends = facts.window.activities.ends_ns[launched < host_end_ns]
    return int(ends.max()) if len(ends) else host_end_ns


def _gpu_boundaries(facts: Facts, times: I8) -> list[int]:
    """Start on the device of the first work launched at or after each host time.

    Of the stream that runs the most kernel time: copies on a stream of their own run steps ahead.
    """
    activities, calls, call_rows = facts.window.activities, facts.window.calls, facts.call_rows
    known = np.flatnonzero(call_rows >= 0)
    if not len(known):
        return [int(t) for t in times]
    spent = np.where(facts.kernels, activities.ends_ns - activities.starts_ns, 0)
    streams, inverse = np.unique(activities.stream_ids[known], return_inverse=True)
    main = np.bincount(inverse, weights=spent[known], minlength=len(streams)).argmax()
    known = known[inverse == main]
    launched = calls.starts_ns[call_rows[known]]
    order = np.argsort(launched, kind="stable")
    starts = activities.starts_ns[known[order]]
    earliest = np.minimum.accumulate(starts[::-1])[::-1]
    at = np.searchsorted(launched[order], times)
    return [
        int(earliest[i]) if i < len(earliest) else int(t) for i, t in zip(at, times, strict=True)
    ]


def _from_points(marks: Marks, rows: I8, window: Window) -> Steps:
    """Steps between the marks. Between bursts their length is known but not what was in them, so
    only those that were traced from end to end are counted, and recording makes these longer."""
    times = np.sort(marks.ends_ns[rows])
    starts, ends = times[:-1], times[1:]
    every = np.sort(np.concatenate((times, window.near_steps_ns)))
    step_ns, mean_ns = int(np.median(np.diff(every))), None
    if window.observed is not None:
        lows, highs = edges(window.observed)
        at = np.searchsorted(lows, starts, "right") - 1
        whole = (at >= 0) & (ends <= highs[np.maximum(at, 0)]) if len(lows) else starts < 0
        starts, ends = starts[whole], ends[whole]
        # As many bursts have begun before a free step's end as have ended before its start.
        free = np.searchsorted(lows, every[1:]) == np.searchsorted(highs, every[:-1], "right")
        mean_ns = int(np.diff(every)[free].mean()) if free.any() else None
    spans = spans_of(starts, ends)
    return Steps(len(spans), step_ns, "marks", 1.0, spans, run_mean_ns=mean_ns)


def _from_period(facts: Facts) -> Steps:
    """Steps from a kernel that comes once an iteration.

    Kernels are tried from the rarest name on: the first whose distances in the sequence are all
    alike, and whose distance maps the whole sequence onto itself, marks the step. Repeated layers
    have shorter periods, but never as rare a name; what recurs within one named range is no step.
    """
    window, activities = facts.window, facts.window.activities
    rows = np.flatnonzero(facts.kernels)
    one_update = (window.marks.classes == MarkClass.OPTIMIZER).sum() == 1
    if len(rows) < _LEAST_KERNELS or one_update:
        return Steps()
    if (steps := _from_graphs(facts, rows)).count:
        return steps
    key = activities.name_ids[rows] * 1_000_003 + activities.blocks[rows]
    _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    often = np.flatnonzero(counts >= _LEAST_STARTS)
    for name in often[np.argsort(counts[often], kind="stable")][:_TRIED]:
        at = np.flatnonzero(inverse == name)
        gaps = np.diff(at)
        period = int(np.median(gaps))
        regular = float(np.mean(np.abs(gaps - period) <= max(1, period // 50)))
        if period < 2 or regular < _MATCH_SHARE:
            continue
        match = float(np.mean(inverse[:-period] == inverse[period:]))
        times = activities.starts_ns[rows[at]]
        traced_ns = sum(span.duration_ns for span in window.traced)
        most = at[-1] - at[0] >= _LEAST_OF_ALL * len(rows)
        if match < _MATCH_SHARE or not most or times[-1] - times[0] < _LEAST_OF_ALL * traced_ns:
            continue
        begun = facts.call_rows[rows[at]]
        if lies_within_ranges(window, window.calls.starts_ns[begun[begun >= 0]]):
            return Steps()
        if window.ops and len(at) <= _MOST_LAYERS and _stands_between(inverse, at, period):
            return Steps()
        step_ns, sure = int(np.median(np.diff(times))), round(match * regular * 0.9, 3)
        return Steps(len(gaps), step_ns, "period", sure, spans_of(times[:-1], times[1:]))
    return Steps()


def _from_graphs(facts: Facts, kernels: I8) -> Steps:
    """Launches of one CUDA graph, which most kernels are nodes of: its layers are no steps."""
    at = facts.call_rows[kernels]
    is_node = picked(facts.window.calls.classes, at, -1) == CallClass.GRAPH_LAUNCH
    _, first, nodes = np.unique(at[is_node], return_index=True, return_counts=True)
    if len(first) < _LEAST_STARTS or is_node.mean() < _MATCH_SHARE or nodes.min() < nodes.max():
        return Steps()
    times = np.sort(facts.window.activities.starts_ns[kernels[is_node][first]])
    spans = spans_of(times[:-1], times[1:])
    return Steps(len(spans), int(np.median(np.diff(times))), "period", 0.9, spans)


def _stands_between(sequence: I8, at: I8, period: int) -> bool:
    """Whether what repeats has other kernels both before and after it, as a model's layers have: of steps
    that are cut anywhere, what is left at the ends is a part of one."""
    head, last = int(at[0]), sequence[int(at[-1]) :]
    before = sequence[:head] == sequence[period : period + head]
    after = last == np.resize(sequence[int(at[-2]) : int(at[-1])], len(last))
    return bool(head and np.mean(before) < _OTHERS and np.mean(after) < _MATCH_SHARE)


def whole_steps(facts: Facts) -> tuple[Facts, tuple[Span, ...]]:
    """The facts of whole steps alone, and those steps as they were on the device.

    A burst begins with the first kernel it sees and ends with its last: three steps of it hold two or
    three waits for a loader. A step on the device lasts from the end of what was launched before one
    mark to the end of what was launched before the next; both are in the burst where the host's step
    was traced.

    The same again and no steps where nothing was traced in bursts, where no steps are marked by
    points, and where whole steps are less than half of it. No steps either where no launch is
    known: what ran between two marks may have been launched long before.
    """
    window, call_rows = facts.window, facts.call_rows
    times = _points(window)
    if window.observed is None or len(times) < 2 or not len(window.activities):
        return facts, ()
    bounds, counts = _bounds(facts, times)
    whole = _whole(bounds, counts, window.observed)
    begins, ends = bounds[:-1][whole], bounds[1:][whole]
    spans = _join(begins, ends)
    traced_ns = sum(span.duration_ns for span in window.observed)
    if sum(span.duration_ns for span in spans) < ENOUGH * traced_ns:
        return facts, ()
    kept = _inside(window.activities.starts_ns, spans)
    host = _join(times[:-1][whole], times[1:][whole])
    mask = _inside(window.calls.starts_ns, host)
    rows = call_rows[kept]
    moved = np.where(mask, np.cumsum(mask) - 1, -1)
    cut = replace(
        window,
        activities=window.activities.take(kept),
        calls=window.calls.take(mask),
        observed=spans,
    )
    known = (call_rows >= 0).any()
    return facts.of(cut, picked(moved, rows, -1)), spans_of(begins, ends) if known else ()


def _points(window: Window) -> I8:
    """Host times at which steps ended."""
    marks = window.marks
    rows = (marks.classes == MarkClass.STEP) & (marks.starts_ns == marks.ends_ns)
    return np.sort(marks.ends_ns[rows])


def _bounds(facts: Facts, times: I8) -> tuple[I8, I8]:
    """End of the work launched before each time, -1 without any; how many launches that were."""
    activities, calls, call_rows = facts.window.activities, facts.window.calls, facts.call_rows
    rows = np.flatnonzero(call_rows >= 0)
    if len(rows):
        launched = calls.starts_ns[call_rows[rows]]
    else:
        rows, launched = np.arange(len(activities)), activities.starts_ns
    order = np.argsort(launched, kind="stable")
    reach = np.maximum.accumulate(activities.ends_ns[rows[order]])
    counts = np.searchsorted(launched[order], times)
    return picked(reach, counts - 1, -1), counts


def _whole(bounds: I8, counts: I8, observed: tuple[Span, ...]) -> Bool:
    """Which steps between two bounds lie in one traced span and launched what steps launch."""
    begun, ended = edges(observed)
    at = holders(begun, ended + 1, bounds)  # work that ends with a span is in it
    whole = (at[:-1] >= 0) & (at[:-1] == at[1:]) & (bounds[1:] > bounds[:-1])
    launches = np.diff(counts)
    if whole.any():
        whole &= launches >= ENOUGH * np.median(launches[whole])
    return np.asarray(whole)


def _join(starts: I8, ends: I8) -> tuple[Span, ...]:
    """Spans in order, those that touch made one."""
    if not len(starts):
        return ()
    opens = np.concatenate(([True], starts[1:] != ends[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return spans_of(starts[opens], ends[closes])


def _inside(times: I8, spans: tuple[Span, ...]) -> Bool:
    return np.asarray(holders(*edges(spans), times) >= 0)


def samples_of_step(facts: Facts) -> int | None:
    """The leading dimension that a step's activations share, times how often a step reads one of them; None
    where shapes or whole steps are not known, or do not agree."""
    if not len(facts.window.links) or not facts.steps.spans:
        return None
    leads = np.where(facts.in_optimizer, np.nan, figures_of_ops(facts, _leading))
    own = np.isfinite(figures_of_ops(facts, _of_samples)) & np.isfinite(leads)
    sizes, counts = np.unique(leads[own], return_counts=True)
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        inside = counts[sizes % size == 0].sum()
        if count >= SEEN * own.sum() and inside >= ALIKE * own.sum():
            return int(size) * _passes(facts, np.flatnonzero(leads % size == 0)) or None
    return None


def _passes(facts: Facts, rows: np.ndarray) -> int:
    """How often a step launches the kernel that it launches least often, of those in most steps."""
    acts = facts.window.activities.take(rows)
    begins, ends = edges(facts.steps.spans)
    step = np.searchsorted(begins, acts.starts_ns, "right") - 1
    inside = (step >= 0) & (acts.starts_ns < ends[step])
    pair = np.stack((facts.window.links.ops_of(acts.correlations), acts.name_ids))
    _, kind = np.unique(pair, axis=1, return_inverse=True)
    times = np.zeros((kind.max() + 1, len(begins)), np.int64)
    np.add.at(times, (kind[inside], step[inside]), 1)
    usual = np.median(times, axis=1)
    return int(usual[usual >= 1].min(initial=np.inf)) if (usual >= 1).any() else 0


def _leading(op: OpSignature) -> float | None:
    """First dimension of the first tensor that is no bias."""
    first: Any = next(iter(op.dims[op.name == "aten::addmm" :]), ())
    known = isinstance(first, tuple) and len(first) > 1 and isinstance(first[0], int)
    return float(first[0]) if known and first[0] else None


def _of_samples(op: OpSignature) -> float | None:
    if not _OF_SAMPLES.search(op.name):
        return None
    lead = _leading(op)
    weight = "norm" in op.name and lead == 1  # weights are normed as one sample
    flat = op.name != "aten::addmm" and (not op.dims or len(op.dims[0]) < 3)
    return None if weight or flat else lead
