"""Products of attention written out are told from others by where they stand."""

from __future__ import annotations

import pytest

from brrrtop.analysis.estimate import estimate, facts_of
from brrrtop.analysis.facts.table import Facts
from brrrtop.analysis.kernels.written_attention import written_attention
from brrrtop.model.estimate import Side
from tests.analysis.build import ADD, GEMM, K, window

US = 1_000
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 9>"
BACK = "void (anonymous namespace)::softmax_warp_backward<c10::BFloat16, c10::BFloat16, float, 9>"
LOSS = "void (anonymous namespace)::cunn_SoftMaxForward<8, float, LogSoftMaxForwardEpilogue>"
TOPK = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"


def sequence(*names: str, streams: int = 1) -> Facts:
    kernels = [
        K(i * 101 * US, (i * 101 + 100) * US, name, i + 1, stream=7 + i % streams)
        for i, name in enumerate(names)
    ]
    return facts_of(window(kernels))


def products_of(*names: str) -> list[int]:
    attention = written_attention(sequence(*names))
    return [] if attention is None else sorted(attention.products.tolist())


@pytest.mark.parametrize(
    ("names", "products"),
    [
        ((GEMM, NORM, GEMM, ADD, SOFTMAX, ADD, GEMM, NORM, GEMM), [2, 6]),
        ((NORM, GEMM, GEMM, BACK, ADD, GEMM, GEMM, NORM), [1, 2, 5, 6]),
        ((GEMM, LOSS, GEMM), []),
        ((GEMM, SOFTMAX, TOPK, GEMM), []),
    ],
    ids=["one on both sides", "backward has two on either side", "a loss is none", "nor a router"],
)
def test_the_products_beside_a_softmax_are_attention(
    names: tuple[str, ...], products: list[int]
) -> None:
    assert products_of(*names) == products


def test_without_a_softmax_there_is_nothing_to_look_for() -> None:
    assert written_attention(sequence(GEMM, ADD, GEMM)) is None


def test_another_stream_is_another_sequence() -> None:
    attention = written_attention(sequence(GEMM, NORM, SOFTMAX, NORM, GEMM, NORM, streams=2))
    assert attention is not None and sorted(attention.products.tolist()) == [0, 4]


def test_the_same_kernel_is_judged_by_its_place() -> None:
    names = [GEMM, NORM, GEMM, ADD, SOFTMAX, GEMM, NORM, GEMM] * 3
    rows = estimate(sequence(*names).window).estimate.kernels
    assert {r.side for r in rows if r.name == GEMM} == {Side.COMPUTE, Side.MEMORY}
