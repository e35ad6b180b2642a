"""What a bound takes in: all that the fix can win, so that nobody wins more than was promised."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from brrrtop.advisories.advise import advise
from brrrtop.model import Advisory
from brrrtop.tables import OpSignature
from collectors.wire import MarkClass

from .scenarios import (
    ADD64,
    ADDCDIV,
    CAST,
    GEMM,
    MUL,
    ODD_GEMM,
    SGEMM,
    TF32_GEMM,
    Scene,
)

FROM_FP64 = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul>, 4, LoadWithCast<1>>(P)"
)


def given(kind: str, body: Callable[[Scene], object]) -> tuple[Advisory, dict[str, float]]:
    """The advisory, and shares of the wall: idle by cause, and under-filled."""
    scene = Scene()
    for _ in range(5):
        body(scene)
        scene.step()
    account = scene.judged().estimate.account
    times = dict(account.idle_ns) | {"underfilled": account.underfilled_ns}
    shares = {name: time / account.duration_ns for name, time in times.items()}
    return next(one for one in advise(scene.judged()) if one.kind == kind), shares


def work(scene: Scene, late: float) -> None:
    """20 ms of kernels, the first of them launched `late` us after the GPU fell idle."""
    scene.kernel(GEMM, 300.0, blocks=132, late=late)
    for _ in range(60):
        scene.kernel(GEMM, 300.0, blocks=132)


def test_a_pageable_upload_can_win_what_the_bus_allows_and_the_refill_after_it() -> None:
    def body(scene: Scene) -> None:
        scene.copy("up", 256 << 20, 40_000.0, pageable=True)
        work(scene, late=2_000.0)

    found, idle = given("pin-memory", body)
    exposed = found.evidence["exposed_share"]
    at_full_speed = (256 << 20) / 63e9 / 0.040
    assert idle["sync"] > 0.02
    assert found.saves_at_most == pytest.approx(
        exposed * (1 - at_full_speed) + idle["sync"], abs=1e-3
    )


def test_a_large_copy_back_can_win_the_refill_after_it() -> None:
    def body(scene: Scene) -> None:
        work(scene, late=2_000.0)
        scene.copy("down", 64 << 20, 9_000.0, pageable=True)

    found, idle = given("readback-traffic", body)
    assert idle["sync"] > 0.02
    exposed = found.evidence["exposed_share"]
    assert found.saves_at_most == pytest.approx(exposed + idle["sync"], abs=1e-3)


def test_casts_take_the_launches_that_the_gpu_waits_for_with_them() -> None:
    def body(scene: Scene) -> None:
        for _ in range(20):
            scene.kernel(CAST, 30.0, late=15.0).kernel(GEMM, 60.0, late=15.0)

    found, idle = given("cast-churn", body)
    assert idle["launch"] > 0.2
    assert found.saves_at_most == pytest.approx(
        found.evidence["cast_share"] + idle["launch"] / 2, abs=5e-3
    )


@pytest.mark.parametrize(
    ("kind", "name", "us"),
    [
        ("tensor-core-alignment", ODD_GEMM, 1_000.0),
        ("use-bf16", TF32_GEMM, 500.0),
        ("enable-tf32-or-amp", SGEMM, 3_000.0),
    ],
)
def test_products_of_known_shape_can_win_all_but_their_flops_at_peak(
    kind: str, name: str, us: float
) -> None:
    odd = kind == "tensor-core-alignment"
    size, element = (4095, "c10::BFloat16") if odd else (4096, "float")
    op = OpSignature("aten::mm", ((size, size), (size, size)), (element, element))
    found, _ = given(kind, lambda scene: [scene.kernel(name, us, op=op) for _ in range(20)])
    left = 2 * size**3 / 989.4e12 / (us * 1e-6)
    assert found.saves_at_most == pytest.approx(1 - left, abs=0.01)


def test_without_shapes_the_peaks_alone_say_what_bf16_can_win() -> None:
    found, _ = given("use-bf16", lambda s: [s.kernel(TF32_GEMM, 500.0) for _ in range(20)])
    assert found.saves_at_most == pytest.approx(0.5, abs=0.01)


def test_what_only_converts_from_fp64_goes_whole() -> None:
    convert = OpSignature("aten::copy_", ((8192, 8192), (8192, 8192)), ("float", "double"))

    def body(scene: Scene) -> None:
        for _ in range(10):
            scene.kernel(ADD64, 300.0).kernel(FROM_FP64, 200.0, op=convert).kernel(GEMM, 500.0)

    found, _ = given("double-precision", body)
    assert found.saves_at_most == pytest.approx((300 / 2 + 200) / 1_000, abs=0.01)


def launch_bound(scene: Scene) -> None:
    """100 kernels of the model and 100 of an update, each 5 us after a wait of 15 us."""
    for _ in range(100):
        scene.kernel(MUL, 5.0, late=15.0)
    scene.mark(MarkClass.OPTIMIZER, 100 * 20.0)
    for _ in range(100):
        scene.kernel(ADDCDIV, 5.0, late=15.0)


def test_compiling_the_model_wins_nothing_in_the_update() -> None:
    found, shares = given("launch-bound-compile", launch_bound)
    assert found.saves_at_most == pytest.approx(
        shares["launch"] / 2 + shares["underfilled"], abs=0.02
    )


def test_an_update_that_launches_set_the_pace_of_costs_its_time_on_the_host() -> None:
    found, _ = given("fused-optimizer", launch_bound)
    assert found.saves_at_most == pytest.approx(0.5, abs=0.01)
