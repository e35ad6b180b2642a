"""The method's table of contents: a window in, an estimate out."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.analysis.account import account, launches, regimes, steps
from brrrtop.analysis.account.whole_steps import whole_steps
from brrrtop.analysis.ceilings import Ceilings, ceilings_for
from brrrtop.analysis.counters import evidence
from brrrtop.analysis.kernels import labels, table
from brrrtop.analysis.kernels.labels import Labels
from brrrtop.analysis.kernels.traits import used
from brrrtop.analysis.signals import stack_samples
from brrrtop.kernel_names.facts import least_capability
from brrrtop.model.estimate import Estimate, Roofs
from brrrtop.model.tables import I8, Window
from brrrtop.timeline import correlation
from collectors.vocabulary import NAMED


class Analysis(Struct, frozen=True, eq=False):
    """An estimate with the per-activity labels behind it, for what digs deeper."""

    estimate: Estimate
    window: Window
    labels: Labels
    call_rows: I8
    ceilings: Ceilings | None


def estimate(window: Window, with_kernels: bool = True) -> Analysis:
    """Account, kernel table and verdict of one device's window.

    Args:
        with_kernels: False where nobody sees them: see `kernel_by_kernel`.
    """
    ceilings = ceilings_for(window.device)
    call_rows = correlation.call_of(window.activities, window.calls, window.observed)
    stepped = steps.find_steps(window, call_rows)
    window, call_rows, whole = whole_steps(window, call_rows)
    acts = window.activities
    labelled = labels.label(window, ceilings)
    booked = account.book(window, labelled, call_rows)
    stepped = steps.on_device(stepped, whole, booked.duration_ns)
    split = account.split_of(booked)
    durations = np.maximum(acts.ends_ns - acts.starts_ns, 0)
    uncertainty_by_bound = table.uncertainty_by_bound(labelled, durations)
    shared = regimes.is_shared(window, labelled)
    verdict = regimes.judge(
        booked, split, uncertainty_by_bound, len(acts), stepped.warming_up, shared
    )
    late = booked.mechanical_ns["host_late"]
    nameless = booked.idle_ns["host"] + booked.idle_ns["unknown"]
    result = Estimate(
        span=window.span,
        device=window.device,
        account=booked,
        split=split,
        regime=verdict.regime,
        cause=verdict.cause,
        confidence=verdict.confidence,
        runner_up=verdict.runner_up,
        launch=launches.launch_lead(acts, window.calls, call_rows),
        steps=stepped,
        kernels=(),
        evidence_shares=table.evidence_shares(labelled, durations),
        host_cause_known=max(0.0, 1 - nameless / late) if late else None,
        observed_share=booked.duration_ns / window.span.duration_ns
        if window.span.duration_ns
        else 1.0,
        roofs=Roofs(ceilings.flop_per_s, ceilings.bytes_per_s, ceilings.source)
        if ceilings
        else None,
        capability_at_least=_named_capability(window),
        sampled=evidence.summary(window),
        looks=stack_samples.looks(window, NAMED),
        shared=shared,
    )
    analysis = Analysis(result, window, labelled, call_rows, ceilings)
    return kernel_by_kernel(analysis) if with_kernels else analysis


def kernel_by_kernel(analysis: Analysis) -> Analysis:
    """The same with a row for each kernel, and what runs around it."""
    acts, result = analysis.window.activities, analysis.estimate
    durations = np.maximum(acts.ends_ns - acts.starts_ns, 0)
    rows = table.rows_of(analysis.labels, durations, analysis.ceilings)
    near = table.find_neighbours(analysis.window, [row.name for row in rows], result.steps)
    return replace(analysis, estimate=replace(result, kernels=rows, neighbours=near))


def _named_capability(window: Window) -> tuple[int, int] | None:
    if window.device.capability is not None or window.device.name is not None:
        return None
    return least_capability(window.names[i] for i in used(window.activities.name_ids))
