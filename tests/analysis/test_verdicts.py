"""Windows with a known answer get it."""

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.analysis.estimate import estimate, facts_of
from brrrtop.analysis.facts import launches, steps
from brrrtop.analysis.facts.table import Facts
from brrrtop.analysis.kernels.table import BESIDE, find_neighbours, share_of_roof
from brrrtop.model.estimate import Regime, Side, Steps
from brrrtop.model.tables import Links, OpSignature, Span, Window
from brrrtop.timeline import correlation
from collectors.vocabulary import CallClass, MarkClass
from tests.analysis.build import ADD, GEMM, NCCL, C, K, M, window

US = 1000


def stream(
    count: int, length: int, gap: int, name: str = GEMM, blocks: int = 132, lead: int = 50 * US
) -> tuple[list[K], list[C]]:
    kernels, calls = [], []
    for i in range(count):
        at = i * (length + gap)
        kernels.append(K(at, at + length, name, corr=i + 1, blocks=blocks))
        calls.append(C(at - lead - 4 * US, at - lead, i + 1))
    return kernels, calls


def test_long_tensor_core_products_back_to_back_are_compute():
    result = estimate(window(*stream(50, 500 * US, 1 * US))).estimate
    assert result.regime is Regime.COMPUTE
    assert result.launch.rho == 1.0


def test_streaming_kernels_are_memory():
    result = estimate(window(*stream(50, 200 * US, 1 * US, ADD, blocks=131072))).estimate
    assert result.regime is Regime.MEMORY
    assert result.kernels[0].side is Side.MEMORY


def test_tiny_kernels_launched_one_by_one_are_overhead_by_launch():
    result = estimate(window(*stream(200, 2 * US, 8 * US, ADD, blocks=2, lead=1 * US))).estimate
    assert (result.regime, result.cause) == (Regime.OVERHEAD, "launch")
    assert result.launch.share_under_10us == 1.0


def test_halves_of_each_are_mixed():
    a, ca = stream(20, 500 * US, 1 * US)
    b, cb = stream(20, 500 * US, 1 * US, ADD, blocks=131072)
    shift = a[-1].end + US
    b = [replace(k, start=k.start + shift, end=k.end + shift, corr=k.corr + 100) for k in b]
    cb = [replace(c, start=c.start + shift, end=c.end + shift, corr=c.corr + 100) for c in cb]
    assert estimate(window(a + b, ca + cb)).estimate.regime is Regime.MIXED


def test_kernels_of_no_known_name_are_unknown_and_said_so():
    result = estimate(window(*stream(50, 500 * US, 1 * US, "_my_kernel"))).estimate
    assert result.regime is Regime.UNKNOWN
    assert result.split.unknown > 0.9
    assert (result.runner_up, result.cause) == (None, None)
    assert result.kernels[0].evidence == "L0"


def test_a_waiting_collective_is_not_work():
    result = estimate(window(*stream(50, 500 * US, 1 * US, NCCL, blocks=24))).estimate
    assert (result.regime, result.cause) == (Regime.OVERHEAD, "exposed_comm")


def test_a_product_of_eight_rows_is_on_the_memory_side_whatever_its_name():
    w = window(*stream(20, 60 * US, 1 * US))
    op = OpSignature("aten::mm", ((8, 16384), (16384, 16384)), ("c10::BFloat16",) * 2)
    n = len(w.activities)
    linked = replace(w, ops={1: op}, links=Links(np.arange(1, n + 1), np.ones(n, np.int64)))
    by_name, by_shape = estimate(w).estimate, estimate(linked).estimate
    assert by_name.kernels[0].side is Side.COMPUTE
    assert by_shape.kernels[0].side is Side.MEMORY
    assert by_shape.kernels[0].evidence == "L2"
    assert by_shape.regime is Regime.MEMORY


def test_steps_come_from_marks_when_there_are_any():
    kernels, calls = stream(40, 10 * US, 1 * US)
    marks = [M(t, t, MarkClass.STEP) for t in range(0, 440 * US, 110 * US)]
    result = estimate(window(kernels, calls, marks)).estimate.steps
    assert (result.count, result.step_ns, result.source) == (3, 110 * US, "marks")


@pytest.mark.parametrize(("launches_known", "count"), [(True, 3), (False, 4)])
def test_a_host_that_runs_ahead_in_a_burst_makes_no_more_steps_than_the_gpu_did(
    launches_known, count
):
    """Marks 10 us apart while the queue fills, 110 us once it is full: the GPU needs 110 for ten
    kernels. Of the first step's nobody knows when the work before them ended."""
    kernels, calls = stream(40, 10 * US, 1 * US)
    calls = [C(at, at + 500, i + 1) for i, at in enumerate(range(500, 40 * US, 1 * US))]
    ahead = [M(t, t, MarkClass.STEP) for t in range(0, 230 * US, 10 * US)]
    after = [M(t, t, MarkClass.STEP) for t in range(330 * US, 8_000 * US, 110 * US)]
    burst = window(
        [replace(one, start=one.start + 2 * US, end=one.end + 2 * US) for one in kernels],
        calls if launches_known else [], ahead + after, (0, 8_000 * US),
        observed=(Span(2 * US, 441 * US),),
    )  # fmt: skip
    result = estimate(burst).estimate
    assert (result.steps.count, result.steps.step_ns) == (count, 110 * US)
    assert result.steps_covered == pytest.approx(count, abs=0.15)


def test_steps_come_from_the_period_of_the_sequence_otherwise():
    kernels = []
    at = 0
    for _ in range(6):
        for name, length in (
            ("embedding_kernel", 5),
            *[(GEMM, 30), (ADD, 10)] * 8,
            ("nll_loss_kernel", 4),
        ):
            kernels.append(K(at, at + length * US, name))
            at += (length + 1) * US
    w = window(kernels)
    result = steps.find_steps(facts_of(w))
    assert result.source == "period"
    assert result.count == 5
    assert result.step_ns == at // 6


def test_kernels_that_ran_once_do_not_hide_the_period():
    step = [f"k{i}_gemm" for i in range(100)]
    once = [f"tuned{i}_gemm" for i in range(70)]
    names = [*once[:30], *step * 8, *once[30:]]
    w = window([K(i * 20, i * 20 + 10, name) for i, name in enumerate(names)])
    result = steps.find_steps(facts_of(w))
    assert (result.source, result.step_ns) == ("period", 2000)


def test_launches_of_a_cuda_graph_are_the_steps_and_not_its_layers():
    kernels = [
        K(i * 20 + i // 48, i * 20 + 10, (GEMM, ADD)[i % 2], 1 + i // 48) for i in range(192)
    ]
    calls = [C(i * 960 - 9, i * 960 - 5, i + 1, CallClass.GRAPH_LAUNCH) for i in range(4)]
    result = steps.find_steps(facts_of(window(kernels, calls)))
    assert (result.source, result.count, result.step_ns) == ("period", 3, 961)


def test_time_steps_of_a_file_with_one_update_are_no_training_steps():
    kernels = [K(i * 20, i * 20 + 10, (GEMM, ADD)[i % 2]) for i in range(96)]
    update = M(1800, 1900, MarkClass.OPTIMIZER, "Optimizer.step#Adam.step")
    assert steps.find_steps(facts_of(window(kernels))).count == 47
    assert steps.find_steps(facts_of(window(kernels, marks=[update]))).count is None


@pytest.mark.parametrize(
    ("before", "after", "counted"),
    [(["patches", "cat"], ["norm", "head"], None), (["k6", "k7"], ["k0", "k1"], 11)],
)
def test_layers_of_one_pass_are_no_steps(before, after, counted):
    """What torch recorded of one pass has its embedding before the layers and its head after them."""
    names = [*before, *[f"k{i}" for i in range(8)] * 12, *after]
    kernels = [K(i * 20, i * 20 + 10, f"{name}_gemm") for i, name in enumerate(names)]
    seen = replace(window(kernels), ops={1: OpSignature("aten::mm", ((2, 2), (2, 2)))})
    assert steps.find_steps(facts_of(seen)).count == counted


@pytest.mark.parametrize("late", [0, 5_000], ids=["kernels", "time"])
def test_what_most_of_a_window_is_not_is_no_step(late):
    """Ten runs of one algorithm, then as many of another; or one last kernel, long after all others."""
    names = [
        f"{kind}{i}_gemm" for kind in "ab"[: 2 - bool(late)] for _ in range(10) for i in range(5)
    ]
    ran = [K(i * 20, i * 20 + 10, name) for i, name in enumerate(names)]
    seen = window([*ran, K(late + 2_000, late + 2_010, "last_gemm")])
    assert steps.find_steps(facts_of(seen)).count is None


def test_noise_has_no_steps():
    rng = np.random.default_rng(3)
    kernels = [K(i * 20, i * 20 + 10, f"k{rng.integers(40)}_gemm") for i in range(400)]
    w = window(kernels)
    assert steps.find_steps(facts_of(w)).count is None


def test_a_compile_in_the_window_means_warming_up():
    kernels, calls = stream(40, 10 * US, 1 * US)
    marks = [M(t, t, MarkClass.STEP) for t in range(0, 440 * US, 110 * US)] + [
        M(5, 90, MarkClass.COMPILE)
    ]
    assert estimate(window(kernels, calls, marks)).estimate.steps.warming_up


def _launched_one_by_one(long_us: dict[int, int], count: int = 60) -> Window:
    """Ten kernels in turn, each launched after the one before; `long_us`: how long some launches take."""
    kernels, calls, now = [], [], 0
    for place in range(count):
        took = long_us.get(place, 10) * US
        calls.append(C(now, now + took, place + 1))
        kernels.append(K(now + took, now + took + 50 * US, f"k{place % 10}_gemm", place + 1))
        now += took + 50 * US
    return window(kernels, calls)


def test_first_launches_that_idle_the_device_for_a_fifth_of_the_time_mean_warming_up():
    """CUDA loads a kernel's module when it is launched first, and profilers record no such load."""
    first = _launched_one_by_one(dict.fromkeys(range(1, 10), 2_000))
    rows = correlation.call_of(first.activities, first.calls)
    assert launches.loading_ns(Facts(first, rows)) == 9 * 2_000 * US
    assert estimate(first).estimate.steps.warming_up
    few = _launched_one_by_one({1: 1_200})
    assert launches.loading_ns(Facts(few, rows)) == 1_200 * US
    later = _launched_one_by_one(dict.fromkeys(range(11, 30), 2_000))  # a lock, say
    assert launches.loading_ns(Facts(later, rows)) == 0
    many = _launched_one_by_one({1: 2_000}, count=600)
    for shorter in (later, many, _launched_one_by_one({})):
        assert not estimate(shorter).estimate.steps.warming_up


def test_a_search_for_the_quickest_convolution_is_a_start():
    names = (
        "implicit_convolve_sgemm",
        "im2col4d_kernel",
        "winograd_nonfused::forward",
        "fft2d_r2c",
    )

    def is_start(names: tuple[str, ...], kind: CallClass) -> bool:
        kernels, calls = stream(len(names), 10 * US, 30 * US)
        kernels = [replace(k, name=name) for k, name in zip(kernels, names, strict=True)]
        taken = [C(at * 40 * US + 12 * US, at * 40 * US + 14 * US, kind=kind) for at in range(4)]
        calls = sorted([*calls, *taken], key=lambda c: c.start)
        return estimate(window(kernels, calls)).estimate.steps.warming_up

    assert is_start(names, CallClass.ALLOC)
    assert not is_start(names, CallClass.SYNC)
    assert not is_start(names[:3] * 2, CallClass.ALLOC)


def test_a_first_launch_into_a_full_queue_loads_nothing():
    kernels = [K(0, 5_000 * US, "k0_gemm", 1), K(5_001 * US, 5_050 * US, "k1_gemm", 2)]
    w = window(kernels, [C(-20 * US, -10 * US, 1), C(10 * US, 4_000 * US, 2)])
    assert launches.loading_ns(facts_of(w)) == 0


def test_kernels_loaded_in_the_first_of_a_few_steps_mean_warming_up():
    def is_warming_up(steps_seen: int, load_at: int) -> bool:
        kernels, calls = stream(10 * steps_seen, 10 * US, 1 * US)
        calls = [C(load_at, load_at + 5 * US, kind=CallClass.MODULE), *calls]
        marks = [M(t * 110 * US, t * 110 * US, MarkClass.STEP) for t in range(steps_seen + 1)]
        return estimate(
            window(kernels, sorted(calls, key=lambda c: c.start), marks)
        ).estimate.steps.warming_up

    assert is_warming_up(4, 120 * US)
    assert not is_warming_up(4, 400 * US)
    assert not is_warming_up(30, 120 * US)


def test_between_bursts_steps_have_a_length_but_do_not_count():
    kernels, calls = stream(40, 10 * US, 1 * US)
    marks = [M(t, t, MarkClass.STEP) for t in range(0, 440 * US, 44 * US)]
    spans = (Span(0, 140 * US), Span(300 * US, 400 * US))
    result = estimate(window(kernels, calls, marks, observed=spans)).estimate.steps
    assert (result.count, result.step_ns) == (5, 44 * US)


@pytest.mark.parametrize(("measured", "shown"), [(0.5, 0.5), (1.1, 1.0), (1.3, None), (None, None)])
def test_no_share_of_a_roof_is_above_the_roof(measured, shown):
    kernels, calls = stream(20, 100 * US, US, ADD, blocks=4_000)
    result = estimate(window(kernels, calls))
    group = replace(result.facts.labels.groups[0], memory_share_of_roof=measured)
    assert share_of_roof(group) == shown
    assert share_of_roof(replace(group, side=Side.COMM)) is None


def test_nodes_of_a_graph_do_not_take_the_shapes_of_the_op_that_launched_it():
    w = window(*stream(20, 60 * US, 1 * US))
    op = OpSignature("aten::mm", ((8, 16384), (16384, 16384)), ("c10::BFloat16",) * 2)
    n = len(w.activities)
    linked = replace(w, ops={1: op}, links=Links(np.arange(1, n + 1), np.ones(n, np.int64)))
    in_graph = replace(linked.activities, graph_ids=np.full(n, 3))
    rows = estimate(replace(linked, activities=in_graph)).estimate.kernels
    assert {row.evidence for row in rows} == {"L1"}


def test_a_step_that_only_began_to_run_is_no_step():
    """The host is two steps ahead: the window ends within the third on the device."""
    kernels, calls = stream(30, 100 * US, 0, ADD, blocks=4_000)
    calls = [replace(c, start=k * US, end=k * US + 500) for k, c in enumerate(calls)]
    marks = [M(at * US, (at + 10) * US - 1, MarkClass.STEP) for at in (0, 10, 20)]
    whole = estimate(window(kernels, calls, marks)).estimate.steps
    cut = estimate(window(kernels[:25], calls, marks)).estimate.steps
    assert (whole.count, whole.step_ns) == (3, 1_000 * US)
    assert (cut.count, cut.step_ns) == (2, 1_000 * US)
    assert not estimate(window(kernels[:5], calls, marks)).estimate.steps.count


def _absences(line: str) -> list[M]:
    """Forty samples over the 20 ms of `_sparse`."""
    return [M(i * 500_000, i * 500_000, MarkClass.STACK, line) for i in range(40)]


def _sparse(late: bool) -> tuple[list[K], list[C]]:
    """A kernel of 0.1 ms every 2 ms, launched when it starts or long before."""
    starts = [i * 2_000_000 for i in range(10)]
    kernels = [K(at, at + 100_000, corr=i + 1) for i, at in enumerate(starts)]
    lead = 5_000 if late else 50_000_000
    return kernels, [C(at - lead, at - lead + 3_000, i + 1) for i, at in enumerate(starts)]


@pytest.mark.parametrize(
    ("line", "cause", "known"),
    [
        ("train.py:8 main | rows = np.load(path)", "io", 1.0),
        ("train.py:8 main | rows = self.scale(rows)", "host", 0.0),
    ],
)
def test_a_host_that_reads_files_is_io_and_its_cause_is_known(line, cause, known):
    result = estimate(window(*_sparse(late=True), _absences(line))).estimate
    assert (result.regime, result.cause) == (Regime.OVERHEAD, cause)
    assert result.host_cause_known == pytest.approx(known, abs=0.01)


@pytest.mark.parametrize(("count", "cause"), [(1, "other_process"), (0, "device")])
def test_queued_work_waits_for_another_process_only_where_one_was_counted(count, cause):
    result = estimate(window(*_sparse(late=False), others=[(0, count)])).estimate
    assert (result.regime, result.cause) == (Regime.OVERHEAD, cause)


def test_neighbours_are_those_of_the_same_stream_in_order():
    kernels = [K(i * 10, i * 10 + 9, GEMM if i % 3 == 1 else ADD) for i in range(9)]
    kernels += [K(i * 10 + 5, i * 10 + 9, NCCL, stream=20) for i in range(9)]
    neighbours = find_neighbours(facts_of(window(kernels)), [GEMM, NCCL])
    gemm = neighbours[GEMM]
    assert gemm.names[gemm.at] == GEMM
    assert gemm.names == tuple(k.name for k in kernels[: 2 * BESIDE + 1])
    assert set(neighbours[NCCL].names) == {NCCL}
    assert gemm.step_place is None


def test_at_the_edge_of_the_window_there_are_fewer():
    neighbours = find_neighbours(facts_of(window([K(0, 9), K(10, 19, ADD)])), [GEMM, ADD])
    assert neighbours[GEMM].names == (GEMM, ADD)
    assert neighbours[GEMM].at == 0
    assert neighbours[ADD].at == 1


def test_the_place_is_the_middle_one_over_all_steps():
    steps = Steps(spans=(Span(0, 100), Span(100, 300)))
    kernels = [K(50, 60), K(120, 130), K(260, 270), K(900, 910)]
    place = find_neighbours(facts_of(window(kernels)).stepped(steps), [GEMM])[GEMM].step_place
    assert place == 0.5


def test_names_that_did_not_run_and_empty_windows_have_none():
    assert find_neighbours(facts_of(window([K(0, 9)])), ["other"]) == {}
    assert find_neighbours(facts_of(window([], span=(0, 10))), [GEMM]) == {}
