"""A live run that was watched with `--shapes`, recorded on an H200."""

from __future__ import annotations

from brrrtop.cli.commands.demo import scenarios
from tests.recorded import analyzed


def test_shapes_of_one_live_step_place_the_products_of_all_steps_under_the_roof() -> None:
    estimate = analyzed(scenarios()["healthy"]).estimate
    placed = [one for one in estimate.kernels if one.flop_per_s and one.bytes_per_s]
    assert sum(one.share for one in placed) > 0.6
    for one in placed:
        assert one.evidence == "L2"
        assert one.flop_per_s <= estimate.roofs.flop_per_s["bf16"]
    fastest = max(placed, key=lambda one: one.share)
    assert fastest.family == "gemm" and (fastest.flop_per_s or 0) > 500e12
