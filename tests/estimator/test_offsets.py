"""Offsets of strided pointwise kernels: how many dimensions are left, and what one element costs."""

from __future__ import annotations

import pytest

from brrrtop.estimator.offsets import ANY, BY_NAME, casts, cost_of, dimensions, measured_cost
from brrrtop.tables import OpSignature

STRIDED = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float>>>"
CASTING = STRIDED.replace("_nocast", "")
UNROLLED = "void at::native::unrolled_elementwise_kernel<at::native::{}, std::array<char*, 3ul>, 4>"


def add(*dims: tuple[int, ...]) -> OpSignature:
    return OpSignature("aten::add", (*dims, ()), ("float",) * len(dims) + ("Scalar",))


@pytest.mark.parametrize(
    ("dims", "left"),
    [
        (((65536, 2048), (65536, 2048)), 1),
        (((65536, 2048), (2048,)), 2),
        (((8, 1024, 2048), (8, 1024, 1)), 2),
        (((2, 512, 512, 128), (512, 512, 128)), 2),
        (((32, 64, 128, 128), (1, 64, 1, 1)), 3),
        (((128, 32, 32, 128), (128, 1, 32, 128)), 3),
        (((2, 512, 1, 128), (2, 1, 512, 128)), 4),
        (((16, 64, 1, 16000), (1, 64, 1, 1)), 3),
        (((1, 1), (1,)), 0),
    ],
)
def test_dimensions_that_lie_together_in_all_operands_are_merged(
    dims: tuple[tuple[int, ...], ...], left: int
) -> None:
    assert dimensions(add(*dims)) == left


def test_shapes_that_do_not_go_together_say_nothing() -> None:
    assert dimensions(add((3, 4), (5,))) is None
    assert dimensions(OpSignature("aten::add", (((2, 2), (2, 2)), ()), ("TensorList", "Scalar"))) is None  # fmt: skip
    assert dimensions(add()) is None
    assert cost_of(STRIDED, add()) is ANY


def test_each_further_dimension_costs_instructions() -> None:
    costs = [
        cost_of(STRIDED, add(*dims)).issue
        for dims in (
            ((65536, 2048), (2048,)),
            ((32, 64, 128, 128), (1, 64, 1, 1)),
            ((2, 512, 1, 128), (2, 1, 512, 128)),
        )
    ]
    assert costs == sorted(costs) and len(set(costs)) == 3


def test_a_name_alone_tells_less_than_shapes_and_casts_cost_most() -> None:
    both = add((64, 512), (64, 512))
    assert cost_of(STRIDED, None) is BY_NAME
    assert casts(CASTING) and not casts(STRIDED)
    assert cost_of(CASTING, both).issue > cost_of(STRIDED, both).issue
    copy, put = (UNROLLED.format(f) for f in ("direct_copy_kernel_cuda", "CUDAFunctor_add<float>"))
    assert cost_of(copy, both).issue < cost_of(put, both).issue


def test_measured_bytes_leave_only_the_layout_unknown() -> None:
    both = add((64, 512), (64, 512))
    for name in (CASTING, *(UNROLLED.format(f) for f in ("direct_copy_kernel_cuda", "Add"))):
        assert measured_cost(name) == cost_of(name, both)
    assert measured_cost(STRIDED) is ANY
