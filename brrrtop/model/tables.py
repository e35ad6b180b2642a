"""Columns in: what a source said, as tables of one device and window. Computes nothing.

Times are integer nanoseconds on the trainer's CLOCK_REALTIME. Columns are numpy arrays of one
length per table.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from brrrtop.model.intervals import merge

I8 = npt.NDArray[np.int64]
I4 = npt.NDArray[np.int32]
U1 = npt.NDArray[np.uint8]
F8 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]


BROKEN_OFF = "broken off"
"""Place of a loss: `Window.torn_records`."""


class ActivityType(IntEnum):
    KERNEL = 0
    COPY = 1
    MEMSET = 2


class Span(Struct, frozen=True):
    """The half-open interval `[t0_ns, t1_ns)`."""

    t0_ns: int
    t1_ns: int

    @property
    def duration_ns(self) -> int:
        return self.t1_ns - self.t0_ns


def edges(spans: Iterable[Span]) -> tuple[I8, I8]:
    pairs = np.array([(span.t0_ns, span.t1_ns) for span in spans], np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def spans_of(starts: I8, ends: I8) -> tuple[Span, ...]:
    return tuple(Span(a, b) for a, b in zip(starts.tolist(), ends.tolist(), strict=True))


def picked(values: I8 | I4, rows: I8, otherwise: int | I8) -> I8:
    """Each row's value; `otherwise`, one for all or of the shape of `rows`, where a row is -1."""
    if not len(values):
        return np.full(len(rows), otherwise, np.int64)
    return np.where(rows >= 0, values[np.maximum(rows, 0)], otherwise)


def percentile(ordered: Sequence[int] | I8, share: float) -> int:
    """The value that `share` of them do not exceed (nearest rank): always one that really occurred.

    Args:
        ordered: At least one value, ascending.
        share: Above 0, up to 1.
    """
    return int(ordered[max(0, math.ceil(share * len(ordered)) - 1)])


class Device(Struct, frozen=True):
    device_id: int
    name: str | None = None
    sm_count: int | None = None
    capability: tuple[int, int] | None = None
    memory_bytes: int | None = None
    max_threads_per_sm: int | None = None
    registers_per_sm: int | None = None
    shared_bytes_per_sm: int | None = None
    uuid: str | None = None

    @property
    def is_amd(self) -> bool:
        return (self.name or "").startswith("AMD")


class Columns(Struct, frozen=True, eq=False):
    """A table: every field is an array of the same length."""

    def __len__(self) -> int:
        return len(getattr(self, self.__struct_fields__[0]))

    def take(self, rows: Any) -> Any:
        return type(self)(*(getattr(self, name)[rows] for name in self.__struct_fields__))


class Activities(Columns, frozen=True, eq=False):
    """What the devices did: kernels, copies and memsets, sorted by start."""

    starts_ns: I8
    ends_ns: I8
    types: U1
    """`ActivityType`"""
    device_ids: I4
    stream_ids: I8
    correlations: I8
    """0: no launch known. Joins to `Calls.correlations` and `Links.correlations`."""
    name_ids: I8
    """Into `Window.names`."""
    blocks: I8
    """Thread blocks of the grid; 0 for copies."""
    threads: I4
    """Threads of a block; 0 for copies."""
    registers: I4
    shared_bytes: I8
    graph_ids: I8
    """0: not part of a CUDA graph launch."""
    size_bytes: I8
    """Bytes copied or set; -1 for kernels."""
    copy_kinds: U1
    src_kinds: U1
    dst_kinds: U1


class Calls(Columns, frozen=True, eq=False):
    """CUDA calls on the host, sorted by start."""

    starts_ns: I8
    ends_ns: I8
    correlations: I8
    tids: I8
    name_ids: I8
    classes: I4
    """`collectors.vocabulary.CallClass`"""


class Marks(Columns, frozen=True, eq=False):
    """What was seen in the trainer, sorted by start. Points have equal start and end."""

    starts_ns: I8
    ends_ns: I8
    values: I8
    tids: I8
    name_ids: I8
    classes: I4
    """`collectors.vocabulary.MarkClass`"""

    def union(self, *classes: int) -> tuple[I8, I8]:
        """Merged intervals of the marks of these classes."""
        rows = np.isin(self.classes, np.array(classes, np.int64))
        return merge(self.starts_ns[rows], self.ends_ns[rows])


class Links(Columns, frozen=True, eq=False):
    """Which op launched what, sorted by correlation."""

    correlations: I8
    op_ids: I8

    def ops_of(self, correlations: I8) -> I8:
        """Id of the op behind each launch; -1: none is known."""
        if not len(self):
            return np.full(len(correlations), -1, np.int64)
        at = np.minimum(np.searchsorted(self.correlations, correlations), len(self) - 1)
        known = (self.correlations[at] == correlations) & (correlations != 0)
        return np.where(known, self.op_ids[at], -1)


class Gauges(Columns, frozen=True, eq=False):
    """Counter readings, sorted by time."""

    times_ns: I8
    device_ids: I4
    metrics: I4
    """`collectors.vocabulary.Metric`"""
    values: F8


class Samples(Columns, frozen=True, eq=False):
    """Intervals of a device's hardware counters around traced spans, sorted by start.

    Times are on the GPU's own clock: `offsets_ns` added to them gives the trainer's.
    """

    starts_ns: I8
    ends_ns: I8
    offsets_ns: I8
    device_ids: I4
    errors_ns: F8
    """Standard error of the offset; NaN: only known to a few milliseconds."""
    sm: F8
    """This and what follows: shares of peak 0..1, NaN where not sampled. SMs with a warp on them."""
    tensor: F8
    dram: F8
    """Instructions issued over what the SMs can issue."""


class OpSignature(Struct, frozen=True):
    """A framework op as called: name and the shapes, types and constants of its inputs."""

    name: str
    dims: tuple[Any, ...] = ()
    """One entry an input: a tuple of ints, or a tuple of such tuples for a tensor list."""
    types: tuple[str, ...] = ()
    concrete: tuple[str, ...] = ()
    out: tuple[int, ...] = ()
    """Shape of the result, where it is known although the constants are not."""
    strides: tuple[Any, ...] = ()
    """One entry an input, in elements; an empty one for a tensor that lies contiguous, or for none. Empty
    altogether where nobody tells."""


class Window(Struct, frozen=True, eq=False):
    """A slice of one device's timeline, with everything an estimate may use.

    Activities that straddle an edge are included whole; the account clips them. Calls and
    marks are those of the whole process that touch the span (launches may come well before).
    """

    span: Span
    device: Device
    activities: Activities
    calls: Calls
    marks: Marks
    links: Links
    gauges: Gauges
    names: tuple[str, ...]
    ops: Mapping[int, OpSignature] = field(default_factory=dict)
    observed: tuple[Span, ...] | None = None
    """Traced spans, sorted and disjoint; None: all of it was traced."""
    lost_records: int = 0
    hello: Mapping[str, Any] = field(default_factory=dict)
    samples: Samples | None = None
    """None: nobody sampled hardware counters."""
    torn_records: int = 0
    """Activities that a file lacks because it breaks off, by the calls that it has."""
    mps: bool = False
    """MPS lets processes run side by side on the device."""
    stage: str | None = None
    """What the process does before it trains, as `loading`; None: it trains, infers, or nobody knows."""
    near_steps_ns: I8 = field(default_factory=lambda: np.empty(0, np.int64))
    """Ends of the host's steps a little before and after the span, shape (n,), sorted: those of a run that
    nobody recorded. Empty where all of it was traced."""
    watched: Marks | None = None
    """Stack samples of the minute around the span, and what was marked at the time that names a
    cause; None: nothing was sampled."""

    @property
    def traced(self) -> tuple[Span, ...]:
        """What was traced of it, sorted and disjoint."""
        return (self.span,) if self.observed is None else self.observed
