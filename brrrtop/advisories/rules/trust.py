"""Rules about the GPU itself, whether what is seen can be trusted, and whether anything is worth an edit."""

from brrrtop.advisories.context import HEALTHY_GAIN, WORTH_SHARE, Context
from brrrtop.advisories.registry import COMPUTE, TRUST, Finding, finding, rule
from brrrtop.analysis.account.account import LEAST_ACTIVITIES
from brrrtop.analysis.facts.host_activity import recompiles
from brrrtop.analysis.facts.launches import loading_ns
from brrrtop.analysis.facts.steps import LOADING_SHARE
from brrrtop.model.estimate import Regime
from brrrtop.model.run import COMPILE_IDLE
from brrrtop.text import phrases, units
from collectors.vocabulary import CallClass, MarkClass, Metric

LOST = 0.01
"""With more of the records lost no rule about kernels can be trusted."""
UNRECORDED = 0.1
"""With more of the time in graph nodes that nobody recorded no verdict stands."""
FULL_UTIL, USEFUL = 0.9, 0.4
"""nvidia-smi counts time with any kernel resident: a busy loop reads 90 % and more. A run that uses more
of the roofs than the second is what GPU-Util says."""
WATCHING, PROFILING = 0.03, 0.10
"""What watching may add to a step, and torch.profiler, whose cost is estimated, before it is said."""
BUSY = 0.25
"""Of the time the GPU works, from which a loop may well be bound by it without the profiler."""
UNKNOWN = 0.25
"""With more of the time unclassed nobody can call a run healthy."""
MOST_IDLE = 0.15
"""Of the time: with more of it idle something holds the GPU up, whether an edit is known or not."""
LARGE_KERNEL, LOW_ROOF = 0.2, 0.5
"""A kernel with a fifth of the time at less than half its roof is worth a look."""
THROTTLED = 0.1
"""Share of readings with a thermal or hardware slowdown reason."""
LOW_CLOCK = 0.8
"""Of the largest SM clock."""
FOREIGN = 0.15
"""Utilisation by others: nvidia-smi's less our own busy share."""
_HOT = ("hardware slowdown", "software thermal", "hardware thermal", "power brake")
_NEIGHBOURS = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv, then move one of them"
_WASTE = "kernel tuning: the neighbour takes turns with you"
_PIPES = (Metric.TENSOR_ACTIVE, Metric.FP32_ACTIVE, Metric.FP16_ACTIVE, Metric.FP64_ACTIVE)


@rule(
    "warming-up", TRUST, "Too early to judge", is_gate=True,
    when="the first three steps, or compiling or loading kernels that shapes the window: nothing else is "
    "said",
    unless="a short compile before six steps or more; a recompile, which has its own advice",
)  # fmt: skip
def warming_up(context: Context) -> Finding | None:
    # A compile that is not the first belongs to steady state, and has its own advice.
    compiles = context.marked(MarkClass.COMPILE)
    if (
        not context.estimate.steps.warming_up
        or recompiles(context.facts)
        or (context.run is not None and context.run.under_way)
    ):
        return None
    loading = context.share(loading_ns(context.facts))
    shaped = loading >= LOADING_SHARE or context.idle("compile") >= COMPILE_IDLE
    if (context.steps or 0) >= 6 and not shaped:
        return None
    spent = units.duration(compiles.total_ns)
    return finding(
        "the first steps load modules, tune and allocate"
        + (f"; {units.share(loading)} of the time went so" if loading >= LOADING_SHARE else "")
        + (f"; torch.compile took {spent}" if compiles.count else ""),
        "wait three steps, then judge",
        waste="concluding anything from the first call: a compiled model's first call is slower "
        "than eager",
        confidence=0.95,
        compile_ns=compiles.total_ns, loading_share=loading,
        module_loads=context.called(CallClass.MODULE).count,
    )  # fmt: skip


@rule(
    "records-lost", TRUST, "Too many records are missing", is_gate=True,
    when="over 1 % of the records were lost, or nodes of CUDA graphs ran unrecorded for over "
    "10 % of the time: nothing else is said",
    unless="–",
)  # fmt: skip
def records_lost(context: Context) -> Finding | None:
    window = context.facts.window
    lost = window.lost_records / max(len(window.activities) + window.lost_records, 1)
    hidden = context.share(context.estimate.account.unrecorded_ns)
    if hidden > UNRECORDED:
        return finding(
            f"{phrases.unrecorded(context.estimate.account)}: where the time goes is open, and nothing "
            "else is advised",
            "record without CUDA graphs: torch.compile's mode='default', or enforce_eager",
            waste="tuning by a trace that lacks most of what ran",
            confidence=0.9, unrecorded_share=hidden,
        )  # fmt: skip
    if lost <= LOST:
        return None
    return finding(
        f"{units.share(lost)} of the records were lost: shares are uncertain and nothing else is "
        "advised",
        "shorter bursts, or a bigger buffer: brrrtop attach --max-overhead 2%",
        confidence=0.9, lost_share=lost,
    )  # fmt: skip


def _useful_share(context: Context) -> float | None:
    """What is used of the roofs: by counters, the busiest pipe plus memory, which seldom peak together;
    else busy time by achieved share of the roof. None when too little of it is known."""
    readings, rows = context.readings, context.estimate.kernels
    memory = readings.mean(Metric.DRAM_ACTIVE)
    pipes = [share for m in _PIPES if (share := readings.mean(m)) is not None]
    if memory is not None and pipes:
        return min(memory + max(pipes), 1.0)
    known = [(r.total_ns, min(r.roof_share, 1.0)) for r in rows if r.roof_share is not None]
    time = sum(spent for spent, _ in known)
    if not time or time < 0.5 * sum(r.total_ns for r in rows):
        return None
    worked = context.share(context.estimate.account.busy_ns)
    return worked * sum(spent * share for spent, share in known) / time


@rule(
    "misleading-util", TRUST, "GPU-Util says full, the GPU is not",
    when="nvidia-smi says 90 % or more and less than 40 % of the roofs is used",
    unless="a roof share that is known for too little of the time; another process on the GPU",
)  # fmt: skip
def misleading_util(context: Context) -> Finding | None:
    util, useful = context.readings.mean(Metric.SMI_UTIL), _useful_share(context)
    if util is None or useful is None or util < FULL_UTIL or useful >= USEFUL:
        return None
    return finding(
        f"nvidia-smi says {units.share(util)}, but only {units.share(useful)} of what this "
        "GPU can do is done: that figure says a kernel was resident, not that it was useful",
        "follow the first advisory here and ignore GPU-Util",
        waste="concluding from a high GPU-Util that the GPU is the limit",
        confidence=0.9, smi_util=util, useful_share=useful,
    )  # fmt: skip


@rule(
    "monitor-cost", TRUST, "Watching costs too much",
    when="watching adds 3 % to a step, beyond the error of that figure; or torch.profiler, by the step "
    "simulated without it, 10 % of a loop that waits for launches, the GPU at work a quarter of the time",
    unless="a figure whose error is larger than itself; a step that the GPU sets the pace of",
)  # fmt: skip
def monitor_cost(context: Context) -> Finding | None:
    cost = context.readings.mean(Metric.STEP_COST_SHARE)
    error = context.readings.mean(Metric.STEP_COST_ERROR_SHARE) or 0.0
    if cost is not None and cost - error >= WATCHING:
        return finding(
            f"watching adds {units.share(cost)} to each step of this run",
            "brrrtop attach --max-overhead 1%, or NVML only",
            confidence=0.8, step_cost_share=cost, error_share=error,
        )  # fmt: skip
    step, busy = context.simulated, context.share(context.estimate.account.busy_ns)
    # With less at work the device waits for launches without a profiler too.
    if step is None or step.unprofiled_ns is None or busy < BUSY or step.present_ns <= 0:
        return None
    part = 1 - step.unprofiled_ns / step.present_ns
    if part < PROFILING or context.idle("launch") < PROFILING:
        return None
    return finding(
        f"torch.profiler holds the launching thread up: without it a step would take some "
        f"{units.duration(step.unprofiled_ns)} of these {units.duration(step.present_ns)}",
        "time some steps without the profiler, or watch them: brrrtop attach",
        waste="believing the idle time before launches to the last percent",
        confidence=0.7, profiler_share=part, step_ns=step.unprofiled_ns,
    )  # fmt: skip


@rule(
    "throttled", TRUST, "The clocks are held down",
    when="a thermal or hardware slowdown in 10 % of the readings",
    unless="the power cap alone, which is normal at full load",
)  # fmt: skip
def throttled(context: Context) -> Finding | None:
    readings = context.readings
    worst = max(_HOT, key=lambda name: readings.reason_shares.get(name, 0.0))
    share = readings.reason_shares.get(worst, 0.0)
    if share < THROTTLED:
        return None
    clock, most = readings.mean(Metric.SM_CLOCK_HZ), readings.mean(Metric.SM_CLOCK_MAX_HZ)
    lost = 1 - clock / most if clock and most and clock < most else 0.0
    saves = context.share(context.estimate.account.compute_ns) * lost
    return finding(
        f"the clocks are held down ({worst}) in {units.share(share)} of the readings"
        + (f", by {units.share(lost)}" if lost else ""),
        "check airflow and cooling, then the power limit: nvidia-smi -q -d PERFORMANCE",
        waste="changing code: the same kernels run slower",
        confidence=0.85, saves=saves if saves >= WORTH_SHARE else None,
        reason=worst, reason_share=share, sm_clock_hz=clock,
        temperature_c=readings.mean(Metric.TEMPERATURE_C),
    )  # fmt: skip


@rule(
    "idle-clocks", TRUST, "Low clocks while working",
    when="clocks under 80 % of the most, held by application clocks or by idling",
    unless="idling is a symptom of gaps, and says so",
)  # fmt: skip
def idle_clocks(context: Context) -> Finding | None:
    readings, account = context.readings, context.estimate.account
    clock, most = readings.mean(Metric.SM_CLOCK_HZ), readings.mean(Metric.SM_CLOCK_MAX_HZ)
    reasons = readings.reason_shares
    if not clock or not most or clock >= LOW_CLOCK * most or context.share(account.busy_ns) < 0.05:
        return None
    by_setting = reasons.get("application clocks", 0.0) >= reasons.get("gpu idle", 0.0)
    if max(reasons.get("application clocks", 0.0), reasons.get("gpu idle", 0.0)) < 0.5:
        return None
    lost = context.share(account.compute_ns) * (1 - clock / most)
    return finding(
        f"the SMs run at {units.rate(clock, 'Hz')} of {units.rate(most, 'Hz')}: "
        + ("application clocks hold them" if by_setting else "the GPU idles between bursts"),
        "nvidia-smi -rac (as root)"
        if by_setting
        else "close the gaps between launches first; the clocks follow",
        waste="tuning kernels before the clocks are up",
        confidence=0.7, saves=lost if by_setting and context.worth(lost) else None,
        sm_clock_hz=clock, sm_clock_max_hz=most,
    )  # fmt: skip


@rule(
    "shared-gpu", TRUST, "Somebody else computes here",
    when="other compute processes, and kernels that were stopped for them, or 15 points more "
    "utilisation than this trainer's",
    unless="display servers and monitors, which use nothing; kernels long by nature",
    covers=("misleading-util", "inefficient-kernel"),
)  # fmt: skip
def shared_gpu(context: Context) -> Finding | None:
    readings, account = context.readings, context.estimate.account
    others = readings.largest.get(int(Metric.FOREIGN_PROCESS_COUNT))
    if context.estimate.shared:  # kernels stopped for others are recorded as running
        return finding(
            phrases.SHARED, f"{_NEIGHBOURS}; MPS would let both run side by side",
            waste=_WASTE, confidence=0.9, others=others,
        )  # fmt: skip
    util, busy = readings.mean(Metric.SMI_UTIL), context.share(account.busy_ns)
    if not others or util is None or util - busy < FOREIGN:
        return None
    return finding(
        f"{others:.0f} other processes compute on this GPU: it is in use {units.share(util)} "
        f"of the time, by this trainer {units.share(busy)}",
        _NEIGHBOURS,
        waste=_WASTE, confidence=0.8,
        others=others, smi_util=util, busy_share=busy,
    )  # fmt: skip


@rule(
    "gpu-faults", TRUST, "The GPU reports errors",
    when="uncorrected memory errors or an XID",
    unless="–",
)  # fmt: skip
def gpu_faults(context: Context) -> Finding | None:
    errors = context.readings.largest.get(int(Metric.ECC_UNCORRECTED_COUNT))
    xid = context.readings.largest.get(int(Metric.XID))
    if not errors and not xid:
        return None
    return finding(
        f"the GPU reports {errors or 0:.0f} uncorrected memory errors"
        + (f" and XID {xid:.0f}" if xid else ""),
        "drain this GPU: nvidia-smi -q -d ECC,PAGE_RETIREMENT",
        waste="tuning anything on this device",
        confidence=0.8, uncorrected=errors, xid=xid,
    )  # fmt: skip


@rule(
    "none-healthy", COMPUTE, "Nothing worth an edit", is_last=True,
    when="no edit that was simulated wins 5 %, no other advice does, the GPU is idle for 15 % of the time at "
    "most, and no kernel with a fifth of it is below half its roof",
    unless="weak evidence about much of the time",
)  # fmt: skip
def none_healthy(context: Context) -> Finding | None:
    estimate, rows = context.estimate, context.rows
    if context.simulated is None or context.ceilings is None or any(map(context.matters, rows)):
        return None
    if estimate.split.unknown > UNKNOWN or estimate.regime is Regime.UNKNOWN:
        return None
    if context.kernels < LEAST_ACTIVITIES:
        return None
    if context.share(estimate.account.idle_total_ns) > MOST_IDLE or _is_below_its_roof(context):
        return None
    best = max(rows, key=lambda row: row.saves, default=None)
    tried = "none applies"
    if best is not None:
        tried = f"the best of {len(rows)} is {best.edit}, with {units.share(max(best.saves, 0.0))}"
    return finding(
        f"no edit known here wins 5%: {tried}",
        "stop tuning and train" if context.trains else "leave it as it is",
        confidence=0.9 if best is not None and best.saves_high < 2 * HEALTHY_GAIN else 0.7,
        compute_share=estimate.split.compute, memory_share=estimate.split.memory,
        best_edit=best.edit if best else None, best_saves=best.saves if best else None,
    )  # fmt: skip


def _is_below_its_roof(context: Context) -> bool:
    """Whether a kernel that matters could be twice as fast, by the roof that it stands below."""
    return any(
        row.roof_share is not None and row.roof_share < LOW_ROOF
        for row in context.estimate.kernels
        if context.share(row.total_ns) >= LARGE_KERNEL
    )
