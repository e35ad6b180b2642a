"""What is found out about a window, up to the frozen snapshot that a view shows. Computes nothing.

Times are integer nanoseconds on the trainer's CLOCK_REALTIME. `None` is "not measured"; a
measured zero is 0. Shares are 0..1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from brrrtop.looked import Looks
from brrrtop.tables import Device, Span, StrEnum

if TYPE_CHECKING:
    from brrrtop.comparison import Baseline, Comparison


class Side(StrEnum):
    """Which roof a kernel is under, or what else it is."""

    COMPUTE = "compute"
    MEMORY = "memory"
    UNDERFILLED = "underfilled"
    COMM = "comm"
    COPY = "copy"
    UNKNOWN = "unknown"


class Regime(StrEnum):
    COMPUTE = "compute"
    MEMORY = "memory"
    OVERHEAD = "overhead"
    MIXED = "mixed"
    UNKNOWN = "unknown"


IDLE_CAUSES = (
    "input",
    "launch",
    "sync",
    "allocator",
    "compile",
    "gc",
    "checkpoint",
    "logging",
    "evaluation",
    "io",
    "host",
    "device",
    "other_process",
    "unknown",
)
"""Why nothing was resident. `launch`: the host was on its way to the next launch; `io`: it was in
file or network work of the loop itself; `host`: it was elsewhere, nobody knows where; `device`:
work was queued but waited on the device; `other_process`: the same while others were on it, and
their turns in the middle of kernels."""

MECHANICAL_CLASSES = ("host_late", "launch", "back_to_back", "device_wait", "unknown")


@dataclass(frozen=True, slots=True)
class Account:
    """Where the time of a window went, in ns. Every nanosecond is in exactly one bucket."""

    duration_ns: int
    compute_ns: int
    memory_ns: int
    underfilled_ns: int
    exposed_comm_ns: int
    """A collective was resident and no compute kernel was."""
    exposed_copy_ns: int
    idle_ns: Mapping[str, int]
    """By cause, keys `IDLE_CAUSES`."""
    unknown_ns: int
    """Kernels nobody can class, and spans whose records were lost."""
    mechanical_ns: Mapping[str, int]
    """The idle time again, by how it came about; adds up to the idle total."""
    busy_ns: int
    """Union of all recorded device activity."""
    taken_ns: int = 0
    """Of `busy_ns`, what another process had: recorded kernels were stopped for its turns. Booked
    as idle `other_process`, so that busy and idle overlap by it."""

    @property
    def worked_ns(self) -> int:
        """Time in which the trainer's own activity had the device."""
        return self.busy_ns - self.taken_ns

    @property
    def idle_total_ns(self) -> int:
        return sum(self.idle_ns.values())

    @property
    def overhead_ns(self) -> int:
        return (
            self.underfilled_ns + self.exposed_comm_ns + self.exposed_copy_ns + self.idle_total_ns
        )


@dataclass(frozen=True, slots=True)
class Split:
    """The three-way split of wall time plus what nobody knows; adds up to 1."""

    compute: float
    memory: float
    overhead: float
    unknown: float


@dataclass(frozen=True, slots=True)
class Launch:
    """How far the host runs ahead. All `None` without launch records."""

    lead_p50_ns: int | None = None
    share_under_10us: float | None = None
    rho: float | None = None
    """Share of kernel time launched at least 10 us before it started: what GPU-side fixes can touch."""
    count: int = 0
    """Kernels whose launch is known."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Training iterations in the window."""

    count: int | None = None
    """Whole steps."""
    step_ns: int | None = None
    """Median duration."""
    source: str | None = None
    """`marks`, `annotations` or `period`."""
    confidence: float = 0.0
    spans: tuple[Span, ...] = ()
    """The whole steps, on the device where that is known; empty where the host's say nothing of it."""
    warming_up: bool = False
    """These are the first three steps, or a compile ran in them: shown, never judged."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel name (and device function) over the window."""

    name: str
    family: str
    side: Side
    count: int
    total_ns: int
    share: float
    """Of the summed kernel and copy time."""
    evidence: str
    """`L1`, `L1.5`, `L2`, `L3` or combinations such as `L2+L3`: the best behind most of its time."""
    confidence: float
    roof_share: float | None = None
    """Achieved rate over the ceiling of its side: bytes/s over the bandwidth, or FLOP/s over the peak."""
    roof_share_why: str | None = None
    """Why there is no `roof_share`, as a clause; None where there is one."""
    flop_per_s: float | None = None
    bytes_per_s: float | None = None
    precision: str | None = None
    """`bf16`, `fp16`, `tf32`, `fp32`, `fp64`, `fp8`, … when the name or the shapes say."""
    blocks_p50: int | None = None

    @property
    def underfilled_share(self) -> float:
        """Part of its time in which it does not fill the GPU: all or nothing."""
        return float(self.side is Side.UNDERFILLED)

    @property
    def mean_ns(self) -> int:
        return self.total_ns // self.count if self.count else 0


@dataclass(frozen=True, slots=True)
class Advisory:
    """One symptom, its evidence, one thing to try."""

    kind: str
    """The published id, `dataloader-stall` and so on."""
    says: str
    confidence: float
    saves_at_most: float | None
    """Share of wall time that could go at most; None for advice that saves nothing itself."""
    evidence: Mapping[str, Any]
    suggests: str
    waste: str
    saves: float | None = None
    """Share of the step that the simulated edit saves; None where no edit was simulated."""
    saves_low: float | None = None
    """Of the simulated edit; with `saves_at_most` it holds the true share four times out of five."""


@dataclass(frozen=True, slots=True)
class StepWork:
    """What host and device have to do in a simulated step, whoever waits for whom."""

    kernels: float
    """Kernels, copies and memsets."""
    device_ns: float
    """In which any of them runs."""
    host_ns: float
    """Of the thread that launches, without its waits for the device."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What one edit is predicted to do to a step."""

    edit: str
    """Its id: `compile`, `channels-last` and so on."""
    step_ns: float
    """Predicted time of a step, per unit of its present work."""
    saves: float
    """1 - predicted over present time; negative for an edit that makes it slower."""
    saves_low: float
    saves_high: float
    """These two hold the true value four times out of five."""
    advisory: str | None
    """Id of the advice that names it; None where none is given."""
    line: str
    """The line of code."""
    now: StepWork | None = None
    """Of the present step; None where nobody told."""
    then: StepWork | None = None
    """Of the edited one, per unit of the present step's work."""

    @property
    def present_ns(self) -> float:
        """Time of the step without the edit."""
        return self.step_ns / (1 - self.saves) if self.saves < 1 else math.nan


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Where a kernel runs, by one execution in the middle of the window."""

    names: tuple[str, ...]
    """Activities of its stream around it, in order, itself among them."""
    at: int
    """Its own place in `names`."""
    step_place: float | None = None
    """Median start within the step, 0..1; None without steps."""


@dataclass(frozen=True, slots=True)
class Roofs:
    """The rates this device cannot exceed, for the roofline view."""

    flop_per_s: Mapping[str, float]
    """By precision; a missing key means that nobody says."""
    bytes_per_s: float | None
    source: str


@dataclass(frozen=True, slots=True)
class CounterSamples:
    """Intervals of the GPU's hardware counters beside the kernels of a window."""

    count: int
    interval_ns: int
    placed: int
    """Of those, put on the kernels' clock; only these judge kernels."""
    error_ns: float | None
    """Median standard error of their place; None where none has one."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Facts about one device in one window, and the verdict on them."""

    span: Span
    device: Device
    account: Account
    split: Split
    regime: Regime
    cause: str | None
    """The largest reason for the regime: an idle cause, `exposed_comm`, `underfilled`, …"""
    confidence: float
    runner_up: Regime | None
    launch: Launch
    steps: Steps
    kernels: tuple[KernelRow, ...]
    """By total time, largest first."""
    evidence_shares: Mapping[str, float]
    """Share of kernel time by level of evidence."""
    host_cause_known: float | None = None
    """Covered part of the idle time the host was late for."""
    observed_share: float = 1.0
    roofs: Roofs | None = None
    neighbours: Mapping[str, Neighbours] = field(default_factory=dict)
    """By kernel name; of the names with the most time only."""
    sampled: CounterSamples | None = None
    """None: no hardware counters were sampled."""
    looks: Looks | None = None
    """None: nobody looked at the training thread, or it was never found outside a named wait."""

    @property
    def steps_covered(self) -> float | None:
        """Steps that the account covers, seldom a whole number; None when steps are unknown.

        From the mean step, so that a step cut at the window's edge and time that was not traced
        count as what they are; from the median one where no whole step of the GPU is known.
        """
        spans, usual = self.steps.spans, self.steps.step_ns or 0
        if not self.steps.count or not self.account.duration_ns:
            return None
        mean = sum(span.duration_ns for span in spans) / len(spans) if spans else usual
        return self.account.duration_ns / mean if mean else None


class Freshness(StrEnum):
    WAITING = "waiting"
    LIVE = "live"
    STALE = "stale"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The split at one earlier time, for the graph."""

    t_ns: int
    split: Split
    regime: Regime


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the regime-shift log."""

    t_ns: int
    kind: str
    """`regime`, `stall`, `recompile`, `throttle`, `trainer`, `profiler`, …"""
    says: str


@dataclass(frozen=True, slots=True)
class Overhead:
    """What watching costs this run."""

    step_cost_share: float | None = None
    step_cost_error_share: float | None = None
    monitor_cpu_share: float | None = None
    monitor_rss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Where the frames come from."""

    kind: str
    """`live`, `recording`, `kineto` or `memory`."""
    label: str
    """File name or `pid 4711`."""
    pid: int | None = None
    rank: int | None = None
    world: int | None = None
    cmdline: str | None = None
    torch: str | None = None
    tier: str | None = None
    """What feeds this: `trace`, `continuous`, `bursts`, `nvml`, …"""
    notes: tuple[str, ...] = ()
    """What a reader must know: truncated, recovered, converted from."""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Everything a view may show at one instant."""

    source: SourceInfo
    freshness: Freshness
    now_ns: int
    """Time in the source."""
    age_ns: int | None
    """Since the newest frame; None while waiting."""
    progress: float | None
    """0..1 through a source of known length."""
    estimate: Estimate | None
    """Of the device shown; None until there is something to judge."""
    devices: tuple[Estimate, ...] = ()
    """All devices with activity, busiest first."""
    advisories: tuple[Advisory, ...] = ()
    whatif: tuple[WhatIf, ...] = ()
    """Edits that apply to the device shown, best first."""
    whatif_after: tuple[WhatIf, ...] = ()
    """The first of `whatif` with one more edit after it, best first; their prices are of both."""
    silenced: tuple[Advisory, ...] = ()
    """Advice that stands and that somebody does not want to hear."""
    gauges: Mapping[int, float] = field(default_factory=dict)
    """Newest reading of each `Metric` of the device shown."""
    gauge_history: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    history: tuple[HistoryPoint, ...] = ()
    events: tuple[Event, ...] = ()
    lost_records: int = 0
    zero_timestamps: int = 0
    overhead: Overhead = field(default_factory=Overhead)
    paused: bool = False
    speed: float | None = None
    """Replay speed; None for live sources."""
    baseline: Baseline | None = None
    comparison: Comparison | None = None
    """With the baseline; None until enough came after it."""
    notice: str | None = None
    """What a person must know before all figures: that the trainer ended, and who follows it."""
    successor: int | None = None
    """The process that would take an ended trainer's place, waiting for somebody's yes."""
