"""Records a second through window → estimate on one core, kernels already in columns.

    python benchmarks/estimate_rate.py [--kernels 1000000]

A launch-bound step of 1,000 kernels (names and grids as in a small MLP), repeated; one launch call a
kernel, one step mark a step. Prints the best and the median of five runs, and where the time went.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from brrrtop.analysis.estimate import estimate
from brrrtop.model.tables import Device, Span
from brrrtop.timeline.timeline import Timeline
from collectors.protocol.frames import CALL, KERNEL, MARK, Frame, Kind
from collectors.vocabulary import CallClass, MarkClass

NAMES = [
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >()",
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>>>()",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>()",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>>()",
]
STEP = 1000


def filled(count: int) -> Timeline:
    rng = np.random.default_rng(0)
    kernels = np.zeros(count, KERNEL)
    gaps = rng.integers(500, 4000, count)
    lengths = rng.integers(900, 9000, count)
    kernels["start_ns"] = 10**18 + np.cumsum(gaps + lengths)
    kernels["end_ns"] = kernels["start_ns"] + lengths
    kernels["name_id"] = np.resize(rng.integers(1, len(NAMES) + 1, STEP), count)
    kernels["grid"][:, 0] = np.resize(rng.integers(1, 4000, STEP), count)
    kernels["grid"][:, 1:] = kernels["block"][:, 1:] = 1
    kernels["block"][:, 0] = 128
    kernels["registers"], kernels["correlation"] = 32, np.arange(1, count + 1)
    calls = np.zeros(count, CALL)
    calls["start_ns"] = kernels["start_ns"] - 6000
    calls["end_ns"] = calls["start_ns"] + 4000
    calls["correlation"], calls["call_class"] = kernels["correlation"], CallClass.LAUNCH
    marks = np.zeros(count // STEP, MARK)
    marks["start_ns"] = marks["end_ns"] = calls["start_ns"][::STEP][: len(marks)]
    marks["mark_class"] = MarkClass.STEP
    timeline = Timeline()
    timeline.add(
        Frame(
            Kind.DEVICE,
            {"device_id": 0, "name": "NVIDIA H200", "sm_count": 132, "capability": [9, 0]},
        )
    )
    timeline.add(Frame(Kind.NAMES, dict(enumerate(NAMES, 1))))
    for kind, rows in ((Kind.KERNELS, kernels), (Kind.CALLS, calls), (Kind.MARKS, marks)):
        timeline.add(Frame(kind, rows, int(kernels["end_ns"][-1])))
    return timeline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    count = parser.parse_args().kernels
    timeline = filled(count)
    assert timeline.first_ns is not None and timeline.last_ns is not None
    span = Span(timeline.first_ns, timeline.last_ns)
    rates = []
    for _ in range(5):
        began = time.perf_counter()
        estimate(timeline.window(span, Device(0).device_id))
        rates.append(count / (time.perf_counter() - began))
    print(
        f"{count:,} kernels with launches: best {max(rates):,.0f}, median {np.median(rates):,.0f} records/s"
    )


if __name__ == "__main__":
    main()
