"""Each advisory in a scene that calls for it, and in one that only looks like it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from brrrtop import units
from brrrtop.advisories import overhead
from brrrtop.advisories.catalogue import ENTRIES
from brrrtop.model import Advisory
from brrrtop.tables import OpSignature
from collectors.wire import CallClass, MarkClass, Metric

from .scenarios import (
    A100,
    ADD,
    ADD32,
    ADD64,
    ADD_CASTING,
    ADDCDIV,
    BN_NATIVE,
    BN_NCHW,
    CAST,
    CONV_NCHW,
    CONV_NHWC,
    CONV_OLD,
    COPY,
    COPY_CASTING,
    FLASH,
    FLASH2,
    FLASH_BACK,
    FOREACH,
    FUSED_ADAM,
    GEFORCE,
    GEMM,
    GEMV,
    LOG_SOFTMAX,
    MEAN,
    MUL,
    NCCL,
    NORM,
    ODD_GEMM,
    ROWS_ADDED,
    RSQRT,
    SCAN,
    SGEMM,
    SOFTMAX,
    SOFTMAX_BACK,
    SORT,
    TF32_GEMM,
    TO_NHWC,
    TOPK,
    TRITON,
    ZEROS,
    Scene,
    healthy,
)

CASES: dict[str, tuple[list[Callable[[], Scene]], list[Callable[[], Scene]]]] = {}
"""By id: scenes that call for it, scenes that must not."""


def calls_for(kind: str) -> Callable[[Callable[[], Scene]], Callable[[], Scene]]:
    def add(scene: Callable[[], Scene]) -> Callable[[], Scene]:
        CASES.setdefault(kind, ([], []))[0].append(scene)
        return scene

    return add


def silent(*kinds: str) -> Callable[[Callable[[], Scene]], Callable[[], Scene]]:
    def add(scene: Callable[[], Scene]) -> Callable[[], Scene]:
        for kind in kinds:
            CASES.setdefault(kind, ([], []))[1].append(scene)
        return scene

    return add


def looped(body: Callable[[Scene], object], steps: int = 5, scene: Scene | None = None) -> Scene:
    scene = scene or Scene()
    for _ in range(steps):
        body(scene)
        scene.step()
    return scene


def small(scene: Scene, count: int = 200, gap: float = 12.0, name: str = ADD) -> None:
    """Kernels that end before the next is launched."""
    for _ in range(count):
        scene.kernel(name, 2.0, late=gap, blocks=8)


def large(scene: Scene, count: int = 20, us: float = 300.0) -> None:
    for _ in range(count):
        scene.kernel(GEMM, us, blocks=132)


# ---------------------------------------------------------------- overhead


@calls_for("dataloader-stall")
def a_loader_that_is_late() -> Scene:
    return looped(lambda s: (s.idle(20_000, MarkClass.INPUT, "next"), large(s)))


@silent("dataloader-stall")
def a_loader_wait_behind_queued_work() -> Scene:
    return looped(lambda s: (s.mark(MarkClass.INPUT, 4_000, "next"), large(s)))


@calls_for("launch-bound-compile")
def many_small_kernels() -> Scene:
    return looped(small)


@calls_for("launch-bound-compile")
def many_small_kernels_beside_few_long_ones_launched_ahead() -> Scene:
    """Most of the kernel time was launched ahead, and half of the wall is idle before launches."""
    return looped(lambda s: (large(s, 6), small(s, 150)))


@silent("launch-bound-compile")
def some_small_kernels_that_are_late_among_many_that_are_not() -> Scene:
    return looped(lambda s: (small(s, 150, gap=15.0), [s.kernel(ADD, 8.0) for _ in range(400)]))


@calls_for("cuda-graphs")
@silent("launch-bound-compile")
def small_compiled_kernels() -> Scene:
    return looped(lambda s: (small(s, 60, name=TRITON), small(s, 10)))


@silent("launch-bound-compile", "cuda-graphs")
def small_kernels_of_graphs() -> Scene:
    return looped(lambda s: [s.kernel(ADD, 2.0, late=12.0, blocks=8, graph=3) for _ in range(90)])


def without_calls(scene: Scene) -> Scene:
    """The same as a tier sees it that records kernels only."""
    scene.calls.clear()
    return scene


@calls_for("launch-bound-compile")
def many_small_kernels_without_launch_records() -> Scene:
    return without_calls(looped(small))


@silent("launch-bound-compile")
def long_absences_without_launch_records() -> Scene:
    def body(s: Scene) -> None:
        for _ in range(40):
            s.kernel(ADD, 8.0)
        s.idle(6_000)

    return without_calls(looped(body))


@silent("launch-bound-compile", "cuda-graphs")
def small_kernels_behind_a_late_loader() -> Scene:
    return looped(lambda s: (s.idle(20_000, MarkClass.INPUT, "next"), small(s)))


@silent("launch-bound-compile")
def small_kernels_that_the_host_keeps_ahead_of() -> Scene:
    return looped(lambda s: [s.kernel(ADD, 8.0) for _ in range(400)])


@calls_for("cuda-graphs")
def the_same_small_kernels_every_step() -> Scene:
    return looped(small)


@silent("cuda-graphs")
def small_kernels_in_changing_numbers() -> Scene:
    scene = Scene()
    for count in (180, 200, 220, 210, 190):
        small(scene, count)
        scene.step()
    return scene


@calls_for("sync-point")
def values_read_back_all_the_time() -> Scene:
    def body(s: Scene) -> None:
        for _ in range(40):
            for _ in range(4):
                s.kernel(ADD, 60.0)
            s.sync(200.0)
            s.kernel(ADD, 60.0, late=80.0)

    return looped(body)


@calls_for("sync-point")
def values_read_back_without_call_records() -> Scene:
    def body(s: Scene) -> None:
        for _ in range(30):
            s.kernel(ADD, 60.0).copy("down", 4, 2.0).kernel(ADD, 60.0, late=80.0)

    return without_calls(looped(body))


@silent("sync-point")
def one_loss_read_back_a_step() -> Scene:
    def body(s: Scene) -> None:
        large(s, 40)
        s.sync(10_000.0)
        s.kernel(GEMM, 300.0, late=60.0)

    return looped(body)


@calls_for("host-stall")
@silent("sync-point")
def a_nap_after_a_wait() -> Scene:
    def body(s: Scene) -> None:
        large(s)
        s.sync(4_000.0)
        s.kernel(GEMM, 300.0, late=9_000.0, blocks=132)

    return looped(body)


@silent("sync-point")
def waits_for_pageable_uploads() -> Scene:
    def body(s: Scene) -> None:
        s.copy("up", 200 << 20, 30_000.0, pageable=True)
        s.sync(100.0)
        s.kernel(GEMM, 300.0, late=40.0)
        large(s)

    return looped(body)


@silent("sync-point")
def a_last_synchronize() -> Scene:
    return looped(large).sync(1_000.0)


@calls_for("fused-optimizer")
def an_update_for_each_parameter() -> Scene:
    def body(s: Scene) -> None:
        small(s, 100)
        s.kernel(ADD, 2.0, late=12.0, blocks=8, tid=2)
        for _ in range(40):
            for name in (MUL, MUL, ADDCDIV):
                s.kernel(name, 2.0, late=12.0, blocks=4)

    return looped(body)


@calls_for("fused-optimizer")
def an_update_for_each_parameter_without_launch_records() -> Scene:
    return without_calls(an_update_for_each_parameter())


@calls_for("fused-optimizer")
def an_update_for_each_parameter_in_a_range() -> Scene:
    def body(s: Scene) -> None:
        small(s, 100)
        s.mark(MarkClass.OPTIMIZER, 120 * 14.0, "Optimizer.step#SGD.step")
        small(s, 120, name=MUL)

    return looped(body)


@pytest.mark.parametrize(
    ("range_name", "told"),
    [
        ("Optimizer.step#SGD.step", "torch.optim.SGD(model.parameters(), lr, fused=True)"),
        (
            "Optimizer.step#Adagrad.step",
            "torch.optim.Adagrad(model.parameters(), lr, foreach=True)",
        ),
        ("Optimizer.step#Lion.step", "Lion's fused or foreach form, if it has one"),
        ("optimizer", "torch.optim.AdamW(model.parameters(), lr, fused=True)"),
    ],
)
def test_a_faster_update_is_named_of_the_same_optimizer(range_name: str, told: str) -> None:
    def body(s: Scene) -> None:
        small(s, 100)
        s.mark(MarkClass.OPTIMIZER, 120 * 14.0, range_name)
        small(s, 120, name=MUL)

    assert str(looped(body).advice()["fused-optimizer"].suggests).startswith(told)


@silent("fused-optimizer")
def a_fused_update_beside_gradient_norms() -> Scene:
    def body(s: Scene) -> None:
        small(s, 100)
        s.kernel(ADD, 2.0, late=12.0, blocks=4, tid=2)
        small(s, 120, name=MUL)
        for _ in range(3):
            s.kernel(FUSED_ADAM, 40.0)

    return looped(body)


@silent("fused-optimizer")
def an_update_over_lists() -> Scene:
    def body(s: Scene) -> None:
        small(s, 100)
        s.mark(MarkClass.OPTIMIZER, 400.0, "Optimizer.step#SGD.step")
        for _ in range(12):
            s.kernel(FOREACH, 20.0, late=12.0)

    return looped(body)


def updated_by_lists(kind: str, long_us: float) -> Scene:
    def body(s: Scene) -> None:
        large(s, 4)
        s.mark(MarkClass.OPTIMIZER, 12 * long_us, f"Optimizer.step#{kind}.step")
        for _ in range(12):
            s.kernel(FOREACH, long_us)

    return looped(body)


@calls_for("fused-optimizer")
def an_update_over_lists_of_very_many_parameters() -> Scene:
    return updated_by_lists("AdamW", 500.0)


@silent("fused-optimizer")
def an_update_over_lists_of_few_parameters() -> Scene:
    return updated_by_lists("AdamW", 5.0)


@silent("fused-optimizer")
def an_update_over_lists_that_a_fused_one_spares_no_pass() -> Scene:
    return updated_by_lists("RMSprop", 500.0)


@silent("fused-optimizer")
def an_update_that_multiplies_matrices() -> Scene:
    def body(s: Scene) -> None:
        large(s, 4)
        s.mark(MarkClass.OPTIMIZER, 5_700.0, "Optimizer.step#Muon.step")
        for _ in range(40):
            s.kernel(MUL, 20.0)
            s.kernel(GEMM, 100.0)
            s.kernel(MUL, 20.0)

    return looped(body)


@calls_for("pin-memory")
def large_pageable_uploads() -> Scene:
    return looped(lambda s: (s.copy("up", 256 << 20, 40_000.0, pageable=True), large(s)))


@silent("pin-memory")
def labels_from_pageable_memory() -> Scene:
    return looped(lambda s: (s.copy("up", 8_192, 9.0, pageable=True), large(s)))


@silent("pin-memory")
def large_pinned_uploads() -> Scene:
    return looped(lambda s: (s.copy("up", 256 << 20, 5_000.0), large(s)))


@calls_for("overlap-copies")
def pinned_uploads_that_nothing_hides() -> Scene:
    return looped(lambda s: (s.copy("up", 256 << 20, 5_000.0), large(s)))


@silent("overlap-copies")
def pinned_uploads_beside_a_kernel() -> Scene:
    def body(s: Scene) -> None:
        s.kernel(GEMM, 6_000.0, blocks=132)
        s.copy("up", 256 << 20, 5_000.0, beside=True)
        large(s)

    return looped(body)


@calls_for("readback-traffic")
def predictions_copied_back() -> Scene:
    return looped(lambda s: (large(s), s.copy("down", 64 << 20, 2_500.0)))


@silent("readback-traffic")
def scalars_copied_back() -> Scene:
    return looped(lambda s: (large(s), s.copy("down", 8, 2.0)))


@calls_for("underfilled-kernels")
def small_grids_with_the_host_ahead() -> Scene:
    return looped(lambda s: [s.kernel(GEMM, 15.0, blocks=16) for _ in range(100)])


@silent("underfilled-kernels", "bigger-batch")
def full_grids() -> Scene:
    return memory(looped(large), used=0.2)


def memory(scene: Scene, used: float) -> Scene:
    scene.gauge(Metric.MEMORY_TOTAL_BYTES, 140e9)
    return scene.gauge(Metric.MEMORY_USED_BYTES, used * 140e9)


@calls_for("bigger-batch")
def overhead_and_free_memory() -> Scene:
    return memory(looped(small), used=0.3)


@silent("bigger-batch")
def overhead_and_full_memory() -> Scene:
    return memory(looped(small), used=0.9)


@calls_for("host-stall")
def a_host_that_is_elsewhere() -> Scene:
    def body(s: Scene) -> None:
        large(s)
        s.kernel(GEMM, 300.0, late=4_000.0, blocks=132)

    return looped(body)


@calls_for("host-stall")
def a_host_that_is_elsewhere_without_launch_records() -> Scene:
    return without_calls(a_host_that_is_elsewhere())


@silent("host-stall")
def python_between_launches() -> Scene:
    return looped(small)


def sampled(scene: Scene, line: str, count: int = 10) -> None:
    scene.kernel(GEMM, 300.0, late=5_000.0, blocks=132)
    for _ in range(count):
        scene.mark(MarkClass.STACK, name=line)


@calls_for("python-overhead")
def samples_at_one_line() -> Scene:
    return looped(lambda s: (large(s), sampled(s, "train.py:12 rescale")))


@calls_for("host-stall")
@silent("python-overhead")
def samples_in_the_files_of_the_loop_itself() -> Scene:
    return looped(lambda s: (large(s), sampled(s, "train.py:12 main | rows = np.load(path)")))


@silent("python-overhead")
def a_handful_of_samples() -> Scene:
    return looped(lambda s: (large(s), sampled(s, "train.py:12 rescale", count=1)))


@calls_for("logging-stall")
def samples_in_a_file_write() -> Scene:
    return looped(lambda s: (large(s), sampled(s, "train.py:30 report | out.write(line)")))


@silent("logging-stall")
def samples_in_a_logarithm() -> Scene:
    line = "model.py:9 forward | return F.log_softmax(x.log(), -1)"
    return looped(lambda s: (large(s), sampled(s, line)))


@calls_for("checkpoint-stall")
def samples_in_a_save() -> Scene:
    return looped(lambda s: (large(s), sampled(s, "train.py:40 keep | torch.save(state, path)")))


@calls_for("dataloader-stall")
def samples_in_a_hand_made_loader() -> Scene:
    return looped(lambda s: (large(s), sampled(s, "train.py:5 main | batch = next(batches)")))


@calls_for("sync-point")
def samples_in_a_read_back() -> Scene:
    return looped(lambda s: (large(s), sampled(s, "train.py:8 main | total += loss.item()")))


@silent("python-overhead", "host-stall")
def samples_at_a_line_with_advice_of_its_own() -> Scene:
    return samples_in_a_read_back()


@silent("python-overhead")
def samples_in_the_backward_of_a_launch_bound_run() -> Scene:
    def body(s: Scene) -> None:
        small(s)
        for _ in range(10):
            s.mark(MarkClass.STACK, name="train.py:7 main > torch/_tensor.py:581 backward")

    return looped(body)


@calls_for("recompilation")
def code_loaded_in_every_step() -> Scene:
    def body(s: Scene) -> None:
        large(s)
        s.call(CallClass.MODULE, 2_000.0, "cuLibraryLoadData")
        s.kernel(GEMM, 300.0, late=5.0, blocks=132)

    return looped(body)


@silent("recompilation")
def code_loaded_once() -> Scene:
    scene = looped(large).call(CallClass.MODULE, 9_000.0, "cuLibraryLoadData")
    return looped(large, scene=scene.kernel(GEMM, 300.0, late=5.0, blocks=132))


@calls_for("recompilation")
def a_compile_in_steady_state() -> Scene:
    scene = healthy()
    return healthy(scene.idle(9_000, MarkClass.COMPILE, "forward", value=3))


@silent("recompilation")
def a_run_that_was_compiled_before() -> Scene:
    return looped(lambda s: [s.kernel(TRITON, 200.0) for _ in range(50)])


@calls_for("graph-breaks")
def fused_kernels_beside_many_loose_ones() -> Scene:
    def body(s: Scene) -> None:
        s.kernel(TRITON, 100.0)
        for _ in range(10):
            large(s, 1)
            for _ in range(6):
                s.kernel(ADD, 60.0)

    return looped(body)


@silent("graph-breaks")
def a_compiled_run() -> Scene:
    return looped(lambda s: [(s.kernel(TRITON, 100.0), large(s, 1)) for _ in range(20)])


@calls_for("gc-pause")
def a_long_collection() -> Scene:
    return healthy(healthy().idle(30_000, MarkClass.GC, "gc", value=2))


@silent("gc-pause")
def a_collection_behind_queued_work() -> Scene:
    return looped(lambda s: (s.mark(MarkClass.GC, 2_000, "gc"), large(s)))


@calls_for("allocator-retries")
def an_allocator_that_ran_out() -> Scene:
    return healthy(healthy().idle(6_000, MarkClass.ALLOCATOR, "retry", value=2))


@silent("allocator-retries", "allocation-churn")
def an_allocator_at_rest() -> Scene:
    return healthy()


@calls_for("allocation-churn")
def driver_allocations_every_step() -> Scene:
    def body(s: Scene) -> None:
        large(s)
        for _ in range(4):
            s.call(CallClass.ALLOC, 300.0, "cudaMalloc")
        s.kernel(GEMM, 300.0, late=5.0, blocks=132)

    return looped(body)


@silent("allocation-churn")
def a_cache_that_fills_in_the_first_steps() -> Scene:
    def body(s: Scene) -> None:
        for _ in range(20 if not s.marks else 0):
            s.call(CallClass.ALLOC, 900.0, "cudaMalloc")
        s.kernel(GEMM, 300.0, late=5.0, blocks=132)
        large(s)

    return looped(body)


@calls_for("checkpoint-stall")
def a_save_that_stops_the_loop() -> Scene:
    return healthy(healthy().idle(80_000, MarkClass.CHECKPOINT, "torch.save"))


def written(s: Scene, tensors: int = 16) -> None:
    """`torch.save` as the device sees it: a copy, then the host writes it, tensor after tensor."""
    for _ in range(tensors):
        s.copy("down", 16 << 20, 4_000.0, pageable=True)
        s.sync(10.0)
        s.idle(4_000.0)


@calls_for("checkpoint-stall")
@silent("sync-point", "readback-traffic", "host-stall", "python-overhead")
def a_save_that_nobody_marked() -> Scene:
    scene = healthy()
    written(scene)
    return healthy(scene)


@calls_for("readback-traffic")
@silent("checkpoint-stall")
def as_much_copied_back_every_step() -> Scene:
    return looped(lambda s: (large(s), written(s)))


@calls_for("readback-traffic")
@silent("checkpoint-stall")
def results_copied_back_between_kernels() -> Scene:
    def body(s: Scene) -> None:
        large(s)
        if s.marks and len(s.marks) % 4 == 2:
            for _ in range(16):
                s.copy("down", 16 << 20, 4_000.0, pageable=True)
                s.kernel(GEMM, 300.0, late=20.0)

    return looped(body, steps=8)


@silent("checkpoint-stall")
def a_save_in_the_background() -> Scene:
    return looped(lambda s: (s.mark(MarkClass.CHECKPOINT, 3_000, "async_save"), large(s)))


@calls_for("logging-stall")
def a_logger_that_writes() -> Scene:
    return looped(lambda s: (large(s), s.idle(2_000, MarkClass.LOGGING, "Run.log")))


@silent("logging-stall")
def a_logger_behind_queued_work() -> Scene:
    return looped(lambda s: (s.mark(MarkClass.LOGGING, 2_000, "Run.log"), large(s)))


@calls_for("evaluation-idle")
def an_evaluation_that_waits() -> Scene:
    return healthy(healthy().idle(30_000, MarkClass.EVALUATION, "evaluate"))


@silent("evaluation-idle")
def an_evaluation_that_keeps_the_gpu_busy() -> Scene:
    return looped(lambda s: (s.mark(MarkClass.EVALUATION, 6_000, "evaluate"), large(s)))


# ---------------------------------------------------------------- memory


@calls_for("fuse-pointwise")
def long_pointwise_runs() -> Scene:
    return looped(lambda s: (large(s, 4), [s.kernel(ADD, 80.0) for _ in range(30)]))


@calls_for("fuse-pointwise")
def short_runs_where_moving_is_most() -> Scene:
    def layer(s: Scene) -> None:
        s.kernel(GEMM, 60.0)
        s.kernel(ADD, 100.0)
        s.kernel(ADD, 40.0)

    return looped(lambda s: [layer(s) for _ in range(20)])


@silent("fuse-pointwise")
def residuals_and_norms() -> Scene:
    def layer(s: Scene) -> None:
        large(s, 2)
        s.kernel(ADD, 25.0)
        s.kernel(NORM, 35.0)

    return looped(lambda s: [layer(s) for _ in range(12)])


@silent("fuse-pointwise", "fused-norm")
def pointwise_runs_nobody_waits_for() -> Scene:
    return looped(lambda s: (s.idle(40_000, MarkClass.INPUT, "next"), small(s, 40)))


@silent("fuse-pointwise")
def pointwise_runs_after_copies_that_take_longer() -> Scene:
    def body(s: Scene) -> None:
        s.copy("up", 512 << 20, 10_000.0)
        large(s, 4)
        for _ in range(30):
            s.kernel(ADD, 80.0)

    return looped(body)


@silent("fuse-pointwise")
def small_tensors_in_long_runs_beside_a_large_one() -> Scene:
    def layer(s: Scene) -> None:
        large(s, 1)
        s.kernel(ADD, 60.0)
        s.kernel(ADD, 60.0)
        for _ in range(6):
            s.kernel(ADD, 2.0, blocks=8)

    return looped(lambda s: [layer(s) for _ in range(12)])


@calls_for("fused-norm")
def a_norm_written_out() -> Scene:
    def layer(s: Scene) -> None:
        large(s, 3)
        for name in (MUL, MEAN, ADD, RSQRT, MUL):
            s.kernel(name, 12.0)

    return looped(lambda s: [layer(s) for _ in range(12)])


@silent("fused-norm")
def a_norm_in_one_kernel() -> Scene:
    return looped(lambda s: [(large(s, 3), s.kernel(NORM, 40.0)) for _ in range(12)])


@calls_for("low-precision-storage")
def bandwidth_spent_on_fp32() -> Scene:
    return looped(lambda s: [(large(s, 1), s.kernel(ADD32, 400.0)) for _ in range(12)])


@silent("low-precision-storage")
def bandwidth_spent_on_bf16() -> Scene:
    return looped(lambda s: [(large(s, 1), s.kernel(ADD, 400.0)) for _ in range(12)])


@calls_for("cast-churn")
def conversions_all_over() -> Scene:
    return looped(lambda s: [(large(s, 1), s.kernel(CAST, 80.0)) for _ in range(20)])


@silent("cast-churn")
def one_conversion_of_each_weight() -> Scene:
    return looped(lambda s: [(large(s, 2), s.kernel(CAST, 20.0)) for _ in range(20)])


@silent("cast-churn", "needless-copies")
def arithmetic_that_converts_what_it_reads() -> Scene:
    return looped(lambda s: [(large(s, 1), s.kernel(ADD_CASTING, 80.0)) for _ in range(20)])


@calls_for("cast-churn")
@silent("needless-copies")
def conversions_of_strided_tensors() -> Scene:
    return looped(lambda s: [(large(s, 1), s.kernel(COPY_CASTING, 80.0)) for _ in range(20)])


@calls_for("channels-last")
def channels_first_convolutions() -> Scene:
    def layer(s: Scene) -> None:
        s.kernel(TO_NHWC, 20.0)
        s.kernel(CONV_NCHW, 200.0)
        s.kernel(BN_NCHW, 60.0)

    return looped(lambda s: [layer(s) for _ in range(20)])


@silent("channels-last")
def channels_last_convolutions() -> Scene:
    def body(s: Scene) -> None:
        s.kernel(TO_NHWC, 20.0)
        for _ in range(20):
            s.kernel(CONV_NHWC, 200.0)
            s.kernel(NORM, 40.0)

    return looped(body)


@calls_for("channels-last")
@silent("underfilled-kernels")
def channels_first_norms_around_few_convolutions() -> Scene:
    def layer(s: Scene) -> None:
        s.kernel(TO_NHWC, 20.0)
        s.kernel(CONV_NHWC, 40.0)
        s.kernel(BN_NATIVE, 500.0, blocks=64)

    return looped(lambda s: [layer(s) for _ in range(20)])


@silent("channels-last")
def norms_of_sequences_beside_convolutions() -> Scene:
    op = OpSignature("aten::native_batch_norm_backward", ((64, 256, 1000),), ("c10::BFloat16",))

    def layer(s: Scene) -> None:
        s.kernel(CONV_NHWC, 60.0)
        s.kernel(BN_NATIVE, 500.0, blocks=64, op=op)

    return looped(lambda s: [layer(s) for _ in range(20)])


@silent("channels-last")
def convolutions_of_sequences() -> Scene:
    """cuDNN converts them all the same, but no memory format of PyTorch is for three axes."""
    forward = OpSignature("aten::cudnn_convolution", ((16, 64, 1, 16000), (128, 64, 1, 2)))
    backward = OpSignature("aten::convolution_backward", ((16, 128, 16000), (16, 64, 16001)))

    def layer(s: Scene) -> None:
        for op in (forward, backward):
            s.kernel(TO_NHWC, 60.0, op=op)
            s.kernel(CONV_NCHW, 60.0, op=op)

    return looped(lambda s: [layer(s) for _ in range(20)])


@silent("channels-last")
def norms_without_convolutions() -> Scene:
    return looped(lambda s: [(large(s, 1), s.kernel(BN_NATIVE, 500.0)) for _ in range(20)])


@calls_for("needless-copies")
def copies_between_products() -> Scene:
    return looped(lambda s: [(large(s, 1), s.kernel(COPY, 90.0)) for _ in range(20)])


@silent("needless-copies")
def the_copies_attention_needs() -> Scene:
    return looped(
        lambda s: [(large(s, 2), s.kernel(FLASH, 90.0), s.kernel(COPY, 30.0)) for _ in range(20)]
    )


@calls_for("inefficient-kernel")
def a_softmax_far_under_its_roof() -> Scene:
    # 64 MiB in and out at 4.8 TB/s take 28 us; it takes 400.
    return looped(lambda s: [(large(s, 2), s.kernel(MUL, 400.0, blocks=5460)) for _ in range(10)])


@silent("inefficient-kernel")
def a_kernel_at_its_roof() -> Scene:
    return looped(lambda s: [(large(s, 2), s.kernel(MUL, 400.0)) for _ in range(10)])


@calls_for("activation-checkpointing")
def bandwidth_bound_and_full() -> Scene:
    return memory(
        looped(lambda s: [(large(s, 1), s.kernel(ADD, 900.0)) for _ in range(10)]), used=0.95
    )


@silent("activation-checkpointing")
def compute_bound_and_full() -> Scene:
    return memory(healthy(), used=0.95)


@calls_for("remove-checkpointing")
def a_forward_that_runs_twice() -> Scene:
    def body(s: Scene) -> None:
        for _ in range(10):
            s.kernel(FLASH, 100.0)
            large(s, 1)
        for _ in range(10):
            large(s, 1)
            s.kernel(FLASH, 100.0)
            large(s, 1)
            s.kernel(FLASH_BACK, 250.0)

    return memory(looped(body), used=0.3)


@calls_for("remove-checkpointing")
def a_forward_that_runs_twice_with_memory_unknown() -> Scene:
    scene = a_forward_that_runs_twice()
    scene.gauges.clear()
    return scene


@silent("remove-checkpointing")
def a_forward_that_runs_twice_in_full_memory() -> Scene:
    scene = a_forward_that_runs_twice()
    scene.gauges.clear()
    return memory(scene, used=0.9)


@silent("remove-checkpointing")
def accumulated_micro_batches() -> Scene:
    def body(s: Scene) -> None:
        for _ in range(4):
            for name, us in ((FLASH, 100.0), (FLASH_BACK, 250.0)):
                for _ in range(6):
                    large(s, 1)
                    s.kernel(name, us)

    return looped(body)


@silent("remove-checkpointing")
def a_forward_that_runs_once() -> Scene:
    def body(s: Scene) -> None:
        for name, us in ((FLASH, 100.0), (FLASH_BACK, 250.0)):
            for _ in range(10):
                large(s, 1)
                s.kernel(name, us)

    return memory(looped(body), used=0.3)


@calls_for("embedding-sort")
def indices_sorted_every_step() -> Scene:
    return looped(lambda s: [(large(s, 1), s.kernel(SORT, 120.0)) for _ in range(20)])


GATHER = "void at::native::(anonymous namespace)::vectorized_gather_kernel<16, long>(P)"


@calls_for("embedding-sort")
def weights_of_experts_gathered() -> Scene:
    return looped(lambda s: [(large(s, 1), s.kernel(GATHER, 200.0)) for _ in range(20)])


def test_rows_that_are_only_read_are_not_told_of_sparse_gradients() -> None:
    found = weights_of_experts_gathered().advice()["embedding-sort"]
    assert "gathers rows" in found.says and "Sparse" not in str(found.suggests)
    found = indices_sorted_every_step().advice()["embedding-sort"]
    assert "sorts" in found.says and "SparseAdam" in str(found.suggests)


@silent("embedding-sort")
def one_embedding() -> Scene:
    return looped(lambda s: (large(s, 20), s.kernel(SORT, 60.0)))


@calls_for("zero-grad-fill")
def gradients_filled_with_zeros() -> Scene:
    return looped(lambda s: (large(s), s.fill(2 << 30, 500.0)))


def table_gradient(s: Scene, us: float) -> None:
    """The gradient of an embedding: zeros for the table, then the rows of the batch."""
    s.kernel(SORT, 6.0).kernel(ZEROS, us)
    for _ in range(6):
        s.kernel(SCAN, 2.0)
    s.kernel(ROWS_ADDED, 15.0)


@calls_for("zero-grad-fill")
@silent("embedding-sort")
def gradients_of_whole_embedding_tables() -> Scene:
    def body(s: Scene) -> None:
        large(s, 4)
        for _ in range(8):
            table_gradient(s, 120.0)
            s.kernel(SORT, 60.0)
        s.kernel(FUSED_ADAM, 6_000.0)

    return looped(body)


@silent("zero-grad-fill")
def the_gradient_of_one_vocabulary() -> Scene:
    return looped(lambda s: (large(s, 20), table_gradient(s, 40.0), s.kernel(FUSED_ADAM, 100.0)))


@silent("zero-grad-fill")
def buffers_of_zeros_that_no_embedding_asked_for() -> Scene:
    return looped(lambda s: [(large(s, 2), s.kernel(ZEROS, 120.0)) for _ in range(8)])


@silent("zero-grad-fill")
def small_workspaces_cleared() -> Scene:
    return looped(lambda s: [(large(s, 1), s.fill(4096, 1.0)) for _ in range(20)])


# ---------------------------------------------------------------- compute


@calls_for("enable-tf32-or-amp")
def fp32_products_on_cuda_cores() -> Scene:
    return looped(lambda s: [s.kernel(SGEMM, 400.0) for _ in range(20)])


@calls_for("enable-tf32-or-amp")
def fp32_products_on_an_a100() -> Scene:
    return looped(lambda s: [s.kernel(SGEMM, 400.0) for _ in range(20)], scene=Scene(A100))


@silent("enable-tf32-or-amp")
def fp32_products_behind_launches() -> Scene:
    return looped(lambda s: small(s, name=SGEMM))


@silent("enable-tf32-or-amp")
def short_fp32_products_that_leave_the_gpu_empty() -> Scene:
    return looped(lambda s: [s.kernel(SGEMM, 5.0, blocks=16) for _ in range(400)])


@silent("enable-tf32-or-amp")
def fp32_products_that_move_more_than_they_multiply() -> Scene:
    op = OpSignature("aten::bmm", ((65536, 7, 64), (65536, 64, 7)), ("float",) * 2)
    return looped(lambda s: [s.kernel(SGEMM, 300.0, op=op) for _ in range(20)])


@calls_for("enable-tf32-or-amp")
def long_fp32_products_of_few_blocks() -> Scene:
    return looped(lambda s: [s.kernel(SGEMM, 400.0, blocks=48) for _ in range(20)])


@silent("use-bf16")
def short_tf32_products_that_leave_the_gpu_empty() -> Scene:
    return looped(lambda s: [s.kernel(TF32_GEMM, 5.0, blocks=16) for _ in range(400)])


@silent("enable-tf32-or-amp", "use-bf16")
def bf16_products() -> Scene:
    return looped(large)


@calls_for("use-bf16")
def tf32_products() -> Scene:
    return looped(lambda s: [s.kernel(TF32_GEMM, 400.0) for _ in range(20)])


@calls_for("tensor-core-alignment")
def rows_of_odd_length() -> Scene:
    op = OpSignature("aten::mm", ((8190, 4095), (4095, 4095)), ("c10::BFloat16",) * 2)
    return looped(lambda s: [s.kernel(ODD_GEMM, 900.0, blocks=512, op=op) for _ in range(10)])


@silent("tensor-core-alignment")
def a_small_odd_head() -> Scene:
    return looped(lambda s: (large(s, 40), s.kernel(ODD_GEMM, 40.0, blocks=4)))


def attention(scene: Scene, *, between: tuple[str, ...], op: OpSignature | None = None) -> None:
    scene.kernel(GEMM, 300.0, blocks=132, op=op)
    for name in between:
        scene.kernel(name, 500.0)
    scene.kernel(GEMM, 300.0, blocks=132, op=op)
    large(scene, 4)


BMM = OpSignature("aten::bmm", ((32, 4096, 64), (32, 64, 4096)), ("c10::BFloat16",) * 2)
MM = OpSignature("aten::mm", ((8192, 1024), (1024, 1024)), ("c10::BFloat16",) * 2)


@calls_for("flash-attention")
def attention_written_out() -> Scene:
    return looped(lambda s: [attention(s, between=(MUL, ADD, SOFTMAX, MUL)) for _ in range(4)])


@calls_for("flash-attention")
def attention_written_out_with_shapes() -> Scene:
    return looped(lambda s: [attention(s, between=(MUL, SOFTMAX), op=BMM) for _ in range(4)])


@calls_for("flash-attention")
def attention_written_out_where_ops_have_no_shapes() -> Scene:
    op = OpSignature("aten::bmm")
    return looped(lambda s: [attention(s, between=(MUL, SOFTMAX), op=op) for _ in range(4)])


@calls_for("flash-attention")
def attention_in_the_backward_pass() -> Scene:
    def body(s: Scene) -> None:
        large(s, 3)
        for _ in range(4):
            attention(s, between=(MUL, SOFTMAX_BACK, MUL))

    return looped(body)


@calls_for("flash-attention")
@silent("cast-churn")
def attention_written_out_that_converts_its_scores() -> Scene:
    return looped(
        lambda s: [attention(s, between=(CAST, MUL, SOFTMAX, CAST), op=BMM) for _ in range(8)]
    )


@silent("flash-attention")
def a_loss_between_products() -> Scene:
    return looped(lambda s: [attention(s, between=(LOG_SOFTMAX, MUL)) for _ in range(4)])


@silent("flash-attention")
def a_router_between_products() -> Scene:
    return looped(lambda s: [attention(s, between=(SOFTMAX, TOPK)) for _ in range(4)])


@silent("flash-attention")
def a_softmax_between_plain_products() -> Scene:
    return looped(lambda s: [attention(s, between=(SOFTMAX,), op=MM) for _ in range(4)])


@silent("flash-attention")
def a_softmax_between_plain_products_without_shapes() -> Scene:
    op = OpSignature("aten::addmm")
    return looped(lambda s: [attention(s, between=(SOFTMAX,), op=op) for _ in range(4)])


@silent("flash-attention", "fusion-ceiling")
def fused_attention() -> Scene:
    return looped(lambda s: [(large(s, 2), s.kernel(FLASH, 400.0)) for _ in range(10)])


@calls_for("fusion-ceiling")
def attention_of_the_last_generation() -> Scene:
    return looped(lambda s: [(large(s, 2), s.kernel(FLASH2, 400.0)) for _ in range(10)])


@silent("fusion-ceiling")
def the_same_attention_on_its_own_generation() -> Scene:
    return looped(
        lambda s: [(large(s, 2), s.kernel(FLASH2, 400.0)) for _ in range(10)], scene=Scene(A100)
    )


@calls_for("skinny-products")
def matrix_times_vector() -> Scene:
    return looped(lambda s: [(large(s, 1), s.kernel(GEMV, 100.0)) for _ in range(20)])


@calls_for("skinny-products")
def products_with_eight_rows() -> Scene:
    name = "nvjet_sm90_tst_8x64_64x16_4x1_v_bz_TNT"
    return looped(lambda s: [(large(s, 1), s.kernel(name, 100.0)) for _ in range(20)])


@silent("skinny-products")
def large_tiles_with_a_short_stage() -> Scene:
    name = "nvjet_sm90_tst_64x128_64x8_2x1_v_bz_NTN"
    return looped(lambda s: [(large(s, 1), s.kernel(name, 100.0)) for _ in range(20)])


@silent("skinny-products")
def one_matrix_times_vector() -> Scene:
    return looped(lambda s: (large(s), s.kernel(GEMV, 100.0)))


@calls_for("cudnn-benchmark")
def convolutions_of_the_past_in_a_mix() -> Scene:
    device = replace(A100, capability=(6, 0), name="Tesla P100")
    return looped(
        lambda s: [(large(s, 1), s.kernel(CONV_OLD, 400.0)) for _ in range(20)], scene=Scene(device)
    )


@silent("cudnn-benchmark")
def implicit_gemms() -> Scene:
    return looped(lambda s: [s.kernel(CONV_NHWC, 200.0) for _ in range(20)])


@calls_for("double-precision")
def a_metric_in_fp64() -> Scene:
    return looped(lambda s: (large(s), [s.kernel(ADD64, 60.0) for _ in range(10)]))


@silent("double-precision")
def double_scalars_of_an_fp32_kernel() -> Scene:
    name = FUSED_ADAM.replace("(P)", "(P, double, double, float const*)")
    return looped(lambda s: (large(s), s.kernel(name, 600.0)))


@calls_for("none-healthy")
def well_fed_products() -> Scene:
    return healthy()


@silent("none-healthy")
def a_run_with_something_to_win() -> Scene:
    return looped(small)


@silent("none-healthy")
def a_run_that_mostly_idles() -> Scene:
    return looped(lambda s: (s.idle(20_000, MarkClass.INPUT), large(s)))


# ---------------------------------------------------------------- several GPUs, trust, hardware


@calls_for("exposed-communication")
def collectives_alone() -> Scene:
    return looped(lambda s: (large(s), s.kernel(NCCL, 3_000.0, blocks=24, stream=20)))


@silent("exposed-communication")
def collectives_behind_products() -> Scene:
    def body(s: Scene) -> None:
        s.kernel(GEMM, 4_000.0, blocks=132)
        s.kernel(NCCL, 3_000.0, blocks=24, stream=20, beside=True)
        large(s)

    return looped(body)


def test_exposed_exchanges_are_not_told_to_use_buckets_of_gradients() -> None:
    def told(name: str, hidden: str) -> Advisory:
        def body(s: Scene) -> None:
            s.kernel(GEMM, 9_000.0, blocks=132)
            s.kernel(hidden, 8_000.0, blocks=24, stream=21, beside=True)
            s.kernel(name, 3_000.0, blocks=24, stream=20)

        return looped(body).advice()["exposed-communication"]

    exchange = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    expert = "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(P)"
    for name in (exchange, expert):
        found = told(name, NCCL)
        assert found.evidence["exchanged_share"] == 1.0
        assert "all_to_all" in str(found.suggests) and "bucket" not in str(found.suggests)
        assert "all-to-all or send and receive" in found.says
    found = told(NCCL, exchange)
    assert found.evidence["exchanged_share"] == 0.0
    assert "bucket_cap_mb" in str(found.suggests) and "all-to-all" not in found.says


@calls_for("tiny-collectives")
def many_short_collectives() -> Scene:
    return looped(
        lambda s: [(large(s, 1, 60.0), s.kernel(NCCL, 30.0, blocks=8)) for _ in range(80)]
    )


@silent("tiny-collectives")
def a_few_large_collectives() -> Scene:
    return looped(lambda s: (large(s), [s.kernel(NCCL, 900.0, blocks=24) for _ in range(4)]))


@calls_for("warming-up")
def a_first_compile() -> Scene:
    return healthy(Scene().mark(MarkClass.COMPILE, 50_000, "forward")).mark(MarkClass.STEP)


@silent("warming-up")
def a_short_compile_before_many_steps() -> Scene:
    return healthy(Scene().mark(MarkClass.COMPILE, 2_000, "forward"), steps=10)


@silent("inefficient-kernel")
def a_batch_norm_far_under_its_roof() -> Scene:
    return looped(lambda s: [(large(s, 2), s.kernel(BN_NCHW, 300.0)) for _ in range(10)])


@silent("warming-up", "records-lost", "gpu-faults", "monitor-cost", "intensity-tie-breaker")
def a_steady_run() -> Scene:
    scene = healthy().gauge(Metric.STEP_COST_SHARE, 0.002).gauge(Metric.XID, 0)
    return scene.gauge(Metric.ECC_UNCORRECTED_COUNT, 0)


@calls_for("records-lost")
def many_records_lost() -> Scene:
    scene = looped(small)
    scene.lost = len(scene.rows) // 10
    return scene


@calls_for("misleading-util")
def a_full_utilisation_of_little() -> Scene:
    scene = looped(small).gauge(Metric.SMI_UTIL, 0.99, 1.0)
    return scene.gauge(Metric.DRAM_ACTIVE, 0.02).gauge(Metric.FP32_ACTIVE, 0.01)


@silent("misleading-util")
def a_full_utilisation_at_the_roof() -> Scene:
    scene = looped(lambda s: [s.kernel(MUL, 400.0) for _ in range(40)])
    return scene.gauge(Metric.SMI_UTIL, 0.99, 1.0)


@calls_for("throttled")
def a_hot_gpu() -> Scene:
    scene = healthy().gauge(Metric.CLOCK_EVENT_REASONS, 0x20, 0x20, 0)
    return scene.gauge(Metric.SM_CLOCK_HZ, 1.2e9).gauge(Metric.SM_CLOCK_MAX_HZ, 1.98e9)


@silent("throttled")
def a_gpu_at_its_power_cap() -> Scene:
    scene = healthy().gauge(Metric.CLOCK_EVENT_REASONS, 0x4, 0x4, 0x4)
    return scene.gauge(Metric.SM_CLOCK_HZ, 1.6e9).gauge(Metric.SM_CLOCK_MAX_HZ, 1.98e9)


@calls_for("idle-clocks")
def application_clocks() -> Scene:
    scene = healthy().gauge(Metric.CLOCK_EVENT_REASONS, 0x2, 0x2)
    return scene.gauge(Metric.SM_CLOCK_HZ, 1.1e9).gauge(Metric.SM_CLOCK_MAX_HZ, 1.98e9)


@silent("idle-clocks")
def clocks_at_the_power_cap() -> Scene:
    return a_gpu_at_its_power_cap()


@calls_for("shared-gpu")
def a_neighbour_at_work() -> Scene:
    scene = looped(lambda s: (s.idle(6_000, MarkClass.INPUT), large(s)))
    return scene.gauge(Metric.SMI_UTIL, 0.98).gauge(Metric.FOREIGN_PROCESS_COUNT, 1)


@silent("shared-gpu")
def a_neighbour_that_rests() -> Scene:
    return healthy().gauge(Metric.SMI_UTIL, 0.99).gauge(Metric.FOREIGN_PROCESS_COUNT, 1)


@calls_for("gpu-faults")
def uncorrected_errors() -> Scene:
    return healthy().gauge(Metric.ECC_UNCORRECTED_COUNT, 3)


@calls_for("monitor-cost")
def dear_watching() -> Scene:
    return healthy().gauge(Metric.STEP_COST_SHARE, 0.08).gauge(Metric.STEP_COST_ERROR_SHARE, 0.01)


@calls_for("intensity-tie-breaker")
def names_that_say_nothing() -> Scene:
    return looped(lambda s: [(large(s, 1), s.kernel("my_kernel", 250.0)) for _ in range(20)])


KINDS = [e.kind for e in ENTRIES if e.kind != "straggler"]
"""The straggler needs several ranks: `test_ranks.py`."""


@pytest.mark.parametrize("kind", KINDS)
def test_each_advisory_is_given_where_it_is_called_for(kind: str) -> None:
    for scene in CASES[kind][0]:
        assert kind in scene().advice(), scene.__name__


@pytest.mark.parametrize("kind", KINDS)
def test_each_advisory_is_silent_where_it_only_looks_like_it(kind: str) -> None:
    assert CASES[kind][1], "every advisory has a scene that must not trigger it"
    for scene in CASES[kind][1]:
        assert kind not in scene().advice(), scene.__name__


@pytest.mark.parametrize("scene", [s for kind in KINDS for s in CASES[kind][0]])
def test_advice_is_complete_and_within_bounds(scene: Callable[[], Scene]) -> None:
    given = list(scene().advice().values())
    assert given
    for advisory in given:
        assert advisory.says and advisory.suggests and advisory.waste and advisory.evidence
        assert 0.5 <= advisory.confidence < 1
        assert advisory.saves_at_most is None or 0 < advisory.saves_at_most < 1


def test_geforce_is_told_of_16_bit_and_not_of_tf32() -> None:
    scene = looped(lambda s: [s.kernel(SGEMM, 400.0) for _ in range(20)], scene=Scene(GEFORCE))
    assert "float32_matmul_precision" not in scene.advice()["enable-tf32-or-amp"].suggests


def test_warming_up_silences_everything_else() -> None:
    assert list(a_first_compile().advice()) == ["warming-up"]


def test_lost_records_silence_everything_else() -> None:
    assert list(many_records_lost().advice()) == ["records-lost"]


def test_no_activity_no_advice() -> None:
    assert Scene().advice() == {}


def test_advice_is_ranked_by_what_it_can_win() -> None:
    given = list(an_update_for_each_parameter().advice().values())
    won = [(a.saves_at_most or 0.0) * a.confidence for a in given]
    assert won == sorted(won, reverse=True)


def test_a_bigger_batch_is_forecast_by_what_it_promises() -> None:
    given = overhead_and_free_memory().advice()["bigger-batch"]
    longer = float(given.suggests.split("a step ")[1].split(" times")[0])
    assert given.saves_at_most == pytest.approx(1 - longer / 2, abs=0.006)
    assert f"{units.share(2 - longer)} of a step does not grow" in given.says


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("aten::item", "aten::item"),
        ("cudaStreamSynchronize", "cudaStreamSynchronize"),
        ("nb/train.py:8 main > t.py:9 go | if x.item():", "nb/train.py:8 (`if x.item():`)"),
    ],
)
def test_a_line_that_waits_is_named_with_its_source_apart(line: str, said: str) -> None:
    assert overhead._named(line) == said


def test_untraced_time_is_no_idle_time() -> None:
    """Bursts: the pause between them belongs to nobody."""
    scene = Scene()
    scene.observed = []
    for _ in range(2):
        began = scene.now
        healthy(scene, steps=2)
        scene.observed.append((began, scene.now))
        scene.now += 500_000
    assert list(scene.advice()) == ["none-healthy"]


def test_what_compiling_can_win_leaves_a_launch_for_each_stretch_between_waits() -> None:
    def with_waits(s: Scene) -> None:
        for _ in range(40):
            small(s, 4)
            s.sync(1.0)

    plain = looped(lambda s: small(s, 160)).advice()["launch-bound-compile"]
    split = looped(with_waits).advice()["launch-bound-compile"]
    assert plain.saves_at_most is not None and split.saves_at_most is not None
    assert split.saves_at_most <= 0.76 * plain.saves_at_most


def test_launches_that_are_late_by_their_count_alone_are_less_sure() -> None:
    given = many_small_kernels_beside_few_long_ones_launched_ahead().advice()
    found = given["launch-bound-compile"]
    assert found.evidence["rho"] > 0.5
    assert (
        found.confidence == 0.7 < many_small_kernels().advice()["launch-bound-compile"].confidence
    )
    assert found.saves_at_most is not None
    assert found.saves_at_most <= found.evidence["launch_idle_share"] + 0.1


def test_idle_before_work_that_was_launched_long_ago_is_no_waits_to_win() -> None:
    """As before graphs: the host waits for most of the time, and the device idles with a full queue."""

    def body(s: Scene) -> None:
        for _ in range(6):
            s.kernel(ADD, 60.0, late=80.0)
            for _ in range(4):
                s.now += 400.0  # less than launches are ahead
                s.kernel(GEMM, 100.0, blocks=132)
            s.sync(1_900.0)

    scene = looped(body)
    account = scene.judged().estimate.account
    own = account.idle_total_ns - account.idle_ns["device"]
    assert account.idle_ns["device"] > 0.3 * account.duration_ns
    found = scene.advice().get("sync-point")
    promised = (found.saves_at_most or 0.0) if found else 0.0
    assert promised <= own / account.duration_ns + 1e-4


def test_waits_in_a_loop_that_launches_hold_back_do_not_promise_its_end() -> None:
    def read_back(s: Scene) -> None:
        for _ in range(40):
            small(s, 8)
            s.sync(15.0)
            s.kernel(ADD, 2.0, late=12.0, blocks=8)

    found = looped(read_back).advice()["sync-point"]
    said = found.evidence["without_the_waits"]
    assert said.startswith("launches set the pace still, idle ")
    alone = values_read_back_all_the_time().advice()["sync-point"]
    assert "without_the_waits" not in alone.evidence
