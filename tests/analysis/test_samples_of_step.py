"""Shapes tell how many samples a step has."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.analysis.estimate import estimate
from brrrtop.model.tables import Links, OpSignature
from collectors.vocabulary import MarkClass
from tests.analysis.build import ADD, C, K, M, window
from tests.recorded import analyzed

GAINS = Path(__file__).parents[2] / "benchmarks" / "gains"
CONV = OpSignature("aten::cudnn_convolution", ((32, 64, 56, 56), (64, 64, 3, 3)))
HEAD = OpSignature("aten::addmm", ((1000,), (32, 512), (512, 1000)))
TOKENS = OpSignature("aten::addmm", ((512,), (32 * 49, 512), (512, 512)))
LAST = OpSignature("aten::native_layer_norm", ((35, 20, 512), (512,), (512,)))
HEADS = OpSignature("aten::_softmax", ((40, 35, 35),))


def batch(ops: list[OpSignature], steps: int = 6) -> int | None:
    """Of steps that launch a kernel for each of these ops."""
    kernels, calls, marks = [], [], []
    for at in range(steps * len(ops)):
        kernels.append(K(at * 100 + 20, at * 100 + 110, ADD + ops[at % len(ops)].name, at + 1))
        calls.append(C(at * 100, at * 100 + 10, at + 1))
    for step in range(steps):
        begin = step * len(ops) * 100
        marks.append(M(begin, begin + len(ops) * 100, MarkClass.STEP, "step"))
    signatures = dict(enumerate(dict.fromkeys(ops), 1))
    ids = {op: number for number, op in signatures.items()}
    linked = np.array([ids[op] for op in ops] * steps, np.int64)
    links = Links(np.arange(1, len(linked) + 1), linked)
    return estimate(
        replace(window(kernels, calls, marks), links=links, ops=signatures)
    ).estimate.batch


def test_images_and_heads_agree():
    assert batch([CONV, CONV, TOKENS, HEAD]) == 32


def test_two_passes_of_one_step_count_twice():
    assert batch([CONV, TOKENS, CONV, HEAD]) == 32
    assert batch([CONV, TOKENS, CONV, HEAD] * 2) == 64


def test_sequences_that_lead_with_their_length_tell_nothing():
    assert batch([LAST, HEADS, LAST, HEADS]) is None


@pytest.mark.parametrize(
    ("name", "size"), [("measured/tv_resnet50", 128), ("h100/hf_gpt2_eager", 16)]
)
def test_public_models(name, size):
    run = analyzed(GAINS / f"{name}.brrr").run
    assert run is not None
    assert run.samples_per_s == pytest.approx(size * 1e9 / (run.step_ns or 0))
