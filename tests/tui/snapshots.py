"""Prepared snapshots: what a view is shown in tests and pictures. Made up, and consistent."""

from typing import Any

import numpy as np
from msgspec.structs import replace

from brrrtop.model.account import IDLE_CAUSES, MECHANICAL_CLASSES, Account, Split
from brrrtop.model.advice import Advisory, StepWork, WhatIf
from brrrtop.model.estimate import (
    Estimate,
    KernelRow,
    Launch,
    Neighbours,
    Regime,
    Roofs,
    Side,
    Steps,
)
from brrrtop.model.host_tables import HostTables, LoaderRow, WorkersDo, WorkersNeeded
from brrrtop.model.run import Line, Now, Phase, PhaseKind, Run, Stretch, Witness
from brrrtop.model.snapshot import (
    Bars,
    Event,
    Freshness,
    HistoryPoint,
    Lane,
    Overhead,
    Snapshot,
    SourceInfo,
    StepPicture,
)
from brrrtop.model.tables import Device, Span

T0_NS = 1_760_000_000_000_000_000
MS = 1_000_000
H200 = Device(0, "NVIDIA H200", 132, (9, 0), 150_109_880_320, uuid="GPU-0")
ROOFS = Roofs({"bf16": 989e12, "tf32": 494e12, "fp32": 67e12}, 4.8e12, "NVIDIA H200 datasheet")


def account(
    duration_ms: float = 100.0,
    compute: float = 0.0,
    memory: float = 0.0,
    underfilled: float = 0.0,
    comm: float = 0.0,
    copy: float = 0.0,
    unknown: float = 0.0,
    **idle: float,
) -> Account:
    """An account by shares; what is left over is idle of unknown cause."""
    total = round(duration_ms * MS)
    parts = {k: round(total * v) for k, v in idle.items()}
    shares = (compute, memory, underfilled, comm, copy, unknown)
    fixed = [round(total * value) for value in shares]
    left = total - sum(fixed) - sum(parts.values())
    assert left >= 0, "the shares add up to more than the window"
    idle_ns = {cause: parts.get(cause, 0) for cause in IDLE_CAUSES}
    idle_ns["unknown"] += left
    mechanical = dict.fromkeys(MECHANICAL_CLASSES, 0)
    mechanical["host_late"] = sum(idle_ns.values())
    return Account(total, *fixed[:5], idle_ns, fixed[5], mechanical, total - sum(idle_ns.values()))


def split_of(acc: Account) -> Split:
    d = acc.duration_ns
    return Split(acc.compute_ns / d, acc.memory_ns / d, acc.overhead_ns / d, acc.unknown_ns / d)


def kernel(name: str, family: str, side: Side, share: float, count: int, **more: Any) -> KernelRow:
    fields: dict[str, Any] = {"evidence": "L2", "confidence": 0.9, **more}
    if "roof_share" not in fields:
        fields.setdefault("roof_share_why", "without shapes nothing tells its bytes")
    return KernelRow(name, family, side, count, round(share * 90 * MS), share, **fields)


KERNELS = (
    kernel(
        "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "gemm", Side.COMPUTE, 0.31, 96,
        roof_share=0.74, flop_per_s=7.3e14, bytes_per_s=1.1e12, precision="bf16", blocks_p50=264,
    ),
    kernel(
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
        "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
        "elementwise", Side.MEMORY, 0.18, 240, roof_share=0.81, flop_per_s=3e11, bytes_per_s=3.9e12,
        precision="fp32", evidence="L1.5", blocks_p50=6144,
    ),
    kernel(
        "pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, "
        "false, false, cutlass::bfloat16_t>, false, true>(pytorch_flash::Flash_fwd_params)",
        "attention", Side.COMPUTE, 0.12, 24, roof_share=0.55, flop_per_s=4.1e14,
        bytes_per_s=0.6e12, precision="bf16",
    ),
    kernel(
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, false>(...)",
        "gemm", Side.UNDERFILLED, 0.04, 48, confidence=0.6, evidence="L1",
        blocks_p50=12,
    ),
    kernel(
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "collective", Side.COMM, 0.09, 12, evidence="L1", blocks_p50=24,
    ),
    kernel("Memcpy HtoD (Pageable -> Device)", "copy", Side.COPY, 0.05, 3, evidence="L1"),
    kernel(
        "triton_poi_fused_native_dropout_native_layer_norm_7", "triton", Side.MEMORY, 0.07, 24,
        roof_share=0.66, bytes_per_s=3.1e12, evidence="L1", confidence=0.55,
    ),
    kernel("my_custom_kernel_日本語(float*)", "other", Side.UNKNOWN, 0.02, 7, confidence=0.0,
           evidence="L1"),
)  # fmt: skip

_ORDER = (0, 6, 1, 1, 2, 3, 1)
NEIGHBOURS = {
    KERNELS[0].name: Neighbours(tuple(KERNELS[i].name for i in _ORDER[:4]), 0, 0.12),
    KERNELS[1].name: Neighbours(tuple(KERNELS[i].name for i in _ORDER), 2, 0.34),
}

ADVISORIES = (
    Advisory(
        "dataloader-stall",
        "The GPU waits for the next batch in 42% of the time",
        0.92,
        0.42,
        {"input_share": 0.42, "step_ms": 36.6, "waits": "96 of 100 steps", "worker_state": "D"},
        "Raise num_workers of the DataLoader (now 0), or keep decoded samples",
        "A faster GPU, bf16 or torch.compile: the GPU is not the limit",
    ),
    Advisory(
        "fuse-pointwise",
        "Pointwise kernels move the same tensors again and again: 18% of the time",
        0.71,
        0.09,
        {"pointwise_share": 0.18, "chain_length": 4},
        "torch.compile(model), which fuses chains of pointwise ops",
        "TF32 for matmuls",
    ),
    Advisory(
        "sync-point",
        "The host waits for the GPU each step",
        0.55,
        0.03,
        {"syncs_per_step": 2.0, "line": "train.py:88 loss.item()"},
        "Call loss.item() every 50 steps only",
        "More DataLoader workers",
    ),
    Advisory(
        "misleading-util",
        "nvidia-smi says 98% while the SMs are active 45% of the time",
        0.9,
        None,
        {"smi_util": 0.98, "sm_active": 0.45},
        "Read the split above instead",
        "Tuning towards GPU-Util",
    ),
)

_STEP = StepWork(454.0, 12.1e6, 19.8e6)
WHATIF = (
    WhatIf("loader-ready", 21.3e6, 0.418, 0.35, 0.48, "dataloader-stall",
           "DataLoader(..., num_workers=8, persistent_workers=True)",
           _STEP, StepWork(454.0, 12.1e6, 4.4e6)),
    WhatIf("compile", 33.9e6, 0.0738, -0.02, 0.13, "fuse-pointwise", "model = torch.compile(model)",
           _STEP, StepWork(211.0, 9.4e6, 17.2e6)),
    WhatIf("tf32", 36.6e6, 0.0, -0.02, 0.02, None, 'torch.set_float32_matmul_precision("high")',
           _STEP, _STEP),
    WhatIf("bf16", 38.4e6, -0.0492, -0.09, -0.01, None,
           'with torch.autocast("cuda", torch.bfloat16):', _STEP, StepWork(512.0, 11.0e6, 21.6e6)),
)  # fmt: skip
WHATIF_AFTER = (
    WhatIf("loader-ready+compile", 18.5e6, 0.4945, 0.41, 0.57, None, "", _STEP, _STEP),
    WhatIf("loader-ready+tf32", 21.3e6, 0.418, 0.35, 0.48, None, "", _STEP, _STEP),
    WhatIf("loader-ready+bf16", 22.4e6, 0.388, 0.3, 0.46, None, "", _STEP, _STEP),
)

GAUGES = {
    1: 0.98, 2: 41.2 * 2**30, 3: 139.8 * 2**30, 4: 512.0, 5: 700.0, 6: 61.0, 7: 1.755e9, 8: 1.98e9,
    10: 0.0, 20: 0.45, 21: 0.21, 22: 0.19, 23: 0.31,
}  # fmt: skip


def estimate(acc: Account | None = None, **more: Any) -> Estimate:
    acc = acc or account(
        compute=0.30, memory=0.15, underfilled=0.02, comm=0.03, copy=0.02, unknown=0.01,
        input=0.42, launch=0.03, sync=0.012, gc=0.004,
    )  # fmt: skip
    fields: dict[str, Any] = {
        "span": Span(T0_NS, T0_NS + acc.duration_ns),
        "device": H200,
        "account": acc,
        "split": split_of(acc),
        "regime": Regime.OVERHEAD,
        "cause": "input",
        "confidence": 0.92,
        "runner_up": Regime.COMPUTE,
        "launch": Launch(184_000, 0.12, 0.88, 454),
        "steps": Steps(4, round(0.245 * acc.duration_ns), "marks", 0.97, _steps(acc)),
        "batch": None,
        "kernels": KERNELS,
        "evidence_shares": {"L1": 0.2, "L1.5": 0.2, "L2": 0.6},
        "roofs": ROOFS,
        "neighbours": NEIGHBOURS,
        **more,
    }
    return Estimate(**fields)


def _steps(acc: Account) -> tuple[Span, ...]:
    lengths = (0.24, 0.25, 0.23, 0.26)
    spans, at = [], T0_NS
    for length in lengths:
        spans.append(Span(at, at + round(length * acc.duration_ns)))
        at = spans[-1].t1_ns
    return tuple(spans)


def picture() -> StepPicture:
    """A step of 24.5 ms: a wait of 10 ms for the loader, then kernels of all sides, one of them late."""
    names = (
        "DataLoader(num_workers=0)",
        "cudaLaunchKernel",
        "nvjet_tst",
        "flash_fwd_kernel",
        "Memcpy HtoD",
        "nccl",
    )
    kinds = ("compute", "memory", "copy", "comm", "idle_input", "idle_launch", "launching")

    def lane(name: str, *bars: tuple[float, float, str, int, float | None]) -> Lane:
        starts, ends, kind, named, launched = zip(*bars, strict=True)
        return Lane(
            name,
            Bars(
                np.array([T0_NS + round(ms * MS) for ms in starts], np.int64),
                np.array([T0_NS + round(ms * MS) for ms in ends], np.int64),
                np.array([kinds.index(one) for one in kind], np.uint8),
                np.array(named, np.int32),
                np.array(
                    [-1 if ms is None else T0_NS + round(ms * MS) for ms in launched], np.int64
                ),
            ),
        )

    return StepPicture(
        span=Span(T0_NS, T0_NS + round(24.5 * MS)),
        lanes=(
            lane("Python", (0, 10.1, "idle_input", 0, None)),
            lane("calls", (10.2, 10.4, "launching", 1, None), (18.1, 18.4, "launching", 1, None)),
            lane(
                "kernels", (10.4, 14.4, "compute", 2, 10.2), (14.4, 18.0, "memory", 3, 10.3),
                (18.5, 22.5, "compute", 2, 18.1),
            ),
            lane("communication", (22.5, 24.5, "comm", 5, 18.3)),
            lane("copies", (10.2, 10.4, "copy", 4, 10.2)),
            lane("gaps", (0, 10.2, "idle_input", -1, None), (18.0, 18.5, "idle_launch", -1, None)),
        ),
        kinds=kinds,
        names=names,
        step=3,
        steps=4,
    )  # fmt: skip


def run(acc: Account | None = None) -> Run:
    """Three hours: training that waits for data, and an evaluation every now and then."""
    whole = acc or estimate().account
    train = account(
        100, compute=0.33, memory=0.16, underfilled=0.02, comm=0.03, copy=0.02, unknown=0.01, input=0.4,
    )  # fmt: skip
    hours = 3 * 3600 * 1000 * MS
    phases = (
        Phase(
            PhaseKind.TRAIN, "train() train.py:88", round(0.9 * hours), 0.9, 4, hours // 3, 400_000,
            24_300_000, round(0.4 * hours), 0.52, 400 * MS, 16, train, split_of(train),
        ),
        Phase(
            PhaseKind.EVALUATION, "evaluate() train.py:120", round(0.1 * hours), 0.1, 3, hours // 30,
            9_000, 120 * MS, 0, 0.81, 0, 0, account(100, unknown=0.8), None,
        ),
    )  # fmt: skip
    long = replace(
        whole, duration_ns=hours, idle_ns={k: v * hours // whole.duration_ns for k, v in whole.idle_ns.items()},
        **{name: getattr(whole, name) * hours // whole.duration_ns for name in (
            "compute_ns", "memory_ns", "underfilled_ns", "exposed_comm_ns", "exposed_copy_ns", "unknown_ns",
        )},
    )  # fmt: skip
    stretches = (
        Stretch(Span(T0_NS - 60_000 * MS, T0_NS - 30_000 * MS), 0),
        Stretch(Span(T0_NS - 30_000 * MS, T0_NS - 18_000 * MS), 1),
        Stretch(Span(T0_NS - 18_000 * MS, T0_NS), 0),
    )
    return Run(
        span=Span(T0_NS - hours, T0_NS), account=long, split=split_of(whole), phases=phases,
        witness=Witness(0.55, 0.53, 27e6, 24.5e6, 0.4, 0.42), traced_ns=hours // 50, steps=400_000,
        step_ns=24_500_000, stretches=stretches, batch=32,
        now=Now(10_000 * MS, PhaseKind.TRAIN, "train() train.py:88", 24 * MS, 0.5,
                account(10_000, compute=0.29, memory=0.14, input=0.52), Split(0.29, 0.14, 0.57, 0.0)),
    )  # fmt: skip


def history(count: int = 60, end_ns: int = T0_NS) -> tuple[HistoryPoint, ...]:
    """A run that turns from compute-bound to input-bound."""
    points = []
    for i in range(count):
        waits = 0.05 + 0.5 * (i / count) ** 2 + (0.08 if i % 7 == 0 else 0.0)
        unknown = 0.02
        rest = 1 - waits - unknown
        acc = account(
            500, compute=rest * 0.66, memory=rest * 0.34, unknown=unknown, input=waits * 0.79,
            launch=waits * 0.15, sync=waits * 0.05,
        )  # fmt: skip
        steps = tuple(round(25 * MS * (1 + waits + 0.1 * (j % 5 == i % 5))) for j in range(10))
        points.append(HistoryPoint(end_ns - (count - i) * 500 * MS, acc, steps))
    return tuple(points)


EVENTS = (
    Event(T0_NS - 21_000 * MS, "trainer", "first whole step seen"),
    Event(T0_NS - 9_000 * MS, "regime", "COMPUTE-BOUND → WAITS FOR DATA"),
    Event(T0_NS - 4_000 * MS, "stall", "input for 8.2 s, loader workers in disk wait"),
)


LOADER = LoaderRow(
    name="DataLoader(num_workers=0, pin_memory=True, prefetch_factor=None, "
    "persistent_workers=False, dataset=Images)",
    count=1_640, of_ns=60_000 * MS, total_ns=25_200 * MS,
    wait_p50_ns=15_300_000, wait_p99_ns=21_400_000, longest_ns=48 * MS, workers=0,
    recent_ns=tuple((15 + i % 7) * MS for i in range(120)), samples=1_000,
    lines=(
        Line("data/images.py:45", "raw = zlib.decompress(self.blobs[i])", 720, "input"),
        Line("data/images.py:52", "image = F.interpolate(image, size=self.size)", 180, "input"),
    ),
    needed=WorkersNeeded(1, 15_300_000, 21_300_000),
)  # fmt: skip
"""The loop makes its batches itself."""
WITH_WORKERS = replace(
    LOADER,
    name="DataLoader(num_workers=4, pin_memory=True, prefetch_factor=2, "
    "persistent_workers=True, dataset=Images)",
    workers=4, prefetch=8, ready_p50=0, none_ready_share=0.97,
    lines=(Line("train.py:88", "for images, labels in loader:", 1_000, "input"),),
    workers_do=WorkersDo.COMPUTE, needed=WorkersNeeded(7, 146_400_000, 21_300_000),
)  # fmt: skip
WORKER_GAUGES = {45: 4.0, 46: 3.9, 47: 0.97, 48: 0.01}


def snapshot(**more: Any) -> Snapshot:
    """A live run, input-bound, with everything measured."""
    fields: dict[str, Any] = {
        "source": SourceInfo(
            "live", "pid 4711", 4711, 0, 8, "python train.py --batch 32", "2.13.0", "bursts"
        ),
        "freshness": Freshness.LIVE,
        "now_ns": T0_NS,
        "age_ns": 320 * MS,
        "progress": None,
        "estimate": estimate(),
        "advisories": ADVISORIES,
        "whatif": WHATIF,
        "whatif_after": WHATIF_AFTER,
        "tables": HostTables(loaders=(LOADER,)),
        "gauges": GAUGES,
        "gauge_history": {
            20: tuple(0.4 + 0.1 * (i % 5) / 5 for i in range(60)),
            22: tuple(0.1 + 0.8 * (i % 7) / 7 for i in range(60)),
            23: tuple(0.9 - 0.8 * (i % 7) / 7 for i in range(60)),
        },
        "history": history(),
        "picture": picture(),
        "run": run(),
        "events": EVENTS,
        "overhead": Overhead(0.004, 0.002, 0.031, 94 * 2**20),
        **more,
    }
    fields.setdefault("devices", (fields["estimate"],) if fields["estimate"] else ())
    return Snapshot(**fields)


def waiting() -> Snapshot:
    return snapshot(
        freshness=Freshness.WAITING, age_ns=None, estimate=None, advisories=(), whatif=(), whatif_after=(), gauges={},
        gauge_history={}, history=(), events=(), overhead=Overhead(), picture=None,
        run=None,
    )  # fmt: skip


def replayed(progress: float = 0.4, **more: Any) -> Snapshot:
    """A recording without gauges, half way through."""
    source = SourceInfo(
        "recording", "slow_loader.brrr", tier="trace", notes=("converted from a Kineto trace",)
    )
    return snapshot(
        source=source, progress=progress, speed=1.0, gauges={}, gauge_history={},
        overhead=Overhead(), **more,
    )  # fmt: skip


def healthy() -> Snapshot:
    acc = account(compute=0.72, memory=0.22, underfilled=0.02, launch=0.01, unknown=0.03)
    good = Advisory(
        "none-healthy", "Nothing worth changing: the GPU computes nearly all the time", 0.9, None,
        {"compute_share": 0.72}, "Leave it alone", "Anything that speeds up Python",
    )  # fmt: skip
    est = estimate(acc, regime=Regime.COMPUTE, cause=None, confidence=0.95, runner_up=Regime.MEMORY)
    return snapshot(estimate=est, advisories=(good,))


def unmeasured() -> Snapshot:
    """A source without launches, steps, gauges or known kernels."""
    acc = account(unknown=0.9)
    rows = tuple(
        replace(
            row,
            side=Side.UNKNOWN,
            roof_share=None,
            flop_per_s=None,
            bytes_per_s=None,
            roof_share_why="neither its name, nor shapes or counters tell what it does",
        )
        for row in KERNELS
    )
    est = estimate(
        acc, regime=Regime.UNKNOWN, cause=None, confidence=0.1, runner_up=None, launch=Launch(),
        steps=Steps(), kernels=rows, roofs=None,
    )  # fmt: skip
    return snapshot(
        estimate=est, advisories=(), whatif=(), whatif_after=(), gauges={}, gauge_history={},
        lost_records=1204, picture=None, run=None,
        overhead=Overhead(), history=(),
    )  # fmt: skip
