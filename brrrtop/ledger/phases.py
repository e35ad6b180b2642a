"""What the program did at each moment: the span cut into stretches, each of one phase.

Found from structure. Marks name saves, compiles and evaluations. Steps that follow each other at the usual
distance are training. A distance far above the usual one holds something else where the training thread
stood in a function, or at a line, that no usual step goes through. Without an optimizer batches are steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from brrrtop.ledger.evidence import Evidence
from brrrtop.ledger.places import Place, kind_of, place_of
from brrrtop.model import intervals
from brrrtop.model.intervals import Cover
from brrrtop.model.run import PhaseKind
from brrrtop.model.tables import I8

LONG_STEPS, LONG_NS = 4, 20_000_000
"""So many times the usual step less its waits, and so long at least: something else may be in it."""
FEW_SAMPLES = 3
"""Of a stretch between two steps: with fewer it is what most samples of all such stretches say."""
FEW_STEPS = 8
"""Fewer do not say what is usual."""
PAUSE_NS = 50_000_000
"""A shorter save, or compile, is part of its step."""

COMPILER = "torch.compile"
"""Stands for the user's line where the compiler is at work."""

Frame = tuple[str, str]
"""File and function."""
Key = tuple[PhaseKind, Frame | str]
"""What a phase does, and the user's function, or the line, that it is in."""


class Phases(Struct, frozen=True, eq=False):
    """Stretches in order of time, without holes: `[starts, ends)` of phase `keys[rows]`."""

    starts: I8
    ends: I8
    rows: I8
    keys: tuple[Key, ...]

    def of(self, row: int) -> tuple[I8, I8]:
        """The stretches of one phase, merged."""
        of_phase = self.rows == row
        return intervals.merge(self.starts[of_phase], self.ends[of_phase])


def find_phases(evidence: Evidence) -> Phases:
    """The span, cut."""
    span = evidence.span
    names = np.unique(evidence.samples.name_ids).tolist()
    places = {name_id: place_of(evidence.names[name_id]) for name_id in names}
    marked = (
        (PhaseKind.COMPILE, evidence.compiling, PAUSE_NS),
        (PhaseKind.SAVING, evidence.saving, PAUSE_NS),
        (PhaseKind.EVALUATION, evidence.evaluating, 0),
    )
    known = [(kind, starts, ends) for kind, (starts, ends), _ in marked]
    taken = intervals.merge_unsorted(*(np.concatenate([pair[i] for pair in known]) for i in (1, 2)))
    steps = _step_bounds(evidence, taken)
    usual = _usual_frames(evidence, places, *intervals.subtract(*steps.short, taken))
    layers: list[tuple[Key, I8, I8]] = []
    for (kind, starts, ends), (_, _, least_ns) in zip(known, marked, strict=True):
        long = ends - starts >= least_ns
        if long.any():
            inside = _samples_in(evidence, starts[long], ends[long])
            layers.append(
                ((kind, _main_frame(evidence, places, usual, inside)), starts[long], ends[long])
            )
    between = _foreign(evidence, places, usual, steps.long, taken)
    inside = _samples_in(evidence, *intervals.subtract(*steps.short, taken))
    main: Key = (steps.kind, _loop_frame(evidence, places, inside))
    if (
        steps.kind is PhaseKind.OTHER
    ):  # no optimizer: a loop that waits for data or requests, and works on them
        between = [layer for layer in between if layer[0][0] is not PhaseKind.DATA] or between
        main = between[-1][0] if between else main
    rest = intervals.subtract(np.array([span.t0_ns]), np.array([span.t1_ns]), taken)
    layers += [*between, (main, *rest)]
    painted = intervals.paint([(starts, ends) for _, starts, ends in layers])
    return _in_order([key for key, _, _ in layers], painted)


class _Steps(Struct, frozen=True, eq=False):
    kind: PhaseKind
    short: tuple[I8, I8]
    """Time between steps at the usual distance, merged."""
    long: tuple[I8, I8]
    """Time between steps that are far apart, each less the step at its end."""


def _step_bounds(evidence: Evidence, taken: tuple[I8, I8]) -> _Steps:
    """Where steps follow each other. Without an optimizer batches do; without those nothing is a step."""
    span, ends, kind = evidence.span, evidence.step_ends, PhaseKind.TRAIN
    if len(ends) < 2:
        ends, kind = np.sort(evidence.wait_ends), PhaseKind.OTHER
    bounds = np.unique(np.concatenate(([span.t0_ns], ends, [span.t1_ns])))
    lows, highs = bounds[:-1], bounds[1:]
    waits = intervals.merge_unsorted(evidence.wait_starts, evidence.wait_ends)
    known = intervals.merge_unsorted(
        *(np.concatenate(pair) for pair in zip(taken, waits, strict=True))
    )
    busy = highs - lows - intervals.Cover(*known).between(lows, highs)
    inner = busy[1:-1]
    usual = int(np.median(inner)) if len(inner) >= FEW_STEPS else 0
    long = busy > max(LONG_STEPS * usual, LONG_NS)
    if not len(ends):
        long[:] = True
    apart = highs[long] - np.where(highs[long] < span.t1_ns, min(usual, LONG_NS), 0)
    return _Steps(kind, intervals.merge(lows[~long], highs[~long]), (lows[long], apart))


def _samples_in(evidence: Evidence, starts: I8, ends: I8) -> I8:
    """Rows of the samples in merged intervals."""
    return np.flatnonzero(intervals.holders(starts, ends, evidence.samples.times_ns) >= 0)


def _usual_frames(
    evidence: Evidence, places: Mapping[int, Place], starts: I8, ends: I8
) -> frozenset[Frame | str]:
    """Functions and innermost lines that usual steps go through."""
    rows = _samples_in(evidence, starts, ends)
    named = [places[i] for i in np.unique(evidence.samples.name_ids[rows]).tolist()]
    named += map(place_of, evidence.step_places)
    lines = (place.frames[0][0] for place in named)
    return frozenset((*(frame for place in named for frame in place.functions), *lines))


def _foreign(
    evidence: Evidence,
    places: Mapping[int, Place],
    usual: frozenset[Frame | str],
    among: tuple[I8, I8],
    taken: tuple[I8, I8],
) -> list[tuple[Key, I8, I8]]:
    """By phase, the time of samples in these intervals that stand where no usual step does, least first."""
    samples = evidence.samples
    waits = intervals.merge_unsorted(evidence.wait_starts, evidence.wait_ends)
    free = intervals.subtract(*intervals.subtract(*among, taken), waits)
    frames = {i: _foreign_frame(place, usual) for i, place in places.items()}
    by_key: dict[Key, list[int]] = {}
    for row in _samples_in(evidence, *free).tolist():
        name_id = int(samples.name_ids[row])
        frame = frames[name_id]
        if frame is not None:
            by_key.setdefault((_kind(frame, places[name_id]), frame), []).append(row)
    layers = []
    for key, rows in by_key.items():
        reach = Cover(*intervals.merge(samples.lows_ns[rows], samples.highs_ns[rows]))
        cut = intervals.subtract(reach.starts, reach.ends, _outside(evidence, among))
        layers.append((key, *cut))
    layers.sort(key=lambda layer: intervals.total(*layer[1:]))
    return [*_hardly_sampled(evidence, among, free, by_key), *layers]


def _hardly_sampled(
    evidence: Evidence,
    among: tuple[I8, I8],
    free: tuple[I8, I8],
    by_key: Mapping[Key, Sequence[int]],
) -> list[tuple[Key, I8, I8]]:
    """Of each short stretch between steps the part that most samples of all of them together stand for."""
    times = evidence.samples.times_ns
    stretch = intervals.holders(*among, times)
    every = _samples_in(evidence, *free)
    counts = np.bincount(stretch[every][stretch[every] >= 0], minlength=len(among[0]))
    few = counts < FEW_SAMPLES
    pooled = few[np.maximum(stretch[every], 0)] & (stretch[every] >= 0)
    if not pooled.any():
        return []
    sizes = {key: sum(bool(few[stretch[row]]) for row in rows) for key, rows in by_key.items()}
    key = max(sizes, key=lambda one: sizes[one], default=None)
    if key is None or sizes[key] * 2 <= int(pooled.sum()):
        return []
    part = sizes[key] / int(pooled.sum())
    starts, ends = among[0][few], among[1][few]
    ends = starts + ((ends - starts) * part).astype(np.int64)
    return [(key, *intervals.subtract(*intervals.merge(starts, ends), _outside(evidence, free)))]


def _outside(evidence: Evidence, inside: tuple[I8, I8]) -> tuple[I8, I8]:
    span = evidence.span
    return intervals.subtract(np.array([span.t0_ns]), np.array([span.t1_ns]), inside)


def _foreign_frame(place: Place, usual: frozenset[Frame | str]) -> Frame | str | None:
    """The outermost function that no usual step is in, of those whose names say what they do, if any;
    or else the innermost line. None: it is usual."""
    if place.compiles:
        return COMPILER
    others = [frame for frame in place.functions if frame not in usual]
    telling = (frame for frame in others if kind_of(frame[1]) is not PhaseKind.OTHER)
    if others:
        return next(telling, others[0] if usual else others[-1])
    line = place.frames[0][0]
    return None if line in usual else line


def _kind(frame: Frame | str, place: Place) -> PhaseKind:
    """What goes on there: by the function's name, or by the line's words where it is the module's own."""
    if frame == COMPILER:
        return PhaseKind.COMPILE
    if isinstance(frame, tuple) and frame[1] != "<module>":
        kind = kind_of(frame[1])
        if kind is not PhaseKind.OTHER or place.functions[-1] != frame:
            return kind
    kind = kind_of(place.frames[0][1], place.source)
    return PhaseKind.OTHER if kind is PhaseKind.DATA and place.computes else kind


def _main_frame(
    evidence: Evidence, places: Mapping[int, Place], usual: frozenset[Frame | str], rows: I8
) -> Frame | str:
    """The function of its own that most of the samples are in; theirs if they have none."""
    at: Counter[Frame | str] = Counter()
    ids, counts = np.unique(evidence.samples.name_ids[rows], return_counts=True)
    for name_id, count in zip(ids.tolist(), counts.tolist(), strict=True):
        place = places[name_id]
        at[_foreign_frame(place, usual) or place.functions[-1]] += count
    return at.most_common(1)[0][0] if at else ""


def _loop_frame(evidence: Evidence, places: Mapping[int, Place], rows: I8) -> Frame | str:
    """The function that calls the optimizer, or that most samples of usual steps are in."""
    if evidence.step_places:
        return place_of(evidence.step_places[-1]).functions[-1]
    return _main_frame(evidence, places, frozenset(), rows)


def _in_order(keys: Sequence[Key], painted: Sequence[tuple[I8, I8]]) -> Phases:
    """Layers as stretches in order of time, equal ones as one phase."""
    index: dict[Key, int] = {}
    parts: list[tuple[I8, I8, I8]] = []
    for key, (low, high) in zip(keys, painted, strict=True):
        if len(low):
            row = index.setdefault(key, len(index))
            parts.append((low, high, np.full(len(low), row, np.int64)))
    if not parts:
        return Phases(intervals.EMPTY, intervals.EMPTY, intervals.EMPTY, ())
    starts, ends, rows = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(starts, kind="stable")
    return Phases(starts[order], ends[order], rows[order], tuple(index))
