"""A kernel's surroundings: its stream, its order, its place in the step."""

from __future__ import annotations

from brrrtop.analysis.estimate import facts_of
from brrrtop.analysis.kernels.table import BESIDE, find_neighbours
from brrrtop.model.estimate import Steps
from brrrtop.model.tables import Span
from tests.analysis.build import ADD, GEMM, NCCL, K, window


def test_neighbours_are_those_of_the_same_stream_in_order() -> None:
    kernels = [K(i * 10, i * 10 + 9, GEMM if i % 3 == 1 else ADD) for i in range(9)]
    kernels += [K(i * 10 + 5, i * 10 + 9, NCCL, stream=20) for i in range(9)]
    neighbours = find_neighbours(facts_of(window(kernels)), [GEMM, NCCL])
    gemm = neighbours[GEMM]
    assert gemm.names[gemm.at] == GEMM
    assert gemm.names == tuple(k.name for k in kernels[: 2 * BESIDE + 1])
    assert set(neighbours[NCCL].names) == {NCCL}
    assert gemm.step_place is None


def test_at_the_edge_of_the_window_there_are_fewer() -> None:
    neighbours = find_neighbours(facts_of(window([K(0, 9), K(10, 19, ADD)])), [GEMM, ADD])
    assert neighbours[GEMM].names == (GEMM, ADD)
    assert neighbours[GEMM].at == 0
    assert neighbours[ADD].at == 1


def test_the_place_is_the_middle_one_over_all_steps() -> None:
    steps = Steps(spans=(Span(0, 100), Span(100, 300)))
    kernels = [K(50, 60), K(120, 130), K(260, 270), K(900, 910)]
    place = find_neighbours(facts_of(window(kernels)).stepped(steps), [GEMM])[GEMM].step_place
    assert place == 0.5


def test_names_that_did_not_run_and_empty_windows_have_none() -> None:
    assert find_neighbours(facts_of(window([K(0, 9)])), ["other"]) == {}
    assert find_neighbours(facts_of(window([], span=(0, 10))), [GEMM]) == {}
