"""The run so far: the ledger's phases, and the account that bursts fill in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brrrtop.analysis.account.account import split_of
from brrrtop.ledger import account as accounts
from brrrtop.ledger.account import Known
from brrrtop.ledger.bursts import Burst
from brrrtop.ledger.evidence import Evidence, mean_active
from brrrtop.ledger.phases import Phases
from brrrtop.model import intervals
from brrrtop.model.run import Phase, PhaseKind, Run, Stretch, Witness
from brrrtop.model.tables import I8, Span

MOST_STRETCHES = 512


def run_of(evidence: Evidence, phases: Phases, bursts: Sequence[Burst]) -> Run:
    """The run over the span of the evidence."""
    row_of = phases.rows[intervals.holders(phases.starts, phases.ends, _middles(bursts))]
    result = []
    for row in range(len(phases.keys)):
        mine = [one for one, at in zip(bursts, row_of.tolist(), strict=True) if at == row]
        result.append(_phase(evidence, phases, row, mine))
    order = sorted(range(len(result)), key=lambda i: -result[i].duration_ns)
    rank = {row: place for place, row in enumerate(order)}
    whole = accounts.add([one.account for one in result])
    steps = sum(one.steps for one in result if one.kind is PhaseKind.TRAIN)
    return Run(
        span=evidence.span,
        account=whole,
        split=split_of(whole),
        phases=tuple(result[row] for row in order),
        witness=_witness(evidence, result, bursts, whole),
        traced_ns=sum(one.account.duration_ns for one in bursts),
        steps=steps,
        step_ns=round(evidence.span.duration_ns / steps) if steps else None,
        stretches=_stretches(evidence, phases, rank),
    )


def _middles(bursts: Sequence[Burst]) -> I8:
    return np.array([(b.span.t0_ns + b.span.t1_ns) // 2 for b in bursts], np.int64)


def _phase(evidence: Evidence, phases: Phases, row: int, bursts: Sequence[Burst]) -> Phase:
    kind, where = phases.keys[row]
    starts, ends = phases.of(row)
    cover = intervals.Cover(starts, ends)
    duration_ns = intervals.total(starts, ends)
    marked = intervals.merge_unsorted(evidence.wait_starts, evidence.wait_ends)
    waits_ns = int(cover.between(*marked).sum())
    rest_ns = duration_ns - waits_ns
    making, reading = _by_hand(evidence, (starts, ends), marked)
    waits_ns += round(rest_ns * (making + reading))
    points = evidence.step_ends if kind is PhaseKind.TRAIN else evidence.wait_ends
    # A step ends where its phase may end: half-open intervals would give it to the next one.
    steps = int((intervals.holders(starts, ends, points - 1) >= 0).sum())
    active = mean_active(evidence, starts, ends)
    known = Known(
        kind=kind,
        duration_ns=duration_ns,
        steps=steps,
        waits_ns=waits_ns,
        reading_ns=round(rest_ns * reading),
        active=active,
        pauses_ns={m: int(cover.between(*pair).sum()) for m, pair in evidence.pauses.items()},
    )
    account = accounts.account_of(known, bursts)
    return Phase(
        kind=kind,
        where=where,
        duration_ns=duration_ns,
        share=duration_ns / max(1, evidence.span.duration_ns),
        count=len(starts),
        longest_ns=int((ends - starts).max()) if len(starts) else 0,
        steps=steps,
        step_ns=round(duration_ns / steps) if steps else None,
        waits_ns=waits_ns,
        active=active,
        traced_ns=sum(one.account.duration_ns for one in bursts),
        traced_steps=sum(one.steps for one in bursts),
        account=account,
        split=split_of(account) if bursts else None,
    )


def _by_hand(
    evidence: Evidence, phase: tuple[I8, I8], marked: tuple[I8, I8]
) -> tuple[float, float]:
    """Shares of the phase, outside the loader's waits, in which the loop makes its batches itself: by
    preparing them, and by reading files for them."""
    samples = evidence.samples
    inside = intervals.holders(*phase, samples.times_ns) >= 0
    inside &= intervals.holders(*marked, samples.times_ns) < 0
    held = (samples.highs_ns - samples.lows_ns)[inside].astype(np.float64)
    if not held.sum():
        return 0.0, 0.0
    making, reading = (
        float(held[kind[inside]].sum() / held.sum())
        for kind in (samples.makes_batches, samples.reads_files)
    )
    return making, reading


def _witness(
    evidence: Evidence, phases: Sequence[Phase], bursts: Sequence[Burst], whole: accounts.Account
) -> Witness:
    span = evidence.span
    train = [one for one in phases if one.kind is PhaseKind.TRAIN]
    time_ns = sum(one.duration_ns for one in train)
    steps = sum(one.steps for one in train)
    traced = [one for one in bursts if one.steps]
    traced_steps = sum(one.steps for one in traced)
    seen = any(one.traced_ns for one in phases)
    return Witness(
        active_counter=mean_active(evidence, np.array([span.t0_ns]), np.array([span.t1_ns])),
        active_account=(whole.busy_ns - whole.exposed_copy_ns) / whole.duration_ns
        if seen and whole.duration_ns
        else None,
        step_ns_marks=time_ns / steps if steps else None,
        step_ns_traced=sum(one.account.duration_ns for one in traced) / traced_steps
        if traced_steps
        else None,
        waits_ledger=sum(one.waits_ns for one in train) / time_ns if time_ns else None,
        waits_account=sum(one.account.idle_ns["input"] for one in train) / time_ns
        if time_ns
        else None,
    )


def _stretches(evidence: Evidence, phases: Phases, rank: dict[int, int]) -> tuple[Stretch, ...]:
    waits = intervals.Cover(*intervals.merge_unsorted(evidence.wait_starts, evidence.wait_ends))
    result = []
    low, high, rows = (part[-MOST_STRETCHES:] for part in (phases.starts, phases.ends, phases.rows))
    for start, end, row, wait in zip(
        low.tolist(), high.tolist(), rows.tolist(), waits.between(low, high).tolist(), strict=True
    ):
        active = mean_active(evidence, np.array([start]), np.array([end]))
        result.append(Stretch(Span(start, end), rank[row], wait, active))
    return tuple(result)
