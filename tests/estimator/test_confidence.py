"""Knowing less never makes surer, whatever the records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.truth.runs import runs
from brrrtop.estimator.estimate import Judged, estimate
from brrrtop.model import Regime, Split
from brrrtop.tables import Device, Links, OpSignature, Window
from tests.estimator.build import ADD, GEMM, H2D, H200, NCCL, C, K, window

US = 1000
CONV = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x64x64_cudnn"
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}> >(int)"
)
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
NAMES = [GEMM, ADD, CONV, COPY, NORM, NCCL, H2D, "_my_kernel"]
BF = ("c10::BFloat16",) * 2
OPS = {
    1: OpSignature("aten::mm", ((8, 16384), (16384, 16384)), BF),
    2: OpSignature("aten::mm", ((4096, 4096), (4096, 4096)), BF),
    3: OpSignature("aten::bmm", ((96, 512, 64), (96, 64, 512)), BF),
    4: OpSignature("aten::add", ((1 << 24,), (1 << 24,)), BF),
    5: OpSignature("aten::native_layer_norm", ((1 << 14, 1 << 10),), BF[:1]),
}
SLACK = 0.0015
"""Confidences are rounded to three places."""


@st.composite
def windows(draw: st.DrawFn) -> Window:
    kernels, calls = [], []
    at = 0
    for corr in range(1, draw(st.integers(8, 24)) + 1):
        at += draw(st.sampled_from([0, 1, 50, 400])) * US
        length = draw(st.sampled_from([2, 6, 30, 150, 700])) * US
        kernels.append(
            K(
                at, at + length, draw(st.sampled_from(NAMES)), corr,
                draw(st.integers(1, 2)), draw(st.sampled_from([4, 100, 132, 1024, 65536])),
            )
        )  # fmt: skip
        calls.append(C(at - 30 * US, at - 26 * US, corr))
        at += length if draw(st.booleans()) else length // 2
    made = window(kernels, calls)
    linked = np.array([k for k in range(1, len(kernels) + 1) if draw(st.booleans())], np.int64)
    ops = np.array([draw(st.sampled_from(sorted(OPS))) for _ in linked], np.int64)
    return replace(made, ops=OPS, links=Links(linked, ops))


def without_links(w: Window) -> Window:
    empty = np.empty(0, np.int64)
    return replace(w, links=Links(empty, empty))


def without_ops(w: Window) -> Window:
    return replace(w, ops={})


def without_device(w: Window) -> Window:
    return replace(w, device=Device(w.device.device_id))


def without_names(w: Window) -> Window:
    return replace(w, names=tuple("_a_kernel" for _ in w.names))


def without_calls(w: Window) -> Window:
    return replace(w, calls=w.calls.take(slice(0, 0)))


def without_shapes(w: Window) -> Window:
    return replace(w, ops={at: OpSignature(op.name) for at, op in w.ops.items()})


def without_ceilings(w: Window) -> Window:
    return replace(w, device=replace(w.device, name=None))


def without_kernel_names(w: Window) -> Window:
    return replace(w, names=tuple(n if n.startswith("Mem") else "_a_kernel" for n in w.names))


def without_registers(w: Window) -> Window:
    acts = w.activities
    return replace(w, activities=replace(acts, registers=np.zeros_like(acts.registers)))


def certainties(judged: Judged) -> np.ndarray:
    each = np.array([g.certainty for g in judged.labels.groups])
    return each[judged.labels.group_of]


@pytest.mark.parametrize(
    "less", [without_links, without_ops, without_device, without_names, without_calls]
)
@given(w=windows())
@settings(max_examples=60, deadline=None)
def test_less_evidence_never_makes_surer(less: Callable[[Window], Window], w: Window) -> None:
    known, stripped = estimate(w), estimate(less(w))
    assert stripped.estimate.confidence <= known.estimate.confidence + SLACK
    assert (certainties(stripped) <= certainties(known) + 1e-9).all()


@pytest.mark.parametrize(
    "less",
    [
        without_links, without_ops, without_shapes, without_device, without_ceilings,
        without_kernel_names, without_calls, without_registers,
    ],
)  # fmt: skip
def test_less_evidence_of_a_recorded_run_never_makes_surer(
    less: Callable[[Window], Window],
) -> None:
    for run in runs(None):
        known, stripped = estimate(run.window).estimate, estimate(less(run.window)).estimate
        assert stripped.confidence <= known.confidence + SLACK, run.name


@pytest.mark.parametrize("fact", [f.name for f in fields(Device) if f.name != "device_id"])
@given(w=windows())
@settings(max_examples=15, deadline=None)
def test_no_single_fact_of_a_known_part_matters_for_certainty(fact: str, w: Window) -> None:
    default = next(f.default for f in fields(Device) if f.name == fact)
    if fact == "name":
        w = replace(w, device=replace(H200, name=None, sm_clock_max_hz=1.98e9))
        known, stripped = estimate(replace(w, device=H200)), estimate(without_device(w))
    else:
        known = estimate(w)
        stripped = estimate(replace(w, device=replace(w.device, **{fact: default})))
    assert stripped.estimate.confidence <= known.estimate.confidence + SLACK


@given(w=windows(), lost=st.integers(1, 100), more=st.integers(1, 1000))
@settings(max_examples=60, deadline=None)
def test_losing_records_never_makes_surer(w: Window, lost: int, more: int) -> None:
    whole = estimate(w).estimate
    some = estimate(replace(w, lost_records=lost)).estimate
    many = estimate(replace(w, lost_records=lost + more)).estimate
    assert many.confidence <= some.confidence + SLACK
    assert some.confidence <= whole.confidence + SLACK


@given(w=windows())
@settings(max_examples=60, deadline=None)
def test_the_split_lies_within_its_bounds(w: Window) -> None:
    found = estimate(w).estimate
    assert found.split_low is not None and found.split_high is not None
    for part in (f.name for f in fields(Split)):
        low, high = getattr(found.split_low, part), getattr(found.split_high, part)
        assert 0 <= low <= getattr(found.split, part) + 1e-9 <= high + 2e-9 <= 1 + 3e-9


@given(w=windows())
@settings(max_examples=40, deadline=None)
def test_a_verdict_is_only_given_above_the_floor(w: Window) -> None:
    found = estimate(w).estimate
    if found.regime is not Regime.UNKNOWN:
        assert found.confidence >= 0.3


def test_names_alone_are_never_quite_sure_of_a_product() -> None:
    kernels = [K(i * 300 * US, (i * 300 + 299) * US, corr=i + 1) for i in range(20)]
    judged = estimate(window(kernels))
    assert 0.5 < judged.estimate.kernels[0].confidence < 0.8


def test_no_verdict_is_surer_than_the_one_name_it_rests_on() -> None:
    kernels = [K(i * 300 * US, (i * 300 + 299) * US, corr=i + 1) for i in range(20)]
    found = estimate(window(kernels)).estimate
    assert found.regime is Regime.COMPUTE
    assert found.confidence <= (1 + found.kernels[0].confidence) / 2 + SLACK
    others = [
        replace(k, name=GEMM.replace("256x128", f"{64 * (i % 9 + 1)}x128"))
        for i, k in enumerate(kernels)
    ]
    assert estimate(window(others)).estimate.confidence > found.confidence


def test_bounds_close_with_shapes() -> None:
    kernels = [K(i * 180 * US, (i * 180 + 179) * US, corr=i + 1) for i in range(20)]
    plain = window(kernels)
    linked = replace(plain, ops=OPS, links=Links(np.arange(1, 21), np.full(20, 2)))
    widths = []
    for w in (plain, linked):
        found = estimate(w).estimate
        assert found.split_low is not None and found.split_high is not None
        widths.append(found.split_high.memory - found.split_low.memory)
    assert widths[1] < widths[0]
