"""What the screens show of a snapshot: its fields in their order, the words that only screens have, and the
figures of a run in one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

from brrrtop.model.account import Account, Split
from brrrtop.model.estimate import Estimate, KernelRow, Roofs, Side
from brrrtop.model.snapshot import Event, Snapshot, SourceInfo
from brrrtop.text import phrases, units
from collectors.vocabulary import Metric

if TYPE_CHECKING:
    from brrrtop.model.ranks import RankRow

EVIDENCE: Mapping[str, str] = MappingProxyType(
    {
        "L0": "nothing: no name that is known, no shapes, no counters",
        "L1": "name and grid",
        "L1.5": "bytes from the op's name and grid",
        "L2": "shapes: FLOPs and bytes against the ceilings",
        "L3": "hardware counters",
    }
)


class BucketTime(Struct, frozen=True):
    bucket: str
    spent_ns: int
    share: float


def why_unjudged(snapshot: Snapshot) -> str:
    """Why a view has nothing to show while nothing is judged, in sentences."""
    above = reason(snapshot.source)
    message = phrases.unjudged(snapshot)
    sentences = [f"{message[0].upper()}{message[1:]}."]
    if above is not None:
        sentences.append(f"{above[0].upper()}{above[1:]}.")
    if snapshot.run is not None and snapshot.run.lines:
        sentences.append("C shows the lines that take the time, i the phases with their waits.")
    return " ".join(sentences)


def reason(source: SourceInfo) -> str | None:
    """The note that says why nothing is judged; a missing gauge is none where kernels are traced."""
    traced = source.tier != "nvml"
    return next((note for note in source.notes if not (traced and note in source.gauges)), None)


def booked(account: Account) -> tuple[BucketTime, ...]:
    total = account.duration_ns or 1
    entries = [BucketTime(key, ns, ns / total) for key, ns in phrases.buckets(account) if ns]
    return tuple(sorted(entries, key=_place))


def _place(part: BucketTime) -> tuple[int, int]:
    idle = part.bucket.startswith("idle_")
    return (1 if idle else 2 if part.bucket == "unknown" else 0, -part.spent_ns if idle else 0)


def split_parts(split: Split) -> tuple[tuple[str, float], ...]:
    return (
        ("compute", split.compute),
        ("memory", split.memory),
        ("overhead", split.overhead),
        ("unknown", split.unknown),
    )


def rank_order(row: RankRow) -> tuple[int, str]:
    """Sorts ranks by number; those without one come last."""
    return (row.rank if row.rank is not None else 1 << 30, row.key)


def waits_for_loader(snapshot: Snapshot) -> bool:
    estimate = snapshot.estimate
    return estimate is not None and estimate.cause == "input" and bool(snapshot.tables.loaders)


def shapes_outcome(snapshot: Snapshot) -> Event | None:
    outcomes = [event for event in snapshot.events if event.kind == "shapes"]
    return outcomes[-1] if outcomes else None


def intensity(kernel: KernelRow) -> float | None:
    if kernel.flop_per_s is None or not kernel.bytes_per_s:
        return None
    return kernel.flop_per_s / kernel.bytes_per_s


def roof_of(kernel: KernelRow, roofs: Roofs | None) -> float | None:
    if roofs is None or kernel.precision is None:
        return None
    return roofs.flop_per_s.get(kernel.precision)


def ridge(kernel: KernelRow, roofs: Roofs | None) -> float | None:
    top = roof_of(kernel, roofs)
    if roofs is None or top is None or not roofs.bytes_per_s:
        return None
    return top / roofs.bytes_per_s


def whole_step(kernels: Iterable[KernelRow]) -> tuple[float, float] | None:
    """Intensity and FLOP/s of all kernels with known rates together, weighted by their time."""
    flop = moved = spent_s = 0.0
    for kernel in kernels:
        if kernel.flop_per_s is not None and kernel.bytes_per_s:
            seconds = kernel.total_ns / 1e9
            flop += kernel.flop_per_s * seconds
            moved += kernel.bytes_per_s * seconds
            spent_s += seconds
    return (flop / moved, flop / spent_s) if flop and moved and spent_s else None


def evidence(levels: str) -> str:
    return " and ".join(EVIDENCE.get(level, level) for level in levels.split("+"))


LEAST_FLOPS_KNOWN = 0.9
"""Of the time of compute kernels: of fewer the utilization would be a guess."""
POWER_CAP, BY_USER = "power cap", "clocks set by a user"
THROTTLES = (
    (0x08, "hardware slowdown"),
    (0x40, "thermal, hardware"),
    (0x80, "power brake"),
    (0x20, "thermal, software"),
    (0x04, POWER_CAP),
    (0x02, BY_USER),
)
"""Bits of NVML's clocks-event reasons that hold clocks down, gravest first (nvml.h,
nvmlClocksEventReasons). Idle (0x1), sync boost (0x10) and display (0x100) are left out."""
AT_LIMITS = (POWER_CAP, BY_USER)
"""What holds clocks down without anything being wrong."""

Figure = tuple[str, str]
"""The number with its unit, and what it is of."""


def figures(snapshot: Snapshot, won: str = "") -> list[Figure]:
    """`118 ms/step`, `8.5 steps/s`, `MFU 12%` and so on: those that are known, most telling first.

    Args:
        won: What could be recovered; it says more than clocks and degrees.
    """
    estimate, gauges = snapshot.estimate, snapshot.gauges
    found: list[tuple[str | None, str]] = []
    step_ns = mean_step_ns(snapshot)
    if step_ns:
        found.append((units.duration(step_ns), "/step"))
        each = snapshot.run.samples_per_s if snapshot.run is not None else None
        rate = (units.figure(1e9 / step_ns), " steps/s")
        found.append((f"{each:,.0f}", " samples/s") if each is not None and each >= 10 else rate)
    used = flops_share(estimate, step_ns) if estimate else None
    found.append((f"MFU {units.share(used)}" if used is not None else None, ""))
    active = active_share(snapshot)
    found.append((f"GPU active {units.share(active)}" if active is not None else None, ""))
    found.append((won or None, ""))
    memory = gauges.get(Metric.MEMORY_USED_BYTES)
    if memory is not None:
        used_text, total = units.size(memory), units.size(gauges.get(Metric.MEMORY_TOTAL_BYTES))
        if used_text.split(" ")[-1] == total.split(" ")[-1]:
            used_text = used_text.split(" ")[0]
        found.append((used_text, f" of {total}" if total != units.UNMEASURED else ""))
    limit = throttle(gauges.get(Metric.CLOCK_EVENT_REASONS))
    for metric, unit in ((Metric.POWER_WATT, " W"), (Metric.TEMPERATURE_C, " °C")):
        value = gauges.get(metric)
        unit += f", its {limit}" if limit == POWER_CAP and unit == " W" else ""
        found.append((f"{value:.0f}" if value is not None else None, unit))
    clock, who = gauges.get(Metric.SM_CLOCK_HZ), ", set by a user" if limit == BY_USER else ""
    found.append((units.rate(clock, "Hz") if clock is not None else None, who))
    return [(value, unit) for value, unit in found if value is not None]


def mean_step_ns(snapshot: Snapshot) -> float | None:
    if snapshot.run is not None and snapshot.run.step_ns:
        return snapshot.run.step_ns
    return snapshot.estimate.mean_step_ns if snapshot.estimate else None


def active_share(snapshot: Snapshot) -> float | None:
    """Share of the run in which kernels ran: by the account, before there is one by the GPU's counter.

    Of tiny kernels the counter sees more than there is; the details have both.
    """
    run, estimate = snapshot.run, snapshot.estimate
    if estimate is not None and estimate.account.duration_ns:
        account = estimate.account
        return (account.busy_ns - account.exposed_copy_ns) / account.duration_ns
    return run.witness.active_counter if run is not None else None


def flops_share(estimate: Estimate, step_ns: float | None) -> float | None:
    """FLOPs that the kernels did (what is computed twice counts twice) over the peak of their precision.

    None where the FLOPs of a tenth of the compute kernels' time, the steps or the peak are not known.
    """
    steps, roofs = estimate.steps_covered, estimate.roofs
    compute_ns = sum(row.total_ns for row in estimate.kernels if row.side is Side.COMPUTE)
    flops: Counter[str] = Counter()
    known_ns = 0
    for row in estimate.kernels:
        if row.side is Side.COMPUTE and row.flop_per_s and row.precision:
            flops[row.precision] += round(row.flop_per_s * row.total_ns / 1e9)
            known_ns += row.total_ns
    if not (steps and step_ns and roofs and flops) or known_ns < LEAST_FLOPS_KNOWN * compute_ns:
        return None
    peak = roofs.flop_per_s.get(flops.most_common(1)[0][0])
    return flops.total() / steps / (step_ns / 1e9) / peak if peak else None


def throttle(reasons: float | None) -> str | None:
    """The gravest reason for low clocks; `none` when there is none, None when unmeasured."""
    if reasons is None:
        return None
    mask = int(reasons)
    return next((words for bit, words in THROTTLES if mask & bit), "none")


def alarms(snapshot: Snapshot) -> list[str]:
    gauges = snapshot.gauges
    reason = throttle(gauges.get(Metric.CLOCK_EVENT_REASONS))
    found = [] if reason in (None, "none", *AT_LIMITS) else [f"throttled: {reason}"]
    if strangers := gauges.get(Metric.FOREIGN_PROCESS_COUNT):
        found.append(f"shared with {strangers:.0f}")
    return found
