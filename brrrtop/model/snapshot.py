"""The frozen snapshot that a view shows, and what is in it besides estimates and advice. Computes nothing.

Times are integer nanoseconds on the trainer's CLOCK_REALTIME. `None` is "not measured"; a
measured zero is 0. Shares are 0..1.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from brrrtop.model.account import Account
from brrrtop.model.advice import Advisory, Baseline, Comparison, WhatIf
from brrrtop.model.estimate import Estimate
from brrrtop.model.host_tables import NO_TABLES, HostTables
from brrrtop.model.ranks import JobSnapshot
from brrrtop.model.run import Run
from brrrtop.model.tables import I4, I8, U1, Columns, Span
from collectors.vocabulary import StrEnum


class Freshness(StrEnum):
    WAITING = "waiting"
    LIVE = "live"
    STALE = "stale"
    ENDED = "ended"


class HistoryPoint(Struct, frozen=True):
    """What was new in one earlier window, for the graph."""

    t_ns: int
    account: Account
    """Of the part that was new."""
    steps_ns: tuple[int, ...] = ()
    """Durations of the steps that ended in it."""


class Event(Struct, frozen=True):
    t_ns: int
    kind: str
    """`regime`, `stall`, `recompile`, `throttle`, `trainer`, `profiler`, …"""
    says: str
    failed: bool = False
    """What somebody asked for did not come about. Not recorded: only who asked needs it."""


class Overhead(Struct, frozen=True):
    step_cost_share: float | None = None
    step_cost_error_share: float | None = None
    monitor_cpu_share: float | None = None
    monitor_rss_bytes: int | None = None


class SourceInfo(Struct, frozen=True):
    kind: str
    """`live`, `recording`, `memory`, or by which profiler a trace is: `kineto`, `nsys`,
    `jax`."""
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
    waits: frozenset[str] = frozenset()
    """Of the notes, those that tell what is waited for: of no use once the source has ended."""
    gauges: frozenset[str] = frozenset()
    """Of the notes, those on gauges that are missing: no kernel waits for them."""
    job: str | None = None
    """The same for all ranks of one start of a job; None where nobody says."""


class Bars(Columns, frozen=True, eq=False):
    """Bars of one lane, sorted by start. They may overlap: of two, the later one is on top."""

    starts_ns: I8
    ends_ns: I8
    kinds: U1
    """Into `StepPicture.kinds`."""
    name_ids: I4
    """Into `StepPicture.names`; -1: none."""
    launched_ns: I8
    """When the host launched it; -1: not known, or nothing that is launched."""


class Lane(Struct, frozen=True, eq=False):
    name: str
    """`Python`, `calls`, `kernels`, `copies`, `communication`, `gaps`."""
    bars: Bars


class StepPicture(Struct, frozen=True, eq=False):
    """The bars of one step. Bars that straddle its edges are included whole."""

    span: Span
    lanes: tuple[Lane, ...]
    """Of the host first. Lanes of which nothing was recorded are left out."""
    kinds: tuple[str, ...]
    """Sides of kernels, buckets of the account, and what the host did: `launching`, `optimizer`,
    `annotation`."""
    names: tuple[str, ...]
    step: int | None = None
    """Its number among those of the window, from 1; None: no steps are known, this is a stretch."""
    steps: int = 0

    def lane(self, name: str) -> Lane | None:
        return next((lane for lane in self.lanes if lane.name == name), None)


class Once(StrEnum):
    START_UP = "start-up"
    ODD_STEP = "odd-step"
    CHECKPOINT = "checkpoint"
    HOLE = "hole"
    """The one gap that is most of what the device idles."""


class LeftOut(Struct, frozen=True):
    """A part of a trace that is named and not judged."""

    span: Span
    what: Once
    cause: str | None = None
    """The idle cause that marks name; None where none does."""
    step: int | None = None
    """Its number among those of the file, from 1."""
    place: str | None = None
    """The CUDA call that the host was in."""


class Snapshot(Struct, frozen=True, eq=False):
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
    run: Run | None = None
    """Of the device shown, from attaching to `now_ns`; None before anything is known."""
    devices: tuple[Estimate, ...] = ()
    """All devices with activity, busiest first."""
    advisories: tuple[Advisory, ...] = ()
    whatif: tuple[WhatIf, ...] = ()
    """Edits that apply to the device shown, best first."""
    whatif_after: tuple[WhatIf, ...] = ()
    """The first of `whatif` with one more edit after it, best first; their prices are of both."""
    silenced: tuple[Advisory, ...] = ()
    """Advice that stands and that somebody does not want to hear."""
    tables: HostTables = NO_TABLES
    """Of the device shown: what the records hold beyond kernels."""
    gauges: Mapping[int, float] = field(default_factory=dict)
    """Newest reading of each `Metric` of the device shown."""
    gauge_history: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    history: tuple[HistoryPoint, ...] = ()
    picture: StepPicture | None = None
    """One step of the device shown; None until there is activity."""
    whole_ns: int | None = None
    """Length of a finished source; None for one that goes on."""
    events: tuple[Event, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    """Of a trace, beside what the estimate speaks of."""
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
    job: JobSnapshot | None = None
    """All ranks of the job, this one among them; None for a rank by itself."""
    successor: int | None = None
    """The process that took an ended trainer's place, until a person agrees to follow it."""


CALM_NS = 30_000_000_000
LOOK_S, SOON_S = 0.1, 6.0
"""Between two looks while a first verdict is awaited; it comes by then, or nothing hurries any more."""


def pause_s(interval_s: float, snapshot: Snapshot, watched_s: float) -> float:
    """Until the next look: orders to the agent, and its answers, wait for it."""
    awaited = snapshot.estimate is None and snapshot.source.tier == "bursts" and watched_s < SOON_S
    return min(interval_s, LOOK_S) if awaited else interval_s


def is_calm(snapshot: Snapshot) -> bool:
    """Whether a trainer is known well enough to be drawn half as often."""
    run = snapshot.run if snapshot.source.kind == "live" else None
    return run is not None and snapshot.estimate is not None and run.duration_ns >= CALM_NS


PANES = ("figures", "history", "advice", "loader", "step", "kernels", "side")
"""Parts of the main screen that can be hidden, by name."""
ZOOMED = ("kernels", "advice", "history", "step", "side")
"""Those that can have the screen for themselves, in the order of the key."""


class Settings(Struct, frozen=True):
    theme: str | None = None
    """None: as dark or light as the terminal."""
    hidden: tuple[str, ...] = ()
    """Of `PANES`."""
    zoomed: str = ""
    """The one of `ZOOMED` that has the screen for itself; empty: none."""
    gpu_hour: float = 0.0
    """What an hour of one GPU costs; 0: nobody said."""
    currency: str = ""

    def money(self, duration_ns: float) -> str:
        """`6.00 €`; empty without a price."""
        spent = duration_ns / 3.6e12 * self.gpu_hour
        return f"{spent:,.2f} {self.currency}".rstrip() if self.gpu_hour > 0 else ""
