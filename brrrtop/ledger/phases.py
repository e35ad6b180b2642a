"""What the program did at each moment: the span cut into stretches, each of one phase.

Found from structure. Marks name saves, compiles and evaluations. Steps that follow each other at the usual
distance are training. A distance above the usual one holds something else where the training thread
stood in a function, or at a line, that no usual step goes through. Without an optimizer batches are steps.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from brrrtop.ledger.between import between, cut_at_steps, usual_frames, within_steps
from brrrtop.ledger.evidence import FEW_STEPS, Evidence
from brrrtop.ledger.places import Frame, Key, Place, foreign_frame, place_of
from brrrtop.model import intervals
from brrrtop.model.run import PhaseKind
from brrrtop.model.tables import I8, Bool

PAUSE_NS = 50_000_000
"""A shorter save, or compile, is part of its step,"""
OFTEN = 0.01
"""unless saves together take so much of the time."""


class Phases(Struct, frozen=True, eq=False):
    starts: I8
    ends: I8
    rows: I8
    keys: tuple[Key, ...]

    def of(self, row: int) -> tuple[I8, I8]:
        """Starts and ends of the stretches of one phase, merged."""
        of_phase = self.rows == row
        return intervals.merge(self.starts[of_phase], self.ends[of_phase])


def find_phases(evidence: Evidence) -> Phases:
    span = evidence.span
    names = np.unique(evidence.samples.name_ids).tolist()
    places = {name_id: place_of(evidence.names[name_id]) for name_id in names}
    marked = (
        (PhaseKind.COMPILE, evidence.compiling, PAUSE_NS),
        (PhaseKind.SAVING, evidence.saving, PAUSE_NS),
        (PhaseKind.EVALUATION, _until_left(evidence, places), 0),
    )
    known = [(kind, starts, ends) for kind, (starts, ends), _ in marked]
    taken = intervals.merge_unsorted(*(np.concatenate([pair[i] for pair in known]) for i in (1, 2)))
    steps = cut_at_steps(evidence, taken)
    usual, gaps = usual_frames(evidence, places, steps)
    layers: list[tuple[Key, I8, I8]] = []
    for (kind, starts, ends), (_, _, least_ns) in zip(known, marked, strict=True):
        often = intervals.total(starts, ends) >= OFTEN * span.duration_ns
        long = (ends - starts >= least_ns) | (often and kind is PhaseKind.SAVING)
        if long.any():
            starts, ends = starts[long], ends[long]
            inside = intervals.holders(starts, ends, evidence.samples.times_ns) >= 0
            layers.append(((kind, _main_frame(evidence, places, usual, inside)), starts, ends))
    others = between(evidence, places, usual, steps, gaps)
    inside = (steps.stretch >= 0) & ~steps.long[steps.stretch]
    main: Key = (steps.kind, _loop_frame(evidence, places, inside))
    if steps.kind is PhaseKind.OTHER:  # no optimizer: a loop that waits for data and works on them
        others = [layer for layer in others if layer[0][0] is not PhaseKind.DATA] or others
        main = others[-1][0] if others and not steps.usual_ns else main
    others += within_steps(evidence, places, steps)
    layers += [*others, *_loops(evidence, places, main)]
    painted = intervals.paint([(starts, ends) for _, starts, ends in layers])
    return _in_order([key for key, _, _ in layers], painted)


def _until_left(evidence: Evidence, places: Mapping[int, Place]) -> tuple[I8, I8]:
    """Evaluations until the thread leaves what it is in there: a mark lasts until the next batch, whatever
    comes between."""
    (starts, ends), samples = evidence.evaluating, evidence.samples
    at = intervals.holders(starts, ends, samples.times_ns)
    steps = frozenset(f for name in evidence.step_places for f in place_of(name).functions)
    if not len(evidence.step_ends) and not steps:  # all that it does is without gradients
        return intervals.EMPTY, intervals.EMPTY
    if not (at >= 0).any():
        return starts, ends
    number = np.arange(len(at)) - np.searchsorted(samples.times_ns, starts)[at]
    begins = (at >= 0) & (2 * number <= np.bincount(at[at >= 0], minlength=len(ends))[at])
    frame = _main_frame(evidence, places, steps, begins)
    within = [i for i, place in places.items() if frame in place.functions]
    held = np.isin(samples.name_ids, within) & (at >= 0)
    last, first = np.full(len(ends), -1, np.int64), np.array(ends, np.int64)
    np.maximum.at(last, at[held], samples.times_ns[held])
    after = (at >= 0) & (last[at] >= 0) & (samples.times_ns > last[at])
    np.minimum.at(first, at[after], samples.times_ns[after])
    return starts, np.where(first < ends, (last + first) // 2, ends)


def _main_frame(
    evidence: Evidence, places: Mapping[int, Place], usual: frozenset[Frame | str], rows: Bool
) -> Frame | str:
    """The function of its own that most of the samples are in; theirs if they have none."""
    at: Counter[Frame | str] = Counter()
    ids, counts = np.unique(evidence.samples.name_ids[rows], return_counts=True)
    for name_id, count in zip(ids.tolist(), counts.tolist(), strict=True):
        place = places[name_id]
        at[foreign_frame(place, usual) or place.functions[-1]] += count
    return at.most_common(1)[0][0] if at else ""


def _loop_frame(evidence: Evidence, places: Mapping[int, Place], rows: Bool) -> Frame | str:
    """The function that calls the optimizer, or that most samples of usual steps are in."""
    if evidence.step_places:
        return place_of(evidence.step_places[-1]).functions[-1]
    return _main_frame(evidence, places, frozenset(), rows)


def _loops(evidence: Evidence, places: Mapping[int, Place], main: Key) -> list[tuple[Key, I8, I8]]:
    """The rest of the span: of the loop, or of each of several that train one after the other. Functions
    that take turns within a few steps are one loop."""
    span, samples, ends = evidence.span, evidence.samples, evidence.step_ends
    calls = tuple(dict.fromkeys(place_of(name).functions[-1] for name in evidence.step_places))
    inner = {i: _innermost(calls, place) for i, place in places.items()}
    at = np.array([inner[i] for i in samples.name_ids.tolist()], np.int64)
    times, at = samples.times_ns[at >= 0], at[at >= 0]
    if len(calls) < 2 or not len(at):
        return [(main, np.array([span.t0_ns]), np.array([span.t1_ns]))]
    first = np.flatnonzero(np.diff(at, prepend=-1))
    steps = np.diff(np.searchsorted(ends, times[np.append(first, len(at) - 1)]))
    first = first[steps > FEW_STEPS] if (steps > FEW_STEPS).any() else first[:1]
    starts = times[first]
    starts[0] = span.t0_ns
    stops = np.append(starts[1:], span.t1_ns)
    alone = [(at[first] == i, (main[0], calls[i])) for i in dict.fromkeys(at[first].tolist())]
    return [(key, *intervals.merge(starts[rows], stops[rows])) for rows, key in alone]


def _innermost(calls: Sequence[Frame], place: Place) -> int:
    """The number of the last of these functions that the place is in; -1: in none."""
    return next((calls.index(f) for f in place.functions[::-1] if f in calls), -1)


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
