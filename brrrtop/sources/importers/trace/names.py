"""What a name in a trace means: which call, which mark, which copy. Looked at once per name."""

from __future__ import annotations

import re

from collectors.vocabulary import CallClass, CopyKind, MarkClass, MemoryKind

_CALLS: tuple[tuple[str, CallClass], ...] = (
    (r"(cuda|cu|hip)GraphLaunch", CallClass.GRAPH_LAUNCH),
    (r"(cuda|cu)Launch(Cooperative|Device|Host|Grid)?\w*|cuLaunch\b", CallClass.LAUNCH),
    (r"hip(Ext|Hcc|Drv)?(Module)?Launch\w*", CallClass.LAUNCH),
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
