"""How strided kernels go through operands whose strides are told: dimensions, bytes, what is not known."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from brrrtop.ceilings import ceilings_for
from brrrtop.estimator.judging import Group
from brrrtop.estimator.labels import label
from brrrtop.estimator.offsets import cost_of
from brrrtop.estimator.walks import Walk, walk_of
from brrrtop.tables import Links, OpSignature
from tests.estimator.build import H200, K, window

Ints = tuple[int, ...]
MUL = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<"
    "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > >"
    "(at::TensorIteratorBase&, at::native::BinaryFunctor<float, float, float,"
    " at::native::binary_internal::MulFunctor<float> > const&)::{lambda(int)#1}>"
)
SIGMOID = MUL.replace("BinaryFunctor", "sigmoid_kernel").replace("MulFunctor", "Sigmoid")
FORCES = ((128, 32, 32, 128), (128, 32, 32, 128)), ((4096, 128, 0, 1), ())


def called(
    name: str, dims: tuple[Ints, ...], strides: tuple[Ints, ...], kinds: tuple[str, ...] = ()
) -> OpSignature:
    return OpSignature(name, dims, kinds or ("float",) * len(dims), strides=strides)


def judged(op: OpSignature, elements: int, duration_ns: int) -> Group:
    """The verdict on a product of `elements` with 2 a thread, on an H200."""
    made = window([K(0, duration_ns, MUL, corr=1, blocks=-(-elements // 256), threads=128)])
    made = replace(made, links=Links(np.array([1]), np.array([5])), ops={5: op})
    return label(made, ceilings_for(H200)).groups[0]


@pytest.mark.parametrize(
    ("name", "dims", "strides", "tensors", "dimensions", "elements_moved"),
    [
        # Heads between batch and sequence, times a row for each place.
        ("aten::mul", ((64, 8, 1024, 32), (1024, 32)), ((524288, 64, 512, 1), ()), 3, 4,
         2 * 64 * 8 * 1024 * 32 + 1024 * 32),
        # An expanded operand is there once.
        ("aten::mul", *FORCES, 3, 3, 128 * 32 * 128 + 2 * 128 * 32 * 32 * 128),
        ("aten::copy_", ((96, 32, 16384), (96, 32, 16384)), ((), (0, 1, 0)), 2, 3,
         96 * 32 * 16384 + 32),
        # A transposed copy; the same of two tensors that are transposed alike.
        ("aten::copy_", ((512, 256), (512, 256)), ((), (1, 512)), 2, 2, 2 * 512 * 256),
        ("aten::copy_", ((512, 256), (512, 256)), ((1, 512), (1, 512)), 2, 1, 2 * 512 * 256),
        # Every third of a row of three parts; in place, the bias of channels-last images.
        ("aten::neg", ((64, 128),), ((384, 1),), 2, 2, 2 * 64 * 128),
        ("aten::add_", ((16, 32, 256, 256), (1, 32, 1, 1)), ((2097152, 1, 8192, 32), ()), 3, 2,
         2 * 16 * 32 * 256 * 256 + 32),
        # Overlapping windows touch no more than there is.
        ("aten::copy_", ((100, 8), (100, 8)), ((), (1, 1)), 2, 2, 100 * 8 + 107),
        # A tensor without dimensions is an operand where the kernel has one more.
        ("aten::mul", ((8192, 4096), ()), ((), ()), 3, 1, 2 * 8192 * 4096 + 1),
        ("aten::mul", ((8192, 4096), ()), ((), ()), 2, 1, 2 * 8192 * 4096),
    ],
)  # fmt: skip
def test_a_walk_has_the_dimensions_and_bytes_that_are_left(
    name: str,
    dims: tuple[Ints, ...],
    strides: tuple[Ints, ...],
    tensors: int,
    dimensions: int,
    elements_moved: int,
) -> None:
    walk = walk_of(called(name, dims, strides), tensors)
    assert walk is not None
    assert (walk.dimensions, walk.operands) == (dimensions, tensors)
    assert walk.size_bytes == 4 * elements_moved


def test_what_is_updated_in_place_has_to_be_held_once() -> None:
    added = walk_of(called("aten::add_", ((64, 256), (64, 1)), ((), ())), 3)
    put = walk_of(called("aten::add", ((64, 256), (64, 1)), ((), ())), 3)
    assert added is not None and put is not None
    assert added.held_bytes == 4 * (64 * 256 + 64) and added.size_bytes == put.size_bytes
    assert put.held_bytes == put.size_bytes


@pytest.mark.parametrize(
    ("op", "tensors"),
    [
        (called("aten::mul", ((64, 256), (64, 1)), ()), 3),
        (called("aten::mul", ((64, 256), (64, 1)), ((256, 2), ())), None),
        (called("aten::mul", ((64, 256), (64, 1)), ((256, 2), ())), 5),
        (called("aten::mul", ((64, 256), (63, 1)), ((256, 2), ())), 3),
        (called("aten::mul", ((64, 256), (64, 1)), ((2,), ())), 3),
        (OpSignature("aten::mul", (64, 256), ("float", "float"), strides=(4, "x")), 3),
        (OpSignature("aten::mul", ((64,), (64,)), ("float", "float"), strides=(4, "x")), 3),
        (called("aten::mul", ((64, 256), (64, 1)), ((256, -1), ())), 3),
        (called("aten::add", ((64, 256), (64, 1)), ((256, 2), ()), ("c10::Half", "float")), 3),
        (
            OpSignature(
                "aten::cat", (((2, 2), (2, 2)), ()), ("TensorList", "Scalar"), strides=((), ())
            ),
            2,
        ),
        (OpSignature("aten::add", (((2, 2), (2, 2)),), ("float",), strides=((),)), 2),
    ],
)
def test_where_the_operands_are_not_known_to_be_the_kernels_there_is_no_walk(
    op: OpSignature, tensors: int | None
) -> None:
    assert walk_of(op, tensors) is None


def test_results_are_laid_out_as_torch_lays_them_out() -> None:
    """So the order of the dimensions is that of TensorIterator."""
    torch = pytest.importorskip("torch")
    from brrrtop.estimator.walks import _dense, _ordered

    draw = random.Random(7)
    orders = set()
    for _ in range(200):
        shape = tuple(draw.choice((2, 3, 5)) for _ in range(draw.randint(2, 4)))
        laid = []
        for _ in range(2):
            order = draw.sample(range(len(shape)), len(shape))
            base = torch.zeros([shape[at] for at in order])
            one = base.permute([order.index(at) for at in range(len(shape))])
            laid.append(one[..., :1].expand(shape) if draw.random() < 0.3 else one)
        steps = [list(one.stride()) for one in laid]
        order = _ordered(shape, steps, (4, 4))
        orders.add(tuple(order))
        assert tuple(_dense(shape, order)) == tuple((laid[0] + laid[1]).stride()), (shape, steps)
    assert len(orders) > 20


def test_offsets_cost_by_dimensions_and_operands_where_the_function_itself_is_cheap() -> None:
    op = called("aten::mul", *FORCES)

    def costs(dimensions: int, operands: int, name: str = MUL) -> float:
        return cost_of(name, op, Walk(1, dimensions, operands, 1.0, 1.0)).issue

    assert costs(2, 2) < costs(2, 3) < costs(3, 3) < costs(4, 3)
    assert costs(3, 2) == costs(2, 3)
    assert cost_of(SIGMOID, op, Walk(1, 4, 3, 1.0, 1.0)) == cost_of(SIGMOID, op)


def test_an_expanded_operand_leaves_a_kernel_to_its_instructions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As counted: 63 % of the SM throughput beside 53 % of the memory throughput, at 55 us."""
    monkeypatch.setattr("brrrtop.estimator.learned.GROWN_ON", None)  # the rules alone
    op, elements = called("aten::mul", *FORCES), 128 * 32 * 32 * 128
    told, untold = (judged(one, elements, 55_000) for one in (op, replace(op, strides=())))
    assert told.size_bytes == pytest.approx(136.3e6, rel=0.001)
    assert untold.size_bytes == pytest.approx(201.3e6, rel=0.001)
    assert untold.compute_probability < 0.2 and told.compute_probability > 0.8


def test_a_grid_of_another_size_is_not_of_this_walk() -> None:
    op, elements = called("aten::mul", *FORCES), 128 * 32 * 32 * 128
    half = judged(op, elements // 2, 55_000)
    assert half.size_bytes == judged(replace(op, strides=()), elements // 2, 55_000).size_bytes
