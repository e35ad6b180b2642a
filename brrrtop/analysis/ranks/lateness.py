"""What each rank did while all were recorded, bucket by bucket, and who is late beside its peers, and why.

Finds the straggler, if there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.analysis.account import account
from brrrtop.analysis.estimate import facts_of
from brrrtop.analysis.facts.collectives import Collectives, name_of
from brrrtop.analysis.facts.table import WORK, Facts
from brrrtop.analysis.kernels.compute_or_memory import label
from brrrtop.analysis.ranks.matching import Matched, collectives_a_step
from brrrtop.analysis.ranks.own_line import own_line
from brrrtop.model import intervals
from brrrtop.model.account import Account
from brrrtop.model.intervals import Cover, holders
from brrrtop.model.ranks import Lateness, RankRow, WaitedFor
from brrrtop.model.tables import F8, I8, Span, Window, edges
from collectors.vocabulary import MarkClass, Metric

if TYPE_CHECKING:
    from brrrtop.analysis.ranks.job import AlignedRanks


WORKING = ("compute", "memory", "underfilled", "unknown")
"""Buckets of a rank's own kernels."""
NEARLY_A_STEP = 0.75
"""Of a step's time, from which its collectives, where all of them are there, tell of the whole step."""
FEW_STEPS = 8
"""Fewer do not tell the usual one."""
MORE = 1.03
"""Kernels, or threads in them, over those of the peers, from which it is more work that is done."""
HELD_DOWN = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""NVML's clocks-event reasons for power and temperature, software's and hardware's."""
CLOCK_DROP = 0.97
"""Of the peers' SM clock."""


class RankActivity(Struct, frozen=True):
    """Of one rank, while all were recorded."""

    account: Account
    kernels: int
    """Collectives and copies left out."""
    threads: int
    """Of these kernels."""

    @property
    def buckets_ns(self) -> dict[str, int]:
        booked = self.account
        return {
            "compute": booked.compute_ns,
            "memory": booked.memory_ns,
            "underfilled": booked.underfilled_ns,
            "unknown": booked.unknown_ns,
            "exposed_copy": booked.exposed_copy_ns,
            **{f"idle_{cause}": time_ns for cause, time_ns in booked.idle_ns.items()},
        }


def shared_spans(
    windows: Sequence[Window], every: Sequence[Collectives], offsets: Sequence[int | None],
    matched: Matched, step_ns: float | None, in_bursts: bool,
) -> tuple[tuple[Span, ...], float | None]:  # fmt: skip
    """When all placed ranks were recorded, each span from one collective's end to another's; and how
    many steps that are, whole ones where there is one.

    At those ends all ranks are level: what one of them is later at the next was lost in between. Bursts that
    share less than a step are left out: in a part of one, ranks do the same work at other times.
    """
    spans: list[Span] | None = None
    for window, offset in zip(windows, offsets, strict=True):
        if offset is None:
            continue
        traced = [Span(s.t0_ns + offset, s.t1_ns + offset) for s in window.traced]
        spans = traced if spans is None else _common(spans, traced)
    kept, steps = [], 0.0
    placed = [place for place, offset in enumerate(offsets) if offset is not None]
    full = np.bincount(matched.collective, minlength=len(matched)) == len(placed)
    full |= not full.any()  # collectives in which every rank takes part, where there are any
    record = np.full(len(matched), -1)
    of_first = matched.rank == min(placed, default=0)
    record[matched.collective[of_first]] = matched.record[of_first]
    periods = [collectives_a_step(every[place], step_ns) for place in placed] if step_ns else []
    known = [period for period in periods if period is not None]
    period = int(np.median(known)) if known else 0
    starts, stops = edges(spans or ())
    bursts = np.where(full, holders(starts, stops + 1, matched.ends_ns), -1)
    for number in range(len(starts)):
        ends, at = matched.ends_ns[bursts == number], record[bursts == number]
        if len(ends) < 2 or not np.ptp(ends):
            continue
        begin, end, count = int(ends[0]), int(ends[-1]), float(np.ptp(ends)) / (step_ns or np.inf)
        for steps_apart in range(int(np.ptp(at)) // period if period else 0, 0, -1):
            last = np.intersect1d(at[at >= 0], at[at >= 0] + steps_apart * period)
            if len(last):
                begin, end = (int(ends[at == last[-1] - n][0]) for n in (steps_apart * period, 0))
                count = float(steps_apart)
                break
        if step_ns and NEARLY_A_STEP <= count < 1 and 0 < period <= np.ptp(at) + 1:
            # As long as a traced one, or the time that tracing takes would be the late rank's.
            lengths = [int(step_ns), *(usual_step_ns(window, traced=True) for window in windows)]
            begin, count = end - max(lengths), 1.0
        if step_ns and count < 1 and in_bursts:
            continue
        kept.append(Span(begin, end))
        steps += count
    return tuple(kept), steps or None


def usual_step_ns(window: Window | None, traced: bool) -> int:
    """Of a rank while it was traced, or was not, by its host's marks; 0: too few are known."""
    if window is None or (marks := window.marks if traced else window.watched) is None:
        return 0
    ends = np.sort(marks.ends_ns[marks.classes == MarkClass.STEP])
    at = holders(*edges(window.traced), ends)
    steps = np.diff(ends)[(at[1:] == at[:-1]) & ((at[1:] >= 0) == traced)]
    return int(np.median(steps)) if len(steps) >= (1 if traced else FEW_STEPS) else 0


def _common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    pairs = (Span(max(a.t0_ns, b.t0_ns), min(a.t1_ns, b.t1_ns)) for a in one for b in other)
    return sorted((span for span in pairs if span.duration_ns > 0), key=lambda span: span.t0_ns)


def deeds(
    window: Window, spans: Sequence[Span], offset: int, known: dict[object, RankActivity]
) -> RankActivity:
    """The account of a rank in these spans, which are on the common clock.

    Args:
        known: Of earlier looks at this rank; of these spans alone afterwards.
    """
    acts = window.activities
    facts: Facts | None = None
    parts: dict[object, RankActivity] = {}
    for span in spans:
        own = Span(span.t0_ns - offset, span.t1_ns - offset)
        # With what runs before and after, by which the gaps at its ends are told.
        inside = np.flatnonzero((acts.ends_ns > own.t0_ns) & (acts.starts_ns < own.t1_ns))
        low, high = (int(inside[0]), int(inside[-1])) if len(inside) else (0, 0)
        rows = np.arange(max(0, low - 1), min(high + 2, len(acts)))
        # Offsets of clocks change a little with each look.
        key = (*acts.starts_ns[rows[[0, -1]]].tolist(), len(rows), len(window.ops))
        if key in known:
            parts[key] = known[key]
        else:
            facts = facts or facts_of(window)
            parts[key] = _in_span(facts, own, rows)
    known.clear()
    known.update(parts)
    of_all = parts.values()
    return RankActivity(
        account.add([one.account for one in of_all]),
        sum(one.kernels for one in of_all),
        sum(one.threads for one in of_all),
    )


def _in_span(facts: Facts, own: Span, rows: I8) -> RankActivity:
    acts = facts.window.activities.take(rows)
    facts = facts.of(
        replace(facts.window, span=own, observed=(own,), activities=acts), facts.call_rows[rows]
    )
    facts = facts.labelled(label(facts))
    work = (facts.labels.classes == WORK) & facts.kernels
    work &= (acts.starts_ns >= own.t0_ns) & (acts.starts_ns < own.t1_ns)
    threads = int((acts.blocks[work] * acts.threads[work]).sum())
    return RankActivity(account.book(facts), int(work.sum()), threads)


def later_than_peers(values: F8) -> F8:
    """The median of the others less one's own, shape of `values`; NaN for a rank alone."""
    out = np.full(len(values), np.nan)
    for place in range(len(values)):
        others = np.delete(values, place)
        others = others[~np.isnan(others)]
        if len(others):
            out[place] = float(np.median(others)) - values[place]
    return out


def most_late_ns(job: AlignedRanks, place: int) -> float:
    """What of a step this rank can cost the others in a trace: their own hosts take the rest. They run ahead,
    so that their GPUs show nothing but waits."""
    paces = [_host_pace_ns(window) for at, window in enumerate(job.windows) if at != place]
    known = [pace for pace in paces if pace is not None]
    return job.step_ns - max(known) if known and not job.in_bursts else np.inf


def _host_pace_ns(window: Window) -> float | None:
    """The host's own time of a step, without long calls, in which it waits; None where no ranges tell."""
    marks, calls = window.marks, window.calls
    ranges = marks.take((marks.classes == MarkClass.STEP) & (marks.starts_ns < marks.ends_ns))
    count = len(ranges.classes)
    if count < 2 or not len(calls):
        return None
    long = calls.ends_ns - calls.starts_ns > LONG_CALL_NS
    waits = Cover(*intervals.merge_unsorted(calls.starts_ns[long], calls.ends_ns[long]))
    starts, ends = ranges.union(MarkClass.STEP)
    return float((ends - starts - waits.between(starts, ends)).sum()) / count


def excess_by_cause_ns(every: Sequence[RankActivity | None], place: int) -> dict[str, float]:
    """By bucket: what this rank takes more than the median of its peers, ns; negative where less."""
    late = every[place]
    others = [one.buckets_ns for at, one in enumerate(every) if one is not None and at != place]
    if late is None or not others:
        return {}
    return {
        bucket: time_ns - float(np.median([one.get(bucket, 0) for one in others]))
        for bucket, time_ns in late.buckets_ns.items()
    }


def cause_of(job: AlignedRanks, rows: Sequence[RankRow], place: int) -> str:
    """What a late rank takes more of: an idle cause, or a `Lateness`."""
    more = rows[place].excess_by_cause_ns
    parts = {bucket.removeprefix("idle_"): ns for bucket, ns in more.items() if "idle_" in bucket}
    work = sum(more.get(bucket, 0.0) for bucket in WORKING)
    copies = more.get("exposed_copy", 0.0)
    idle = max(parts, key=lambda cause: parts[cause], default="unknown")
    if max(work, copies) < parts.get(idle, 0.0):
        return idle
    if copies > work:
        return Lateness.COPIES.value
    return _of_work(job.deeds, rows, place)


def _of_work(every: Sequence[RankActivity | None], rows: Sequence[RankRow], place: int) -> str:
    late = every[place]
    others = [one for at, one in enumerate(every) if one is not None and at != place]
    assert late is not None and others
    kernels = float(np.median([one.kernels for one in others]))
    threads = float(np.median([one.threads for one in others]))
    if late.kernels > MORE * kernels or late.threads > MORE * threads:
        return Lateness.MORE_WORK.value
    shared = [bool(row.estimate and row.estimate.shared) for row in rows]
    if shared[place] and shared.count(True) == 1:  # which draws more power too, at lower clocks
        return "other_process"
    slow = Lateness.THROTTLED if _is_throttled(place, rows) else Lateness.SLOWER_GPU
    return slow.value


def _is_throttled(place: int, rows: Sequence[RankRow]) -> bool:
    """Whether its clocks are below those of the others, and the driver says that it holds them down."""
    gauges = [row.gauges for row in rows]
    own = gauges[place]
    clocks = [one[Metric.SM_CLOCK_HZ] for one in gauges if one.get(Metric.SM_CLOCK_HZ)]
    slower = len(clocks) > 1 and own.get(Metric.SM_CLOCK_HZ, np.inf) < CLOCK_DROP * np.median(
        clocks
    )
    reasons = int(own.get(Metric.CLOCK_EVENT_REASONS, 0))
    return bool(slower) and bool(reasons & HELD_DOWN)


LONG_CALL_NS = 1_000_000
"""A CUDA call that takes so long waits for the GPU, or for room in its queue."""
LEAST_SHARE = 0.03
"""Of a step, that a rank must be late to be named."""
LEAST_NS = 100_000
MOST_OF_IT = 0.5
"""Of all waits, that must be for the rank that is named."""
BEGAN_SHARE = 0.1
"""Of the whole, that the others must have waited for one that only began late."""
NEARLY_ALWAYS = 0.8
"""Of the collectives, that one is last in whose lateness the others hide beside compute."""
HIDDEN_SHARE = 0.05
"""Of a step, that it must take more of one thing than its peers."""
HOSTS = ("host", "launch", "io", "unknown")
"""Causes that a line of the program may stand behind: whoever comes back late from it launches late."""
WAIT_PARTS = 5
"""Of the time watched: one hiccup of a loader is in one of them, or two."""
STEADY = 0.6
"""Of the steps, in which it must be late."""
PARTLY = 0.3
"""Of its usual lateness, that counts as late in one step."""


def rank_waited_for(
    job: AlignedRanks, rows: Sequence[RankRow], least_bursts: int = 1
) -> WaitedFor | None:
    """The rank that the others wait for in every step, else one that only began late, else None.

    Args:
        least_bursts: With fewer none is slow: the first one shows how entering the trainer held it up.
    """
    if len(rows) < 2 or not len(job.matched):
        return None
    slow = None
    if len(job.spans) >= least_bursts:
        slow = _slow(job, rows) or _hidden_wait(job, rows)
    return slow or _began_late(job, rows)


def _slow(job: AlignedRanks, rows: Sequence[RankRow]) -> WaitedFor | None:
    late, waits = [row.late_ns or 0.0 for row in rows], _late_for_data(job)
    cause = "input" if waits.max() > max(late) else None
    late = waits.tolist() if cause else late
    place, step_ns = int(np.argmax(late)), job.step_ns
    if not step_ns or late[place] < max(LEAST_SHARE * step_ns, LEAST_NS):
        return None
    blame = _blame(job, job.inside, len(rows))
    is_blamed = blame[place] >= MOST_OF_IT * blame.sum() and late[place] >= -job.apart_ns
    if cause is None and not (is_blamed and _is_steady(job, place, late[place])):
        return None
    gain = min((late[place] - sorted(late)[-2]) / step_ns, 0.99)
    return _named_rank(job, rows, place, late[place], job.inside, gain, cause)


def _late_for_data(job: AlignedRanks) -> F8:
    """What each rank's GPU idles for data more than its peers' do, ns a step, by the ledger of the run and by
    the waits of most of its parts; 0 where one of them does not say so. Bursts do not show it: its loader
    gets ahead while one holds it."""
    idle, waits = np.zeros(len(job.inputs)), np.zeros((WAIT_PARTS, len(job.inputs)))
    for place, (one, window) in enumerate(zip(job.inputs, job.windows, strict=True)):
        run = one.row.estimate.run if one.row.estimate else None
        train, marks = run.train if run else None, window.watched
        if train is None or not train.steps or marks is None or len(marks.starts_ns) < 2:
            return np.zeros(len(job.inputs))
        idle[place] = train.account.idle_ns["input"] / train.steps
        rows = marks.classes == MarkClass.INPUT
        points = np.linspace(marks.starts_ns.min(), marks.ends_ns.max(), WAIT_PARTS + 1)
        parts = Cover(*intervals.merge_unsorted(marks.starts_ns[rows], marks.ends_ns[rows]))
        waits[:, place] = parts.between(points[:-1], points[1:]) / np.diff(points) * job.step_ns
    by_part = [-later_than_peers(one) for one in waits]
    return np.clip(np.minimum(-later_than_peers(idle), np.median(by_part, axis=0)), 0, None)


def _hidden_wait(job: AlignedRanks, rows: Sequence[RankRow]) -> WaitedFor | None:
    """One whose lateness the others spend beside compute, which their waiting collectives slow down.

    It comes last nearly always, the others wait for it in every step, and its own account says why.
    """
    step_ns = job.step_ns
    place = int(np.argmax([row.last_in for row in rows]))
    row = rows[place]
    more = max(row.excess_by_cause_ns.values(), default=0.0) - max(job.apart_ns, 0.0)
    if not step_ns or row.last_in < NEARLY_ALWAYS * row.matched:
        return None
    if more < HIDDEN_SHARE * step_ns:
        return None
    counted = job.counted[job.matched.collective]
    waits = np.where(counted, job.matched.wait_ns, 0).astype(np.float64)
    part, for_rank = _parts(job)[1], job.matched.last[job.matched.collective] == place
    longest = [waits[for_rank & (part == one)].max(initial=0.0) for one in _numbers(part)]
    late_ns = float(np.median(longest)) - max(job.apart_ns, 0.0)  # of who waited longest
    late_ns = min(late_ns, most_late_ns(job, place))
    if late_ns < max(LEAST_SHARE * step_ns, LEAST_NS, -job.apart_ns):
        return None
    return _named_rank(job, rows, place, late_ns, waits, min(late_ns / step_ns, 0.99))


def _named_rank(
    job: AlignedRanks, rows: Sequence[RankRow], place: int, late_ns: float, waits: F8, gain: float,
    known: str | None = None,
) -> WaitedFor:  # fmt: skip
    per = job.steps if job.steps and job.steps >= 1 else 1.0
    cause = known or cause_of(job, rows, place)
    line = None
    if cause in HOSTS:
        own = own_line(job.windows, place, late_ns, job.step_ns)
        if own is not None:
            cause, line = own.reads_as or "host", str(own)
    to_it = waits * (job.matched.last[job.matched.collective] == place)
    others = np.delete(np.bincount(job.matched.rank, to_it, len(rows)), place) / per
    return WaitedFor(
        rank=job.numbers[place],
        late_ns=late_ns,
        others_wait_ns=late_ns
        if known
        else min(float(np.median(others)), most_late_ns(job, place)),
        cause=cause,
        is_slow=True,
        per_step=job.steps is not None and job.steps >= 1,
        last_in=rows[place].last_in,
        of=rows[place].matched,
        place=line,
        collective=_where(job, waits, place),
        gain=gain,
    )


def _began_late(job: AlignedRanks, rows: Sequence[RankRow]) -> WaitedFor | None:
    """The one of the ranks that most waits are for, where it brought its lateness along."""
    waits = job.matched.wait_ns.astype(np.float64)
    blame = _blame(job, waits, len(rows))
    place = int(np.argmax(blame))
    carried = rows[place].carried_in_ns
    if carried is None or blame[place] < MOST_OF_IT * blame.sum():
        return None
    to_it = waits * (job.matched.last[job.matched.collective] == place)
    others = np.delete(np.bincount(job.matched.rank, to_it, len(rows)), place)
    whole = max(window.span.duration_ns for window in job.windows)
    wait_ns = float(np.median(others))
    if carried < LEAST_NS or wait_ns < BEGAN_SHARE * whole:
        return None
    return WaitedFor(
        rank=job.numbers[place],
        late_ns=float(carried),
        others_wait_ns=wait_ns,
        cause=Lateness.BEGAN_LATE.value,
        is_slow=False,
        per_step=False,
        last_in=rows[place].last_in,
        of=rows[place].matched,
        collective=_where(job, waits, place),
    )


def _blame(job: AlignedRanks, waits: F8, count: int) -> F8:
    """Of all ranks' waits, those for each rank."""
    return np.bincount(job.matched.last[job.matched.collective], waits, count).astype(np.float64)


def _is_steady(job: AlignedRanks, place: int, late_ns: float) -> bool:
    """Whether it is late in most steps, and in most bursts: one hiccup is no slow rank."""
    burst, part = _parts(job)
    steps, late_ns = _numbers(part), late_ns + max(job.apart_ns, 0.0)
    if len(job.spans) > 1:
        bursts = _numbers(burst)
        counts = [len(_numbers(part[burst == one])) for one in bursts]
        if _late_share(job, place, burst, np.array(counts) * PARTLY * late_ns) < STEADY:
            return False
    least = np.full(len(steps), PARTLY * late_ns)
    return len(steps) < 3 or _late_share(job, place, part, least) >= STEADY


def _late_share(job: AlignedRanks, place: int, part: I8, least_ns: F8) -> float:
    """Of the parts of the time, those in which the rank is at least so much later than its peers."""
    matched, count, late = job.matched, len(job.inputs), 0
    numbers = _numbers(part)
    for one, least in zip(numbers, least_ns.tolist(), strict=True):
        rows = part == one
        stays = np.bincount(matched.rank[rows], job.stays[rows], count).astype(np.float64)
        late += bool(later_than_peers(stays)[place] >= least)
    return late / max(len(numbers), 1)


def _numbers(part: I8) -> list[int]:
    return [int(one) for one in np.unique(part) if one >= 0]


def _parts(job: AlignedRanks) -> tuple[I8, I8]:
    """In which burst, and in which step of all, each matched row's collective ends; -1 outside."""
    ends = job.matched.ends_ns
    bursts, steps = np.full(len(ends), -1, np.int64), np.full(len(ends), -1, np.int64)
    before, step_ns = 0, job.traced_step_ns or job.step_ns
    for number, span in enumerate(job.spans):
        parts = max(round(span.duration_ns / step_ns), 1)
        inside = (ends > span.t0_ns) & (ends <= span.t1_ns)
        at = (ends[inside] - span.t0_ns) * parts // max(span.duration_ns, 1)
        bursts[inside], steps[inside] = number, before + np.minimum(at, parts - 1)
        before += parts
    rows = job.matched.collective
    return bursts[rows], steps[rows]


def _where(job: AlignedRanks, waits: F8, place: int) -> str:
    """The collectives that most of the wait for this rank is in."""
    matched = job.matched
    for_rank = matched.last[matched.collective] == place
    by_type = np.bincount(matched.types[matched.collective[for_rank]], waits[for_rank])
    if not len(by_type):
        return "collectives"
    code = int(np.argmax(by_type))
    at = np.flatnonzero(for_rank & (matched.types[matched.collective] == code))[0]
    one = job.every[int(matched.rank[at])]
    return name_of(code, one.op_names[int(matched.record[at])])
