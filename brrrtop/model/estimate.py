"""What is known of one device in one window, and the verdict on it. Computes nothing.

Times are integer nanoseconds on the trainer's CLOCK_REALTIME. `None` is "not measured"; a
measured zero is 0. Shares are 0..1.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from brrrtop.model.account import Account, Split
from brrrtop.model.run import Run, StackSamples
from brrrtop.model.tables import Device, Span
from collectors.vocabulary import StrEnum


class Side(StrEnum):
    """Which roof a kernel is under, or what else it is."""

    COMPUTE = "compute"
    MEMORY = "memory"
    UNDERFILLED = "underfilled"
    COMM = "comm"
    COPY = "copy"
    """From or to the host or another device; a copy within the device is `MEMORY`."""
    UNKNOWN = "unknown"


class Regime(StrEnum):
    COMPUTE = "compute"
    MEMORY = "memory"
    OVERHEAD = "overhead"
    MIXED = "mixed"
    UNKNOWN = "unknown"


class Launch(Struct, frozen=True):
    lead_p50_ns: int | None = None
    share_under_10us: float | None = None
    rho: float | None = None
    """Share of kernel time launched at least 10 us before it started: what GPU-side fixes can touch."""
    count: int = 0
    """Kernels whose launch is known."""


class Steps(Struct, frozen=True):
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
    run_mean_ns: int | None = None
    """Mean duration of the host's steps in and near the window that nobody recorded: recording makes a step
    longer. None: all was recorded, or the host's steps are not known."""


class KernelRow(Struct, frozen=True):
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
    calls: float | None = None
    """A step, of the whole ones; None where these are not known."""

    @property
    def underfilled_share(self) -> float:
        """Part of its time in which it does not fill the GPU: all or nothing."""
        return float(self.side is Side.UNDERFILLED)

    @property
    def mean_ns(self) -> int:
        return self.total_ns // self.count if self.count else 0


class Neighbours(Struct, frozen=True):
    """Where a kernel runs, by one execution in the middle of the window."""

    names: tuple[str, ...]
    """Activities of its stream around it, in order, itself among them."""
    at: int
    """Its own place in `names`."""
    step_place: float | None = None
    """Median start within the step, 0..1; None without steps."""


class Roofs(Struct, frozen=True):
    flop_per_s: Mapping[str, float]
    """By precision; a missing key means that nobody says."""
    bytes_per_s: float | None
    source: str


class CounterSamples(Struct, frozen=True):
    """Intervals of the GPU's hardware counters beside the kernels of a window."""

    count: int
    interval_ns: int
    placed: int
    """Of those, put on the kernels' clock; only these judge kernels."""
    error_ns: float | None
    """Median standard error of their place; None where none has one."""


class Estimate(Struct, frozen=True, eq=False):
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
    batch: int | None
    """Samples of a step, as `Run.batch`."""
    kernels: tuple[KernelRow, ...]
    """By total time, largest first."""
    evidence_shares: Mapping[str, float]
    """Share of kernel time by level of evidence."""
    observed_share: float = 1.0
    roofs: Roofs | None = None
    capability_at_least: tuple[int, int] | None = None
    """Compute capability as kernels' names tell it; None where the device is known, or no name tells."""
    neighbours: Mapping[str, Neighbours] = field(default_factory=dict)
    """By kernel name; of the names with the most time only."""
    sampled: CounterSamples | None = None
    """None: no hardware counters were sampled."""
    run: Run | None = None
    """Of which `account`, `split` and the verdict speak; None: of the traced window."""
    traced_ns: int | None = None
    """In which the kernels here were traced; None: in all of the account's time."""
    shared: bool = False
    """Another process has turns of the device, which kernels' records hold: shares are not judged."""
    stack_samples: StackSamples | None = None
    """None: nobody looked at the training thread, or it was never found outside a named wait."""

    @property
    def host_cause_known(self) -> float | None:
        """Part, with a cause, of the idle time that the host was late for."""
        idle, how = self.account.idle_ns, self.account.mechanical_ns
        nameless_ns = idle["host"] + max(0, idle["unknown"] - how["unknown"])
        return max(0.0, 1 - nameless_ns / how["host_late"]) if how["host_late"] else None

    @property
    def mean_step_ns(self) -> float | None:
        """What parts of a step add up to; the median one where no whole step of the GPU is known, None
        where no step is."""
        spans = self.steps.spans
        if not spans:
            return self.steps.step_ns or None
        return sum(span.duration_ns for span in spans) / len(spans) or None

    @property
    def steps_covered(self) -> float | None:
        """Steps that were traced, seldom a whole number; None when steps are unknown.

        From the mean step, so that a step cut at the window's edge and time that was not traced
        count as what they are.
        """
        mean = self.mean_step_ns
        if not self.steps.count or not self.traced_duration_ns or mean is None:
            return None
        return self.traced_duration_ns / mean

    @property
    def traced_duration_ns(self) -> int:
        """Time in which the kernels here were traced."""
        return self.account.duration_ns if self.traced_ns is None else self.traced_ns
