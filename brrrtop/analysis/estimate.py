"""The method's table of contents: a window in, an estimate out."""

from msgspec import Struct
from msgspec.structs import replace

from brrrtop.analysis.account import account, idle_causes
from brrrtop.analysis.ceilings import ceilings_for
from brrrtop.analysis.facts import launches, steps
from brrrtop.analysis.facts.table import Facts
from brrrtop.analysis.kernels import counters, table
from brrrtop.analysis.kernels.compute_or_memory import label
from brrrtop.kernel_names.facts import least_capability
from brrrtop.kernel_names.traits import used
from brrrtop.model.estimate import Estimate, Roofs
from brrrtop.model.tables import Window
from brrrtop.timeline import correlation


class Analysis(Struct, frozen=True, eq=False):
    """An estimate with the facts behind it, for what digs deeper."""

    estimate: Estimate
    facts: Facts


def facts_of(window: Window) -> Facts:
    call_rows = correlation.call_of(window.activities, window.calls, window.observed)
    return Facts(window, call_rows, ceilings_for(window.device))


def estimate(window: Window, with_kernels: bool = True) -> Analysis:
    """Account, kernel table and verdict of one device's window.

    Args:
        with_kernels: False where nobody sees them: see `kernel_by_kernel`.
    """
    uncut = facts_of(window)
    found = steps.find_steps(uncut)
    facts, whole = steps.whole_steps(uncut)
    facts = facts.labelled(label(facts)).stepped(found)
    booked = account.book(facts)
    facts = facts.stepped(steps.on_device(found, whole, booked.duration_ns))
    split = account.split_of(booked)
    shared = idle_causes.is_shared(facts)
    verdict = account.judge(
        booked, split, table.uncertainty_by_bound(facts), len(facts.call_rows),
        facts.steps.warming_up, shared,
    )  # fmt: skip
    roofs = facts.ceilings
    whole_ns = window.span.duration_ns
    result = Estimate(
        span=window.span,
        device=window.device,
        account=booked,
        split=split,
        regime=verdict.regime,
        cause=verdict.cause,
        confidence=verdict.confidence,
        runner_up=verdict.runner_up,
        launch=launches.launch_lead(facts),
        steps=facts.steps,
        batch=steps.samples_of_step(facts),
        kernels=(),
        evidence_shares=table.evidence_shares(facts),
        observed_share=booked.duration_ns / whole_ns if whole_ns else 1.0,
        roofs=Roofs(roofs.flop_per_s, roofs.bytes_per_s, roofs.source) if roofs else None,
        capability_at_least=_named_capability(window),
        sampled=counters.summary(window),
        stack_samples=facts.stack_samples,
        shared=shared,
    )
    analysis = Analysis(result, facts)
    return kernel_by_kernel(analysis) if with_kernels else analysis


def kernel_by_kernel(analysis: Analysis) -> Analysis:
    """The same with a row for each kernel, and what runs around it."""
    rows = table.rows_of(analysis.facts)
    near = table.find_neighbours(analysis.facts, [row.name for row in rows])
    return replace(analysis, estimate=replace(analysis.estimate, kernels=rows, neighbours=near))


def _named_capability(window: Window) -> tuple[int, int] | None:
    if window.device.capability is not None or window.device.name is not None:
        return None
    return least_capability(window.names[i] for i in used(window.activities.name_ids))
