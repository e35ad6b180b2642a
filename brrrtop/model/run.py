"""The run as a whole: its phases, where its time went, and what two witnesses say of it. Computes nothing.

A run begins when brrrtop attaches (of a file: at its first step mark or activity) and ends now. Times are
integer nanoseconds on the trainer's CLOCK_REALTIME; shares are 0..1; `None` is "not measured".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from brrrtop.model.account import Account, Split
from brrrtop.model.tables import Span
from collectors.vocabulary import StrEnum

MOVED = 0.05
"""Of the run: what moves by less changes no advice."""


class PhaseKind(StrEnum):
    TRAIN = "train"
    EVALUATION = "evaluation"
    GENERATION = "generation"
    ROLLOUT = "rollout"
    SAVING = "saving"
    DATA = "data"
    COMPILE = "compile"
    WARM_UP = "warm-up"
    OTHER = "other"


WARM_UP_STEPS = 3
"""Steps in which a process loads kernels, tunes and allocates (PyTorch's profiler recipe skips as many)."""
UNDER_WAY_NS = 6_000_000_000
"""A run that was watched for so long is past its first steps; torch.compile has marks of its own."""
COMPILE_IDLE = 0.05
"""Of the time: less compiling does not shape it."""


class Phase(Struct, frozen=True):
    """All the time that a run spent on one thing."""

    kind: PhaseKind
    where: str
    """The user's own line, `evaluate() main.py:212`; empty where nobody saw one."""
    duration_ns: int
    share: float
    """Of the run."""
    count: int
    """Stretches without another phase in between."""
    longest_ns: int
    """Of those."""
    steps: int
    """Steps that ended in it; of an evaluation, batches."""
    step_ns: int | None
    """Mean, from the first mark to the last without the time of other phases; None without a whole step."""
    waits_ns: int
    """The loop waited for data: by the loader's marks, and by samples where it makes batches by hand."""
    active: float | None
    """By the GPU's own counter: share of the phase in which any kernel was resident."""
    traced_ns: int
    """Of its time."""
    traced_steps: int
    account: Account
    """All of its time. What no burst has seen is `unknown` (active by the counter) and idle `unknown`."""
    split: Split | None
    """None where no burst saw it."""

    waits_most_ns: int = 0
    """The most that so few samples leave room for, 95 times of 100; `waits_ns` where marks tell all."""
    launches: tuple[int, ...] = ()
    """Of each of the last steps that were traced."""

    @property
    def waits_share(self) -> float | None:
        return self.waits_ns / self.duration_ns if self.duration_ns else None


class Witness(Struct, frozen=True):
    """What is known twice. A large difference makes a verdict unsure."""

    active_counter: float | None = None
    """Share of the run with any kernel resident, by the GPU's counter."""
    active_account: float | None = None
    """The same by traced kernels, each burst counted for the time that it stands for."""
    step_ns_marks: float | None = None
    """Mean over all steps, less waits for data."""
    step_ns_traced: float | None = None
    """The same over traced steps, which tracing makes longer, less those that marks measure."""
    waits_ledger: float | None = None
    """Share of the training time that waits for data, by marks and samples."""
    waits_account: float | None = None
    """Share of the training time that the GPU idles for data, by the account."""


class Unseen(Struct, frozen=True):
    """A verdict before there are kernels: most of the time goes to waits that marks measure."""

    cause: str
    """`input` or `io`."""
    share: float
    """Of the run, in which the GPU idles for it."""
    confidence: float


class Stretch(Struct, frozen=True):
    span: Span
    phase: int
    """Row of `Run.phases`."""


class Now(Struct, frozen=True):
    """The last seconds, from the ledger."""

    duration_ns: int
    phase: PhaseKind | None
    where: str
    step_ns: int | None
    active: float | None
    account: Account
    split: Split


class CodeLine(Struct, frozen=True):
    """A line of the user's own code at which samples found the training thread."""

    place: str
    """`nb/reader.py:30`: the last two parts of its path."""
    source: str
    """Empty where nobody could read it."""
    share: float
    """Of the time that all samples speak for, whatever the line had called."""
    waits: float
    """Part of that share within waits for a loader's batch."""


class Line(Struct, frozen=True):
    """A line of the trainer's own code that samples of its training thread were at."""

    place: str
    """`nb/reader.py:30`; with the function where the source is not known."""
    source: str
    """Empty where nobody could read it."""
    count: int
    """Samples at it, whatever it had called."""
    reads_as: str | None = None
    """The idle cause that it names; None: none."""
    is_reading: bool = False
    """Reads as `io`, and as reading a file."""

    def __str__(self) -> str:
        return f"{self.place}, {self.source}" if self.source else self.place


class StackSamples(Struct, frozen=True):
    """Samples of the training thread's stack outside waits that have a name."""

    count: int
    span_ns: int
    """From the first to the last."""
    within: bool
    """All were taken in the judged span; else in the last minute of the run."""
    lines: tuple[Line, ...]
    """Where many of them were, most first; empty where no line stands out."""
    shares: Mapping[str, float]
    """Part of them by the idle cause that their line names."""
    io_bounds: tuple[float, float] = (0.0, 1.0)
    """Of the share of `io`: between these it is, 95 times of 100."""

    @property
    def io_count(self) -> int:
        """Samples in file or network work."""
        return round(self.shares.get("io", 0.0) * self.count)


class Run(Struct, frozen=True, eq=False):
    """A run, most time first."""

    span: Span
    account: Account
    split: Split
    phases: tuple[Phase, ...]
    witness: Witness
    traced_ns: int
    steps: int
    step_ns: int | None
    """Mean over all steps of the run, as of a phase."""
    batch: int | None = None
    """Samples of a step of this process, as the shapes of its activations tell; None where they do not."""
    now: Now | None = None
    stretches: tuple[Stretch, ...] = ()
    """In order of time, for the last minutes."""
    lines: tuple[CodeLine, ...] = ()
    """Where the training thread stood in the last minute, most time first; empty for too few samples."""
    samples: StackSamples | None = None
    """Of the last minute, outside waits that have a name."""
    unseen: Unseen | None = None
    """What holds the run back, where that is known though no step of it was traced."""

    @property
    def duration_ns(self) -> int:
        return self.span.duration_ns

    @property
    def traced_steps(self) -> int:
        """Whole ones, of all phases."""
        return sum(one.traced_steps for one in self.phases)

    @property
    def samples_per_s(self) -> float | None:
        return self.batch * 1e9 / self.step_ns if self.batch and self.step_ns else None

    @property
    def under_way(self) -> bool:
        """Whether it has gone on for long enough, without compiling, to be past its warm-up."""
        if self.duration_ns < UNDER_WAY_NS or 0 < self.steps <= WARM_UP_STEPS:
            return False
        return sum(p.share for p in self.phases if p.kind is PhaseKind.COMPILE) < COMPILE_IDLE

    def differs(self, other: Run | None) -> bool:
        """Whether what a person would do about it may be another: some share of it moved by 5 points, or its
        beginning is over."""
        if other is None or other.under_way is not self.under_way:
            return True
        before, after = other.step_ns or 0, self.step_ns or 0
        if abs(after - before) > MOVED * max(before, 1):
            return True
        ours, theirs = self._shares(), other._shares()
        return any(
            abs(ours.get(key, 0.0) - theirs.get(key, 0.0)) >= MOVED for key in {*ours, *theirs}
        )

    def reads_like(self, other: Run | None) -> bool:
        """Whether all its shares are the same in whole per cent."""
        if other is None:
            return False
        ours, theirs = self._shares(), other._shares()
        return all(
            round(100 * ours.get(key, 0.0)) == round(100 * theirs.get(key, 0.0))
            for key in {*ours, *theirs}
        )

    def _shares(self) -> dict[tuple[str, str], float]:
        whole = max(1, self.duration_ns)
        shares = {(phase.kind.value, phase.where): phase.share for phase in self.phases}
        return shares | {("", cause): ns / whole for cause, ns in self.account.idle_ns.items()}

    @property
    def train(self) -> Phase | None:
        """The phase with most time in which an optimizer steps."""
        return next((p for p in self.phases if p.kind is PhaseKind.TRAIN), None)

    def loop_in(self, traced: Sequence[Span]) -> tuple[Phase, Span | None] | None:
        """The training phase with most time of those that traced spans lie in, and where its part of them
        lies; no span where all of them are of one phase. None: nothing trains."""
        loops = {row for row, one in enumerate(self.phases) if one.kind is PhaseKind.TRAIN}
        held: dict[int, list[Span]] = {}
        for one in self.stretches if len(loops) > 1 else ():
            span = one.span
            if one.phase in loops and any(
                span.t0_ns < t.t1_ns and t.t0_ns < span.t1_ns for t in traced
            ):
                held.setdefault(one.phase, []).append(span)
        if not held:
            return (self.phases[min(loops)], None) if loops else None
        spans = held[min(held)]
        whole = Span(min(one.t0_ns for one in spans), max(one.t1_ns for one in spans))
        return self.phases[min(held)], whole if len(held) > 1 else None
