"""What `brrrtop try` measures. Computes nothing.

Shares are of the time per unit of work and 0..1; `None` is "not measured".
"""

from collections.abc import Mapping

from msgspec import Struct, field


class ModelFacts(Struct, frozen=True):
    """A model that the program calls itself."""

    name: str = field(name="class")
    device: str
    dtypes: tuple[str, ...]
    images: bool
    """It has weights of four dimensions."""
    channels_last: bool
    compiled: bool
    autocast: bool
    written_attention: bool
    """Its library could use scaled_dot_product_attention and does not."""
    trainer: str | None = None
    """Whose loop runs it: `transformers`, `lightning`; None: the program's own."""


class LoaderFacts(Struct, frozen=True):
    workers: int
    pinned: bool
    persistent: bool
    batch: int | None
    iterable: bool


class OptimizerFacts(Struct, frozen=True):
    name: str = field(name="class")
    fused: bool


class Facts(Struct, frozen=True):
    """What a program is made of, and how many things each edit of a trial has changed."""

    counts: Mapping[str, int]
    problems: Mapping[str, str]
    models: tuple[ModelFacts, ...] = ()
    loaders: tuple[LoaderFacts, ...] = ()
    optimizers: tuple[OptimizerFacts, ...] = ()
    """Those of torch that can be fused."""
    tf32: bool = False
    cudnn_benchmark: bool = False
    frozen: int = 0
    """Objects that the collector leaves alone."""


class Header(Struct, frozen=True):
    pid: int
    cwd: str
    cmdline: tuple[str, ...]
    unit: str
    """What counts as a step: `step` of an optimizer, `batch` or `backward`."""
    began_ns: int
    """The program's first batch or call of a model. Clock: CLOCK_MONOTONIC."""
    facts: Facts
    rank: str | None = None
    gpu: str | None = None


class Pace(Struct, frozen=True):
    step_ns: float
    error_ns: float
    """Standard error of `step_ns`, from `blocks` blocks of steps."""
    blocks: int
    steps: int
    samples: float | None
    """A step; None where no torch DataLoader brings them."""
    waits: float
    """Share of the time in which the loop waits for a DataLoader."""
    peak_bytes: int | None
    startup_ns: float
    """Time before the steady steps that those steps would not have taken: compilation, first batches."""
    losses: Mapping[int, float]
    """By step, counted from 1."""

    @property
    def samples_per_s(self) -> float | None:
        return None if self.samples is None else self.samples * 1e9 / self.step_ns


class TriedEdit(Struct, frozen=True):
    """One edit, or two joined by `+`: predicted and measured. Of `try --json`."""

    edit: str
    predicted: float | None = None
    low: float | None = None
    high: float | None = None
    measured: float | None = None
    """1 - time per unit of work with the edit over without it."""
    measured_low: float | None = None
    measured_high: float | None = None
    """These two hold the true value 19 times out of 20, if the runs differ by chance alone."""
    step_ms: float | None = None
    samples_per_s: float | None = None
    peak_bytes: int | None = None
    compile_s: float | None = None
    """What the start took longer than that of the program as it is; None of edits that compile nothing."""
    pays_back_steps: int | None = None
    loss_difference: float | None = None
    """Relative, at the same steps."""
    changes_numbers: bool = False
    """The losses differ by more than those of two runs of the program as it is."""
    stopped_early: bool = False
    """It was clearly slower."""
    fault: str | None = None


class BasePace(Struct, frozen=True):
    """The program as it is: the mean of all its runs. Of `try --json`."""

    step_ms: float
    step_ms_error: float
    samples_per_s: float | None
    peak_bytes: int | None
    waits: float
    runs: int
    drift: float
    """How far the slowest of its runs is from the quickest, relative."""
    unit: str
    gpu: str | None


class TrialReport(Struct, frozen=True):
    schema: str
    base: BasePace | None
    edits: tuple[TriedEdit, ...]
    best: tuple[str, ...]
    """The edits to make; empty where none is faster for certain."""
    skipped: Mapping[str, str]
    """Edit → why it was not tried."""
    lines: Mapping[str, str]
    """Edit of `best` → the line to write."""
    checks: tuple[str, ...]
    """What `brrrtop compare` is to show of them."""
