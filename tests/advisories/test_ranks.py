"""One rank arrives last: only seen across ranks."""

from __future__ import annotations

from brrrtop.advisories.distributed import straggler
from brrrtop.model import Estimate
from collectors.wire import MarkClass

from .scenarios import GEMM, NCCL, Scene


def rank(own_us: float, wait_us: float, input_us: float = 0.0) -> Estimate:
    scene = Scene()
    for _ in range(4):
        if input_us:
            scene.idle(input_us, MarkClass.INPUT, "next")
        for _ in range(10):
            scene.kernel(GEMM, own_us / 10, blocks=132)
        scene.kernel(NCCL, wait_us, blocks=24, stream=20)
        scene.step()
    return scene.judged().estimate


def test_the_rank_that_waits_least_is_the_straggler() -> None:
    ranks = {0: rank(5_000, 3_000), 1: rank(5_000, 500, input_us=2_500), 2: rank(5_000, 3_000)}
    found = straggler(ranks)
    assert found is not None
    late, advisory = found
    assert late == 1
    assert advisory.kind == "straggler" and advisory.evidence["cause"] == "input"
    assert 0.2 < (advisory.saves_at_most or 0) < 0.4


def test_ranks_in_step_have_no_straggler() -> None:
    assert straggler({0: rank(5_000, 900), 1: rank(5_000, 1_000), 2: rank(5_000, 950)}) is None


def test_one_rank_alone_has_no_straggler() -> None:
    assert straggler({0: rank(5_000, 3_000)}) is None
