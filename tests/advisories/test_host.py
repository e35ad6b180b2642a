"""What keeps the host from launching: scenes that call for each advice, and traps."""

from collectors.vocabulary import CallClass, MarkClass

from .cases import Cases, large, looped, small, without_calls
from .scenarios import ADD, GEMM, TRITON, Scene, healthy

CASES = Cases()
calls_for, silent = CASES.calls_for, CASES.silent


@calls_for("sync-point")
def values_read_back_all_the_time(s: Scene) -> None:
    for _ in range(40):
        for _ in range(4):
            s.kernel(ADD, 60.0)
        s.sync(200.0)
        s.kernel(ADD, 60.0, late=80.0)


@calls_for("sync-point")
def values_read_back_without_call_records() -> Scene:
    def body(s: Scene) -> None:
        for _ in range(30):
            s.kernel(ADD, 60.0).copy("down", 4, 2.0).kernel(ADD, 60.0, late=80.0)

    return without_calls(looped(body))


@silent("sync-point")
def one_loss_read_back_a_step(s: Scene) -> None:
    large(s, 40)
    s.sync(10_000.0)
    s.kernel(GEMM, 300.0, late=60.0)


@calls_for("host-stall", "sync-point")
def a_nap_after_a_wait(s: Scene) -> None:
    """Without the wait the GPU has work while the host naps."""
    large(s)
    s.sync(2_000.0)
    s.sync(2_000.0)
    s.kernel(GEMM, 300.0, late=9_000.0, blocks=132)


@silent("sync-point")
def the_one_wait_of_a_forward_pass_with_a_transposed_convolution(s: Scene) -> None:
    """It waits for its result; data gradients alone are no backward pass."""
    large(s)
    s.kernel("sm80_xmma_dgrad_implicit_gemm_bf16", 300.0)
    s.sync(4_000.0)
    s.kernel(GEMM, 300.0, late=9_000.0, blocks=132)


@silent("sync-point")
def waits_for_pageable_uploads(s: Scene) -> None:
    s.copy("up", 200 << 20, 30_000.0, pageable=True)
    s.sync(100.0)
    s.kernel(GEMM, 300.0, late=40.0)
    large(s)


@silent("overlap-copies")
def pinned_uploads_beside_a_kernel(s: Scene) -> None:
    s.kernel(GEMM, 6_000.0, blocks=132)
    s.copy("up", 256 << 20, 5_000.0, beside=True)
    large(s)


@calls_for("host-stall")
def a_host_that_is_elsewhere(s: Scene) -> None:
    large(s)
    s.kernel(GEMM, 300.0, late=4_000.0, blocks=132)


@calls_for("host-stall")
def a_host_that_is_elsewhere_without_launch_records() -> Scene:
    return without_calls(a_host_that_is_elsewhere())


def sampled(scene: Scene, line: str, count: int = 10) -> None:
    scene.kernel(GEMM, 300.0, late=5_000.0, blocks=132)
    for _ in range(count):
        scene.mark(MarkClass.STACK, name=line)


@calls_for("host-stall")
@silent("python-overhead")
def samples_in_the_files_of_the_loop_itself(s: Scene) -> None:
    large(s)
    sampled(s, "train.py:12 main | rows = np.load(path)")


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
def samples_in_a_read_back(s: Scene) -> None:
    large(s)
    sampled(s, "train.py:8 main | total += loss.item()")


@silent("python-overhead")
def samples_in_the_backward_of_a_launch_bound_run(s: Scene) -> None:
    small(s)
    for _ in range(10):
        s.mark(MarkClass.STACK, name="train.py:7 main > torch/_tensor.py:581 backward")


@calls_for("recompilation")
def code_loaded_in_every_step(s: Scene) -> None:
    large(s)
    s.call(CallClass.MODULE, 2_000.0, "cuLibraryLoadData")
    s.kernel(GEMM, 300.0, late=5.0, blocks=132)


@silent("recompilation")
def code_loaded_once() -> Scene:
    scene = looped(large).call(CallClass.MODULE, 9_000.0, "cuLibraryLoadData")
    return looped(large, scene=scene.kernel(GEMM, 300.0, late=5.0, blocks=132))


@calls_for("recompilation")
def a_compile_in_steady_state() -> Scene:
    scene = healthy()
    return healthy(scene.idle(9_000, MarkClass.COMPILE, "forward", value=3))


@calls_for("graph-breaks")
def fused_kernels_beside_many_loose_ones(s: Scene) -> None:
    s.kernel(TRITON, 100.0)
    for _ in range(10):
        large(s, 1)
        for _ in range(6):
            s.kernel(ADD, 60.0)


@calls_for("allocator-retries")
def an_allocator_that_ran_out() -> Scene:
    return healthy(healthy().idle(6_000, MarkClass.ALLOCATOR, "retry", value=2))


@calls_for("allocation-churn")
def driver_allocations_every_step(s: Scene) -> None:
    large(s)
    for _ in range(4):
        s.call(CallClass.ALLOC, 300.0, "cudaMalloc")
    s.kernel(GEMM, 300.0, late=5.0, blocks=132)


@silent("allocation-churn")
def a_cache_that_fills_in_the_first_steps(s: Scene) -> None:
    for _ in range(20 if not s.marks else 0):
        s.call(CallClass.ALLOC, 900.0, "cudaMalloc")
    s.kernel(GEMM, 300.0, late=5.0, blocks=132)
    large(s)


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
@silent("readback-traffic", "sync-point")
def a_save_that_nothing_marks() -> Scene:
    saved = looped(large, steps=2)
    written(saved)
    return looped(large, steps=2, scene=saved)


@calls_for("readback-traffic")
@silent("checkpoint-stall")
def as_much_copied_back_every_step(s: Scene) -> None:
    large(s)
    written(s)


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


calls_for(
    "dataloader-stall",
    a_loader_that_is_late=lambda s: (s.idle(20_000, MarkClass.INPUT, "next"), large(s)),
)
silent(
    "dataloader-stall",
    a_loader_wait_behind_queued_work=lambda s: (s.mark(MarkClass.INPUT, 4_000, "next"), large(s)),
)
silent("sync-point", a_last_synchronize=lambda: looped(large).sync(1_000.0))
calls_for(
    "pin-memory",
    large_pageable_uploads=lambda s: (s.copy("up", 256 << 20, 40_000.0, pageable=True), large(s)),
)
silent(
    "pin-memory",
    labels_from_pageable_memory=lambda s: (s.copy("up", 8_192, 9.0, pageable=True), large(s)),
    large_pinned_uploads=lambda s: (s.copy("up", 256 << 20, 5_000.0), large(s)),
)
calls_for(
    "overlap-copies",
    pinned_uploads_that_nothing_hides=lambda s: (s.copy("up", 256 << 20, 5_000.0), large(s)),
)
calls_for(
    "readback-traffic",
    predictions_copied_back=lambda s: (large(s), s.copy("down", 64 << 20, 2_500.0)),
)
silent("readback-traffic", scalars_copied_back=lambda s: (large(s), s.copy("down", 8, 2.0)))
silent("host-stall", python_between_launches=small)
calls_for(
    "python-overhead", samples_at_one_line=lambda s: (large(s), sampled(s, "train.py:12 rescale"))
)
silent(
    "python-overhead",
    a_handful_of_samples=lambda s: (large(s), sampled(s, "train.py:12 rescale", count=1)),
)
silent(
    "python-overhead",
    "host-stall",
    samples_at_a_line_with_advice_of_its_own=lambda: samples_in_a_read_back(),
)
silent(
    "recompilation",
    a_run_that_was_compiled_before=lambda s: [s.kernel(TRITON, 200.0) for _ in range(50)],
)
silent(
    "graph-breaks",
    a_compiled_run=lambda s: [(s.kernel(TRITON, 100.0), large(s, 1)) for _ in range(20)],
)
calls_for(
    "gc-pause",
    a_long_collection=lambda: healthy(healthy().idle(30_000, MarkClass.GC, "gc", value=2)),
)
silent(
    "gc-pause",
    a_collection_behind_queued_work=lambda s: (s.mark(MarkClass.GC, 2_000, "gc"), large(s)),
)
silent("allocator-retries", "allocation-churn", an_allocator_at_rest=lambda: healthy())
calls_for(
    "logging-stall",
    a_logger_that_writes=lambda s: (large(s), s.idle(2_000, MarkClass.LOGGING, "Run.log")),
)
silent(
    "logging-stall",
    a_logger_behind_queued_work=lambda s: (s.mark(MarkClass.LOGGING, 2_000, "Run.log"), large(s)),
)


test_given_where_it_is_called_for, test_silent_where_it_only_looks_like_it = CASES.tests()
