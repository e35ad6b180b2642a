"""Which layout of ATen's pointwise kernels a process uses, without anybody saying which torch it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brrrtop.estimator.names import name_facts
from brrrtop.estimator.work_per_thread import torch_is_new
from brrrtop.tables import Links, OpSignature, Window
from tests.estimator.build import K, window

FLOAT = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>,"
    " std::array<char*, 3ul> >(int, T1, T2)"
)
HALF = FLOAT.replace("float", "c10::Half")
EQUAL = FLOAT.replace("CUDAFunctor_add<float>", "BUnaryFunctor<c10::Half, c10::Half, bool, Equal>")
ARRAY = FLOAT.replace("std::array", "at::detail::Array")


def of(name: str, elements: int = 0, each: int = 8, **hello: object) -> Window:
    """One kernel that works through `elements`, `each` a thread, and its op."""
    blocks = -(-elements // (128 * each)) if elements else 1000
    made = window([K(0, 90_000, name, corr=1, blocks=blocks, threads=128)])
    op = OpSignature("aten::add", ((elements,), (elements,), ()), ("float", "float", "Scalar"))
    if not elements:
        return replace(made, hello=hello)
    links = Links(np.ones(1, np.int64), np.ones(1, np.int64))
    return replace(made, ops={1: op}, links=links, hello=hello)


@pytest.mark.parametrize(
    ("w", "new"),
    [
        (of(FLOAT, torch="2.6.0+cu124"), False),
        (of(FLOAT, torch="2.7.1+cu128"), True),
        (of(FLOAT, torch="2.11.0"), True),
        (of(FLOAT, 1_000_003, 4), False),
        (of(FLOAT, 1_000_003, 8), True),
        (of(ARRAY), False),
        (of(FLOAT, cuda_runtime=12040), False),
        (of(FLOAT, cuda_runtime=11080), True),
        (of(FLOAT), True),
        (of(HALF), False),
        (of(EQUAL), True),
        (of(HALF.replace("<4,", "<8,")), True),
    ],
)
def test_the_layout_is_known_from_whatever_tells_it(w: Window, new: bool) -> None:
    assert torch_is_new(w) is new


def test_shapes_of_tensors_that_are_not_alike_say_nothing() -> None:
    w = of(FLOAT, 1_000_003, 4)
    op = OpSignature("aten::add", ((1_000_003,), (1,)), ("float", "float"))
    assert torch_is_new(replace(w, ops={1: op}))


def test_a_grid_whose_threads_the_source_does_not_tell_says_nothing() -> None:
    w = of(FLOAT, 1_000_003, 4)
    nobody = np.zeros_like(w.activities.threads)
    assert torch_is_new(replace(w, activities=replace(w.activities, threads=nobody)))


@pytest.mark.parametrize(
    ("name", "each"),
    [
        ("void at::native::unrolled_elementwise_kernel<F, std::array<char*, 2ul>, 8, Trivial>", 8),
        ("void at::native::unrolled_elementwise_kernel<F, std::array<char*, 2ul>, 4, Trivial>", 4),
        (
            "void at::native::unrolled_elementwise_kernel<F, at::detail::Array<char*, 2>, Trivial>",
            4,
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, FillFunctor<bool>, std::array<char*, 1ul>>",
            16,
        ),
    ],
)
def test_what_names_say_of_their_work_is_taken(name: str, each: int) -> None:
    assert name_facts(name).elements_per_thread == each
