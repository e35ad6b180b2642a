"""Windows of made-up training runs, one launch at a time.

A `Scene` is a device clock and a host that launches ahead of it or late. Times are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from brrrtop.advisories.advise import advise
from brrrtop.analysis.estimate import Analysis, estimate
from brrrtop.kernel_names.facts import name_facts
from brrrtop.model.advice import Advisory
from brrrtop.model.tables import (
    Activities,
    ActivityType,
    Calls,
    Columns,
    Device,
    Gauges,
    Links,
    Marks,
    OpSignature,
    Span,
    Window,
)
from collectors.vocabulary import CallClass, CopyKind, MarkClass, MemoryKind, Metric

H200 = Device(0, "NVIDIA H200", 132, (9, 0), 150_109_880_320, 2048, 65536, 233472)
A100 = Device(0, "NVIDIA A100-SXM4-80GB", 108, (8, 0), 85_899_345_920, 2048, 65536, 167936)
GEFORCE = Device(0, "NVIDIA GeForce RTX 4090", 128, (8, 9), 25_757_220_864, 1536, 65536, 102400)

GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
SGEMM = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_ffma_execute_kernel__5x_cublas"
)
TF32_GEMM = "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_execute_kernel__5x_cublas"
ODD_GEMM = (
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>(Params)"
)
GEMV = "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(Params)"
CONV_NCHW = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nchwkcrs_nchw_tilesize256x64_cudnn"
CONV_NHWC = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x64_cudnn"
CONV_OLD = "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int)"
TO_NHWC = "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true>(P)"
BN_NCHW = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128, true, 1, true>(P)"
BN_NATIVE = "void at::native::batch_norm_backward_kernel<c10::BFloat16, float, float, int>(P)"
FLASH = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_kernel0_0"
FLASH_BACK = (
    "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_kernel0_0"
)
FLASH2 = (
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128>>(P)"
)
SOFTMAX = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, "
    "c10::BFloat16, at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(P)"
)
SOFTMAX_BACK = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<8, c10::BFloat16, float, "
    "c10::BFloat16, at::native::(anonymous namespace)::SoftMaxBackwardEpilogue>(P)"
)
LOG_SOFTMAX = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, "
    "at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(P)"
)
TOPK = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(P)"
SORT = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<Policy900, long>(P)"
NORM = (
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(P)"
)
TRITON = "triton_poi_fused_add_cos_sin_0"
FUSED_ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
    "FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>(P)"
)
FOREACH = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<3>, "
    "BinaryOpListAlphaFunctor<float, 3, 2, 2>>(P)"
)
ROWS_ADDED = "void at::native::(anonymous namespace)::compute_grad_weight<float, long>(P)"
SCAN = "void at_cuda_detail::cub::DeviceScanKernel<Policy900, long>(P)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def pointwise(functor: str, element: str = "c10::BFloat16", tensors: int = 3) -> str:
    """Name of a vectorised ATen kernel."""
    body = f"at::native::{functor}<{element}>, std::array<char*, {tensors}ul> >"
    return f"void at::native::vectorized_elementwise_kernel<8, {body}(int, {body})"


ADD, MUL, COPY = (
    pointwise("CUDAFunctor_add"),
    pointwise("MulFunctor"),
    pointwise("direct_copy_kernel"),
)
ADD32, ADD64 = pointwise("CUDAFunctor_add", "float"), pointwise("CUDAFunctor_add", "double")
RSQRT = pointwise("rsqrt_kernel_cuda", tensors=2)
SQRT = pointwise("sqrt_kernel_cuda", "float", 2)
CAST = pointwise("bfloat16_copy_kernel_cuda", tensors=2)
_CASTING = (
    "std::array<char*, {}ul>, 4, TrivialOffsetCalculator<1, unsigned int>, "
    "at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(P)"
)
ADD_CASTING = (
    "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, "
    + _CASTING.format(3)
)
COPY_CASTING = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda(float)#1}, " + _CASTING.format(2)
)
ZEROS = pointwise("FillFunctor", "float", 1)
ADDCDIV = pointwise("addcdiv_cuda_kernel", "float", 4)
MEAN = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, "
    "at::native::MeanOps<c10::BFloat16, float, float, c10::BFloat16>, unsigned int>>(P)"
)
DISPATCH = 6.0
"""Microseconds between two launches of a host that does not wait."""
CALL = 4.0
"""Microseconds in a launch call."""
AHEAD = 500.0
"""Microseconds that a host is ahead of the device where it is."""
FULL = 132 * 16
"""Blocks that fill an H200."""


def streaming_blocks(name: str, us: float) -> int:
    """Grid of a pointwise kernel of 256 threads that streams at 4.1 TB/s for so long."""
    facts = name_facts(name)
    if not facts.elements_per_thread or not facts.tensor_count or not facts.element_bytes:
        return FULL
    work = 256 * facts.elements_per_thread * facts.tensor_count * facts.element_bytes
    return max(1, round(us * 1e-6 * 4.1e12 / work))


@dataclass
class Scene:
    """A run in the making. The device clock only goes forward.

    A host that is ahead stands in its launch call until there is room in the queue, as a real one does:
    its own time between two launches is `DISPATCH`.
    """

    device: Device = H200
    now: float = 1_000_000.0
    rows: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    marks: list[dict[str, Any]] = field(default_factory=list)
    gauges: list[tuple[float, int, float]] = field(default_factory=list)
    ops: dict[int, OpSignature] = field(default_factory=dict)
    links: list[tuple[int, int]] = field(default_factory=list)
    observed: list[tuple[float, float]] | None = None
    lost: int = 0
    began: float | None = None
    returned: float | None = None
    """When the host's last call did."""

    def kernel(
        self,
        name: str = GEMM,
        us: float = 100.0,
        *,
        late: float | None = None,
        blocks: int | None = None,
        stream: int = 7,
        tid: int = 1,
        op: OpSignature | None = None,
        graph: int = 0,
        beside: bool = False,
    ) -> Scene:
        """A kernel right after the last one; `late`: the device idles so long for its launch.

        Without `blocks`, ATen's pointwise kernels get as many as keep the memory at 85 % of its
        rate, and others fill the device.
        """
        if blocks is None:
            blocks = streaming_blocks(name, us)
        start = self.now - us if beside else self.now + (late if late is not None else 1.0)
        correlation, start = self._launch(start, late is None, tid)
        if op is not None:
            self.ops[len(self.ops) + 1] = op
            self.links.append((correlation, len(self.ops)))
        self._row(
            name, start, us, correlation, blocks=blocks, threads=256, stream=stream, graph=graph
        )
        return self

    def _launch(self, start: float, ahead: bool, tid: int) -> tuple[int, float]:
        """The call for a kernel that could start then, and when it does."""
        called = start - 1.5 - CALL
        returned = called + CALL
        if ahead:
            called = start - AHEAD - CALL if self.returned is None else self.returned + DISPATCH
            returned = max(called + CALL, start - AHEAD)
            start = max(start, returned + 1.5)
        self.returned = returned
        return self._launched(called, returned, CallClass.LAUNCH, tid), start

    def copy(
        self, way: str, size: int, us: float, *, pageable: bool = False, beside: bool = False
    ) -> Scene:
        """A copy, `up`, `down`, `across`, a `page`; alone on the device unless `beside` the last kernel."""
        start = self.now - us if beside else self.now + 1.0
        host = MemoryKind.PAGEABLE if pageable else MemoryKind.PINNED
        kinds = {
            "up": (CopyKind.HTOD, host, MemoryKind.DEVICE, "HtoD"),
            "down": (CopyKind.DTOH, MemoryKind.DEVICE, host, "DtoH"),
            "across": (CopyKind.DTOD, MemoryKind.DEVICE, MemoryKind.DEVICE, "DtoD"),
            "page": (CopyKind.DTOH, MemoryKind.MANAGED, MemoryKind.MANAGED, "DtoH"),
        }
        kind, source, target, text = kinds[way]
        end = start + us if pageable else start - 2.0
        correlation = self._launched(start - 5.0, end, CallClass.COPY)
        if pageable:
            self.returned = end
        self._row(
            f"Memcpy {text} ({source.name.title()} -> {target.name.title()})",
            start, us, correlation, type=ActivityType.COPY, size=size, copy=kind,
            source=source, target=target, stream=9 if beside else 7,
        )  # fmt: skip
        return self

    def fill(self, size: int, us: float) -> Scene:
        """A memset."""
        correlation = self._launched(self.now - 500.0, self.now - 496.0, CallClass.COPY)
        self._row(
            "Memset (Device)", self.now + 1.0, us, correlation, type=ActivityType.MEMSET, size=size
        )
        return self

    def idle(
        self, us: float, mark: MarkClass | None = None, name: str = "", value: int = 0
    ) -> Scene:
        """The device idles; the host is in something that is marked, or not."""
        if mark is not None:
            self.mark(mark, us, name, value)
        self.now += us
        self.returned = self.now - DISPATCH - CALL
        return self

    def mark(
        self, kind: MarkClass, us: float = 0.0, name: str = "", value: int = 0, tid: int = 1
    ) -> Scene:
        """Something the host did from now on, while the device goes on."""
        self.marks.append(
            {
                "start": self.now,
                "end": self.now + us,
                "kind": kind,
                "name": name,
                "value": value,
                "tid": tid,
            }
        )
        return self

    def call(self, kind: CallClass, us: float, name: str = "call", tid: int = 1) -> Scene:
        """A CUDA call with nothing on the device to show for it, while the device idles."""
        self._launched(self.now, self.now + us, kind, tid, name)
        self.now += us
        self.returned = self.now
        return self

    def sync(self, us: float, tid: int = 1) -> Scene:
        """The host waited for the device: the call ends with the device's last work."""
        self._launched(self.now - us, self.now + 2.0, CallClass.SYNC, tid, "cudaStreamSynchronize")
        self.returned = self.now + 2.0
        return self

    def step(self) -> Scene:
        """The end of an optimizer step, as a live trainer marks it: where its last launch returned."""
        self.mark(MarkClass.STEP)
        if self.returned is not None and self.returned < self.now - DISPATCH - CALL:
            self.marks[-1]["start"] = self.marks[-1]["end"] = self.returned
        return self

    def gauge(self, metric: Metric, *values: float) -> Scene:
        """Readings of one counter."""
        self.gauges += [(self.now + i, int(metric), value) for i, value in enumerate(values)]
        return self

    def _launched(
        self, start: float, end: float, kind: CallClass, tid: int = 1, name: str = "launch"
    ) -> int:
        self.calls.append(
            {
                "start": start,
                "end": end,
                "corr": len(self.calls) + 1,
                "kind": kind,
                "tid": tid,
                "name": name,
            }
        )
        return len(self.calls)

    def _row(self, name: str, start: float, us: float, correlation: int, **more: Any) -> None:
        self.began = start if self.began is None else min(self.began, start)
        self.rows.append(dict(name=name, start=start, end=start + us, corr=correlation, **more))
        self.now = max(self.now, start + us)

    def window(self) -> Window:
        """Everything so far."""
        self.rows.sort(key=lambda row: row["start"])
        self.calls.sort(key=lambda call: call["start"])
        self.marks.sort(key=lambda mark: mark["start"])
        names = ["", *dict.fromkeys(each["name"] for each in self.rows + self.calls + self.marks)]
        ids = {name: place for place, name in enumerate(dict.fromkeys(names))}
        span = (self.began or 0.0, max([self.now, *(row["end"] for row in self.rows)]))
        return Window(
            span=Span(_ns(span[0]), _ns(span[1])),
            device=self.device,
            activities=self._activities(ids),
            calls=_table(
                Calls,
                [
                    (_ns(c["start"]), _ns(c["end"]), c["corr"], c["tid"], ids[c["name"]], c["kind"])
                    for c in self.calls
                ],
            ),
            marks=_table(
                Marks,
                [
                    (
                        _ns(m["start"]),
                        _ns(m["end"]),
                        m["value"],
                        m["tid"],
                        ids[m["name"]],
                        m["kind"],
                    )
                    for m in self.marks
                ],
            ),
            links=_table(Links, sorted(self.links)),
            gauges=_table(Gauges, [(_ns(t), 0, metric, value) for t, metric, value in self.gauges]),
            names=tuple(ids),
            ops=self.ops,
            observed=None
            if self.observed is None
            else tuple(Span(_ns(a), _ns(b)) for a, b in self.observed),
            lost_records=self.lost,
        )

    def _activities(self, ids: dict[str, int]) -> Activities:
        return _table(
            Activities,
            [
                (
                    _ns(r["start"]), _ns(r["end"]), r.get("type", ActivityType.KERNEL), 0,
                    r.get("stream", 7), r["corr"], ids[r["name"]], r.get("blocks", 0),
                    r.get("threads", 0), 64, 0, r.get("graph", 0), r.get("size", -1),
                    r.get("copy", 0), r.get("source", 0), r.get("target", 0),
                )
                for r in self.rows
            ],
        )  # fmt: skip

    def judged(self) -> Analysis:
        """The verdict on the scene."""
        return estimate(self.window())

    def advice(self) -> dict[str, Advisory]:
        """What is advised, by id, best first."""
        return {advisory.kind: advisory for advisory in advise(self.judged()).given}


def _ns(us: float) -> int:
    return round(us * 1000)


def _table(kind: type[Any], rows: list[tuple[Any, ...]]) -> Any:
    width = len(kind.__struct_fields__)
    columns = [np.array([row[i] for row in rows], np.int64) for i in range(width)]
    if kind is Gauges:
        columns[3] = np.array([row[3] for row in rows], np.float64)
    table: Columns = kind(*columns)
    return table


def healthy(scene: Scene | None = None, steps: int = 4, kernels: int = 40) -> Scene:
    """Steps of well-fed, full-grid products and a little pointwise work."""
    scene = scene or Scene()
    for _ in range(steps):
        for _ in range(kernels):
            scene.kernel(GEMM, 300.0, blocks=132)
            scene.kernel(ADD, 20.0)
        scene.kernel(FUSED_ADAM, 100.0)
        scene.step()
    return scene
