"""What a profiler recorded of the host beyond launches, and rows of tables beside the kernels: ops, modules,
stalls, copies, memory.

Computes nothing. Times are integer nanoseconds; device times are summed over kernels and copies, which
may overlap. `None` is "not recorded".
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from brrrtop.model.run import Line
from brrrtop.model.tables import I8, Bool, Columns, Links
from collectors.vocabulary import StrEnum


class HostOps(Columns, frozen=True, eq=False):
    """Framework ops on the host, by thread and start, outer ops first."""

    starts_ns: I8
    ends_ns: I8
    tids: I8
    name_ids: I8
    signature_ids: I8
    """Into `HostDetails.signatures`."""
    parents: I8
    """Row of the op that holds each; -1: outermost."""
    sequences: I8
    """Of the autograd node that an op made or runs; -1: none."""
    backward: Bool


class PythonFrames(Columns, frozen=True, eq=False):
    """Calls of Python functions and of modules, in any order."""

    starts_ns: I8
    ends_ns: I8
    tids: I8
    name_ids: I8


class MemoryEvents(Columns, frozen=True, eq=False):
    """What the caching allocator of a GPU gave and took back, sorted by time."""

    times_ns: I8
    tids: I8
    device_ids: I8
    addresses: I8
    size_bytes: I8
    """Negative: given back."""
    allocated_bytes: I8
    """In use afterwards, as the allocator counts; -1: not told."""
    reserved_bytes: I8


_NONE = np.zeros(0, np.int64)
NO_FRAMES = PythonFrames(_NONE, _NONE, _NONE, _NONE)
NO_MEMORY = MemoryEvents(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE)


class HostDetails(Struct, frozen=True, eq=False):
    names: tuple[str, ...]
    signatures: Mapping[int, tuple[str, Any]]
    """Name and input shapes of each call."""
    ops: HostOps
    launches: Links
    """Row in `ops` of the innermost op behind each launch; -1: none."""
    frames: PythonFrames
    memory: MemoryEvents
    recorded_step: bool = False
    """All of it is of one step, whose host times recording stretched."""


class OpRow(Struct, frozen=True):
    name: str
    count: int
    cpu_total_ns: int
    """On the host, of the outermost of nested calls of the same row."""
    cpu_self_ns: int
    """Of that, not in other ops."""
    device_total_ns: int
    device_self_ns: int
    """Of kernels and copies that it launched itself."""
    launches: int
    """Kernels and copies behind `device_self_ns`."""
    shapes: str | None = None
    """Of its inputs as JSON; None: all shapes together."""
    module: str | None = None
    """The innermost module that most of its device time came from; None: none was recorded."""
    place: str | None = None
    """The innermost Python function of the user's own that most of its device time came from."""


class ModuleRow(Struct, frozen=True):
    name: str
    parent: str | None
    depth: int
    count: int
    host_ns: int
    device_total_ns: int
    device_self_ns: int
    """Not in modules below it."""
    backward_ns: int
    """Of the total, in the backward pass."""
    sides_ns: Mapping[str, int]
    """The total by side of the kernels."""
    roof_share: float | None
    """Rate over the ceiling, weighted by time, of the kernels for which it is known; None: of none."""


class FrameRow(Struct, frozen=True):
    place: str
    device_total_ns: int
    device_self_ns: int
    """Launched with it as the innermost of the user's functions."""


class StallRow(Struct, frozen=True):
    place: str
    """The innermost function of the user's own, `train.py(12): fetch`, or an op without frames."""
    inside: str | None
    """What it had called, innermost; None: nothing that was recorded."""
    idle_ns: int
    """From evenly spaced samples of the idle time."""
    share: float
    """Of the window."""


class WorkersDo(StrEnum):
    """What keeps loader workers from making batches faster."""

    WAIT_FOR_DISK = "wait-for-disk"
    COMPUTE = "compute"
    """All the time, each on a core of its own."""
    SHARE_CORES = "share-cores"
    """They would compute all the time, and the host has too few cores free."""
    SLEEP = "sleep"


class WorkersNeeded(Struct, frozen=True):
    """Loader workers that would keep up, each with a core of its own."""

    count: int
    batch_ns: int
    """What one of them takes for a batch."""
    step_ns: int
    """What a step takes without the wait."""
    cores: int | None = None
    """That the trainer may run on, where they are fewer than that."""


class LoaderRow(Struct, frozen=True):
    name: str
    """As it was made, `DataLoader(num_workers=2, …)`, or the range that a trace has of it."""
    count: int
    """Batches that were asked for."""
    of_ns: int
    """The time in which they were."""
    total_ns: int
    """Of that, spent in waiting; in making the batches where there are no workers."""
    wait_p50_ns: int
    wait_p99_ns: int
    longest_ns: int
    workers: int | None = None
    prefetch: int | None = None
    """Batches that the workers make ahead at most, all together."""
    ready_p50: int | None = None
    """Batches that lay ready behind the one drawn; None: no workers, or not recorded."""
    none_ready_share: float | None = None
    """Of the draws, those behind which no other batch lay ready."""
    recent_ns: tuple[int, ...] = ()
    """The newest waits, at most some hundred of them, in order."""
    samples: int = 0
    """Stack samples of the training thread within the waits."""
    lines: tuple[Line, ...] = ()
    """Lines of the user's own code that they were at, most first."""
    workers_do: WorkersDo | None = None
    needed: WorkersNeeded | None = None
    """None: more workers are not what is short, or it is not known."""

    @property
    def share(self) -> float:
        return self.total_ns / self.of_ns if self.of_ns else 0.0

    @property
    def mean_ns(self) -> int:
        """Of a wait: a few long ones may hold nearly all the time."""
        return self.total_ns // self.count if self.count else 0


class Queue(Struct, frozen=True):
    length_p50: int
    length_p95: int
    length_max: int
    full_launches: int
    """Launches that were made with 1,000 and more waiting on their stream."""
    blocked_ns: int
    """The host's time in those calls, beyond what such a call usually takes."""


class CopyRow(Struct, frozen=True):
    kind: str
    """`Memcpy HtoD (Pageable -> Device)`."""
    count: int
    size_bytes: int
    total_ns: int
    bytes_per_s: float | None
    """None: no size was recorded."""
    largest_bytes: int


class OwnCollectiveRow(Struct, frozen=True):
    """Collectives of one rank, of one type and size. In their time are waits for late peers."""

    name: str
    algorithm: str | None
    """`ring, LL` and the like, from the kernel's name."""
    count: int
    size_bytes: int | None
    """Of one; None where no op tells."""
    precision: str | None
    """Of the elements, where the kernel's name says."""
    total_ns: int
    exposed_ns: int
    """With no other kernel beside them."""
    bytes_per_s: float | None
    """NCCL's `algbw`, at least: size over time with the waits in it."""


class AnnotationRow(Struct, frozen=True):
    """Ranges that somebody named; numbers at the end of a name are left out."""

    name: str
    count: int
    host_ns: int
    device_ns: int
    """When any of what was launched within ran, nested ranges in each; of a profiler's step when anything
    ran between its marks."""
    sides_ns: Mapping[str, int]


class PhaseRow(Struct, frozen=True):
    """A phase of inference: `prefill`, `decode` or `mixed`."""

    phase: str
    count: int
    host_ns: int
    device_ns: int
    tokens: int | None
    """None: the ranges do not tell."""


class AliveRow(Struct, frozen=True):
    """Memory that was in use at the peak, by what asked for it."""

    name: str
    size_bytes: int
    blocks: int


class MemoryUse(Struct, frozen=True):
    """The caching allocator of the device over the trace."""

    peak_bytes: int
    peak_at_ns: int
    reserved_bytes: int | None
    """At the peak."""
    before_bytes: int
    """In use at the peak since before the trace."""
    alive: tuple[AliveRow, ...]
    times_ns: tuple[int, ...]
    """Of a few hundred points; each has the most that was in use since the one before."""
    allocated_bytes: tuple[int, ...]


class HostTables(Struct, frozen=True):
    """What the records hold beyond kernels. Empty or None: the records do not tell."""

    ops: tuple[OpRow, ...] = ()
    """By device time, then CPU time."""
    op_shapes: tuple[OpRow, ...] = ()
    ops_of_one_step: bool = False
    """The ops are of one step whose host times recording stretched."""
    modules: tuple[ModuleRow, ...] = ()
    """Outer ones first, each followed by what it holds."""
    frames: tuple[FrameRow, ...] = ()
    stalls: tuple[StallRow, ...] = ()
    loaders: tuple[LoaderRow, ...] = ()
    """Most waited for first."""
    queue: Queue | None = None
    copies: tuple[CopyRow, ...] = ()
    collectives: tuple[OwnCollectiveRow, ...] = ()
    annotations: tuple[AnnotationRow, ...] = ()
    phases: tuple[PhaseRow, ...] = ()
    memory: MemoryUse | None = None
    unattributed_ns: int | None = None
    """Device time of launches with no known op; None: no ops were recorded."""


NO_TABLES = HostTables()
