"""What a name in a trace means: which call, which mark, which copy. Looked at once per name.

What is different in a trace of an AMD GPU: libkineto writes it from roctracer or rocprofiler.

The file is Kineto's. Calls are named after HIP's, activities carry the number of their HSA node and
not that of `deviceProperties`, copies say `Host` for pageable and pinned memory alike, and
`computeMajor` is that of a gfx name (9 of gfx942), no compute capability. The grid is as the call got
it: of `hipExtModuleLaunchKernel`, which rocBLAS and MIOpen use, in threads (HIP's hip_ext.h).

How a framework op was called, as a trace writes it: shapes, types, constants and strides.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from brrrtop.model.tables import Bool
from collectors.protocol import bodies
from collectors.vocabulary import CallClass, CopyKind, MarkClass, MemoryKind

_CALLS: tuple[tuple[str, CallClass], ...] = (
    (r"(cuda|cu|hip)GraphLaunch", CallClass.GRAPH_LAUNCH),
    (r"(cuda|cu)Launch(?!HostFunc)\w*", CallClass.LAUNCH),
    (r"hip(Ext|Hcc|Drv)?(Module)?Launch(?!HostFunc)\w*", CallClass.LAUNCH),
    (r"(cuda|cu|hip)(Device|Stream|Event|Ctx|Thread)Synchronize\w*", CallClass.SYNC),
    (r"(cuda|cu|hip)Event\w*|(cuda|cu|hip)StreamWaitEvent\w*", CallClass.EVENT),
    (r"(cuda|cu|hip)(Memcpy|Memset|MemPrefetch)\w*", CallClass.COPY),
    (r"(cuda|cu|hip)GraphInstantiate\w*", CallClass.MODULE),
    (
        r"cuda(Malloc|Free|HostAlloc|HostRegister|HostUnregister|MemPool|MemGetInfo)\w*",
        CallClass.ALLOC,
    ),
    (r"hip(Malloc|Free|Host(Malloc|Alloc|Free|Register|Unregister))\w*", CallClass.ALLOC),
    (
        r"(cu|hip)Mem(Alloc|Free|Create|Map|Unmap|Release|SetAccess|AddressReserve|AddressFree|Host|Pool|GetInfo)\w*",
        CallClass.ALLOC,
    ),
    (r"(cu|hip)(Module|Library|Link)\w*|cuda(Module|Library)\w*", CallClass.MODULE),
)
"""Names of CUDA's runtime and driver, and of HIP's (AMD), which has both in one."""
_CALL_PATTERNS = tuple((re.compile(pattern), call_class) for pattern, call_class in _CALLS)

_STEP = re.compile(r"ProfilerStep\s?#\s?(\d+)")
_MARKS: tuple[tuple[str, MarkClass], ...] = (
    # torch.utils.data: "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"; Lightning:
    # "[pl][profile][_TrainingEpochLoop].train_dataloader_next".
    (r"enumerate\(DataLoader\)#|DataLoaderIter\b|dataloader_next\b", MarkClass.INPUT),
    (r"^(## )?(data ?load(er|ing)?|fetch(_next)?_(data|batch))( ##)?$", MarkClass.INPUT),
    (r"^Optimizer\.step#", MarkClass.OPTIMIZER),
    (r"^(## )?(gc|gc\.collect|garbage[ _]collection)( ##)?$", MarkClass.GC),
    (r"(save|write|load)[ _.]?(checkpoint|ckpt)|torch\.(save|load)\b", MarkClass.CHECKPOINT),
    (
        r"(checkpoint|ckpt)[ _.]?(save|saving|write|load)|^(## )?checkpoint(ing)?( ##)?$",
        MarkClass.CHECKPOINT,
    ),
    (
        r"^(## )?(eval(uation|uate)?|validat(ion|e))([ _](step|loop|epoch))?( ##)?$",
        MarkClass.EVALUATION,
    ),
    (r"^(## )?(log(ging|_metrics)?|wandb\.log|tensorboard)( ##)?$", MarkClass.LOGGING),
    # Of XLA: the way to a launch, as torch's ops are.
    (r"LoadedExecutable(::|_)Execute", MarkClass.OP),
)
_MARK_PATTERNS = tuple((re.compile(p, re.IGNORECASE), mark_class) for p, mark_class in _MARKS)
# torch._dynamo.utils.dynamo_timed names its ranges "compile_fx_inner (dynamo_timed)"; around them
# are the phases of torch._dynamo.convert_frame and torch._inductor. "TorchDynamo Cache Lookup",
# "Torch-Compiled Region: 0/0" and "## Call CompiledFxGraph" are compiled code that runs.
_TIMED = "(dynamo_timed)"
_COMPILES = frozenset(
    {
        "dynamo",
        "entire_frame_compile",
        "entire_backward_compile",
        "backend_compile",
        "inductor_compile",
    }
)
_REGION = re.compile(r"Torch-Compiled Region: [\w!]+/(\d+)")
_PROFILER_RANGE = re.compile(
    r"^(ProfilerStep\s?#|Optimizer\.(step|zero_grad)#|enumerate\(DataLoader\)#)"
)

_COPY = re.compile(r"Memcpy (\w)to(\w)(?: \((\w[\w ]*) -> (\w[\w ]*)\))?")
_MEMSET = re.compile(r"Memset(?: \((\w[\w ]*)\))?")
_READS_BACK = re.compile(
    r"aten::(item|_local_scalar_dense|is_nonzero|nonzero|nonzero_static|equal|allclose|isclose"
    r"|to|_to_copy|copy_|cpu|masked_select|unique\w*|_unique\w*|index|index_put_|bincount|where"
    r"|repeat_interleave|histc|argwhere)$"
)


def reads_back(name: str) -> bool:
    """Is this an op whose result the host may have to wait for?"""
    return _READS_BACK.match(name) is not None


def call_class(name: str) -> CallClass:
    """`cudaLaunchKernelExC` → `LAUNCH`."""
    for pattern, class_ in _CALL_PATTERNS:
        if pattern.match(name):
            return class_
    return CallClass.OTHER


def mark_class(name: str) -> tuple[MarkClass, int]:
    """The class of a range somebody named, and the mark's value (the step number of a step)."""
    if step := _STEP.match(name):
        return MarkClass.STEP, min(int(step[1][:18]), 1 << 62)
    if is_compile(name):
        return MarkClass.COMPILE, 0
    for pattern, class_ in _MARK_PATTERNS:
        if pattern.search(name):
            return class_, 0
    return MarkClass.ANNOTATION, 0


def is_annotation(name: str) -> bool:
    """Is this a range, though the trace calls it an op? Traces of torch < 1.12 do so."""
    return _PROFILER_RANGE.match(name) is not None


def is_compile(name: str) -> bool:
    """Is this torch.compile at work (and not compiled code that runs)?"""
    return name in _COMPILES or name.endswith(_TIMED)


def recompiles(name: str) -> int:
    """Compiles of the frame before: 2 for `Torch-Compiled Region: 0/2`, -1 for other names."""
    match = _REGION.match(name)
    return int(match[1][:9]) if match else -1


def copy_kinds(name: str) -> tuple[int, int, int]:
    """`Memcpy HtoD (Pageable -> Device)` → copy, source and destination kind."""
    if match := _COPY.match(name):
        kind = CopyKind.__members__.get(f"{match[1]}TO{match[2]}".upper(), CopyKind.DTOD)
        return int(kind), memory_kind(match[3]), memory_kind(match[4])
    match = _MEMSET.match(name)
    return int(CopyKind.MEMSET), 0, memory_kind(match[1] if match else None)


def memory_kind(word: str | None) -> int:
    name = (word or "").strip().upper().replace(" ", "_")
    return int(MemoryKind.__members__.get(name, MemoryKind.UNKNOWN))


ROCM_NOTE = (
    "An AMD GPU: sides come from names, shapes and AMD's data sheets, and gains are simulated as on "
    "NVIDIA's; neither was checked against an AMD GPU's counters."
)
_ROCM_PARTS = {(304, 192): "MI300X", (304, 256): "MI325X", (228, 128): "MI300A"}
"""By compute units and GiB, from AMD's data sheets."""
ROCM_UNNAMED = "AMD GPU of unknown model"
"""Some builds write an empty name."""
_IN_THREADS = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")
_KEYS = ("roctracer_version", "rocprofiler_version", "hip_runtime_version", "hip_driver_version")


def is_rocm(facts: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether the trace is of an AMD GPU, by what stands around its events or by its calls."""
    if any(key in facts for key in _KEYS):
        return True
    properties = facts.get("deviceProperties")
    for one in properties if isinstance(properties, list) else []:
        if isinstance(one, dict) and str(one.get("name", "")).startswith("AMD"):
            return True
    return any(name.startswith("hip") for name in names)


def by_node(
    properties: Mapping[Any, dict[str, Any]], nodes: list[int]
) -> dict[Any, dict[str, Any]]:
    """The properties by the numbers that activities carry, which count a host's CPUs too.

    Where all GPUs are alike, or there is one, it does not matter which is meant. Otherwise a number
    means the GPU of that id only where all numbers are ids; of others only the maker is known.
    """
    alike = {
        repr(sorted((k, str(v)) for k, v in p.items() if k != "id")) for p in properties.values()
    }
    known: dict[Any, dict[str, Any]] = {}
    if len(alike) == 1:
        known = dict.fromkeys(nodes, next(iter(properties.values())))
    elif set(nodes) <= set(properties):
        known = dict(properties)
    return {
        node: {
            **(one := known.get(node, {})),
            "name": str(one.get("name") or part_name(one.get("numSms"), one.get("totalGlobalMem"))),
        }
        for node in nodes
    }


def part_name(units: object, memory: object) -> str:
    """By compute units and memory, which one part alone has."""
    size = memory / (1 << 30) if isinstance(memory, int) else 0.0
    for (those, gib), part in _ROCM_PARTS.items():
        if units == those and abs(size - gib) < 0.05 * gib:
            return f"AMD Instinct {part}"
    return ROCM_UNNAMED


def grids_in_blocks(
    kernels: Mapping[str, npt.NDArray[Any]],
    calls: Mapping[str, npt.NDArray[Any]],
    names: Sequence[str],
) -> None:
    """Makes blocks of the grids that were written in threads, in place."""
    wanted = [row for row, name in enumerate(names) if name in _IN_THREADS]
    if not wanted:
        return
    ids = calls["correlation"][np.isin(calls["name_id"], wanted)]
    rows = np.isin(kernels["correlation"], ids[ids != 0])
    blocks = np.maximum(kernels["block"][rows], 1)
    kernels["grid"][rows] = -(-kernels["grid"][rows] // blocks)


_NO_TENSOR = frozenset(
    {"", "Scalar", "ScalarList", "GenericList", "TensorList", "Int", "Bool", "Double"}
)


def signatures_of(
    calls: Iterable[tuple[str, bytes, bytes, bytes, bytes, bytes, bytes, bytes]],
) -> tuple[Bool, list[list[Any]], list[bytes]]:
    """Which calls speak of tensors, all as `[name, dims, types, concrete]`, their strides as text.

    Args:
        calls: Name and the raw arguments (`events.RAW`) as JSON.
    """
    rows: list[list[Any]] = []
    strides: list[bytes] = []
    for name, dims, types, concrete, steps, elements, kind, collective in calls:
        row = [name, *map(_list, (dims, types, concrete))]
        if elements and not dims:
            row = _of_collective(name, elements, kind, collective)
        rows.append(row)
        strides.append(steps)
    return np.array([_says_shapes(*row[:3]) for row in rows], np.bool_), rows, strides


def _of_collective(name: str, *texts: bytes) -> list[Any]:
    """A collective with its message for a tensor: `c10d::allreduce` of 6637568 `Float`."""
    try:
        count, kind, collective = (msgspec.json.decode(text) for text in texts)
    except bodies.FAULTS:
        return [name, [], [], []]
    if not (isinstance(count, int) and isinstance(kind, str) and isinstance(collective, str)):
        return [name, [], [], []]
    return [f"c10d::{collective}", [[count]], [kind], []]


def _list(text: bytes) -> list[Any]:
    try:
        value = msgspec.json.decode(text) if text else []
    except bodies.FAULTS:
        return []
    return value if isinstance(value, list) else []


def _says_shapes(name: str, dims: list[Any], types: list[Any]) -> bool:
    if "::" not in name or name.startswith("autograd::"):
        return False
    return any(dims) or any(isinstance(t, str) and t not in _NO_TENSOR for t in types)


def sendable(number: int, row: list[Any], strides: bytes) -> list[Any]:
    """An op as a frame may carry it: without its inputs where they are nothing that torch writes."""
    op = [number, *row, *_strides_of(row[1], strides)]
    try:
        msgspec.convert(op, bodies.Op)
    except msgspec.ValidationError:
        return [*op[:2], [], [], []]
    return op


def _strides_of(shapes: list[Any], text: bytes) -> tuple[list[list[int]], ...]:
    """The strides of one call, one list an input; none where nobody tells.

    Contiguous tensors and lists of tensors have an empty one, and dimensions of one have stride 0: calls
    that differ in nothing else are one.

    Args:
        shapes: One entry an input.
        text: The strides of the same as JSON.
    """
    steps = _list(text)
    if not any(shapes) or len(shapes) != len(steps):
        return ()
    return ([_odd(*both) for both in zip(shapes, steps, strict=True)],)


def _odd(shape: Any, strides: Any) -> list[int]:
    """The strides of a tensor that does not lie contiguous."""
    if not _plain(shape) or not _plain(strides) or len(shape) != len(strides) or 0 in shape:
        return []
    reach, odd = 1, False
    for size, step in zip(reversed(shape), reversed(strides), strict=True):
        odd = odd or (size != 1 and step != reach)
        reach *= size
    return [0 if n == 1 else step for n, step in zip(shape, strides, strict=True)] if odd else []


def _plain(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int for n in value)
