"""Rules about the GPU itself: clocks, neighbours, faults."""

from __future__ import annotations

from brrrtop.advisories.context import WORTH_SHARE, Context
from brrrtop.advisories.registry import TRUST, Finding, finding, rule
from brrrtop.text import phrases, units
from collectors.vocabulary import Metric

THROTTLED = 0.1
"""Share of readings with a thermal or hardware slowdown reason."""
LOW_CLOCK = 0.8
"""Of the largest SM clock."""
FOREIGN = 0.15
"""Utilisation by others: nvidia-smi's less our own busy share."""
_HOT = ("hardware slowdown", "software thermal", "hardware thermal", "power brake")
_NEIGHBOURS = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv, then move one of them"
_WASTE = "kernel tuning: the neighbour takes turns with you"


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
