"""The run so far. What is old is kept as sums, so a run of days takes as much memory as one of minutes."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.account.account import add, split_of
from brrrtop.analysis.facts.stack_samples import read_samples
from brrrtop.ledger.account import SHORT_NS, Burst, Bursts
from brrrtop.ledger.evidence import Evidence, Intervals, gather
from brrrtop.ledger.phases import Phases, find_phases
from brrrtop.ledger.places import Key
from brrrtop.ledger.sums import PhaseSums, added, code_lines, line_of, mean_step, sums_of
from brrrtop.ledger.verdict import unseen
from brrrtop.model import intervals
from brrrtop.model.account import Account
from brrrtop.model.run import Now, Phase, PhaseKind, Run, Stretch, Witness
from brrrtop.model.tables import Marks, Span
from brrrtop.timeline.timeline import Timeline
from collectors.vocabulary import MarkClass

NOW_NS = 10_000_000_000
"""What a person calls now: long enough for a few steps, short enough to follow a change."""
OPEN_NS = 60_000_000_000
"""So much of the run is looked at anew each time; what is older stays as it was measured."""
CLOSED_NS = 30_000_000_000
"""So much is closed at a time: phases are told by what is usual in a minute or more around them."""
HOOKED_NS = 10_000_000_000
"""Hooks are in place by then."""
_LOOP = (
    MarkClass.STEP,
    MarkClass.INPUT,
    MarkClass.EVALUATION,
    MarkClass.CHECKPOINT,
    MarkClass.COMPILE,
)
MOST_STRETCHES = 600
MOST_KEYS = 64
"""More phases than a person reads: the smallest closed ones become `other`."""


class Ledger:
    """What is known of one device's run, from the first mark on."""

    def __init__(self, open_ns: int = OPEN_NS, closed_ns: int = CLOSED_NS) -> None:
        self._kept_open_ns, self._closed_at_once_ns = open_ns, closed_ns
        self._bursts = Bursts()
        self._closed: dict[Key, PhaseSums] = {}
        self._begin_ns = 0
        self._begun = False
        """Nothing that is still to come can be the first mark."""
        self._open_ns = 0
        self._step_places: tuple[str, ...] = ()
        self._last_key: Key | None = None
        """Of the last closed stretch."""
        self._stretches: list[tuple[Span, Key]] = []
        self._newest: tuple[Run, dict[Key, PhaseSums], Phases] | None = None
        """With what it is made of."""

    def run(self, timeline: Timeline, device_id: int | None, now_ns: int) -> Run | None:
        """The run up to now; None before anything is known of it."""
        if not self._closed and not self._begun:
            begin_ns = first_ns(timeline)
            if begin_ns is None or begin_ns >= now_ns:
                return None
            self._begin_ns = self._open_ns = begin_ns
            self._begun = now_ns - begin_ns > 2 * HOOKED_NS
        if now_ns <= self._open_ns:
            return None
        most_ns = self._kept_open_ns + self._closed_at_once_ns
        while now_ns - self._open_ns > most_ns:
            self._close(timeline, device_id, self._open_ns + most_ns, now_ns)
        span = Span(self._open_ns, now_ns)
        marks = timeline.marks_between(span)
        evidence = self._gather(timeline, marks, span, device_id)
        phases = find_phases(evidence)
        every = self._with_closed(self._sums(timeline, evidence, phases, span, device_id))
        run = self._made(every, evidence, phases, Span(self._begin_ns, now_ns))
        samples = read_samples(timeline.names, marks, within=False)
        early = device_id is None and bool(timeline.devices)  # that the trainer has opened
        run = replace(run, samples=samples, unseen=unseen(run.account) if early else None)
        self._newest = run, every, phases
        return run

    def moved(self, timeline: Timeline, device_id: int | None, now_ns: int) -> Run | None:
        """The newest run, with the last seconds up to now: what went on when it was looked at goes on."""
        if self._newest is None:
            return None
        run, every, phases = self._newest
        span = Span(max(self._open_ns, now_ns - NOW_NS), now_ns)
        evidence = gather(timeline, timeline.marks_between(span), span, device_id)
        phases = replace(phases, ends=np.append(phases.ends[:-1], now_ns))
        return replace(run, now=self._now(every, evidence, phases, now_ns))

    def judge_anew(self) -> None:
        """To be called at the end: nothing that bursts lack is still to come."""
        self._bursts = Bursts()

    def _gather(
        self, timeline: Timeline, marks: Marks, span: Span, device_id: int | None
    ) -> Evidence:
        """What is known of the span. Where no optimizer stepped in it, the loop is the one of before."""
        evidence = gather(timeline, marks, span, device_id)
        self._step_places = evidence.step_places or self._step_places
        return replace(evidence, step_places=self._step_places)

    def _sums(
        self,
        timeline: Timeline,
        evidence: Evidence,
        phases: Phases,
        span: Span,
        device_id: int | None,
    ) -> list[PhaseSums]:
        bursts: list[Burst] = []
        if device_id is not None:
            cuts = phases.starts[phases.ends - phases.starts >= SHORT_NS]
            apart = _apart_of_steps(evidence, phases)
            bursts = self._bursts.within(timeline, span, device_id, cuts, apart)
        return sums_of(evidence, phases, bursts, span)

    def _close(self, timeline: Timeline, device_id: int | None, until_ns: int, now_ns: int) -> None:
        """Keeps the sums of the oldest part alone."""
        cut_ns = self._open_ns + self._closed_at_once_ns
        marks = timeline.marks_between(Span(self._open_ns, until_ns))
        if not len(marks):  # asleep, or the clock jumped
            later = timeline.marks_between(Span(until_ns, now_ns - self._kept_open_ns)).starts_ns
            until_ns = cut_ns = int(later[0]) if len(later) else now_ns - self._kept_open_ns
        evidence = self._gather(timeline, marks, Span(self._open_ns, until_ns), device_id)
        phases = find_phases(evidence)
        inside = phases.starts < cut_ns
        if inside.any() and int(phases.ends[inside][-1]) <= until_ns - self._closed_at_once_ns // 2:
            cut_ns = int(phases.ends[inside][-1])  # at a change of phase rather than in its middle
        part = Span(self._open_ns, cut_ns)
        self._closed = self._with_closed(self._sums(timeline, evidence, phases, part, device_id))
        if len(self._closed) > MOST_KEYS:
            self._closed = _fewer(self._closed)
        self._stretches = [*self._stretches, *_stretches(phases, part)][-MOST_STRETCHES:]
        self._last_key = phases.keys[phases.rows[inside][-1]] if inside.any() else None
        self._bursts.forget(cut_ns)
        self._open_ns = cut_ns

    def _with_closed(self, fresh: Sequence[PhaseSums]) -> dict[Key, PhaseSums]:
        every = dict(self._closed)
        for one in fresh:
            before = every.get(one.key)
            unbroken = one.key == self._last_key
            every[one.key] = one if before is None else added(before, one, unbroken)
        return every

    def _made(
        self, every: dict[Key, PhaseSums], evidence: Evidence, phases: Phases, span: Span
    ) -> Run:
        ordered = sorted(every.values(), key=lambda one: -one.duration_ns)
        shown = tuple(one.phase(span.duration_ns) for one in ordered)
        whole = add([one.account for one in shown])
        train = [one for one in shown if one.kind is PhaseKind.TRAIN]
        steps = sum(one.steps for one in train)
        step_ns = mean_step(one.pace for one in ordered if one.key[0] is PhaseKind.TRAIN)
        rank = {one.key: row for row, one in enumerate(ordered)}
        kept = [*self._stretches, *_stretches(phases, evidence.span)][-MOST_STRETCHES:]
        return Run(
            span=span,
            account=whole,
            split=split_of(whole),
            phases=shown,
            witness=_witness(ordered, shown, whole),
            traced_ns=sum(one.traced_ns for one in shown),
            steps=steps,
            step_ns=step_ns,
            now=self._now(every, evidence, phases, span.t1_ns),
            lines=code_lines(evidence),
            stretches=tuple(Stretch(one, rank[key]) for one, key in kept if key in rank),
        )

    def _now(
        self, every: dict[Key, PhaseSums], evidence: Evidence, phases: Phases, now_ns: int
    ) -> Now:
        """The last seconds; work a step is that of all bursts of the phase."""
        span = Span(max(evidence.span.t0_ns, now_ns - NOW_NS), now_ns)
        parts = [
            replace(one, bursts=every[one.key].bursts)
            for one in sums_of(evidence, phases, (), span)
        ]
        whole = add([one.account for one in parts])
        key = phases.keys[phases.rows[-1]] if len(phases.rows) else None
        read_ns = sum(one.read_ns for one in parts)
        return Now(
            duration_ns=span.duration_ns,
            phase=key[0] if key else None,
            where=line_of(key, every[key].lines) if key else "",
            step_ns=mean_step(one.pace for one in parts if one.key[0] is PhaseKind.TRAIN),
            active=sum(one.active_ns for one in parts) / read_ns if read_ns else None,
            account=whole,
            split=split_of(whole),
        )


def _apart_of_steps(evidence: Evidence, phases: Phases) -> Intervals:
    """From step end to step end, what holds more than training."""
    steps = evidence.step_ends
    others = np.array([key[0] is not PhaseKind.TRAIN for key in phases.keys], np.bool_)[phases.rows]
    starts, ends = phases.starts[others], phases.ends[others]
    if not len(steps) or not len(starts):
        return intervals.EMPTY, intervals.EMPTY
    before = np.searchsorted(steps, starts, side="right") - 1
    after = np.searchsorted(steps, ends)
    low = np.where(before >= 0, steps[np.maximum(before, 0)], starts)
    high = np.where(after < len(steps), steps[np.minimum(after, len(steps) - 1)], ends)
    return intervals.merge_unsorted(low, high)


def first_ns(timeline: Timeline) -> int | None:
    """When what the loop does is known from: its first mark, if one comes soon after the first sample or
    activity; hooks take a moment to be in place, and steps that nobody marked would be long ones."""
    marks = timeline.marks_between(Span(0, 1 << 62))
    first = [int(marks.starts_ns.min())] if len(marks.starts_ns) else []
    if timeline.first_ns is not None:
        first.append(timeline.first_ns)
    if not first:
        return None
    told = marks.starts_ns[np.isin(marks.classes, _LOOP)]
    soon = len(told) and int(told.min()) - min(first) <= HOOKED_NS
    return int(told.min()) if soon else min(first)


def _fewer(closed: dict[Key, PhaseSums]) -> dict[Key, PhaseSums]:
    """The largest phases, and all others as one."""
    ordered = sorted(closed.values(), key=lambda one: -one.duration_ns)
    kept = {one.key: one for one in ordered[: MOST_KEYS // 2]}
    other: Key = (PhaseKind.OTHER, "")
    for one in ordered[MOST_KEYS // 2 :]:
        before = kept.get(other)
        kept[other] = replace(one, key=other) if before is None else added(before, one, False)
    return kept


def _witness(sums: Sequence[PhaseSums], phases: Sequence[Phase], whole: Account) -> Witness:
    train = [one for one in phases if one.kind is PhaseKind.TRAIN]
    time_ns = sum(one.duration_ns for one in train)
    loops = [one for one in sums if one.key[0] is PhaseKind.TRAIN and one.steps]
    awake_ns = sum(one.duration_ns - one.waits_ns for one in loops)
    traced = [b for one in loops for b in one.bursts if b.steps]
    traced_steps = sum(one.steps for one in traced)
    read_ns = sum(one.read_ns for one in sums)
    kernels_ns = whole.busy_ns - whole.exposed_copy_ns
    waits = [(one.waits_ns, one.account.idle_ns) for one in train]
    return Witness(
        active_counter=sum(one.active_ns for one in sums) / read_ns if read_ns else None,
        active_account=kernels_ns / whole.duration_ns
        if any(one.traced_ns for one in phases) and whole.duration_ns
        else None,
        step_ns_marks=awake_ns / sum(one.steps for one in loops) if loops else None,
        step_ns_traced=sum(one.account.duration_ns - one.waits_ns for one in traced) / traced_steps
        if traced_steps
        else None,
        waits_ledger=sum(ns for ns, _ in waits) / time_ns if time_ns else None,
        waits_account=sum(idle["input"] + idle["io"] for _, idle in waits) / time_ns
        if time_ns
        else None,
    )


def _stretches(phases: Phases, span: Span) -> list[tuple[Span, Key]]:
    """In the order of time."""
    rows = np.flatnonzero((phases.ends > span.t0_ns) & (phases.starts < span.t1_ns))
    rows = rows[-MOST_STRETCHES:]
    lows = np.maximum(phases.starts[rows], span.t0_ns).tolist()
    highs = np.minimum(phases.ends[rows], span.t1_ns).tolist()
    keys = [phases.keys[row] for row in phases.rows[rows].tolist()]
    return list(zip(map(Span, lows, highs), keys, strict=True))
