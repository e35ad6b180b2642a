"""Edits that spare the host or fill the device: scenes that call for each, and traps."""

import pytest

from collectors.vocabulary import MarkClass

from .cases import Cases, large, looped, memory, small, without_calls
from .scenarios import ADD, ADDCDIV, FOREACH, FUSED_ADAM, GEMM, MUL, TRITON, Scene

CASES = Cases()
calls_for, silent = CASES.calls_for, CASES.silent


@calls_for("launch-bound-compile")
def many_small_kernels() -> Scene:
    return looped(small)


@calls_for("cuda-graphs")
@silent("launch-bound-compile")
def small_compiled_kernels(s: Scene) -> None:
    small(s, 60, name=TRITON)
    small(s, 10)


@silent("launch-bound-compile", "cuda-graphs")
def small_kernels_of_graphs() -> Scene:
    return looped(lambda s: [s.kernel(ADD, 2.0, late=12.0, blocks=8, graph=3) for _ in range(90)])


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


@silent("cuda-graphs", "launch-bound-compile", "fuse-pointwise")
def a_full_launch_queue() -> Scene:
    """The host is a thousand launches ahead and stands in each of them until there is room."""
    scene = Scene()
    starts: list[float] = []

    def body(s: Scene) -> None:
        for _ in range(600):
            s.kernel(GEMM, 20.0)
            starts.append(float(s.rows[-1]["start"]))
            room = starts[-1_000] if len(starts) >= 1_000 else starts[0] - 4.0
            s.calls[-1]["end"] = s.returned = max(room, s.calls[-1]["start"] + 4.0)

    return looped(body, scene=scene)


@calls_for("fused-optimizer")
def an_update_for_each_parameter(s: Scene) -> None:
    small(s, 100)
    s.kernel(ADD, 2.0, late=12.0, blocks=8, tid=2)
    for _ in range(40):
        for name in (MUL, MUL, ADDCDIV):
            s.kernel(name, 2.0, late=12.0, blocks=4)


@calls_for("fused-optimizer")
def an_update_for_each_parameter_in_a_range(s: Scene) -> None:
    small(s, 100)
    s.mark(MarkClass.OPTIMIZER, 120 * 14.0, "Optimizer.step#SGD.step")
    small(s, 120, name=MUL)


@pytest.mark.parametrize(
    ("range_name", "text"),
    [
        ("Optimizer.step#SGD.step", "torch.optim.SGD(model.parameters(), lr, fused=True)"),
        (
            "Optimizer.step#Adagrad.step",
            "torch.optim.Adagrad(model.parameters(), lr, fused=True)",
        ),
        ("optimizer", "torch.optim.AdamW(model.parameters(), lr, fused=True)"),
    ],
)
def test_a_faster_update_is_named_of_the_same_optimizer(range_name, text):
    def body(s: Scene) -> None:
        small(s, 100)
        s.mark(MarkClass.OPTIMIZER, 120 * 14.0, range_name)
        small(s, 120, name=MUL)

    assert str(looped(body).advice()["fused-optimizer"].suggests).startswith(text)


@silent("fused-optimizer")
def an_update_of_an_optimizer_that_has_no_fused_form(s: Scene) -> None:
    small(s, 100)
    s.mark(MarkClass.OPTIMIZER, 120 * 14.0, "Optimizer.step#Lion.step")
    small(s, 120, name=MUL)


@silent("fused-optimizer")
def a_sparse_update_beside_a_small_one_of_adam(s: Scene) -> None:
    small(s, 100)
    s.mark(MarkClass.OPTIMIZER, 120 * 14.0, "Optimizer.step#SparseAdam.step")
    small(s, 120, name=MUL)
    s.mark(MarkClass.OPTIMIZER, 4 * 14.0, "Optimizer.step#Adam.step")
    small(s, 4, name=MUL)


@silent("fused-optimizer")
def a_fused_update_beside_gradient_norms(s: Scene) -> None:
    small(s, 100)
    s.kernel(ADD, 2.0, late=12.0, blocks=4, tid=2)
    small(s, 120, name=MUL)
    for _ in range(3):
        s.kernel(FUSED_ADAM, 40.0)


@silent("fused-optimizer")
def an_update_over_lists() -> Scene:
    def body(s: Scene) -> None:
        small(s, 100)
        s.mark(MarkClass.OPTIMIZER, 400.0, "Optimizer.step#SGD.step")
        for _ in range(12):
            s.kernel(FOREACH, 20.0, late=10.0)

    return looped(body)


def updated_by_lists(kind: str, long_us: float) -> Scene:
    def body(s: Scene) -> None:
        large(s, 4)
        s.mark(MarkClass.OPTIMIZER, 12 * long_us, f"Optimizer.step#{kind}.step")
        for _ in range(12):
            s.kernel(FOREACH, long_us)

    return looped(body)


@silent("fused-optimizer")
def an_update_that_multiplies_matrices(s: Scene) -> None:
    large(s, 4)
    s.mark(MarkClass.OPTIMIZER, 5_700.0, "Optimizer.step#Muon.step")
    for _ in range(40):
        s.kernel(MUL, 20.0)
        s.kernel(GEMM, 100.0)
        s.kernel(MUL, 20.0)


@calls_for("few-blocks")
@silent("unified-memory", "unknown-kernel")
def a_long_kernel_on_a_few_sms(s: Scene) -> None:
    large(s, 6)
    s.kernel("my_scan(int *)", 900.0, blocks=4)


@silent("few-blocks")
@calls_for("unknown-kernel")
def a_short_kernel_on_a_few_sms_and_a_long_one_on_all(s: Scene) -> None:
    s.kernel("my_scan(int *)", 9.0, blocks=4)
    s.kernel("mine(int *)", 900.0)


@calls_for("unified-memory")
def pages_that_the_host_reads_one_by_one() -> Scene:
    return looped(
        lambda s: (large(s, 6), [s.idle(90).copy("page", 1 << 16, 9.0) for _ in range(9)])
    )


@silent("unified-memory")
def pages_that_the_host_works_on_for_long() -> Scene:
    return looped(
        lambda s: (large(s, 6), [s.idle(2_000).copy("page", 1 << 16, 9.0) for _ in range(9)])
    )


calls_for(
    "launch-bound-compile",
    # Most of the kernel time was launched ahead, and half of the wall is idle before launches.
    many_small_kernels_beside_few_long_ones_launched_ahead=lambda s: (large(s, 6), small(s, 150)),
    many_small_kernels_without_launch_records=lambda: without_calls(looped(small)),
    small_products_that_no_compiler_fuses=lambda s: small(s, name=GEMM),
)
silent(
    "launch-bound-compile",
    small_kernels_that_the_host_keeps_ahead_of=lambda s: [s.kernel(ADD, 8.0) for _ in range(400)],
)
calls_for(
    "fused-optimizer",
    an_update_over_lists_of_very_many_parameters=lambda: updated_by_lists("AdamW", 500.0),
)
silent(
    "fused-optimizer",
    an_update_over_lists_of_few_parameters=lambda: updated_by_lists("AdamW", 5.0),
    an_update_over_lists_that_a_fused_one_spares_no_pass=lambda: updated_by_lists("RMSprop", 500.0),
)
calls_for(
    "underfilled-kernels",
    small_grids_with_the_host_ahead=lambda s: [s.kernel(GEMM, 12.0, blocks=16) for _ in range(400)],
)
silent("underfilled-kernels", "bigger-batch", full_grids=lambda: memory(looped(large), used=0.2))
calls_for("bigger-batch", overhead_and_free_memory=lambda: memory(looped(small), used=0.3))
silent("bigger-batch", overhead_and_full_memory=lambda: memory(looped(small), used=0.9))


test_given_where_it_is_called_for, test_silent_where_it_only_looks_like_it = CASES.tests()
