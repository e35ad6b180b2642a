"""All that is known of a stretch of the run without tracing: marks, samples and the GPU's own counter."""

from collections import Counter
from collections.abc import Collection

import numpy as np
from msgspec import Struct

from brrrtop.analysis.facts.stack_samples import reads_as
from brrrtop.ledger.places import (
    BatchLines,
    Frame,
    batch_lines,
    batch_makers,
    kind_of,
    makes_batches,
    place_of,
)
from brrrtop.model import intervals
from brrrtop.model.run import PhaseKind
from brrrtop.model.tables import F8, I8, Bool, Marks, Span
from brrrtop.timeline.timeline import Timeline
from collectors.vocabulary import MarkClass, Metric

LONGEST_HOLD_NS = 1_000_000_000
"""A sample speaks for no more time than that around it: samples come at 2 Hz or faster."""
_ACTIVE = (Metric.GRAPHICS_ACTIVE, Metric.SM_ACTIVE, Metric.SMI_UTIL)
"""Any kernel resident, best counter first; SM_ACTIVE is a lower bound, nvidia-smi's is coarse. None counts
copies from or to the host."""
LEAST_SAMPLES = 12
"""Of a phase, or of a part of all steps: fewer put too wide an error on a share."""
_PAUSES = (MarkClass.GC, MarkClass.LOGGING, MarkClass.ALLOCATOR)


FEW_STEPS, MANY_BATCHES = 8, 4
"""So many steps tell how many batches each draws; more than so many times that are not for one step."""

Intervals = tuple[I8, I8]
"""Merged: starts and ends."""


class Samples(Struct, frozen=True, eq=False):
    """Stack samples of the training thread, sorted by time."""

    times_ns: I8
    lows_ns: I8
    highs_ns: I8
    """Between these the thread is taken to have stood there: half-way to the samples beside."""
    name_ids: I8
    makes_batches: Bool
    """Its line prepares data."""
    reads_files: Bool
    """Its line is in file or network work."""
    asks: Bool
    """Within a line that asks a loader for its next batch: marks know that time better."""
    launches: Bool
    """In a library that a line of the model calls, and in nothing that waits: on its way to a launch."""


class Evidence(Struct, frozen=True, eq=False):
    span: Span
    names: tuple[str, ...]
    step_ends: I8
    waits: Intervals
    wait_ends: I8
    """Of the training thread for a loader's batch: their time, and the end of each."""
    saving: Intervals
    compiling: Intervals
    evaluating: Intervals
    pauses: dict[MarkClass, Intervals]
    samples: Samples
    step_places: tuple[str, ...]
    """Where the optimizer stepped: names as of samples."""
    read_starts: I8
    read_ends: I8
    read_active: F8
    """Readings of the GPU's activity, and the time that each is the mean of."""

    def lines_within(self, starts: I8, ends: I8, frame: tuple[str, str] | str) -> Counter[str]:
        """Samples in merged intervals by line of a function, outermost call first."""
        lines: Counter[str] = Counter()
        rows = np.flatnonzero(intervals.holders(starts, ends, self.samples.times_ns) >= 0)
        if isinstance(frame, str):
            return lines
        ids, counts = np.unique(self.samples.name_ids[rows], return_counts=True)
        for name_id, count in zip(ids.tolist(), counts.tolist(), strict=True):
            place = place_of(self.names[name_id])
            for (line, _), plain in zip(place.frames[::-1], place.functions, strict=True):
                if plain == frame:
                    lines[line] += count
                    break
        return lines


def gather(timeline: Timeline, marks: Marks, span: Span, device_id: int | None) -> Evidence:
    """What the timeline still holds of the span.

    Args:
        marks: That touch it.
        device_id: Whose counter speaks; None: no device was seen at work.
    """
    classes = marks.classes
    loop = (
        np.isin(marks.tids, marks.tids[np.isin(classes, (MarkClass.STEP, MarkClass.STACK))])
        | ~np.isin(classes, (MarkClass.STEP, MarkClass.STACK)).any()
    )
    steps = np.sort(marks.ends_ns[(classes == MarkClass.STEP) & (marks.ends_ns >= span.t0_ns)])
    waits = np.flatnonzero((classes == MarkClass.INPUT) & loop)
    if not len(waits) and not (classes == MarkClass.STACK).any():
        waits = np.flatnonzero(classes == MarkClass.INPUT)  # else of a thread that fetches ahead

    def union(mark_class: MarkClass) -> Intervals:
        rows = (classes == mark_class) & loop
        if (
            mark_class is MarkClass.COMPILE
        ):  # autograd's thread compiles while the loop waits for it
            inside = np.searchsorted(steps, [marks.starts_ns, marks.ends_ns])
            rows |= (classes == mark_class) & (inside[0] == inside[1])
        low, high = intervals.clip(
            marks.starts_ns[rows], marks.ends_ns[rows], span.t0_ns, span.t1_ns
        )
        return intervals.merge(low, high)

    wait_starts, wait_ends = intervals.clip(
        marks.starts_ns[waits], marks.ends_ns[waits], span.t0_ns, span.t1_ns
    )
    samples = _samples(timeline.names, marks, span)
    evaluating = union(MarkClass.EVALUATION)
    trained = intervals.holders(*evaluating, wait_ends - 1) < 0
    learned = np.sort(marks.ends_ns[classes == MarkClass.OPTIMIZER])
    waited = wait_starts[trained], wait_ends[trained]
    alone = _batches_without_steps(timeline.names, (steps, learned), waited, samples)
    wait_starts, wait_ends = _with_open_wait(span, steps, wait_starts, wait_ends, samples)
    readings = _readings(timeline, span, device_id)
    named = _placed(marks, MarkClass.STEP)
    return Evidence(
        span=span,
        names=timeline.names,
        step_ends=steps,
        waits=intervals.merge_unsorted(wait_starts, wait_ends),
        wait_ends=wait_ends,
        saving=union(MarkClass.CHECKPOINT),
        compiling=union(MarkClass.COMPILE),
        evaluating=intervals.merge_unsorted(
            *map(np.concatenate, zip(evaluating, alone, strict=True))
        ),
        pauses={mark_class: union(mark_class) for mark_class in _PAUSES},
        samples=samples,
        step_places=tuple(timeline.names[i] for i in np.unique(marks.name_ids[named]).tolist()),
        read_starts=readings[0],
        read_ends=readings[1],
        read_active=readings[2],
    )


def _batches_without_steps(
    names: tuple[str, ...], ends_of_steps: tuple[I8, I8], waits: Intervals, samples: Samples
) -> Intervals:
    """Where a loop draws many batches between two steps, in the lines in which it trains, and no backward
    pass was met: it evaluates. The step at the end draws as many as others do.

    Args:
        ends_of_steps: Of the loop's steps, and of optimizers whose steps are none of the loop's.
    """
    (steps, learned), (starts, ends) = ends_of_steps, waits
    at = np.searchsorted(steps, ends)
    drawn = np.bincount(at, minlength=len(steps) + 1)
    usual = int(np.median(drawn[1:-1])) if len(steps) > FEW_STEPS else 0
    low, high = [], []
    for gap in np.flatnonzero(drawn[1:-1] > MANY_BATCHES * usual).tolist() if usual else ():
        rows = np.flatnonzero(at == gap + 1)[:-usual]
        low.append(int(starts[rows[0]]))
        high.append(int(ends[rows[-1]] + np.median(starts[rows[1:]] - ends[rows[:-1]])))
    holders = intervals.holders(np.array(low, np.int64), np.array(high, np.int64), samples.times_ns)
    others = [place_of(names[i]) for i in np.unique(samples.name_ids[holders < 0]).tolist()]
    lines = {place.frames[0] for place in others}
    functions = {frame for place in others for frame in place.functions}
    kept = []
    for gap in range(len(low)):
        inside = [place_of(names[i]) for i in samples.name_ids[holders == gap].tolist()]
        new = sum(p.frames[0] not in lines or not functions.issuperset(p.functions) for p in inside)
        none = np.searchsorted(learned, low[gap]) == np.searchsorted(learned, high[gap])
        if none and 2 * new <= len(inside) and not any(place.learns for place in inside):
            kept.append(gap)
    return np.array(low, np.int64)[kept], np.array(high, np.int64)[kept]


def _samples(names: tuple[str, ...], marks: Marks, span: Span) -> Samples:
    rows = np.flatnonzero(marks.classes == MarkClass.STACK)
    times = marks.starts_ns[rows]
    middle = (times[1:] + times[:-1]) // 2
    lows = np.concatenate(([span.t0_ns], middle)) if len(times) else times
    highs = np.concatenate((middle, [span.t1_ns])) if len(times) else times
    reach = LONGEST_HOLD_NS // 2
    ids = marks.name_ids[rows]
    asks, steps = (
        [place_of(names[i]) for i in np.unique(marks.name_ids[_placed(marks, kind)]).tolist()]
        for kind in (MarkClass.INPUT, MarkClass.STEP)
    )
    # A framework's loop asks and steps from one line of the user's: that line then says nothing.
    lines = {place.frames[0] for place in asks} - {place.frames[0] for place in steps}
    known, counts = (column.tolist() for column in np.unique(ids, return_counts=True))
    places = dict(zip((place_of(names[i]) for i in known), counts, strict=True))
    loop = {frame for place in steps for frame in place.functions}
    loop |= {place.functions[-1] for place in places if place.runs_model and not steps}
    makers, until = batch_makers(places), batch_lines(loop, places)
    causes = {i: _cause(names[i], lines, until, makers) for i in known}
    asking = [i for i in known if not lines.isdisjoint(place_of(names[i]).frames)]
    each = [causes[i] for i in ids.tolist()]
    return Samples(
        times_ns=times,
        lows_ns=np.maximum(lows, times - reach),
        highs_ns=np.minimum(highs, times + reach),
        name_ids=ids,
        makes_batches=np.array([cause == "input" for cause in each], np.bool_),
        reads_files=np.array([cause == "io" for cause in each], np.bool_),
        asks=np.isin(ids, asking),
        launches=np.array([cause == "launch" for cause in each], np.bool_),
    )


def _placed(marks: Marks, kind: MarkClass) -> Bool:
    """Marks that say where the user's code stood at marks of a class."""
    return np.asarray((marks.classes == MarkClass.PLACE) & (marks.values == kind))


def _with_open_wait(span: Span, steps: I8, starts: I8, ends: I8, samples: Samples) -> tuple[I8, I8]:
    """The waits, with one that goes on: a wait is marked when it is over. Samples in a loader tell of it;
    for a moment without any it goes on as before."""
    if not len(ends):
        return starts, ends
    last = int(max(ends[-1], steps[-1] if len(steps) else ends[-1]))
    inside = samples.times_ns >= last
    waiting = inside & samples.makes_batches
    low, high = last, last
    if int(waiting.sum()) * 2 > int(inside.sum()):
        low = max(last, int(samples.lows_ns[waiting].min()))
        high = min(span.t1_ns, int(samples.highs_ns[waiting].max()))
    elif not inside.any() and span.t1_ns - last <= LONGEST_HOLD_NS:
        first = int(min(starts[0], steps[0] if len(steps) else starts[0]))
        share = intervals.total(*intervals.merge_unsorted(starts, ends)) / max(1, last - first)
        high = last + int((span.t1_ns - last) * min(share, 1.0))
    return (np.append(starts, low), np.append(ends, high)) if high > low else (starts, ends)


def _cause(
    name: str, asks: Collection[Frame], loop: BatchLines, makers: Collection[Frame]
) -> str | None:
    """What a sample's line says of the thread there: by its words, else by the functions it is in.

    Args:
        asks: Lines, with their functions, that ask a loader for its next batch.
        loop: Functions that call the optimizer, as in `makes_batches`.
        makers: Functions that make batches, whatever they are called.
    """
    cause, place = reads_as(name), place_of(name)
    if place.frames[0] in asks or (cause is None and makes_batches(place, loop, makers)):
        return "input"
    if cause in (None, "io") and (place.waits_for_batch or place.begins_loader):
        return "input"
    if cause == "input" and (place.learns or place.runs_model):  # `fit(model, DataLoader(…))`
        return "launch"
    if cause == "io" and kind_of("", place.source) is PhaseKind.SAVING:
        return "checkpoint"
    if cause is None and place.computes:
        return "launch"
    return cause


def _readings(timeline: Timeline, span: Span, device_id: int | None) -> tuple[I8, I8, F8]:
    gauges = timeline.gauges_between(Span(span.t0_ns, span.t1_ns + LONGEST_HOLD_NS))
    for metric in _ACTIVE:
        rows = gauges.metrics == metric
        if device_id is not None:
            rows &= gauges.device_ids == device_id
        if rows.any():
            ends, values = gauges.times_ns[rows], np.clip(gauges.values[rows], 0.0, 1.0)
            starts = np.concatenate((ends[:1] - LONGEST_HOLD_NS // 4, ends[:-1]))
            starts = np.maximum(starts, ends - LONGEST_HOLD_NS)
            return starts, ends, values
    none = np.empty(0, np.int64)
    return none, none, np.empty(0)
