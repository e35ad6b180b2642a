"""Made-up training runs as frames, a step at a time, for sessions to read."""

from __future__ import annotations

from typing import Any

import numpy as np

from collectors.protocol.frames import CALL, KERNEL, MARK, WIRE_VERSION, Frame, Kind
from collectors.vocabulary import CallClass, MarkClass
from tests.memory_source import MemorySource

T0_NS = 1_760_000_000_000_000_000
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
SGEMM = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_ffma_execute_kernel__5x_cublas"
)
POINTWISE = tuple(
    f"void at::native::vectorized_elementwise_kernel<8, at::native::{name}<c10::BFloat16>, "
    f"std::array<char*, 3ul> >(int, at::native::{name}<c10::BFloat16>)"
    for name in ("CUDAFunctor_add", "MulFunctor", "DivFunctor")
)
FUSED_ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
    "FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>(P)"
)
H200 = {"device_id": 0, "name": "NVIDIA H200", "sm_count": 132, "capability": [9, 0]}


class Run:
    """Frames of one trainer; each step is sent when it ends."""

    def __init__(self, begin_ns: int = T0_NS) -> None:
        self.now_ns = begin_ns
        names = dict(enumerate((GEMM, SGEMM, *POINTWISE, FUSED_ADAM), 1))
        self._ids = {name: number for number, name in names.items()}
        self._correlation = 0
        self.frames = [
            Frame(Kind.HELLO, {"wire": WIRE_VERSION, "pid": 4711}, begin_ns),
            Frame(Kind.DEVICE, dict(H200), begin_ns),
            Frame(Kind.NAMES, names, begin_ns),
        ]

    def steps(
        self, count: int, products: str = GEMM, us: int = 3_000, pointwise_us: int = 300,
        blocks: int = 4_000, wait_us: int = 0,
    ) -> Run:  # fmt: skip
        for _ in range(count):
            self._step(products, us, pointwise_us, blocks, wait_us)
        return self

    def source(self) -> MemorySource:
        return MemorySource(self.frames)

    def _step(self, products: str, us: int, pointwise_us: int, blocks: int, wait_us: int) -> None:
        begin = self.now_ns
        marks: list[tuple[Any, ...]] = []
        if wait_us:
            self.now_ns += wait_us * 1_000
            marks.append((begin, self.now_ns, 0, 1, 0, MarkClass.INPUT, 0, 0))
        kernels: list[tuple[Any, ...]] = []
        calls: list[tuple[Any, ...]] = []
        works = [(products, us, 1_320)] * 4
        works += [(name, pointwise_us, blocks) for name in POINTWISE] * 2
        for name, length_us, grid in [*works, (FUSED_ADAM, 200, 2_000)]:
            self._correlation += 1
            start = self.now_ns
            self.now_ns = end = start + length_us * 1_000
            launched = (start - 9_000, start - 4_000) if kernels else (start, start + 1)
            calls.append((*launched, self._correlation, 1, 0, CallClass.LAUNCH, 0))
            kernels.append(
                (start, end, self._correlation, self._ids[name], 0, 7, (grid, 1, 1), (256, 1, 1),
                 0, 32, 0, 0, 0, 0)
            )  # fmt: skip
        marks.append((begin, self.now_ns, 0, 1, 0, MarkClass.STEP, 0, 0))
        for kind, dtype, rows in (
            (Kind.CALLS, CALL, calls), (Kind.KERNELS, KERNEL, kernels), (Kind.MARKS, MARK, marks),
        ):  # fmt: skip
            self.frames.append(Frame(kind, np.array(rows, dtype), self.now_ns))

    def mark(self, mark_class: MarkClass, length_ns: int, late_ns: int = 0) -> Run:
        """Something the host did until now, told so much later."""
        row = (self.now_ns - length_ns, self.now_ns, 0, 1, 0, mark_class, 0, 0)
        self.frames.append(Frame(Kind.MARKS, np.array([row], MARK), self.now_ns + late_ns))
        return self
