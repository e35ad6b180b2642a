"""What the extractors count, with answers by hand."""

import pytest
from msgspec.structs import replace

from brrrtop.advisories.context import Context, context_of
from brrrtop.model.tables import OpSignature
from collectors.vocabulary import MarkClass, Metric

from .scenarios import (
    ADD,
    ADDCDIV,
    FLASH,
    FLASH_BACK,
    FUSED_ADAM,
    GEMM,
    LOG_SOFTMAX,
    MUL,
    NORM,
    SGEMM,
    SOFTMAX,
    Scene,
    healthy,
)

DGRAD = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNT"
NORM_BACK = "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel<float>(P)"


def of(scene: Scene) -> Context:
    return context_of(scene.judged())


def test_a_run_costs_at_least_its_largest_kernel():
    scene = Scene().kernel(GEMM, 100.0)
    for us in (40.0, 50.0, 60.0):
        scene.kernel(ADD, us)
    result = of(scene.kernel(GEMM, 100.0)).chains
    assert (result.count, result.kernels, result.total_ns) == (1, 3, 150_000)


def test_a_product_breaks_a_run():
    scene = Scene()
    for name in (ADD, GEMM, ADD, GEMM, ADD):
        scene.kernel(name, 50.0)
    result = of(scene).chains
    assert result is not None and result.count == 0


def test_streams_have_runs_of_their_own():
    scene = Scene()
    for place in range(6):
        scene.kernel(ADD, 50.0, stream=7 + place % 2)
    result = of(scene).chains
    assert result is not None and (result.count, result.kernels) == (2, 6)


def test_attention_is_its_products_and_what_lies_between():
    op = OpSignature("aten::bmm", ((8, 1024, 64), (8, 64, 1024)), ("c10::BFloat16",) * 2)
    scene = Scene().kernel(GEMM, 500.0)
    scene.kernel(GEMM, 100.0, op=op).kernel(MUL, 30.0).kernel(SOFTMAX, 70.0)
    result = of(scene.kernel(GEMM, 100.0, op=op).kernel(GEMM, 500.0))
    assert result.attention is not None and result.attention.count == 1
    assert result.facts.durations_ns[result.attention.rows].sum() == 300_000
    assert result.attention.shape == (8, 1024, 1024, 64)


def test_attention_is_described_by_its_largest_scores():
    """A model of video attends along time, 8 places, before it does along 3137 places of space."""
    scene = Scene().kernel(GEMM, 500.0)
    for heads, places in ((37_632, 8), (96, 3_137), (37_632, 8)):
        dims = ((heads, places, 64), (heads, 64, places))
        op = OpSignature("aten::bmm", dims, ("c10::BFloat16",) * 2)
        scene.kernel(GEMM, 100.0, op=op).kernel(SOFTMAX, 70.0).kernel(GEMM, 100.0, op=op)
        scene.kernel(GEMM, 500.0)
    result = of(scene).attention
    assert result is not None and result.shape == (96, 3_137, 3_137, 64)


def test_copies_beside_a_kernel_are_hidden():
    scene = Scene().kernel(GEMM, 1_000.0).copy("up", 1 << 20, 400.0, beside=True)
    scene.copy("up", 1 << 20, 300.0).copy("down", 8, 2.0, pageable=True)
    result = of(scene.kernel(GEMM, 10.0)).transfers
    assert (result.pinned_up.count, result.pinned_up.total_ns) == (2, 700_000)
    assert result.pinned_up.exposed_ns == 300_000
    assert result.pageable_down.count == 1 and result.pageable_up.count == 0
    scene = (
        Scene()
        .kernel(GEMM, 10.0)
        .copy("up", 1 << 20, 300.0)
        .copy("down", 1 << 20, 200.0, beside=True)
    )
    both = of(scene.kernel(GEMM, 10.0)).transfers  # beside an upload nothing is won
    assert both.pinned_up.exposed_ns == 300_000 and both.pinned_down.exposed_ns == 0


def test_waits_are_counted_with_the_idle_time_they_lead_to():
    scene = Scene()
    for _ in range(3):
        scene.kernel(GEMM, 500.0).sync(400.0).kernel(GEMM, 10.0, late=90.0).kernel(GEMM, 500.0)
    result = of(scene).syncs
    assert result.count == 3
    assert result.blocked_ns == 3 * 402_000


def test_an_update_is_found_between_the_backward_pass_and_its_mark():
    scene = Scene()
    for _ in range(4):
        scene.kernel(ADD, 5.0, late=8.0).kernel(ADD, 5.0, late=8.0, tid=2)
        for _ in range(5):
            scene.kernel(MUL, 5.0, late=8.0).kernel(ADDCDIV, 5.0, late=8.0)
        scene.step()
    result = of(scene).optimizer
    assert (result.kernels, result.updates) == (40, None)


def test_an_update_in_a_range_is_found_without_its_functors():
    scene = Scene().kernel(ADD, 5.0)
    scene.mark(MarkClass.OPTIMIZER, 100.0)
    for _ in range(6):
        scene.kernel(MUL, 5.0, late=8.0)
    result = of(scene).optimizer
    assert (result.kernels, result.updates) == (6, 1)


def test_without_an_optimizer_there_is_none():
    assert of(Scene().kernel(GEMM, 5.0).kernel(ADD, 5.0)).optimizer is None
    assert of(Scene().kernel(GEMM, 5.0).kernel(FUSED_ADAM, 5.0)).optimizer is not None


def test_a_forward_between_backward_work_was_recomputed():
    once, twice = Scene(), Scene()
    for scene, again in ((once, False), (twice, True)):
        for _ in range(4):
            for _ in range(8):
                scene.kernel(FLASH, 50.0)
            for _ in range(8):
                if again:
                    scene.kernel(FLASH, 50.0)
                scene.kernel(FLASH_BACK, 100.0)
            scene.step()
    assert of(once).recomputed_ns == 0
    # The first of each step follows the forward pass without a break: told by the backward ones.
    assert of(twice).recomputed_ns == 4 * 8 * 50_000


def test_the_products_after_a_recomputed_norm_were_recomputed_too():
    """A block is product, norm, product, activation; its backward is products and a norm."""
    scene = Scene()
    block = ((GEMM, 300.0), (NORM, 20.0), (GEMM, 400.0), (MUL, 30.0))
    for _ in range(4):
        for _ in range(6):
            for name, length in (*block, (ADD, 10.0)):
                scene.kernel(name, length)
        scene.kernel(LOG_SOFTMAX, 15.0)
        for _ in range(6):
            for name, length in (*block, (DGRAD, 500.0), (NORM_BACK, 40.0), (DGRAD, 500.0)):
                scene.kernel(name, length)
        scene.kernel(FUSED_ADAM, 90.0).step()
    result = of(scene).recomputed_ns
    assert result == pytest.approx(4 * 6 * 750_000, rel=0.05)


def test_readings_are_means_and_reasons_shares():
    scene = healthy().gauge(Metric.SMI_UTIL, 0.5, 1.0)
    result = of(scene.gauge(Metric.CLOCK_EVENT_REASONS, 0x4, 0x24, 0x0, 0x0)).readings
    assert result.mean(Metric.SMI_UTIL) == 0.75
    assert result.mean(Metric.POWER_WATT) is None
    assert result.reason_shares["power cap"] == 0.5
    assert result.reason_shares["software thermal"] == 0.25


def test_the_architecture_is_read_off_names_when_nobody_says():
    for name, least in ((GEMM, (9, 0)), (SGEMM, (8, 0)), (ADD, (0, 0))):
        scene = Scene().kernel(name, 5.0)
        scene.device = replace(scene.device, capability=None)
        assert of(scene).capability == least


def test_steps_covered_need_not_be_whole():
    scene = healthy(steps=4)
    estimate = scene.judged().estimate
    assert estimate.steps.count == 3
    assert estimate.steps_covered == pytest.approx(4.0, abs=0.01)


def test_bursts_are_not_one_run():
    """A forward pass cut by the end of a burst is no short run."""
    scene = Scene()
    scene.observed = []
    for _ in range(6):
        began = scene.now
        for name, count in ((FLASH, 3), (FLASH_BACK, 12), (FLASH, 12), (FLASH_BACK, 12)):
            for _ in range(count):
                scene.kernel(name, 50.0)
            if name == FLASH_BACK:
                scene.step()
        scene.observed.append((began, scene.now))
        scene.now += 100_000
    assert of(scene).recomputed_ns == 0
