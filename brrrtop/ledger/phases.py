"""What the program did at each moment: the span cut into stretches, each of one phase.

Found from structure. Marks name saves, compiles and evaluations. Steps that follow each other at the usual
distance are training. A distance far above the usual one holds something else where the training thread
stood in a function, or at a line, that no usual step goes through. Without an optimizer batches are steps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from brrrtop.analysis.facts.stack_samples import bounds
from brrrtop.ledger.evidence import Evidence
from brrrtop.ledger.places import Place, kind_of, place_of
from brrrtop.model import intervals
from brrrtop.model.intervals import Cover
from brrrtop.model.run import PhaseKind
from brrrtop.model.tables import I8, Bool

LONG_STEPS, LONG_NS = 4, 20_000_000
"""So many times the usual step less its waits, and so long at least: something else may be in it."""
SLOW_STEPS = 1.5
"""From here on a step may hold something else as well: a function that is met in such steps alone."""
CHANCE, RARELY = 0.01, 0.2
"""So unlikely, if it were in all steps, is a function in so few samples of the others; which are at most this
share of its samples in slow ones."""
FEW_SAMPLES = 3
"""Of a stretch between two steps: with fewer it is what stretches of about its length are."""
POOL, LIKE = 5, 2
"""Samples of stretches of about the same length, up to this factor, that speak for one without."""
FEW_STEPS = 8
"""Fewer do not say what is usual."""
PAUSE_NS = 50_000_000
"""A shorter save, or compile, is part of its step."""

COMPILER = "torch.compile"
"""Stands for the user's line where the compiler is at work."""

_NONE = intervals.EMPTY, intervals.EMPTY
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
    usual, gaps = _usual_frames(evidence, places, steps, taken)
    layers: list[tuple[Key, I8, I8]] = []
    for (kind, starts, ends), (_, _, least_ns) in zip(known, marked, strict=True):
        long = ends - starts >= least_ns
        if long.any():
            inside = _samples_in(evidence, starts[long], ends[long], _NONE)
            layers.append(
                ((kind, _main_frame(evidence, places, usual, inside)), starts[long], ends[long])
            )
    between = _between(evidence, places, usual, steps, gaps, taken)
    inside = _samples_in(evidence, *steps.stretches(steps.busy_ns <= steps.long_ns), taken)
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
    """The span cut at the ends of steps."""

    kind: PhaseKind
    lows: I8
    highs: I8
    busy_ns: I8
    """Of each stretch, outside of waits and of what marks name."""
    usual_ns: int
    """0: not known."""
    free: Cover
    """All time outside of waits and of what marks name."""

    @property
    def long_ns(self) -> int:
        return max(LONG_STEPS * self.usual_ns, LONG_NS) if len(self.lows) > 1 else -1

    @property
    def slow_ns(self) -> int:
        slow = max(round(SLOW_STEPS * self.usual_ns), self.usual_ns + LONG_NS)
        return min(slow, self.long_ns) if self.usual_ns else self.long_ns

    def stretches(self, which: Bool) -> tuple[I8, I8]:
        """Merged."""
        return intervals.merge(self.lows[which], self.highs[which])


def _step_bounds(evidence: Evidence, taken: tuple[I8, I8]) -> _Steps:
    """Where steps follow each other. Without an optimizer batches do; without those nothing is a step."""
    span, ends, kind = evidence.span, evidence.step_ends, PhaseKind.TRAIN
    if len(ends) < 2:
        ends, kind = np.sort(evidence.wait_ends), PhaseKind.OTHER
    bounds = np.unique(np.concatenate(([span.t0_ns], ends, [span.t1_ns])))
    waits = intervals.merge_unsorted(evidence.wait_starts, evidence.wait_ends)
    known = intervals.merge_unsorted(
        *(np.concatenate(pair) for pair in zip(taken, waits, strict=True))
    )
    whole = np.array([span.t0_ns]), np.array([span.t1_ns])
    free = Cover(*intervals.subtract(*whole, known))
    busy = free.between(bounds[:-1], bounds[1:])
    usual = int(np.median(busy[1:-1])) if len(busy) - 2 >= FEW_STEPS else 0
    return _Steps(kind, bounds[:-1], bounds[1:], busy, usual, free)


def _samples_in(evidence: Evidence, starts: I8, ends: I8, holes: tuple[I8, I8]) -> I8:
    """Rows of the samples in merged intervals, outside of others."""
    inside = intervals.subtract(starts, ends, holes)
    return np.flatnonzero(intervals.holders(*inside, evidence.samples.times_ns) >= 0)


def _usual_frames(
    evidence: Evidence, places: Mapping[int, Place], steps: _Steps, taken: tuple[I8, I8]
) -> tuple[frozenset[Frame | str], Bool]:
    """Functions and lines that usual steps go through; and which stretches may hold others.

    Of steps that are only slow those may that hold functions which other steps hardly ever do.
    """
    long = steps.busy_ns > steps.long_ns
    slow = (steps.busy_ns > steps.slow_ns) & ~long
    quick, slower, longer = (
        Counter(
            evidence.samples.name_ids[
                _samples_in(evidence, *steps.stretches(which), taken)
            ].tolist()
        )
        for which in (~long & ~slow, slow, long)
    )
    rare: set[Frame] = set()
    if steps.usual_ns:
        rare = _rare_functions(places, quick, slower + longer)
        rare |= _rare_functions(places, quick + slower, longer)
    common = [p for i in quick | slower if rare.isdisjoint((p := places[i]).functions)]
    common += map(place_of, evidence.step_places)
    usual: frozenset[Frame | str] = frozenset(f for place in common for f in place.functions)
    usual |= {line for place in common for line, _ in place.frames}
    held = any(not rare.isdisjoint(places[i].functions) for i in slower)
    return usual, long | slow if held else long


def _rare_functions(
    places: Mapping[int, Place], quick: Counter[int], others: Counter[int]
) -> set[Frame]:
    """That samples of quick steps find so seldom, and those of others so often, that it is no chance."""
    seen: dict[Frame, list[int]] = {}
    for column, counts in enumerate((quick, others)):
        for name_id, count in counts.items():
            for frame in set(places[name_id].functions):
                seen.setdefault(frame, [0, 0])[column] += count
    part = quick.total() / max(1, quick.total() + others.total())
    return {
        frame
        for frame, (few, many) in seen.items()
        if few <= RARELY * many and _at_most(few, few + many, part) < CHANCE / len(seen)
    }


def _at_most(few: int, count: int, part: float) -> float:
    """How likely so few of a count are, where each is with that probability."""
    return sum(math.comb(count, k) * part**k * (1 - part) ** (count - k) for k in range(few + 1))


def _between(
    evidence: Evidence,
    places: Mapping[int, Place],
    usual: frozenset[Frame | str],
    steps: _Steps,
    gaps: Bool,
    taken: tuple[I8, I8],
) -> list[tuple[Key, I8, I8]]:
    """By phase, the time in these stretches that is not the step at their end, least first."""
    samples, lows, highs = evidence.samples, steps.lows[gaps], steps.highs[gaps]
    free = steps.free
    keys: list[Key] = []
    number = {}
    for name_id, frame in _blocks(places, usual, _loops(evidence)).items():
        if frame is not None:
            key = (_kind(frame, places[name_id]), frame)
            if key not in keys:
                keys.append(key)
            number[name_id] = keys.index(key)
    rows = _samples_in(evidence, free.starts, free.ends, _NONE)
    stretch = intervals.holders(lows, highs, samples.times_ns[rows])
    rows, stretch = rows[stretch >= 0], stretch[stretch >= 0]
    found = np.array([number.get(i, -1) for i in samples.name_ids[rows].tolist()], np.int64)
    if not len(found) or found.max() < 0:
        return []
    single, ends = _one_thing(steps, gaps, stretch, found)
    layers = []
    for row, key in enumerate(keys):
        cells = rows[(found == row) & (single[stretch] == _SEVERAL)]
        reach = intervals.merge(samples.lows_ns[cells], samples.highs_ns[cells])
        alone = single == row
        low, high = (
            np.concatenate(pair) for pair in zip(reach, (lows[alone], ends[alone]), strict=True)
        )
        layers.append((key, *intervals.merge_unsorted(low, high)))
    outside = intervals.subtract(
        np.array([evidence.span.t0_ns]),
        np.array([evidence.span.t1_ns]),
        intervals.merge(lows, highs),
    )
    layers = [(key, *intervals.subtract(low, high, outside)) for key, low, high in layers]
    return sorted(layers, key=lambda layer: intervals.total(*layer[1:]))


_SEVERAL = -2
"""In a stretch stand samples of several things: each speaks for the time around it."""


def _one_thing(steps: _Steps, gaps: Bool, stretch: I8, found: I8) -> tuple[I8, I8]:
    """What each stretch holds beside its step, and until when.

    The step at its end takes the usual time, which its marks know better than its samples, as far as
    these allow it. A stretch with few samples holds what others of its length hold.

    Args:
        stretch: Of each sample.
        found: What it found; -1: the step.

    Returns:
        Rows as in `found` or `_SEVERAL`, and times.
    """
    busy = steps.busy_ns[gaps].astype(np.float64)
    count, other = np.bincount(stretch, minlength=len(busy)), np.zeros(len(busy), np.int64)
    several, most = np.zeros(len(busy), np.int64), np.full(len(busy), -1, np.int64)
    for row in range(int(found.max()) + 1):
        here = np.bincount(stretch[found == row], minlength=len(busy))
        most = np.where(here > np.where(most >= 0, other, 0), row, most)
        other, several = other + here, several + (here > 0)
    last = steps.highs[gaps] >= steps.highs[-1]
    excess = np.clip(1 - np.where(last, 0, steps.usual_ns) / np.maximum(busy, 1), 0, 1)
    order = np.argsort(busy[stretch], kind="stable")
    lengths, kinds = busy[stretch][order], found[order]
    # Of the last one nobody knows whether it is over: nothing but its own samples speak for it.
    for gap in np.flatnonzero((other == 0) & (count < FEW_SAMPLES) & ~last).tolist():
        at = max(0, int(np.searchsorted(lengths, busy[gap])) - POOL // 2)
        near = slice(at, at + POOL)
        like = (lengths[near] < LIKE * busy[gap]) & (lengths[near] > busy[gap] / LIKE)
        told = kinds[near][like & (kinds[near] >= 0)].tolist()
        if len(told) > excess[gap] * int(like.sum()) / 2:
            most[gap] = max(told, key=told.count)
    single = np.where((several > 1) | ((most >= 0) & (steps.usual_ns == 0)), _SEVERAL, most)
    share = np.zeros(len(busy))
    for row in np.unique(single[single >= 0]).tolist():
        here = single == row
        part, samples = other[here].sum() / count[here].sum(), int(count[here].sum())
        marked = np.average(excess[here], weights=busy[here])
        low, high = bounds(part, samples)
        share[here] = excess[here] * (1.0 if low <= marked <= high else part / marked)
    return single, steps.free.after(steps.lows[gaps], (share * busy).astype(np.int64))


def _blocks(
    places: Mapping[int, Place], usual: frozenset[Frame | str], loops: frozenset[Frame]
) -> dict[int, Frame | str | None]:
    """What each place is in that no usual step is in. Lines of one function without a usual one between
    them are one block, which has the name of its first."""
    found = {i: _foreign_frame(place, usual, loops) for i, place in places.items()}
    foreign = {frame for frame in found.values() if isinstance(frame, str)}
    lines = {
        f for place in places.values() for f in place.frames if f[0] in foreign or f[0] in usual
    }
    block: dict[str, str] = {}
    before = None
    for where, function in sorted(lines, key=lambda f: (f[1], _line_number(f[0]))):
        if where in usual:
            before = None
        else:
            block[where] = before[1] if before and before[0] == function else where
            before = function, block[where]
    return {i: block.get(f, f) if isinstance(f, str) else f for i, f in found.items()}


def _loops(evidence: Evidence) -> frozenset[Frame]:
    """Functions that call the optimizer."""
    return frozenset(place_of(name).functions[-1] for name in evidence.step_places)


def _line_number(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return file, int(number) if number.isdigit() else 0


def _foreign_frame(
    place: Place, usual: frozenset[Frame | str], loops: frozenset[Frame] = frozenset()
) -> Frame | str | None:
    """The outermost function that no usual step is in, of those whose names say what they do, if any;
    or else the outermost with a name; or the line of a loop that no usual step is at, or the innermost
    one. None: it is usual."""
    if place.compiles:
        return COMPILER
    if place.waits_for_batch:
        return None
    others = [frame for frame in place.functions if frame not in usual]
    if others:
        telling = (frame for frame in others if kind_of(frame[1]) is not PhaseKind.OTHER)
        named = (frame for frame in others if not frame[1].endswith(">"))
        return next(telling, next(named, others[0]) if usual else others[-1])
    at = zip((line for line, _ in place.frames), place.functions[::-1], strict=True)
    lines = [place.frames[0][0], *(line for line, function in at if function in loops)]
    return next((line for line in lines[::-1] if line not in usual), None)


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
