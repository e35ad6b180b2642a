"""What is known of each phase, as sums that add up: over stretches, and over parts of a long run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.analysis.account.account import add, split_of
from brrrtop.analysis.facts.stack_samples import bounds
from brrrtop.ledger.account import MOST_STEPS, Burst, account_of
from brrrtop.ledger.evidence import LEAST_SAMPLES, Evidence
from brrrtop.ledger.phases import Phases
from brrrtop.ledger.places import Key, place_of
from brrrtop.model import intervals
from brrrtop.model.account import Account
from brrrtop.model.intervals import Cover
from brrrtop.model.run import CodeLine, Phase, PhaseKind
from brrrtop.model.tables import I8, Span
from collectors.vocabulary import MarkClass

MISTIMED_NS = 2_000_000
"""A sample may stand so far from where its time says: it is rounded, and a stack takes a while to read."""
MOST_LINES = 20
WHOLE = 0.9
"""Of a reading of the counter: so much of it in a phase makes it the phase's own."""


class Pace(Struct, frozen=True):
    """How a phase's time lies around the marks that end its steps. Before the first mark and after the last
    one nobody knows whether the loop had begun, or has ended; only a wait for data beside them is known to
    be of a step. Without it loaders that bring batches in gusts would seem faster than they are."""

    before_ns: int = 0
    """Up to the first mark; all of the time without marks."""
    first_wait_ns: int = 0
    """Of that the last wait for data."""
    between_ns: int = 0
    """From the first mark to the last; other phases' time between them is not in it."""
    after_ns: int = 0
    last_wait_ns: int = 0
    """Of that the first wait for data."""
    marks: int = 0

    @property
    def steps(self) -> int:
        """That are known to their beginning, or to their wait."""
        return max(0, self.marks - 1 + (self.first_wait_ns > 0))

    @property
    def steps_ns(self) -> int:
        return self.first_wait_ns + self.between_ns + self.last_wait_ns

    def joined(self, later: Pace) -> Pace:
        seam_ns = self.after_ns + later.before_ns
        if not later.marks:
            name = "after_ns" if self.marks else "before_ns"
            return replace(self, **{name: getattr(self, name) + later.before_ns})
        if not self.marks:
            return replace(later, before_ns=self.before_ns + later.before_ns)
        return replace(
            later,
            before_ns=self.before_ns,
            first_wait_ns=self.first_wait_ns,
            between_ns=self.between_ns + seam_ns + later.between_ns,
            marks=self.marks + later.marks - (seam_ns == 0),
        )


def mean_step(paces: Iterable[Pace]) -> int | None:
    known = [one for one in paces if one.steps]
    steps = sum(one.steps for one in known)
    return round(sum(one.steps_ns for one in known) / steps) if steps else None


class PhaseSums(Struct, frozen=True, eq=False):
    key: Key
    duration_ns: int = 0
    lines: Counter[str] = Counter()
    """Samples by the user's line."""
    count: int = 0
    longest_ns: int = 0
    steps: int = 0
    pace: Pace = Pace()
    waits_ns: int = 0
    reading_ns: int = 0
    sampled_ns: int = 0
    """Of the waits: by samples, and of how many outside marked waits."""
    samples: int = 0
    launching_ns: float = 0.0
    active_ns: float = 0.0
    """Activity by the counter × time of its readings."""
    read_ns: float = 0.0
    own_active_ns: float = 0.0
    own_read_ns: float = 0.0
    """The same of readings that lie in the phase nearly whole: others hold a part of its neighbours."""
    pauses_ns: dict[MarkClass, int] = {}
    bursts: tuple[Burst, ...] = ()
    """At most two: the sum of those with whole steps, and of others."""

    @property
    def active(self) -> float | None:
        if self.own_read_ns:
            return self.own_active_ns / self.own_read_ns
        return self.active_ns / self.read_ns if self.read_ns else None

    @property
    def launching(self) -> float:
        """Share of its time outside of waits in which samples are on their way to a launch."""
        return self.launching_ns / max(1, self.duration_ns - self.waits_ns)

    @property
    def account(self) -> Account:
        return account_of(self)

    @property
    def waits_most_ns(self) -> int:
        """That so few samples leave room for, 95 times of 100."""
        if not self.samples or self.key[0] is PhaseKind.DATA:
            return self.waits_ns
        marked_ns = self.waits_ns - self.sampled_ns
        rest_ns = max(1, self.duration_ns - marked_ns)
        return marked_ns + round(rest_ns * bounds(self.sampled_ns / rest_ns, self.samples)[1])

    def phase(self, of_ns: int) -> Phase:
        """As it is shown, in a run of that length."""
        account, kind = self.account, self.key[0]
        return Phase(
            kind=kind,
            where=line_of(self.key, self.lines),
            duration_ns=self.duration_ns,
            share=self.duration_ns / max(1, of_ns),
            count=self.count,
            longest_ns=self.longest_ns,
            steps=self.steps,
            step_ns=mean_step([self.pace]),
            waits_ns=self.waits_ns,
            waits_most_ns=self.waits_most_ns,
            active=self.active,
            traced_ns=sum(one.account.duration_ns for one in self.bursts),
            traced_steps=sum(one.steps for one in self.bursts),
            launches=sum((one.launches for one in self.bursts), ()),
            account=account,
            split=split_of(account) if self.bursts else None,
        )


def line_of(key: Key, lines: Counter[str]) -> str:
    """`evaluate() main.py:212`: the function, and the line of it that most samples of the phase are at."""
    frame = key[1]
    if isinstance(frame, str):
        return frame
    line = lines.most_common(1)[0][0] if lines else frame[0]
    return line if frame[1] == "<module>" else f"{frame[1].rpartition('.')[2]}() {line}"


def sums_of(
    evidence: Evidence, phases: Phases, bursts: Sequence[Burst], span: Span
) -> list[PhaseSums]:
    """Of each phase that has time in the span, in the order of `phases.keys`.

    Args:
        bursts: Those that lie in the span.
    """
    middles = np.array([(b.span.t0_ns + b.span.t1_ns) // 2 for b in bursts], np.int64)
    at = intervals.holders(phases.starts, phases.ends, middles)
    rows = np.where(at >= 0, phases.rows[np.maximum(at, 0)], -1) if len(phases.rows) else at
    result = []
    for row in range(len(phases.keys)):
        starts, ends = phases.of(row)
        starts, ends = intervals.merge(*intervals.clip(starts, ends, span.t0_ns, span.t1_ns))
        if len(starts):
            in_phase = [one for one, r in zip(bursts, rows.tolist(), strict=True) if r == row]
            result.append(_sums(evidence, phases.keys[row], starts, ends, in_phase))
    return result


def _sums(evidence: Evidence, key: Key, starts: I8, ends: I8, bursts: Sequence[Burst]) -> PhaseSums:
    cover = Cover(starts, ends)
    duration_ns = intervals.total(starts, ends)
    marked = evidence.waits
    waits_ns = int(cover.between(*marked).sum())
    rest_ns = duration_ns - waits_ns
    (making, reading, launching), samples = _sampled_shares(evidence, (starts, ends), marked)
    if key[0] is PhaseKind.SAVING:  # files that it opens are its own
        reading = 0.0
    points = evidence.step_ends if key[0] is PhaseKind.TRAIN else evidence.wait_ends
    reads = cover.between(evidence.read_starts, evidence.read_ends).astype(np.float64)
    own = np.where(reads >= WHOLE * (evidence.read_ends - evidence.read_starts), reads, 0.0)
    return PhaseSums(
        key=key,
        lines=evidence.lines_within(starts, ends, key[1]),
        duration_ns=duration_ns,
        count=len(starts),
        longest_ns=int((ends - starts).max()),
        # A step ends where its phase may end: half-open intervals would give it to the next one.
        steps=int((intervals.holders(starts, ends, points - 1) >= 0).sum()),
        pace=_pace(cover, points, marked),
        waits_ns=duration_ns
        if key[0] is PhaseKind.DATA
        else waits_ns + round(rest_ns * (making + reading)),
        reading_ns=round(rest_ns * reading),
        sampled_ns=round(rest_ns * (making + reading)),
        samples=samples,
        launching_ns=rest_ns * launching,
        active_ns=float((reads * evidence.read_active).sum()),
        read_ns=float(reads.sum()),
        own_active_ns=float((own * evidence.read_active).sum()),
        own_read_ns=float(own.sum()),
        pauses_ns={m: int(cover.between(*pair).sum()) for m, pair in evidence.pauses.items()},
        bursts=joined(bursts),
    )


def _pace(cover: Cover, points: I8, waits: tuple[I8, I8]) -> Pace:
    """Of a phase. A mark at its very beginning ends no step of it, and begins one."""
    starts, ends = cover.starts, cover.ends
    inside = (intervals.holders(starts, ends, points - 1) >= 0) | (points == starts[0])
    whole_ns = intervals.total(starts, ends)
    if not inside.any():
        return Pace(before_ns=whole_ns)
    first, last = int(points[inside].min()), int(points[inside].max())
    wait_ns = cover.between(*waits)
    before, after = wait_ns[waits[1] <= first], wait_ns[waits[0] >= last]
    begin, end = cover.up_to(np.array([first, last])).tolist()
    return Pace(
        before_ns=begin,
        first_wait_ns=int(before[-1]) if len(before) else 0,
        between_ns=end - begin,
        after_ns=whole_ns - end,
        last_wait_ns=int(after[0]) if len(after) else 0,
        marks=int(inside.sum()),
    )


def _sampled_shares(
    evidence: Evidence, phase: tuple[I8, I8], marked: tuple[I8, I8]
) -> tuple[tuple[float, ...], int]:
    """Shares of a phase, outside the loader's waits, in which the loop makes its batches itself, by preparing
    them and by reading files for them; and in which it is on its way to a launch. Of how many samples."""
    samples = evidence.samples
    inside = intervals.holders(*phase, samples.times_ns) >= 0
    # Beside a wait that a mark measured, a sample of the same wait is but mistimed.
    around = intervals.merge(marked[0] - MISTIMED_NS, marked[1] + MISTIMED_NS)
    inside &= intervals.holders(*marked, samples.times_ns) < 0
    inside &= ~samples.asks | (intervals.holders(*around, samples.times_ns) < 0)
    times = (samples.highs_ns - samples.lows_ns)[inside].astype(np.float64)
    if len(times) < LEAST_SAMPLES:
        return (0.0, 0.0, 0.0), len(times)
    shares = tuple(
        float(times[kind[inside]].sum() / max(1.0, times.sum()))
        for kind in (samples.makes_batches, samples.reads_files, samples.launches)
    )
    return shares, len(times)


def code_lines(evidence: Evidence) -> tuple[CodeLine, ...]:
    """The user's innermost lines by the time that their samples speak for, most first."""
    samples = evidence.samples
    if len(samples.times_ns) < LEAST_SAMPLES:
        return ()
    times = (samples.highs_ns - samples.lows_ns).astype(np.float64)
    marked = evidence.waits
    waiting = np.where(intervals.holders(*marked, samples.times_ns) >= 0, times, 0.0)
    ids, rows = np.unique(samples.name_ids, return_inverse=True)
    spent: dict[tuple[str, str], list[float]] = {}
    sums = np.bincount(rows, times).tolist(), np.bincount(rows, waiting).tolist()
    for name_id, time, waits in zip(ids.tolist(), *sums, strict=True):
        place = place_of(evidence.names[name_id])
        line = spent.setdefault((place.frames[0][0], place.source), [0.0, 0.0])
        line[0] += time
        line[1] += waits
    whole = float(times.sum()) or 1.0
    largest = sorted(spent.items(), key=lambda one: -one[1][0])[:MOST_LINES]
    return tuple(
        CodeLine(place, source, time / whole, waits / whole)
        for (place, source), (time, waits) in largest
        if time
    )


def joined(bursts: Sequence[Burst]) -> tuple[Burst, ...]:
    groups = ([b for b in bursts if b.steps], [b for b in bursts if not b.steps])
    return tuple(
        Burst(
            span=Span(group[0].span.t0_ns, group[-1].span.t1_ns),
            account=add([one.account for one in group]),
            steps=sum(one.steps for one in group),
            waits_ns=sum(one.waits_ns for one in group),
            launches=sum((one.launches for one in group), ())[-MOST_STEPS:],
        )
        for group in groups
        if group
    )


def added(before: PhaseSums, after: PhaseSums, unbroken: bool) -> PhaseSums:
    """Both together, in the order of time.

    Args:
        unbroken: The stretch at the end of the one goes on in the other.
    """
    names = (
        "duration_ns", "steps", "waits_ns", "reading_ns", "sampled_ns", "samples", "launching_ns",
        "active_ns", "read_ns", "own_active_ns", "own_read_ns",
    )  # fmt: skip
    return replace(
        before,
        **{name: getattr(before, name) + getattr(after, name) for name in names},
        lines=before.lines + after.lines,
        count=before.count + after.count - unbroken,
        longest_ns=max(before.longest_ns, after.longest_ns),
        pace=before.pace.joined(after.pace),
        pauses_ns={m: ns + after.pauses_ns.get(m, 0) for m, ns in before.pauses_ns.items()},
        bursts=joined((*before.bursts, *after.bursts)),
    )
