"""The ranks of a job beside each other: windows in, one frozen picture of who waits for whom out."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.analysis.facts.collectives import Collectives, collectives_of
from brrrtop.analysis.ranks import lateness, matching
from brrrtop.analysis.ranks.lateness import RankActivity, rank_waited_for
from brrrtop.analysis.ranks.matching import Matched, alone_share, collective_rows, parallelism
from brrrtop.model.ranks import JobSnapshot, Parallelism, RankRow, WaitedFor
from brrrtop.model.tables import F8, Bool, Span, Window
from brrrtop.text import units
from collectors.vocabulary import MarkClass

CLOCKS_APART_NS = 60_000_000_000
"""Clocks that somebody sets are closer."""
PART_OF_A_STEP = "so far all ranks were recorded together for a part of a step only"
NOT_TOGETHER = "no two ranks were recorded in the same collective: who waits for whom is not known"


class RankInput(Struct, frozen=True, eq=False):
    row: RankRow
    """With rank, label, pid, estimate and gauges; the rest is filled in here."""
    window: Window | None
    """All that was recorded of its GPU; None where nothing was."""
    known: dict[object, RankActivity]
    """Of earlier looks at it."""
    whole_trace: bool = False
    """It was recorded from a moment on that the others' recordings share, as a profiler's trace is: its
    beginning says how late it began."""


class AlignedRanks(Struct, frozen=True, eq=False):
    inputs: Sequence[RankInput]
    windows: Sequence[Window]
    every: Sequence[Collectives]
    offsets: Sequence[int | None]
    matched: Matched
    spans: tuple[Span, ...]
    deeds: Sequence[RankActivity | None]
    steps: float | None
    """In `spans`."""
    usual_step_ns: float | None
    """Of the run, in most of which nothing is traced."""
    in_bursts: bool
    """Parts of a run were recorded, which says how long its steps are besides."""
    together_ns: int
    inside: F8
    """Per matched row: its exposed wait where the collective ends in `spans`, else 0."""
    counted: Bool
    """Per collective: it ends in `spans`, and opens none."""
    stays: F8
    """The same of its whole exposed stay: ranks are as much later than others as these are shorter."""

    @property
    def traced_step_ns(self) -> float:
        return self.together_ns / self.steps if self.steps and self.steps >= 1 else 0.0

    @property
    def step_ns(self) -> float:
        usual = self.usual_step_ns or 0.0
        return usual if usual and self.in_bursts else max(self.traced_step_ns, usual)

    @property
    def apart_ns(self) -> float:
        """What bursts show of a step beyond one of the run: tracing stretches it, and a host that is later
        than its peers by as much is so in no other step. Below 0: they lack what sets the run's pace."""
        return self.traced_step_ns - self.step_ns if self.in_bursts else 0.0

    @property
    def numbers(self) -> list[int]:
        """The rank of each place; the place itself where none is known."""
        return [
            place if one.row.rank is None else one.row.rank for place, one in enumerate(self.inputs)
        ]


def judge_job(
    inputs: Sequence[RankInput], world: int | None = None, least_bursts: int = 1
) -> JobSnapshot:
    """All ranks of one job, the odd one first.

    Args:
        inputs: One each; those without a window are shown with their reason.
        world: Number of ranks that the job has; None where nobody says.
        least_bursts: In which a rank must be recorded to be called slow.
    """
    some = [one for one in inputs if one.window is not None]
    others = [one.row for one in inputs if one.window is None]
    job = _together(some)
    missing = _missing(job, len(inputs), world)
    rows = _rows(job)
    if missing:  # the last rank to arrive may be one of them
        rows = [replace(row, late_ns=None) for row in rows]
    collectives = collective_rows(job, complete=not missing)
    waited = None if missing else rank_waited_for(job, rows, least_bursts)
    if waited is not None:
        rows = [_with_cause(row, waited) if row.rank == waited.rank else row for row in rows]
    divided = parallelism(
        collectives,
        job.steps or _steps_in_all(some),
        max(len(inputs), world or 0),
        alone_share(job),
    )
    return JobSnapshot(
        ranks=(*_odd_first(rows, waited.rank if waited else None), *others),
        world=world,
        missing=missing,
        together_ns=job.together_ns or None,
        bursts=len(job.spans),
        undecided=0 < len(job.spans) < least_bursts,
        steps=job.steps,
        step_ns=job.step_ns or None,
        collectives=collectives,
        matched=len(job.matched),
        transfer_ns=int(job.matched.transfer_ns.sum()) if len(job.matched) else None,
        waited_for=waited,
        parallelism=divided,
        bubble=_bubble(job) if Parallelism.PIPELINE in divided else None,
        notes=tuple(_notes(job, inputs, world)),
    )


def _together(inputs: Sequence[RankInput]) -> AlignedRanks:
    windows = [one.window for one in inputs if one.window is not None]
    every = [collectives_of(window) for window in windows]
    offsets = matching.offsets(every, [_host(window) for window in windows])
    matched = matching.match(every, offsets)
    step_ns, in_bursts = usual_step_ns(inputs), any(one.observed is not None for one in windows)
    spans, steps = lateness.shared_spans(windows, every, offsets, matched, step_ns, in_bursts)
    deeds = [
        lateness.deeds(window, spans, offset, one.known) if spans and offset is not None else None
        for one, window, offset in zip(inputs, windows, offsets, strict=True)
    ]
    together_ns = sum(span.duration_ns for span in spans)
    counted = _countable(matched, spans)
    inside, stays = (
        np.where(counted[matched.collective], column, 0).astype(np.float64)
        for column in (matched.alone_ns, matched.stay_alone_ns)
    )
    return AlignedRanks(
        inputs, windows, every, offsets, matched, spans, deeds, steps, step_ns, in_bursts, together_ns,
        inside, counted, stays,
    )  # fmt: skip


def _missing(job: AlignedRanks, given: int, world: int | None) -> int:
    """How many ranks of the job are not among those that were put beside each other; 0 where none were."""
    placed = sum(offset is not None for offset in job.offsets)
    return max(given, world or 0) - placed if placed else 0


def usual_step_ns(inputs: Sequence[RankInput]) -> float | None:
    """Of the ranks, the upper median: a host that catches up after a wait has short steps."""
    known = (lateness.usual_step_ns(one.window, False) or one.row.step_ns for one in inputs)
    lengths = sorted(length for length in known if length)
    return float(lengths[len(lengths) // 2]) if lengths else None


def _host(window: Window) -> str | None:
    """Whose clock the times are of; None where nobody says."""
    name = window.hello.get("hostname")
    return str(name) if name else None


def _countable(matched: Matched, spans: Sequence[Span]) -> Bool:
    """Whether each collective ends in a span and opens none; shape (collectives,)."""
    ends = matched.ends_ns
    counted = np.zeros(len(ends), np.bool_)
    for span in spans:
        counted |= (ends > span.t0_ns) & (ends <= span.t1_ns)
    return counted


def _rows(job: AlignedRanks) -> list[RankRow]:
    count, matched, numbers = len(job.inputs), job.matched, job.numbers
    stay = matched.sums(matched.durations_ns, count)
    wait = matched.sums(matched.wait_ns, count)
    alone = matched.sums(matched.alone_ns, count)
    inside = matched.sums(job.inside, count)
    stays = matched.sums(job.stays, count)
    seen = np.bincount(matched.rank, minlength=count)
    last = np.bincount(matched.last, minlength=count)
    per = job.steps if job.steps and job.steps >= 1 else 1.0
    known = np.array([offset is not None for offset in job.offsets])
    late = lateness.later_than_peers(np.where(known, stays, np.nan)) / per
    began = _began(job)
    rows = []
    for place, one in enumerate(job.inputs):
        if not seen[place]:
            rows.append(replace(one.row, clock_offset_ns=job.offsets[place]))
            continue
        more = lateness.excess_by_cause_ns(job.deeds, place) if job.spans else {}
        of_host = sum(ns for bucket, ns in more.items() if bucket.startswith("idle_")) / per
        by_tracing = max(min(job.apart_ns, of_host), 0.0)
        of_rank = matched.rank == place
        blame = np.bincount(
            matched.last[matched.collective[of_rank]], matched.wait_ns[of_rank], count
        )
        rows.append(
            replace(
                one.row,
                matched=int(seen[place]),
                last_in=int(last[place]),
                collective_ns=int(stay[place]),
                transfer_ns=int(stay[place] - wait[place]),
                wait_ns=int(wait[place]),
                exposed_wait_ns=int(alone[place]),
                waits_for_peers=inside[place] / job.together_ns if job.together_ns else None,
                waits_for={numbers[p]: int(ns) for p, ns in enumerate(blame) if ns and p != place},
                late_ns=(
                    max(
                        min(float(late[place]) - by_tracing, lateness.most_late_ns(job, place)), 0.0
                    )
                    if job.spans
                    else None
                ),
                carried_in_ns=began[place],
                excess_by_cause_ns={bucket: ns / per for bucket, ns in more.items() if ns},
                clock_offset_ns=job.offsets[place],
            )
        )
    return rows


def _began(job: AlignedRanks) -> list[int | None]:
    """How much later than the first each rank began; None where one of them is no whole trace."""
    if not all(one.whole_trace for one in job.inputs) or None in job.offsets:
        return [None] * len(job.inputs)
    begins = []
    for window, offset in zip(job.windows, job.offsets, strict=True):
        assert offset is not None
        marks = window.marks
        ranges = (marks.classes == MarkClass.STEP) & (marks.ends_ns > marks.starts_ns)
        times = [marks.starts_ns[ranges], window.calls.starts_ns, window.activities.starts_ns]
        begins.append(int(next(t for t in times if len(t)).min()) + offset)
    first = min(begins, default=0)
    return [begin - first for begin in begins]


def _steps_in_all(inputs: Sequence[RankInput]) -> float | None:
    counts = [one.row.estimate.steps.count for one in inputs if one.row.estimate]
    known = [count for count in counts if count]
    return float(np.median(known)) if known else None


def _bubble(job: AlignedRanks) -> float | None:
    """Share of the time in which the median rank neither computes nor moves anything."""
    idle = [
        (deed.account.idle_total_ns + deed.account.exposed_comm_ns) / deed.account.duration_ns
        for deed in job.deeds
        if deed is not None and deed.account.duration_ns
    ]
    return float(np.median(idle)) if idle else None


def _with_cause(row: RankRow, waited: WaitedFor) -> RankRow:
    late_ns = waited.late_ns if waited.is_slow else row.late_ns
    return replace(row, cause=waited.cause, late_ns=late_ns)


def _odd_first(rows: Sequence[RankRow], waited: int | None) -> list[RankRow]:
    """The rank that the others wait for, then by number."""
    return sorted(rows, key=lambda row: (row.rank is None or row.rank != waited, row.rank or 0))


def _notes(job: AlignedRanks, inputs: Sequence[RankInput], world: int | None) -> list[str]:
    notes = []
    numbers = {one.row.rank for one in inputs if one.row.rank is not None}
    if world is not None and len(numbers) < world and not len(job.matched):
        missing = sorted(set(range(world)) - numbers)
        named = ", ".join(map(str, missing[:8])) + (" …" if len(missing) > 8 else "")
        notes.append(f"{len(missing)} of {world} ranks are not here: {named}")
    if len(inputs) > 1 and not numbers and not len(job.matched):
        notes.append("no file says its rank: these may be of different runs")
    notes += _on_one_gpu(inputs)
    if len(job.inputs) > 1 and not len(job.matched):
        with_any = sum(bool(len(one)) for one in job.every)
        if with_any < 2:
            notes.append("fewer than two ranks have any collective in what was recorded")
        else:
            notes.append(NOT_TOGETHER)
    elif len(job.inputs) > 1:
        if not job.spans:
            notes.append(PART_OF_A_STEP)
        placed = zip(job.numbers, job.offsets, strict=True)
        apart = [str(number) for number, offset in placed if offset is None]
        if apart:
            notes.append(f"no collective places rank {', '.join(apart)} beside the others")
        notes += _of_other_times(job)
    return notes


def _of_other_times(job: AlignedRanks) -> list[str]:
    """That clocks are so far apart that these may be ranks of two runs: steps match all the same."""
    return [
        f"rank {number} was recorded {units.duration(abs(offset))} {'after' if offset < 0 else 'before'} "
        "the others by its clock: check that all are of one run"
        for number, offset in zip(job.numbers, job.offsets, strict=True)
        if offset is not None and abs(offset) > CLOCKS_APART_NS
    ]


def _on_one_gpu(inputs: Sequence[RankInput]) -> list[str]:
    """That ranks share a GPU, which is not as fast as one by itself."""
    users: dict[tuple[str | None, str], list[str]] = {}
    for one in inputs:
        device = one.row.estimate.device if one.row.estimate else None
        if device is None or one.row.rank is None:
            continue
        if device.uuid and one.window is not None:
            users.setdefault((_host(one.window), device.uuid), []).append(str(one.row.rank))
    return [f"ranks {', '.join(ranks)} share one GPU" for ranks in users.values() if len(ranks) > 1]
