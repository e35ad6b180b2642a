"""Several ranks of one job at one time: who waits for whom, and why. Computes nothing.

Times are integer nanoseconds; clocks are the reference rank's, the first one that was placed.
`None` is "not measured"; a measured zero is 0. Shares are 0..1.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.model.estimate import Estimate
from collectors.vocabulary import StrEnum


class Lateness(StrEnum):
    """Why a rank comes late to collectives, where it is no idle cause of its own account."""

    BEGAN_LATE = "began-late"
    """It brought its lateness along from before what was recorded."""
    MORE_WORK = "more-work"
    """It launches more kernels, or larger ones, than the others."""
    SLOWER_GPU = "slower-gpu"
    """The same kernels take longer on its GPU."""
    THROTTLED = "throttled"
    """The same, and its clocks are held down."""
    COPIES = "copies"
    """Host copies that nothing hides."""


class Parallelism(StrEnum):
    """How the work is divided, by the collectives of a step."""

    DDP = "ddp"
    FSDP = "fsdp"
    """Weights gathered, gradients scattered: FSDP and ZeRO-3."""
    ZERO = "zero"
    """Gradients scattered, weights gathered once a step: ZeRO-1 and 2."""
    TENSOR = "tensor"
    PIPELINE = "pipeline"
    EXCHANGE = "all-to-all"
    """Rows of embeddings or tokens of experts on their way."""


class RankRow(Struct, frozen=True):
    rank: int | None
    label: str
    """File name or `pid 4711`."""
    key: str
    """By which a job session knows it."""
    pid: int | None = None
    estimate: Estimate | None = None
    why: str | None = None
    """Why nothing is known of it, as a clause; None where something is."""
    matched: int = 0
    """Collectives that were seen on another rank too; what follows speaks of these."""
    last_in: int = 0
    """Of those, in how many it arrived last."""
    collective_ns: int | None = None
    """Time in them; `transfer_ns` and `wait_ns` add up to it."""
    transfer_ns: int | None = None
    wait_ns: int | None = None
    """Resident before the last rank had arrived."""
    exposed_wait_ns: int | None = None
    """Of `wait_ns`, with no kernel of its own beside it."""
    waits_for_peers: float | None = None
    """`exposed_wait_ns` over the time all ranks were seen together."""
    waits_for: Mapping[int, int] = field(default_factory=dict)
    """`wait_ns` by the rank it waits for."""
    late_ns: float | None = None
    """How much later than the others it is, a step where steps are known: what they wait for it more
    than it waits for them."""
    carried_in_ns: int | None = None
    """How much later than the first rank it began what was recorded; None where that is not known."""
    excess_by_cause_ns: Mapping[str, float] = field(default_factory=dict)
    """By bucket of the account: what it takes more than its peers, a step where steps are known."""
    cause: str | None = None
    """Of its lateness: a `Lateness` or an idle cause; None where it is not late."""
    clock_offset_ns: int | None = None
    """To be added to its times; None where no collective places its clock."""
    gauges: Mapping[int, float] = field(default_factory=dict)

    @property
    def step_ns(self) -> int | None:
        run = self.estimate.run if self.estimate else None
        if run is not None and run.step_ns:
            return run.step_ns
        return self.estimate.steps.step_ns if self.estimate else None


class CollectiveRow(Struct, frozen=True):
    """Collectives of one type, size and group."""

    name: str
    """`all-reduce`, `all-gather` and so on."""
    algorithm: str | None
    """`ring, LL` and the like, from the kernel's name."""
    ranks: tuple[int, ...]
    count: int
    size_bytes: int | None
    """Of one; None where no op tells."""
    transfer_ns: int
    """Of all."""
    wait_ns: int
    """Of all, by the rank that waited longest in each."""
    bus_bytes_per_s: float | None
    """Rate over the slowest link of a ring, NCCL's `busbw`; None while ranks are missing."""
    link_share: float | None
    """That over the link's rate; None where the link is not known."""


class WaitedFor(Struct, frozen=True):
    rank: int
    late_ns: float
    """A step where steps are known, else in all."""
    others_wait_ns: float
    """Median of the others, as long as `late_ns` is for."""
    cause: str
    is_slow: bool
    """Its lateness grows in every step; not that of a rank that only began late."""
    last_in: int
    of: int
    """Collectives."""
    place: str | None = None
    """The line of its program that most stack samples found, for causes of the host."""
    per_step: bool = True
    """The times above are of one step."""
    collective: str = "collectives"
    """Where the others wait most."""
    gain: float | None = None
    """Share of a step that is won with this rank as early as the others."""


class JobSnapshot(Struct, frozen=True, eq=False):
    """All ranks of one job. `ranks` has the odd one first, then by number."""

    ranks: tuple[RankRow, ...]
    world: int | None = None
    missing: int = 0
    """Ranks of the job that are not here, or that no collective places beside the others. While there are
    any, transfers are at most, waits at least what the rows say, and nobody can be called late."""
    shown: str | None = None
    """Key of the rank whose screen is open."""
    together_ns: int | None = None
    """What was recorded on all ranks, between the first and the last collective that was matched."""
    bursts: int = 0
    """In how many pieces."""
    step_ns: float | None = None
    """Of the run, as it is while nothing is traced, where that is known."""
    undecided: bool = False
    """These are too few to call a rank slow."""
    steps: float | None = None
    """Steps in `together_ns`."""
    collectives: tuple[CollectiveRow, ...] = ()
    matched: int = 0
    """Collectives that were seen on two ranks or more."""
    transfer_ns: int | None = None
    """Of all matched ones."""
    waited_for: WaitedFor | None = None
    parallelism: tuple[Parallelism, ...] = ()
    bubble: float | None = None
    """Pipeline only: share of the time that the median rank neither computes nor sends."""
    advisories: tuple[Advisory, ...] = ()
    whatif: tuple[WhatIf, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader must know: ranks that are missing, out of step, or not recorded together."""

    def row(self, key: str | None) -> RankRow | None:
        return next((row for row in self.ranks if row.key == key), None)
