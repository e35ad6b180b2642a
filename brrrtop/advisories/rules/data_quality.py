"""Rules about whether what is seen can be trusted, and about the hardware."""

from __future__ import annotations

import math

from brrrtop.advisories.context import Context, advisory
from brrrtop.analysis.account.steps import LOADING_SHARE
from brrrtop.model.advice import Advisory
from brrrtop.model.estimate import Regime
from brrrtop.model.tables import TimeSlices
from brrrtop.model.vocabulary import Metric
from brrrtop.text import phrases, units

PROFILED_OP_NS = 9_000
"""Host time that torch.profiler takes for an outermost op with its shapes, what it calls and launches, at
least: seven loops of an H200 that launches set the pace of took 9 to 38 us an op longer a step with it
than without, most of them about twice as long (PyTorch 2.11)."""


def warming_up(context: Context) -> Advisory | None:
    """The first steps, or a compile in them, say nothing about the run."""
    # A compile that is not the first belongs to steady state, and has its own advice.
    if not context.estimate.steps.warming_up or context.facts.hosts.recompiles:
        return None
    loading = context.share(context.facts.hosts.loading_ns)
    shaped = loading >= LOADING_SHARE or context.idle("compile") >= context.limits.compile_idle
    if (context.steps or 0) >= 6 and not shaped:
        return None
    compiles = context.facts.hosts.compiles
    spent = units.duration(compiles.total_ns)
    compiling = f"; torch.compile took {spent}" if compiles.count else ""
    return advisory(
        context,
        "warming-up",
        says="the first steps load modules, tune and allocate"
        + (f"; {units.share(loading)} of the time went so" if loading >= LOADING_SHARE else "")
        + compiling
        + _uploaded(context),
        suggests="wait three steps, then judge",
        waste="concluding anything from the first call: a compiled model's first call is slower "
        "than eager",
        confidence=0.95,
        compile_ns=compiles.total_ns,
        module_loads=context.facts.hosts.modules.count,
        loading_share=loading,
    )


def _uploaded(context: Context) -> str:
    """What the GPU did in a warm-up that hides its share of the time: mostly take uploads."""
    up = context.facts.transfers.pageable_up
    spent = sum(row.total_ns for row in context.estimate.kernels)
    if not spent or up.total_ns < 0.5 * spent:
        return ""
    return (
        f"; of what the GPU itself did, {units.share(up.total_ns / spent)} is {up.count} uploads from "
        f"pageable memory ({units.size(up.size_bytes)}), "
        + (
            "all before its first kernel, as when a model is moved there"
            if up.early == up.count
            else "which pin_memory=True would make faster"
        )
    )


def records_lost(context: Context) -> Advisory | None:
    """Too many records are missing to judge kernels."""
    hidden = context.share(context.estimate.account.unrecorded_ns)
    if hidden > context.limits.unrecorded_share:
        return advisory(
            context,
            "records-lost",
            says=f"{phrases.unrecorded(context.estimate.account)}: where the time goes is open, and "
            "nothing else is advised",
            suggests="record without CUDA graphs: torch.compile's mode='default', or enforce_eager",
            waste="tuning by a trace that lacks most of what ran",
            confidence=0.9,
            unrecorded_share=hidden,
        )
    if context.facts.lost_share <= context.limits.lost_share:
        return None
    return advisory(
        context,
        "records-lost",
        says=f"{units.share(context.facts.lost_share)} of the records were lost: shares are "
        "uncertain and nothing else is advised",
        suggests="shorter bursts, or a bigger buffer: brrrtop attach --max-overhead 2%",
        confidence=0.9,
        lost_share=context.facts.lost_share,
    )


_PIPES = (Metric.TENSOR_ACTIVE, Metric.FP32_ACTIVE, Metric.FP16_ACTIVE, Metric.FP64_ACTIVE)


def used_roofs(context: Context) -> float | None:
    """What counters say of the roofs: the busiest pipe plus memory, which seldom peak together."""
    readings = context.facts.readings
    memory = readings.mean(Metric.DRAM_ACTIVE)
    pipes = [share for m in _PIPES if (share := readings.mean(m)) is not None]
    return min(memory + max(pipes), 1.0) if memory is not None and pipes else None


def useful_share(context: Context) -> float | None:
    """Busy time weighted by achieved share of the roof; None when too little of it is known."""
    known = [r for r in context.estimate.kernels if r.roof_share is not None]
    time = sum(r.total_ns for r in known)
    total = sum(r.total_ns for r in context.estimate.kernels)
    if not total or time < 0.5 * total:
        return None
    mean = sum(r.total_ns * min(r.roof_share or 0.0, 1.0) for r in known) / time
    return mean * context.share(context.estimate.account.worked_ns)


def misleading_util(context: Context) -> Advisory | None:
    """Nvidia-smi counts a resident kernel as full use."""
    util = context.facts.readings.mean(Metric.SMI_UTIL)
    counted = used_roofs(context)
    useful = counted if counted is not None else useful_share(context)
    if util is None or useful is None or util < context.limits.misled_util:
        return None
    if useful >= context.limits.misled_useful:
        return None
    return advisory(
        context,
        "misleading-util",
        says=f"nvidia-smi says {units.share(util)}, but only {units.share(useful)} of what this "
        "GPU can do is done: that figure says a kernel was resident, not that it was useful",
        suggests="follow the first advisory here and ignore GPU-Util",
        waste="concluding from a high GPU-Util that the GPU is the limit",
        confidence=0.9,
        smi_util=util,
        useful_share=useful,
    )


def throttled(context: Context) -> Advisory | None:
    """Heat or a hardware slowdown holds the clocks; a power cap alone is normal."""
    reasons = context.facts.readings.reason_shares
    hot = ("hardware slowdown", "software thermal", "hardware thermal", "power brake")
    worst = max(hot, key=lambda name: reasons.get(name, 0.0))
    if reasons.get(worst, 0.0) < context.limits.throttled_share:
        return None
    clock = context.facts.readings.mean(Metric.SM_CLOCK_HZ)
    most = context.facts.readings.mean(Metric.SM_CLOCK_MAX_HZ)
    lost = 1 - clock / most if clock and most and clock < most else 0.0
    clocked = context.share(context.estimate.account.compute_ns)
    return advisory(
        context,
        "throttled",
        says=f"the clocks are held down ({worst}) in {units.share(reasons[worst])} of the readings"
        + (f", by {units.share(lost)}" if lost else ""),
        suggests="check airflow and cooling, then the power limit: nvidia-smi -q -d PERFORMANCE",
        waste="changing code: the same kernels run slower",
        confidence=0.85,
        saves=clocked * lost if clocked * lost >= context.limits.worth_share else None,
        reason=worst,
        reason_share=reasons[worst],
        sm_clock_hz=clock,
        temperature_c=context.facts.readings.mean(Metric.TEMPERATURE_C),
    )


def idle_clocks(context: Context) -> Advisory | None:
    """Clocks far below the most while the device works, by setting or by idling."""
    readings = context.facts.readings
    clock, most = readings.mean(Metric.SM_CLOCK_HZ), readings.mean(Metric.SM_CLOCK_MAX_HZ)
    reasons = readings.reason_shares
    if not clock or not most or clock >= context.limits.low_clock * most or not reasons:
        return None
    held, idle = reasons.get("application clocks", 0.0), reasons.get("gpu idle", 0.0)
    if max(held, idle) < 0.5 or context.share(context.estimate.account.busy_ns) < 0.05:
        return None
    by_setting = held >= idle
    lost = context.share(context.estimate.account.compute_ns) * (1 - clock / most)
    return advisory(
        context,
        "idle-clocks",
        says=f"the SMs run at {units.rate(clock, 'Hz')} of {units.rate(most, 'Hz')}: "
        + ("application clocks hold them" if by_setting else "the GPU idles between bursts"),
        suggests="nvidia-smi -rac (as root)"
        if by_setting
        else "close the gaps between launches first; the clocks follow",
        waste="tuning kernels before the clocks are up",
        confidence=0.7,
        saves=lost if by_setting and context.worth(lost) else None,
        sm_clock_hz=clock,
        sm_clock_max_hz=most,
    )


def shared_gpu(context: Context) -> Advisory | None:
    """Somebody else computes on this device: by its turns within kernels, else by GPU-Util."""
    if context.facts.turns is not None:
        return _in_turns(context, context.facts.turns)
    readings = context.facts.readings
    others = readings.largest.get(int(Metric.FOREIGN_PROCESS_COUNT))
    util = readings.mean(Metric.SMI_UTIL)
    busy = context.share(context.estimate.account.busy_ns)
    foreign = util - busy if util is not None else None
    if not others or foreign is None or foreign < context.limits.foreign_util:
        return None
    return advisory(
        context,
        "shared-gpu",
        says=f"{others:.0f} other processes compute on this GPU: it is in use {units.share(util)} "
        f"of the time, by this trainer {units.share(busy)}",
        suggests="nvidia-smi --query-compute-apps=pid,used_memory --format=csv, then move one of "
        "them",
        waste="kernel tuning: the neighbour takes turns with you",
        confidence=0.8,
        others=others,
        smi_util=util,
        busy_share=busy,
    )


def _in_turns(context: Context, turns: TimeSlices) -> Advisory | None:
    """Two processes on one GPU take turns; kernels stopped for them are recorded as running."""
    taken = context.idle("other_process")
    least = units.share(math.floor(100 * taken) / 100)
    others = context.facts.readings.largest.get(int(Metric.FOREIGN_PROCESS_COUNT))
    return advisory(
        context,
        "shared-gpu",
        says=f"another process computes on this GPU in turns of {units.duration(turns.usual_ns)}: "
        f"at least {least} of the time is its, {turns.hit} kernels were stopped for it",
        suggests="nvidia-smi --query-compute-apps=pid,used_memory --format=csv, then move one of "
        "them; MPS would let both run side by side",
        waste="kernel tuning: the neighbour takes turns with you",
        confidence=0.5 + 0.45 * turns.alike,
        saves=taken,
        others=others,
        other_share=taken,
        turn_ns=turns.usual_ns,
        kernels_hit=turns.hit,
        busy_share=context.share(context.estimate.account.worked_ns),
    )


def gpu_faults(context: Context) -> Advisory | None:
    """Uncorrected memory errors: results and speed are both in doubt."""
    errors = context.facts.readings.largest.get(int(Metric.ECC_UNCORRECTED_COUNT))
    xid = context.facts.readings.largest.get(int(Metric.XID))
    if not errors and not xid:
        return None
    return advisory(
        context,
        "gpu-faults",
        says=f"the GPU reports {errors or 0:.0f} uncorrected memory errors"
        + (f" and XID {xid:.0f}" if xid else ""),
        suggests="drain this GPU: nvidia-smi -q -d ECC,PAGE_RETIREMENT",
        waste="tuning anything on this device",
        confidence=0.8,
        uncorrected=errors,
        xid=xid,
    )


def monitor_cost(context: Context) -> Advisory | None:
    """What watching costs is part of what is seen."""
    cost = context.facts.readings.mean(Metric.STEP_COST_SHARE)
    error = context.facts.readings.mean(Metric.STEP_COST_ERROR_SHARE) or 0.0
    if cost is None or cost - error < context.limits.monitor_cost:
        return _profiled(context)
    return advisory(
        context,
        "monitor-cost",
        says=f"watching adds {units.share(cost)} to each step of this run",
        suggests="brrrtop attach --max-overhead 1%, or NVML only",
        confidence=0.8,
        step_cost_share=cost,
        error_share=error,
    )


def _profiled(context: Context) -> Advisory | None:
    """The same of torch.profiler: recording each op takes host time, and launches come later for it."""
    work, waiting = context.facts.cpu_work, context.idle("launch")
    if work is None or not work.shaped or waiting < context.limits.launch_idle:
        return None
    spent = min(context.share(PROFILED_OP_NS * work.ops), waiting)
    busy = context.estimate.account.busy_ns
    # With less at work the device waits for launches without a profiler too.
    if spent < context.limits.profiled or context.share(busy) < context.limits.profiled_busy:
        return None
    return advisory(
        context,
        "monitor-cost",
        says=f"recording {context.a_step(work.ops):.0f} ops {context.per} with their shapes takes the "
        f"launching thread some {units.share(spent)} of the time or more, so that the GPU waits less "
        f"for launches without the profiler: it works {units.duration(context.a_step(busy))} "
        f"{context.per}",
        suggests="time some steps without the profiler, or watch them: brrrtop attach",
        waste="believing the idle time before launches to the last percent",
        confidence=0.7,
        ops_a_step=context.a_step(work.ops),
        profiler_share=spent,
        busy_ns_a_step=context.a_step(busy),
    )


def intensity_tie_breaker(context: Context) -> Advisory | None:
    """The side of much of the time is a coin toss."""
    open_ns = sum(
        r.total_ns * (1 - r.underfilled_share)
        for r in context.estimate.kernels
        if r.confidence < 0.2 and r.evidence in ("L0", "L1")
    )
    undecided = context.estimate.regime in (Regime.MIXED, Regime.UNKNOWN)
    if not undecided or context.share(open_ns) < context.limits.weak_share:
        return None
    return advisory(
        context,
        "intensity-tie-breaker",
        says=f"names alone cannot say whether {units.share(context.share(open_ns))} of the time is "
        "compute or memory",
        suggests="record shapes or counters for some steps: brrrtop attach --counters",
        waste="guessing: the two sides want opposite fixes",
        confidence=0.5,
        open_share=context.share(open_ns),
    )


def none_healthy(context: Context) -> Advisory | None:
    """No edit that is known wins 5 %; only called when no other advice does either."""
    if context.priced is None or context.ceilings is None:
        return None
    estimate = context.estimate
    best = next((row for row in context.rows if context.matters(row)), None)
    if best is not None:
        return None
    best = context.rows[0] if context.rows else None
    if estimate.split.unknown > context.limits.unknown or estimate.regime is Regime.UNKNOWN:
        return None
    tried = f"the best of {len(context.rows)} is {best.edit}" if best else "none applies"
    return advisory(
        context,
        "none-healthy",
        says="no edit that brrrtop knows wins 5%: "
        + tried
        + (f", with {units.share(max(best.saves, 0.0))}" if best else ""),
        suggests="stop tuning and train",
        confidence=0.9
        if best is not None and best.saves_high < 2 * context.limits.healthy_gain
        else 0.7,
        compute_share=estimate.split.compute,
        memory_share=estimate.split.memory,
        best_edit=best.edit if best else None,
        best_saves=best.saves if best else None,
    )
