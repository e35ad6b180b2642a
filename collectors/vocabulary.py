"""The words that collectors and readers share: the numbers of calls, marks, gauges, copies and
memories, and the codes of a status frame."""

from enum import Enum, IntEnum


class StrEnum(str, Enum):
    """Members are their values, also when printed (the standard one needs Python 3.11)."""

    __str__ = str.__str__


class CopyKind(IntEnum):
    """CUpti_ActivityMemcpyKind; 0 stands for a memset here."""

    MEMSET = 0
    HTOD = 1
    DTOH = 2
    HTOA = 3
    ATOH = 4
    ATOA = 5
    ATOD = 6
    DTOA = 7
    DTOD = 8
    HTOH = 9
    PTOP = 10


class MemoryKind(IntEnum):
    UNKNOWN = 0
    PAGEABLE = 1
    PINNED = 2
    DEVICE = 3
    ARRAY = 4
    MANAGED = 5
    DEVICE_STATIC = 6
    MANAGED_STATIC = 7


COPY_NAMES = {int(kind): kind.name.replace("TO", "to") for kind in CopyKind if kind}
"""`HtoD` and so on, by CUPTI's number."""
MEMORY_NAMES = {int(kind): kind.name.replace("_", " ").title() for kind in MemoryKind}
"""`Device Static` and so on, by CUPTI's number."""


class CallClass(IntEnum):
    """What a CUDA call does, as far as the account cares."""

    OTHER = 0
    LAUNCH = 1
    GRAPH_LAUNCH = 2
    SYNC = 3
    """Blocks the host until the device reaches a point."""
    ALLOC = 4
    """cudaMalloc and kin, cudaFree, cuMem*: the allocator went to the driver."""
    COPY = 5
    EVENT = 6
    MODULE = 7
    """Loads device code: lazy loading, JIT."""


class MarkClass(IntEnum):
    """What a mark says the host was doing."""

    OTHER = 0
    STEP = 1
    """One training iteration as an interval, or a point at its end."""
    INPUT = 2
    """Waiting for the next batch."""
    COMPILE = 3
    """torch.compile at work; value = recompile number, 0 for a first compile."""
    GC = 4
    """A collection; value = generation."""
    CHECKPOINT = 5
    ALLOCATOR = 6
    """A caching-allocator retry; value = retries since the last mark."""
    LOGGING = 7
    EVALUATION = 8
    OPTIMIZER = 9
    STACK = 10
    """A sample of the training thread's stack; the name is `place[ < caller's place[ < …]][ > innermost
    place][ | source]`, a place being `file:line function`: the user's own frames from the innermost
    outwards, then the innermost of all where that is a library's, then the innermost user line's text.
    The value is the time since the sample before, 0 for the first."""
    OP = 11
    """A framework op on the host (dispatch)."""
    PYTHON_SYNC = 12
    """A Python call that waits for the device (`.item()`, `.cpu()`); the name is its line."""
    ANNOTATION = 13
    """A range the user named."""
    PERTURBED = 14
    """We slowed the trainer down from start to end, while ops were recorded; a point: from there
    on. The value is the number of `RECORDED_OP` marks that belong to it, 0 where none will come."""
    RECORDED_OP = 15
    """An op of a step that was recorded with shapes; the value is its id in OPS. The thread is
    CUPTI's number for the stepping thread, and torch's own small number for every other."""
    PLACE = 16
    """A point: where the user's code stood when that thread made a mark that ends then, of the class
    that is the value (STEP, INPUT); the name is that of a STACK without a library's place. Of the
    first such mark after a monitor came, and of each loader's, then every 5 s at most."""


class Metric(IntEnum):
    """Gauges. Shares are 0..1, measured over the time since the reading before."""

    SMI_UTIL = 1
    """nvidia-smi's GPU-Util: share of time with any kernel resident."""
    MEMORY_USED_BYTES = 2
    MEMORY_TOTAL_BYTES = 3
    POWER_WATT = 4
    POWER_LIMIT_WATT = 5
    TEMPERATURE_C = 6
    SM_CLOCK_HZ = 7
    SM_CLOCK_MAX_HZ = 8
    MEMORY_CLOCK_HZ = 9
    CLOCK_EVENT_REASONS = 10
    """NVML's clocks-event-reasons bit mask."""
    PCIE_TX_BYTES_PER_S = 11
    PCIE_RX_BYTES_PER_S = 12
    NVLINK_TX_BYTES_PER_S = 13
    NVLINK_RX_BYTES_PER_S = 14
    ECC_UNCORRECTED_COUNT = 15
    FOREIGN_PROCESS_COUNT = 16
    """Compute processes on the device besides the trainer."""
    XID = 17
    MEMORY_TEMPERATURE_C = 18
    SM_ACTIVE = 20
    SM_OCCUPANCY = 21
    TENSOR_ACTIVE = 22
    DRAM_ACTIVE = 23
    FP64_ACTIVE = 24
    FP32_ACTIVE = 25
    FP16_ACTIVE = 26
    GRAPHICS_ACTIVE = 27
    INTEGER_ACTIVE = 28
    TRAINER_CPU_SHARE = 40
    """CPU time of the trainer's process over wall time; 1 is one core."""
    MONITOR_CPU_SHARE = 41
    MONITOR_RSS_BYTES = 42
    STEP_COST_SHARE = 43
    """What watching adds to the step time, measured in this run by bursts on against off."""
    STEP_COST_ERROR_SHARE = 44
    """Half width of the 95 % interval of the reading before."""
    LOADER_WORKERS = 45
    """Processes that load the trainer's data, alive."""
    LOADER_CPU_SHARE = 46
    """CPU time of all of them over wall time; 1 is one core."""
    LOADER_BUSY_SHARE = 47
    """Of the last looks at them: running, or ready to."""
    LOADER_DISK_SHARE = 48
    """Of the same looks: waiting for a disk, or a network file system."""
    TRAINER_CORES = 49
    """Cores that the trainer may run on."""


PAINT: tuple[tuple[str, tuple[MarkClass, ...]], ...] = (
    ("compile", (MarkClass.COMPILE,)),
    ("checkpoint", (MarkClass.CHECKPOINT,)),
    ("gc", (MarkClass.GC,)),
    ("allocator", (MarkClass.ALLOCATOR,)),
    ("input", (MarkClass.INPUT,)),
    ("logging", (MarkClass.LOGGING,)),
    ("evaluation", (MarkClass.EVALUATION,)),
)
"""Most specific first: a collection inside a loader wait is the collection's."""
NAMED = tuple(mark_class for _, classes in PAINT for mark_class in classes)
"""Marks that name a cause."""


class StatusCode(StrEnum):
    """Where kernel tracing stands, and why; the agent's in `collectors/agent/native/wire.h`."""

    READY = "ready"
    TRACING = "tracing"
    GPU_UNTOUCHED = "gpu-untouched"
    """The trainer has no CUDA context yet."""
    NO_CALLS = "no-calls"
    """Ready, without the host's launches: CUPTI is too old to tell them."""
    GRAPHS_UNKNOWN = "graphs-unknown"
    """Ready, and every burst is held back until it is known whether the trainer has CUDA graphs."""
    NO_PAUSE = "no-pause"
    """Ready, or leaving, and the trainer is never outside CUDA for long enough."""
    NO_STEP = "no-step"
    """Ready, and no training step has ended for a while."""
    UNREADABLE = "unreadable"
    """The agent cannot look through its process."""
    NO_CUPTI = "no-cupti"
    TWO_CUPTIS = "two-cuptis"
    CUPTI_UNUSABLE = "cupti-unusable"
    """It does not load, or its records have a layout that is not known."""
    OTHER_TOOL = "other-tool"
    """nsys, ncu or compute-sanitizer is in the trainer."""
    PROFILER_RECORDS = "profiler-records"
    """The trainer's own profiler has its turn."""
    CUPTI_TAKEN = "cupti-taken"
    """Another profiler has subscribed to CUPTI."""
    NO_RECORDS = "no-records"
    """Another profiler has CUPTI's callbacks."""
    RECORDS_HELD = "records-held"
    """CUPTI keeps the records, as it does until the work that they are of has ended."""
    NOT_PERMITTED = "not-permitted"
    CUPTI_FAILED = "cupti-failed"
    GRAPH_TIMES = "graph-times"
    """CUPTI loses the times of kernels in CUDA graphs."""
    CUPTI_SLOW = "cupti-slow"
    """CUPTI takes longer than the trainer's threads may be held."""


UNHINDERED = frozenset({StatusCode.READY, StatusCode.TRACING})
"""Nothing is in the agent's way."""

MPS = "mps"
"""Among a status frame's `facts`: the GPU is shared through MPS."""
