"""What the program did between two steps that are further apart than usual.

The step at the end takes its usual time; the rest is what samples found there that usual steps never, or
hardly ever, go through. Marks know lengths better than samples do, so these decide as far as they contradict.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import numpy as np
from msgspec import Struct

from brrrtop.ledger.evidence import LEAST_SAMPLES, LONGEST_HOLD_NS, Evidence
from brrrtop.ledger.places import (
    Frame,
    Key,
    Place,
    foreign_frame,
    kind_within,
    line_number,
    line_of_loop,
    place_of,
)
from brrrtop.model import intervals
from brrrtop.model.intervals import Cover
from brrrtop.model.run import PhaseKind
from brrrtop.model.tables import I8, Bool

LONG_STEPS, LONG_NS = 4, 4_000_000
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


class Steps(Struct, frozen=True, eq=False):
    """The span cut at the ends of steps."""

    kind: PhaseKind
    lows: I8
    highs: I8
    busy_ns: I8
    """Of each stretch, outside of waits and of what marks name."""
    usual_ns: int
    """0: not known."""
    long: Bool
    """Something else may be in these."""
    slow: Bool
    """These are only slow."""
    free: Cover
    """All time outside of waits and of what marks name."""
    stretch: I8
    """That each sample lies in; -1: marks name what it is."""


def cut_at_steps(evidence: Evidence, taken: tuple[I8, I8]) -> Steps:
    """Where steps follow each other. Without an optimizer batches do; without those nothing is a step.

    Args:
        taken: What marks name.
    """
    span, ends, kind = evidence.span, evidence.step_ends, PhaseKind.TRAIN
    if len(ends) < 2:
        ends, kind = np.sort(evidence.wait_ends), PhaseKind.OTHER
    cuts = np.unique(np.concatenate(([span.t0_ns], ends, [span.t1_ns])))
    lows, highs = cuts[:-1], cuts[1:]
    known = intervals.merge_unsorted(*map(np.concatenate, zip(taken, evidence.waits, strict=True)))
    free = Cover(*intervals.subtract(np.array([span.t0_ns]), np.array([span.t1_ns]), known))
    busy = free.between(lows, highs)
    usual = int(np.median(busy[1:-1])) if len(busy) - 2 >= FEW_STEPS else 0
    long = busy > (max(LONG_STEPS * usual, LONG_NS) if len(ends) else -1)
    slow = busy > max(SLOW_STEPS * usual, usual + LONG_NS) if usual else long
    times = evidence.samples.times_ns
    named = intervals.holders(*taken, times) >= 0
    stretch = np.where(named, -1, intervals.holders(lows, highs, times))
    return Steps(kind, lows, highs, busy, usual, long, slow & ~long, free, stretch)


def usual_frames(
    evidence: Evidence, places: Mapping[int, Place], steps: Steps
) -> tuple[frozenset[Frame | str], Bool]:
    """Functions and lines that usual steps go through; and which stretches may hold others.

    Of steps that are only slow those may that hold functions which other steps hardly ever do.
    """
    rows = np.flatnonzero(steps.stretch >= 0)
    at, ids = steps.stretch[rows], evidence.samples.name_ids[rows]
    if steps.kind is PhaseKind.TRAIN and not steps.usual_ns:
        return _frames_of_most(places, set(zip(at.tolist(), ids.tolist(), strict=True))), steps.long
    long, slow = steps.long[at], steps.slow[at]
    quick, slower, longer = (Counter(ids[part].tolist()) for part in (~long & ~slow, slow, long))
    rare = _rare_frames(places, quick, slower + longer)
    common = [p for i in quick | slower if rare.isdisjoint((p := places[i]).functions)]
    common += map(place_of, evidence.step_places)
    usual: frozenset[Frame | str] = frozenset(f for place in common for f in place.functions)
    usual |= {line for place in common for line, _ in place.frames if line not in rare}
    # Waits for data, or for other ranks in a backward pass, may be in slow steps alone: parts of them.
    part = set(evidence.samples.name_ids[evidence.samples.makes_batches].tolist())
    part |= {i for i in slower if places[i].learns}
    frames = (
        (*places[i].functions, *(() if i in part else dict(places[i].frames))) for i in slower
    )
    held = any(not rare.isdisjoint(one) for one in frames)
    return usual, steps.long | steps.slow if held else steps.long


def _frames_of_most(
    places: Mapping[int, Place], met: set[tuple[int, int]]
) -> frozenset[Frame | str]:
    """Functions and lines that most stretches go through, of few long ones.

    Args:
        met: Stretches, and names of samples in them.
    """
    found: dict[Frame | str, set[int]] = {}
    for stretch, name_id in met:
        place = places[name_id]
        frames: list[Frame | str] = [*place.functions, *(line for line, _ in place.frames)]
        for frame in frames:
            found.setdefault(frame, set()).add(stretch)
    most = len({stretch for stretch, _ in met}) / 2
    return frozenset(frame for frame, stretches in found.items() if len(stretches) > most)


def _rare_frames(
    places: Mapping[int, Place], quick: Counter[int], others: Counter[int]
) -> set[Frame | str]:
    """Functions and lines that samples of quick steps find so seldom, and those of others so often, that it
    is no chance: a sample may be mistimed."""
    seen: dict[Frame | str, list[int]] = {}
    for column, counts in enumerate((quick, others)):
        for name_id, count in counts.items():
            place = places[name_id]
            frames: set[Frame | str] = {*place.functions, *(line for line, _ in place.frames)}
            for frame in frames:
                seen.setdefault(frame, [0, 0])[column] += count
    part = quick.total() / max(1, quick.total() + others.total())
    return {
        frame
        for frame, (few, many) in seen.items()
        if few <= RARELY * many and _at_most(few, few + many, part) < CHANCE / len(seen)
    }


def _at_most(few: int, count: int, part: float) -> float:
    """How likely so few of a count are at most, where each is with that probability (Chernoff's bound)."""
    share = few / count
    if share >= part:
        return 1.0
    if part >= 1.0:
        return 0.0
    apart = (1 - share) * math.log((1 - share) / (1 - part))
    apart += share * math.log(share / part) if few else 0.0
    return math.exp(-count * apart)


def between(
    evidence: Evidence,
    places: Mapping[int, Place],
    usual: frozenset[Frame | str],
    steps: Steps,
    gaps: Bool,
) -> list[tuple[Key, I8, I8]]:
    """By phase, the time in these stretches that is not the step at their end, least first."""
    samples, lows = evidence.samples, steps.lows[gaps]
    blocks = _blocks(evidence, places, usual, steps.kind)
    keys = list(dict.fromkeys(blocks.values()))
    number = {name_id: keys.index(key) for name_id, key in blocks.items()}
    rows = np.flatnonzero((steps.stretch >= 0) & gaps[np.maximum(steps.stretch, 0)])
    stretch = (np.cumsum(gaps) - 1)[steps.stretch[rows]]
    found = np.array([number.get(i, -1) for i in samples.name_ids[rows].tolist()], np.int64)
    if not len(found) or found.max() < 0:
        return []
    times = samples.times_ns[rows]
    single, ends = _one_thing(steps, gaps, stretch, found)
    ends = _usual_again(stretch, times, found, ends)
    layers = []
    cells = _cells(steps, gaps, stretch, times)
    for row, key in enumerate(keys):
        around, alone = (found == row) & (single[stretch] == _SEVERAL), single == row
        low, high = (
            np.concatenate((cell[around], whole[alone]))
            for cell, whole in zip(cells, (lows, ends), strict=True)
        )
        layers.append((key, *intervals.merge_unsorted(low, high)))
    return sorted(layers, key=lambda layer: intervals.total(*layer[1:]))


def within_steps(
    evidence: Evidence, places: Mapping[int, Place], steps: Steps
) -> list[tuple[Key, I8, I8]]:
    """What acts in a simulator in each usual step, before the rest of it: lines of what steps. Its length is
    its share of the samples."""
    usual = ~steps.long & (steps.busy_ns > 0)
    rows = (steps.stretch >= 0) & usual[np.maximum(steps.stretch, 0)]
    rows &= intervals.holders(*evidence.waits, evidence.samples.times_ns) < 0
    ids, counts = np.unique(evidence.samples.name_ids[rows], return_counts=True)
    train = {frame for name in evidence.step_places for frame in place_of(name).functions}
    made = set(evidence.samples.name_ids[evidence.samples.makes_batches].tolist())
    often = zip(ids.tolist(), counts.tolist(), strict=True)
    inside = _acting_lines([(places[i], n, i in made) for i, n in often], train)
    frame, count = max(inside.items(), key=lambda one: one[1], default=("", 0))
    if steps.kind is not PhaseKind.TRAIN or count < LEAST_SAMPLES:
        return []
    lows, lengths = steps.lows[usual], steps.busy_ns[usual] * (count / int(rows.sum()))
    return [((PhaseKind.ROLLOUT, frame), lows, steps.free.after(lows, lengths.astype(np.int64)))]


def _acting_lines(
    found: Iterable[tuple[Place, int, bool]], loops: Collection[Frame]
) -> Counter[Frame | str]:
    """By what acts in a simulator first in a function, samples at lines around its call: from what makes a
    batch or learns before it to what does so, or runs a model, after it.

    Args:
        found: Places, how many samples they have, and whether batches are made there.
    """
    lines: dict[Frame, list[tuple[int, int, Frame | str | None, bool, bool]]] = {}
    for place, count, makes in found:
        for depth, function in enumerate(place.functions[::-1]):
            if function not in loops:
                continue
            number = line_number(place.frames[depth][0])[1]
            acts = None if makes or place.learns else place.acts_below(depth)
            ends = place.learns or makes
            row = (number, count, acts, ends, ends or place.runs_model)
            lines.setdefault(function, []).append(row)
            count, makes = 0, False  # of those around it only where it stands
    inside: Counter[Frame | str] = Counter()
    for rows in lines.values():
        acting = [(number, acts) for number, _, acts, *_ in rows if acts is not None]
        if acting:
            first, at = min(acting, key=lambda one: one[0])
            low = max((n for n, *_, ends, _ in rows if ends and n < first), default=0)
            high = min((n for n, *_, ends in rows if ends and n > first), default=1 << 62)
            inside[at] += sum(n for number, n, *_ in rows if low < number < high)
    return inside


def _cells(steps: Steps, gaps: Bool, stretch: I8, times: I8) -> tuple[I8, I8]:
    """Starts and ends of the time around each sample, up to half-way to the next one of its stretch; the
    step at the end of it takes the usual time."""
    middle, alike = (times[1:] + times[:-1]) // 2, stretch[1:] == stretch[:-1]
    lows = steps.lows[gaps][stretch]
    highs = np.maximum(steps.highs[gaps][stretch] - steps.usual_ns, times)
    lows[1:] = np.where(alike, middle, lows[1:])
    highs[:-1] = np.where(alike, middle, highs[:-1])
    reach = LONGEST_HOLD_NS // 2
    return np.maximum(lows, times - reach), np.minimum(highs, times + reach)


def _usual_again(stretch: I8, times: I8, found: I8, ends: I8) -> I8:
    """When a sample of each stretch first finds the step at its end; where none does, its end as it is."""
    last, first = np.zeros(len(ends), np.int64), np.array(ends, np.int64)
    np.maximum.at(last, stretch[found >= 0], times[found >= 0])
    later = (found < 0) & (times > last[stretch]) & (last[stretch] > 0)
    np.minimum.at(first, stretch[later], times[later])
    return first


_SEVERAL = -2
"""In a stretch stand samples of several things: each speaks for the time around it."""


def _one_thing(steps: Steps, gaps: Bool, stretch: I8, found: I8) -> tuple[I8, I8]:
    """What each stretch holds beside its step, and until when.

    The step at its end takes the usual time. A stretch with few samples holds what others of its length hold.

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
    share = np.where(single >= 0, excess, 0.0)
    return single, steps.free.after(steps.lows[gaps], (share * busy).astype(np.int64))


def _blocks(
    evidence: Evidence,
    places: Mapping[int, Place],
    usual: frozenset[Frame | str],
    steps: PhaseKind,
) -> dict[int, Key]:
    """What each place is in that no usual step is in, if it is; a backward pass there is a part of a step, or
    where nothing is known to step, the training itself; so is a wait at a line that asks a loader."""
    loops = frozenset(f for name in evidence.step_places for f in place_of(name).functions)
    found = {i: foreign_frame(place, usual, loops) for i, place in places.items()}
    samples = evidence.samples
    ids, counts = np.unique(samples.name_ids, return_counts=True)
    often = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    made = set(samples.name_ids[samples.makes_batches | samples.reads_files].tolist())
    asked = set(samples.name_ids[samples.asks].tolist())

    def kinds_of(frames: Mapping[int, Frame | str | None]) -> dict[Frame | str, PhaseKind]:
        inside: dict[Frame | str, list[int]] = {}
        for name_id, frame in frames.items():
            if frame is not None:
                inside.setdefault(frame, []).append(name_id)
        return {
            frame: kind_within(frame, {places[i]: often.get(i, 0) for i in rows})
            for frame, rows in inside.items()
        }

    # A function that no word speaks for does what the lines around its call do.
    silent = {frame for frame, kind in kinds_of(found).items() if kind is PhaseKind.OTHER}
    called = found | {
        i: line_of_loop(places[i], usual, loops) or f for i, f in found.items() if f in silent
    }
    block = _blocks_of_lines(places, usual, kinds_of(called))
    called = {i: block.get(f, f) if isinstance(f, str) else f for i, f in called.items()}
    kinds = kinds_of(called)
    told = {i: f for i, f in called.items() if f is None or kinds[f] is not PhaseKind.OTHER}
    found = {i: told.get(i, block.get(f, f) if isinstance(f, str) else f) for i, f in found.items()}
    kinds = kinds_of(found)
    counts_of: dict[Frame | str, list[int]] = {}
    for name_id, frame in found.items():
        if frame is not None and kinds[frame] is PhaseKind.OTHER:
            counts_of.setdefault(frame, [0, 0])[name_id in made] += often.get(name_id, 0)
    for frame, (others, making) in counts_of.items():
        if making >= FEW_SAMPLES and others <= RARELY * (others + making):
            kinds[frame] = PhaseKind.DATA
    return {
        i: (kinds[frame], frame)
        for i, frame in found.items()
        if frame is not None
        and (kinds[frame], steps) != (PhaseKind.TRAIN, PhaseKind.TRAIN)
        and not (i in asked and kinds[frame] is PhaseKind.DATA and isinstance(frame, str))
    }


def _blocks_of_lines(
    places: Mapping[int, Place],
    usual: frozenset[Frame | str],
    kinds: Mapping[Frame | str, PhaseKind],
) -> dict[str, str]:
    """Lines of one function, without a usual one or one that does something else between them, by the first.

    Args:
        kinds: Of what no usual step is in: what goes on at each of these lines.
    """
    lines = {f for place in places.values() for f in place.frames if f[0] in kinds or f[0] in usual}
    block: dict[str, str] = {}
    first, of, within = "", "", PhaseKind.OTHER
    for where, function in sorted(lines, key=lambda f: (f[1], line_number(f[0]))):
        if where in usual:
            of = ""
            continue
        kind = kinds.get(where, PhaseKind.OTHER)
        if function != of or _are_apart(kind, within):
            first, of, within = where, function, kind
        elif within is PhaseKind.OTHER or (
            within in (PhaseKind.DATA, PhaseKind.EVALUATION)
            and kind not in (PhaseKind.OTHER, PhaseKind.DATA)
        ):
            within = kind
        block[where] = first
    return block


def _are_apart(one: PhaseKind, other: PhaseKind) -> bool:
    """Whether two lines do different things; to act, or to write, a model runs as in an evaluation, which
    makes its own batches."""
    kinds = {one, other} - {PhaseKind.OTHER}
    forward = {PhaseKind.EVALUATION, PhaseKind.ROLLOUT, PhaseKind.GENERATION, PhaseKind.DATA}
    return len(kinds) > 1 and not (PhaseKind.EVALUATION in kinds and kinds <= forward)
