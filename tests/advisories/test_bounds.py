"""What a bound takes in: all that the fix can win, so that nobody wins more than was promised."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from brrrtop.advisories.advise import advise
from brrrtop.estimator.facts import facts
from brrrtop.model import Advisory
from brrrtop.tables import OpSignature
from collectors.wire import CallClass, MarkClass

from .scenarios import (
    ADD,
    ADD32,
    ADD64,
    ADDCDIV,
    BN_NATIVE,
    CAST,
    CONV_NHWC,
    COPY,
    FUSED_ADAM,
    GEMM,
    MEAN,
    MUL,
    ODD_GEMM,
    ROWS_ADDED,
    SGEMM,
    SQRT,
    TF32_GEMM,
    TO_NHWC,
    ZEROS,
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


@pytest.mark.parametrize(("away_us", "most"), [(6_000.0, 6.0), (60_000.0, 9.0)])
def test_a_large_copy_back_can_win_what_the_host_does_with_it_but_no_more_than_itself(
    away_us: float, most: float
) -> None:
    def body(scene: Scene) -> None:
        work(scene, late=away_us)
        scene.copy("down", 64 << 20, 9_000.0, pageable=True)

    found, idle = given("readback-traffic", body)
    exposed = found.evidence["exposed_share"]
    assert idle["host"] > 0.1
    # Of five gaps before the work four follow a copy: the first is before all of them.
    four = 0.8 if most < 9.0 else 1.0
    assert found.saves_at_most == pytest.approx(exposed * (1 + four * most / 9.0), rel=0.02)


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


def reading(scene: Scene, waited: float) -> None:
    """A loop that launches set the pace of, and ten values read back in it."""
    for _ in range(10):
        for _ in range(20):
            scene.kernel(MUL, 5.0, late=15.0)
        scene.sync(waited)


def test_a_wait_in_a_loop_that_launches_set_the_pace_of_costs_itself_and_its_value() -> None:
    found, idle = given("sync-point", lambda scene: reading(scene, 1.0))
    wall = 20 * 20.0 * 10
    launching = idle["launch"] / 200
    # Blocked 3 us, 20 us in the op and two launches of the value's own, ten times.
    assert found.saves_at_most == pytest.approx(10 * (23.0 / wall + 2 * launching), abs=0.02)
    assert "every N steps only" in found.suggests
    assert found.confidence < 0.9


def test_fusing_leaves_needless_copies_to_their_own_advice() -> None:
    def body(scene: Scene) -> None:
        for _ in range(10):
            scene.kernel(GEMM, 300.0)
            for name in (COPY, ADD, COPY, MUL, ADD, COPY, MUL):
                scene.kernel(name, 100.0)

    fused, _ = given("fuse-pointwise", body)
    copies, _ = given("needless-copies", body)
    assert copies.saves_at_most == pytest.approx(0.3, abs=0.01)
    # Four of 100 us are left in each run, and one kernel of them stays.
    assert fused.saves_at_most == pytest.approx(0.3, abs=0.01)


def test_fusing_takes_the_conversions_in_its_runs() -> None:
    def body(scene: Scene) -> None:
        for _ in range(10):
            scene.kernel(GEMM, 300.0)
            for name in (CAST, ADD, MUL, CAST, ADD, MUL):
                scene.kernel(name, 60.0)

    given("fuse-pointwise", body)
    with pytest.raises(StopIteration):
        given("cast-churn", body)


def test_conversions_that_are_most_of_the_runs_have_their_own_advice_and_fusing_the_rest() -> None:
    def body(scene: Scene) -> None:
        for _ in range(10):
            scene.kernel(GEMM, 300.0)
            for name in (CAST, ADD, CAST, MUL, CAST, ADD, CAST, MUL):
                scene.kernel(name, 60.0)

    casts, _ = given("cast-churn", body)
    fused, _ = given("fuse-pointwise", body)
    assert casts.saves_at_most == pytest.approx(240 / 780, abs=0.01)
    # Eight kernels, of which one stays.
    assert casts.saves_at_most + fused.saves_at_most == pytest.approx(420 / 780, abs=0.02)
    assert "conversions not counted" in fused.says


def norms(scene: Scene, others: int) -> None:
    """Layer norms written out, an update, and other pointwise kernels after each of them."""
    for _ in range(10):
        scene.kernel(GEMM, 600.0)
        for name in (MEAN, ADD, MUL, MEAN, ADD, SQRT, MUL, MUL, ADD, *(ADD,) * others):
            scene.kernel(name, 40.0)
    scene.kernel(FUSED_ADAM, 100.0)


def test_a_layer_norm_that_is_most_of_the_runs_has_its_own_advice() -> None:
    found, _ = given("fused-norm", lambda scene: norms(scene, 2))
    wall = 10 * (600 + 11 * 40) + 100
    assert found.evidence["norm_share"] == pytest.approx(10 * 9 * 40 / wall, abs=0.01)
    assert found.saves_at_most == pytest.approx(0.75 * 3 * 10 * 9 * 40 / wall, abs=0.02)


def test_a_layer_norm_in_longer_runs_goes_with_them() -> None:
    given("fuse-pointwise", lambda scene: norms(scene, 60))
    with pytest.raises(StopIteration):
        given("fused-norm", lambda scene: norms(scene, 60))


@pytest.mark.parametrize(("away_us", "said"), [(3_000.0, True), (12_000.0, False)])
def test_fusing_for_a_twentieth_comes_after_what_half_the_step_waits_for(
    away_us: float, said: bool
) -> None:
    scene = Scene()
    for _ in range(5):
        scene.idle(away_us)
        for _ in range(10):
            scene.kernel(GEMM, 500.0)
            for _ in range(6):
                scene.kernel(ADD, 25.0)
        scene.step()
    assert ("fuse-pointwise" in scene.advice()) is said


def allocating(scene: Scene, us: float) -> None:
    """Few long kernels launched ahead, many short ones that are late, and calls for memory."""
    for _ in range(6):
        scene.kernel(GEMM, 300.0, blocks=132)
    for _ in range(150):
        scene.kernel(MUL, 5.0, late=10.0)
    for _ in range(10):
        scene.call(CallClass.ALLOC, us, "cudaFree")


def test_short_kernels_late_after_calls_for_memory_do_not_make_a_loop_launch_bound() -> None:
    given("launch-bound-compile", lambda scene: allocating(scene, 1.0))
    found, _ = given("allocation-churn", lambda scene: allocating(scene, 100.0))
    with pytest.raises(StopIteration):
        given("launch-bound-compile", lambda scene: allocating(scene, 100.0))
    assert found.evidence["calls"] == ["cudaFree"]


def test_calls_for_memory_cost_what_they_hold_the_host_up_for() -> None:
    """Of 1.2 ms in each the device idles for 0.4 only, and is late for the launches after them."""

    def body(scene: Scene) -> None:
        for _ in range(4):
            scene.kernel(GEMM, 800.0, blocks=132)
            scene.now -= 800.0
            scene.call(CallClass.ALLOC, 1_200.0, "cudaFree")
            for _ in range(40):
                scene.kernel(MUL, 5.0, late=25.0)

    found, idle = given("allocation-churn", body)
    wall = 4 * (1_200 + 40 * 30)
    assert idle["allocator"] == pytest.approx(4 * 400 / wall, abs=0.02)
    assert found.saves_at_most == pytest.approx(4 * 1_200 / wall, abs=0.02)


def test_fp32_bytes_that_fusing_never_writes_need_not_be_halved() -> None:
    def body(scene: Scene) -> None:
        for _ in range(10):
            scene.kernel(GEMM, 200.0)
            for _ in range(8):
                scene.kernel(ADD32, 100.0)

    given("fuse-pointwise", body)
    found, _ = given("low-precision-storage", body)
    # Of eight kernels one is left.
    assert found.saves_at_most == pytest.approx(0.05, abs=0.01)


def test_twice_the_work_fits_beside_a_small_grid_and_no_more() -> None:
    """Of 256 threads with 64 registers four blocks fit on each of 132 SMs: 528."""
    for blocks, empty in ((33, 1 - 33 / 528), (264, 0.5)):
        scene = Scene()
        for _ in range(5):
            for _ in range(100):
                scene.kernel(GEMM, 40.0, blocks=blocks)
            scene.step()
        judged = scene.judged()
        seen = facts(judged.window, judged.estimate, judged.call_rows)
        assert seen.vacant[GEMM] == pytest.approx(empty)
    found, shares = given(
        "underfilled-kernels", lambda s: [s.kernel(GEMM, 15.0, blocks=33) for _ in range(100)]
    )
    assert found.saves_at_most == pytest.approx(shares["underfilled"] * (1 - 33 / 528), abs=0.01)


def test_a_faster_unit_moves_the_bytes_no_faster_than_the_memory() -> None:
    """2^20 rows times 64 x 64 in fp32 move 512 MiB; half of them take 56 us at 4.8 TB/s."""
    op = OpSignature("aten::mm", ((1 << 20, 64), (64, 64)), ("float", "float"))
    found, _ = given(
        "enable-tf32-or-amp", lambda s: [s.kernel(SGEMM, 200.0, op=op) for _ in range(20)]
    )
    assert found.saves_at_most == pytest.approx(1 - 56 / 200, abs=0.02)


def test_what_embedding_gradients_can_win_is_their_fills_and_seven_passes_of_the_update() -> None:
    def body(scene: Scene) -> None:
        scene.kernel(GEMM, 10_000.0, blocks=132)
        for _ in range(8):
            scene.kernel(ZEROS, 120.0).kernel(ROWS_ADDED, 15.0)
        scene.kernel(FUSED_ADAM, 20_000.0)

    found, _ = given("zero-grad-fill", body)
    wall = 10_000 + 8 * 135 + 20_000
    assert found.saves_at_most == pytest.approx(8 * (8 * 120) / wall, abs=0.01)
    assert found.evidence["bytes_a_step"] == pytest.approx(8 * 120e-6 * 4.1e12, rel=0.3)
    assert "sparse=True" in found.suggests


def test_norms_with_a_block_a_channel_can_lose_the_room_they_leave_empty() -> None:
    def body(scene: Scene) -> None:
        for _ in range(20):
            scene.kernel(TO_NHWC, 20.0).kernel(CONV_NHWC, 40.0)
            scene.kernel(BN_NATIVE, 500.0, blocks=66)

    found, _ = given("channels-last", body)
    assert found.saves_at_most == pytest.approx((20 + 500 * (1 - 66 / 528)) / 563, abs=0.01)
