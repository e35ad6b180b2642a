"""All that is known of a stretch of the run without tracing: marks, samples and the GPU's own counter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import numpy as np
from msgspec import Struct

from brrrtop.analysis.facts.stack_samples import reads_as
from brrrtop.ledger.places import Frame, makes_batches, place_of
from brrrtop.model import intervals
from brrrtop.model.tables import F8, I8, Bool, Marks, Span
from brrrtop.timeline.timeline import Timeline
from collectors.vocabulary import MarkClass, Metric

LONGEST_HOLD_NS = 1_000_000_000
"""A sample speaks for no more time than that around it: samples come at 2 Hz or faster."""
_ACTIVE = (Metric.GRAPHICS_ACTIVE, Metric.SM_ACTIVE, Metric.SMI_UTIL)
"""Any kernel resident, best counter first; SM_ACTIVE is a lower bound, nvidia-smi's is coarse. None counts
copies from or to the host."""
_PAUSES = (MarkClass.GC, MarkClass.LOGGING, MarkClass.ALLOCATOR)


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
    launches: Bool
    """In a library that a line of the model calls, and in nothing that waits: on its way to a launch."""


class Evidence(Struct, frozen=True, eq=False):
    """Of one span. Times in ns, sorted."""

    span: Span
    names: tuple[str, ...]
    step_ends: I8
    wait_starts: I8
    wait_ends: I8
    """Of the training thread for a loader's batch."""
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


def gather(timeline: Timeline, span: Span, device_id: int | None) -> Evidence:
    """What the timeline still holds of the span.

    Args:
        device_id: Whose counter speaks; None: no device was seen at work.
    """
    marks = timeline.marks_between(span)
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
    wait_starts, wait_ends = _with_open_waits(span, steps, wait_starts, wait_ends, samples)
    readings = _readings(timeline, span, device_id)
    named = _placed(marks, MarkClass.STEP)
    return Evidence(
        span=span,
        names=timeline.names,
        step_ends=steps,
        wait_starts=wait_starts,
        wait_ends=wait_ends,
        saving=union(MarkClass.CHECKPOINT),
        compiling=union(MarkClass.COMPILE),
        evaluating=union(MarkClass.EVALUATION),
        pauses={mark_class: union(mark_class) for mark_class in _PAUSES},
        samples=samples,
        step_places=tuple(timeline.names[i] for i in np.unique(marks.name_ids[named]).tolist()),
        read_starts=readings[0],
        read_ends=readings[1],
        read_active=readings[2],
    )


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
    loop = {frame for place in steps for frame in place.functions}
    causes = {i: _cause(names[i], lines, loop) for i in np.unique(ids).tolist()}
    each = [causes[i] for i in ids.tolist()]
    return Samples(
        times_ns=times,
        lows_ns=np.maximum(lows, times - reach),
        highs_ns=np.minimum(highs, times + reach),
        name_ids=ids,
        makes_batches=np.array([cause == "input" for cause in each], np.bool_),
        reads_files=np.array([cause == "io" for cause in each], np.bool_),
        launches=np.array([cause == "launch" for cause in each], np.bool_),
    )


def _placed(marks: Marks, kind: MarkClass) -> Bool:
    """Marks that say where the user's code stood at marks of a class."""
    return np.asarray((marks.classes == MarkClass.PLACE) & (marks.values == kind))


def _with_open_waits(
    span: Span, steps: I8, starts: I8, ends: I8, samples: Samples
) -> tuple[I8, I8]:
    """The waits, with one that began before anybody marked waits, and one that goes on: a wait is marked when
    it is over. Samples in a loader tell of them."""
    if not len(ends):
        return starts, ends
    first = int(min(starts[0], steps[0] if len(steps) else starts[0]))
    last = int(max(ends[-1], steps[-1] if len(steps) else ends[-1]))
    low, high = [], []
    for begin, end in ((span.t0_ns, first), (last, span.t1_ns)):
        inside = (samples.times_ns >= begin) & (samples.times_ns < end)
        waiting = inside & samples.makes_batches
        if inside.any() and int(waiting.sum()) * 2 > int(inside.sum()):
            low.append(max(begin, int(samples.lows_ns[waiting].min())))
            high.append(min(end, int(samples.highs_ns[waiting].max())))
    return np.concatenate((starts, np.array(low, np.int64))), np.concatenate(
        (ends, np.array(high, np.int64))
    )


def _cause(name: str, asks: Collection[Frame], loop: Collection[Frame]) -> str | None:
    """What a sample's line says of the thread there: by its words, else by the functions it is in.

    Args:
        asks: Lines, with their functions, that ask a loader for its next batch.
        loop: Functions that call the optimizer.
    """
    cause, place = reads_as(name), place_of(name)
    if place.frames[0] in asks or (cause is None and makes_batches(place, loop)):
        return "input"
    if cause in (None, "io") and place.waits_for_batch:
        return "input"
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
