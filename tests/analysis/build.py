"""Windows made by hand: small tables with the columns nobody cares about filled in."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from brrrtop.model.tables import (
    Activities,
    ActivityType,
    Calls,
    Device,
    Gauges,
    Links,
    Marks,
    OpSignature,
    Span,
    Window,
)
from collectors.vocabulary import CallClass, CopyKind, MarkClass, MemoryKind, Metric

H200 = Device(
    0, "NVIDIA H200", sm_count=132, capability=(9, 0), max_threads_per_sm=2048,
    registers_per_sm=65536, shared_bytes_per_sm=233472,
)  # fmt: skip
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
ADD = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>,"
    " std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)"
)
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
H2D = "Memcpy HtoD (Pageable -> Device)"
D2H = "Memcpy DtoH (Device -> Pinned)"


class K(Struct, frozen=True):
    """One activity: a kernel unless its name says copy."""

    start: int
    end: int
    name: str = GEMM
    corr: int = 0
    stream: int = 7
    blocks: int = 132
    threads: int = 384


class C(Struct, frozen=True):
    start: int
    end: int
    corr: int = 0
    kind: CallClass = CallClass.LAUNCH
    tid: int = 1


class M(Struct, frozen=True):
    start: int
    end: int
    kind: MarkClass
    name: str = ""
    value: int = 0
    tid: int = 1


def window(
    kernels: Sequence[K] = (),
    calls: Sequence[C] = (),
    marks: Sequence[M] = (),
    span: tuple[int, int] | None = None,
    device: Device = H200,
    observed: tuple[Span, ...] | None = None,
    lost: int = 0,
    others: Sequence[tuple[int, int]] = (),
) -> Window:
    """A window over these; without `span` from the first activity's start to the last one's end.

    `others`: when and how many other processes were counted on the device.
    """
    kernels = sorted(kernels, key=lambda k: k.start)
    calls = sorted(calls, key=lambda c: c.start)
    marks = sorted(marks, key=lambda m: m.start)
    names = ["", *dict.fromkeys([k.name for k in kernels] + [m.name for m in marks])]
    ids = {name: i for i, name in enumerate(names)}
    if span is None:
        span = (min(k.start for k in kernels), max(k.end for k in kernels))
    return Window(
        Span(*span), device, _activities(kernels, ids),
        Calls(
            _i8([c.start for c in calls]), _i8([c.end for c in calls]), _i8([c.corr for c in calls]),
            _i8([c.tid for c in calls]), _i8([0] * len(calls)), np.array([c.kind for c in calls], np.int32),
        ),
        Marks(
            _i8([m.start for m in marks]), _i8([m.end for m in marks]), _i8([m.value for m in marks]),
            _i8([m.tid for m in marks]), _i8([ids[m.name] for m in marks]),
            np.array([m.kind for m in marks], np.int32),
        ),
        Links(_i8([]), _i8([])),
        Gauges(
            _i8([at for at, _ in others]), np.zeros(len(others), np.int32),
            np.full(len(others), Metric.FOREIGN_PROCESS_COUNT, np.int32),
            np.array([count for _, count in others], np.float64),
        ),
        tuple(names), dict[int, OpSignature](), observed, lost,
    )  # fmt: skip


def _i8(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int64)


def _activities(kernels: Sequence[K], ids: dict[str, int]) -> Activities:
    n = len(kernels)
    copy = [k.name.startswith("Memcpy") for k in kernels]
    way = {"HtoD": CopyKind.HTOD, "DtoH": CopyKind.DTOH, "DtoD": CopyKind.DTOD}
    kinds = [way[k.name.split()[1]] if c else 0 for k, c in zip(kernels, copy, strict=True)]
    said = {"Pageable": MemoryKind.PAGEABLE, "Host": MemoryKind.UNKNOWN}
    source = [said.get(k.name.partition("(")[2].split(" ")[0], MemoryKind.PINNED) for k in kernels]
    return Activities(
        _i8([k.start for k in kernels]), _i8([k.end for k in kernels]),
        np.array([ActivityType.COPY if c else ActivityType.KERNEL for c in copy], np.uint8),
        np.zeros(n, np.int32), _i8([k.stream for k in kernels]), _i8([k.corr for k in kernels]),
        _i8([ids[k.name] for k in kernels]), _i8([0 if c else k.blocks for k, c in zip(kernels, copy, strict=True)]),
        np.array([k.threads for k in kernels], np.int32), np.full(n, 64, np.int32), _i8([0] * n),
        _i8([0] * n), _i8([1 << 20 if c else -1 for c in copy]), np.array(kinds, np.uint8),
        np.array(source, np.uint8), np.full(n, MemoryKind.DEVICE, np.uint8),
    )  # fmt: skip
