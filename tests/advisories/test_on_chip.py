"""Products that wait for memory of their own SM: advice on traffic leaves their time out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brrrtop.advisories.advise import advise
from brrrtop.advisories.compare import compare
from brrrtop.estimator.estimate import Judged
from brrrtop.model import Advisory, Regime
from collectors.wire import Metric

from .scenarios import ADD, ADD32, CAST, GEMM, SGEMM, Scene


def waiting(judged: Judged, share: float) -> Judged:
    """The same window, `share` of it on the memory side and spent on waits of products."""
    account, wall = judged.estimate.account, judged.estimate.account.duration_ns
    compute = max(account.compute_ns - round(share * wall), 0)
    memory = account.memory_ns + account.compute_ns - compute
    booked = replace(account, compute_ns=compute, memory_ns=memory)
    split = replace(judged.estimate.split, compute=compute / wall, memory=memory / wall)
    found = replace(judged.estimate, account=booked, split=split, on_chip=share)
    return replace(judged, estimate=found)


def told(judged: Judged) -> dict[str, Advisory]:
    return {one.kind: one for one in advise(judged)}


def streams(pointwise: str, us: float, products_us: float) -> Scene:
    scene = Scene()
    for _ in range(5):
        for _ in range(12):
            scene.kernel(GEMM, products_us, blocks=132).kernel(pointwise, us)
        scene.step()
    return scene


def test_what_products_wait_for_is_no_memory_time_that_fewer_bytes_would_save() -> None:
    plain = streams(ADD32, 300.0, 600.0).judged()
    assert plain.estimate.split.memory < 0.4
    assert "low-precision-storage" not in told(waiting(plain, 0.5))
    most = streams(ADD32, 700.0, 300.0).judged()
    before, after = told(most)["low-precision-storage"], told(waiting(most, 0.2))
    assert after["low-precision-storage"].says == before.says


def test_bytes_do_not_set_the_pace_where_products_wait_for_their_sm() -> None:
    scene = streams(ADD, 300.0, 600.0)
    scene.gauges += [
        (scene.now / 2, int(Metric.MEMORY_USED_BYTES), 95e9),
        (scene.now / 2, int(Metric.MEMORY_TOTAL_BYTES), 100e9),
    ]
    found = waiting(scene.judged(), 0.6)
    assert found.estimate.split.memory > 0.8
    assert "activation-checkpointing" not in told(found)
    as_dram = replace(found, estimate=replace(found.estimate, on_chip=0.0))
    assert "activation-checkpointing" in told(as_dram)


def test_no_advice_blames_tensor_cores_for_what_l1_and_shared_memory_hold_back() -> None:
    judged = streams(CAST, 100.0, 300.0).judged()
    compute = judged.estimate.split.compute
    assert judged.estimate.regime is Regime.COMPUTE and compute > 0.6
    assert "the tensor cores set the pace" in told(judged)["cast-churn"].waste
    waste = told(waiting(judged, compute))["cast-churn"].waste
    assert "products wait for L1 and shared memory" in waste and "tensor cores" not in waste


def test_narrower_products_are_promised_what_the_wider_ones_wait_for() -> None:
    """Else `at most` would be less than what is won: the waits are those of the slow units' tiles."""

    def run(products: str, us: float) -> Judged:
        scene = Scene()
        for _ in range(10):
            for _ in range(10):
                scene.kernel(products, us, blocks=132)
            scene.step()
        return scene.judged()

    def promised(judged: Judged, on_chip: float, compute: float) -> float:
        rows = tuple(
            replace(row, compute_share=compute, on_chip_share=on_chip)
            for row in judged.estimate.kernels
        )
        estimate = replace(judged.estimate, kernels=rows)
        (found,) = compare(estimate, run(GEMM, 100.0).estimate).experiments
        assert found.predicted is not None
        return float(found.predicted.removeprefix("at most ").split("x")[0])

    before = run(SGEMM, 900.0)
    work = waiting(before, before.estimate.split.compute)
    assert promised(work, 1.0, 0.0) == pytest.approx(promised(before, 0.0, 1.0), rel=0.05)
    assert promised(work, 1.0, 0.0) > 4 > promised(work, 0.0, 0.0)
