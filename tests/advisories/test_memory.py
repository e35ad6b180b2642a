"""Rules about bytes: scenes that call for each, and traps."""

from .cases import Cases, large, looped, memory
from .scenarios import (
    ADD_CASTING,
    CAST,
    COPY,
    COPY_CASTING,
    FLASH,
    FLASH_BACK,
    FUSED_ADAM,
    ROWS_ADDED,
    SCAN,
    SORT,
    ZEROS,
    Scene,
)

CASES = Cases()
calls_for, silent = CASES.calls_for, CASES.silent


@silent("cast-churn")
def one_conversion_of_each_weight() -> Scene:
    return looped(lambda s: [(large(s, 2), s.kernel(CAST, 20.0)) for _ in range(20)])


@silent("cast-churn", "needless-copies")
def arithmetic_that_converts_what_it_reads() -> Scene:
    return looped(lambda s: [(large(s, 1), s.kernel(ADD_CASTING, 80.0)) for _ in range(20)])


@calls_for("cast-churn")
@silent("needless-copies")
def conversions_of_strided_tensors(s: Scene) -> None:
    for _ in range(20):
        large(s, 1)
        s.kernel(COPY_CASTING, 80.0)


@silent("needless-copies")
def the_copies_attention_needs() -> Scene:
    return looped(
        lambda s: [(large(s, 2), s.kernel(FLASH, 90.0), s.kernel(COPY, 30.0)) for _ in range(20)]
    )


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


@calls_for("remove-checkpointing")
def a_forward_that_runs_twice_where_the_host_sets_the_pace() -> Scene:
    def body(s: Scene) -> None:
        for name in [FLASH] * 10 + [FLASH, FLASH_BACK] * 10:
            s.kernel(COPY, 10.0, late=60.0)
            s.kernel(name, 20.0, late=60.0)

    return memory(looped(body), used=0.3)


@silent("remove-checkpointing")
def a_forward_that_runs_twice_in_full_memory() -> Scene:
    scene = a_forward_that_runs_twice()
    scene.gauges.clear()
    return memory(scene, used=0.9)


@silent("remove-checkpointing")
def accumulated_micro_batches(s: Scene) -> None:
    for _ in range(4):
        for name, us in ((FLASH, 100.0), (FLASH_BACK, 250.0)):
            for _ in range(6):
                large(s, 1)
                s.kernel(name, us)


@silent("remove-checkpointing")
def a_forward_that_runs_once() -> Scene:
    def body(s: Scene) -> None:
        for name, us in ((FLASH, 100.0), (FLASH_BACK, 250.0)):
            for _ in range(10):
                large(s, 1)
                s.kernel(name, us)

    return memory(looped(body), used=0.3)


@calls_for("embedding-sort")
def indices_sorted_every_step(s: Scene) -> None:
    for _ in range(20):
        large(s, 1)
        s.kernel(SORT, 120.0)


GATHER = "void at::native::(anonymous namespace)::vectorized_gather_kernel<16, long>(P)"


@calls_for("embedding-sort")
def weights_of_experts_gathered(s: Scene) -> None:
    for _ in range(20):
        large(s, 1)
        s.kernel(GATHER, 200.0)


def test_rows_that_are_only_read_are_not_told_of_sparse_gradients():
    result = weights_of_experts_gathered().advice()["embedding-sort"]
    assert "gathers rows" in result.says and "Sparse" not in str(result.suggests)
    result = indices_sorted_every_step().advice()["embedding-sort"]
    assert "sorts" in result.says and "SparseAdam" in str(result.suggests)


def table_gradient(s: Scene, us: float) -> None:
    """The gradient of an embedding: zeros for the table, then the rows of the batch."""
    s.kernel(SORT, 6.0).kernel(ZEROS, us)
    for _ in range(6):
        s.kernel(SCAN, 2.0)
    s.kernel(ROWS_ADDED, 15.0)


@calls_for("zero-grad-fill")
@silent("embedding-sort")
def gradients_of_whole_embedding_tables(s: Scene) -> None:
    large(s, 4)
    for _ in range(8):
        table_gradient(s, 120.0)
        s.kernel(SORT, 60.0)
    s.kernel(FUSED_ADAM, 6_000.0)


@silent("zero-grad-fill")
def the_gradient_of_one_vocabulary() -> Scene:
    return looped(lambda s: (large(s, 20), table_gradient(s, 40.0), s.kernel(FUSED_ADAM, 100.0)))


@silent("zero-grad-fill")
def buffers_of_zeros_that_no_embedding_asked_for() -> Scene:
    return looped(lambda s: [(large(s, 2), s.kernel(ZEROS, 120.0)) for _ in range(8)])


calls_for(
    "cast-churn",
    conversions_all_over=lambda s: [(large(s, 1), s.kernel(CAST, 80.0)) for _ in range(20)],
)
calls_for(
    "needless-copies",
    copies_between_products=lambda s: [(large(s, 1), s.kernel(COPY, 90.0)) for _ in range(20)],
)
silent("embedding-sort", one_embedding=lambda s: (large(s, 20), s.kernel(SORT, 60.0)))
calls_for(
    "zero-grad-fill", gradients_filled_with_zeros=lambda s: (large(s), s.fill(2 << 30, 500.0))
)
silent(
    "zero-grad-fill",
    small_workspaces_cleared=lambda s: [(large(s, 1), s.fill(4096, 1.0)) for _ in range(20)],
)


test_given_where_it_is_called_for, test_silent_where_it_only_looks_like_it = CASES.tests()
