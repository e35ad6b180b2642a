"""Saves told from their copies: what is counted, and what other advice leaves to them."""

from __future__ import annotations

import pytest

from brrrtop.analysis.signals.facts import Facts, facts
from brrrtop.model.vocabulary import MarkClass

from .scenarios import ADD, GEMM, Scene, healthy

SIZES = [1 << 20, 2 << 20, 4 << 20, 8 << 20]


def of(scene: Scene) -> Facts:
    judged = scene.judged()
    return facts(judged.window, judged.estimate, judged.call_rows)


def save(scene: Scene, sizes: list[int], us: float = 2_000.0) -> Scene:
    """Copy, write, copy, write: the device idles 1 us before a copy and 3 ms after it."""
    for size in sizes:
        scene.copy("down", size, us, pageable=True)
        scene.idle(3_000.0)
    return scene


def test_a_save_is_its_copies_and_the_idle_time_up_to_the_next_kernel() -> None:
    result = of(healthy(save(healthy(), SIZES * 3))).saves
    assert result is not None and not result.marked and result.repeated
    assert (result.count, result.copies, result.size_bytes) == (1, 12, 3 * sum(SIZES))
    assert result.exposed_ns == 12 * 2_000_000
    assert result.idle_ns == pytest.approx(12 * 3_000_000, rel=0.01)
    assert result.largest_ns == result.exposed_ns + result.idle_ns


def test_states_of_one_copy_a_size_are_less_sure() -> None:
    sizes = [(1 << 20) + (k << 12) for k in range(12)]
    once = healthy(save(healthy(), sizes)).advice()["checkpoint-stall"]
    states = healthy(save(healthy(), SIZES * 3)).advice()["checkpoint-stall"]
    assert once.confidence < states.confidence < 0.9


@pytest.mark.parametrize(
    "sizes",
    [SIZES, [64 << 10] * 12, [256] * 400],
    ids=["few tensors", "little data", "values"],
)
def test_a_few_results_are_no_save(sizes: list[int]) -> None:
    assert of(healthy(save(healthy(), sizes))).saves is None


def test_steps_that_are_only_guessed_tell_no_save_from_reading_back() -> None:
    scene = Scene()
    for _ in range(40):
        scene.kernel(GEMM, 300.0).kernel(ADD, 20.0)
    scene = save(scene, SIZES * 3).kernel(GEMM, 300.0)
    assert scene.judged().estimate.steps.source == "period"
    assert of(scene).saves is None


def test_what_the_save_copies_is_nobody_elses() -> None:
    result = of(healthy(save(healthy(), SIZES * 3)))
    assert result.transfers.pageable_down.count == 0
    assert result.syncs is not None and result.syncs.count == 0


def test_reading_back_every_step_keeps_its_own_beside_a_save() -> None:
    scene = Scene()
    for step in range(8):
        healthy(scene, steps=0, kernels=0)
        for _ in range(10):
            scene.kernel(GEMM, 300.0)
        scene.copy("down", 32 << 20, 4_000.0, pageable=True)
        scene.kernel(ADD, 20.0, late=10.0)
        if step == 4:
            save(scene, SIZES * 3)
        scene.step()
    given = scene.advice()
    assert {"readback-traffic", "checkpoint-stall"} <= given.keys()
    assert given["readback-traffic"].evidence["bytes_a_step"] == pytest.approx(32 << 20, rel=0.15)


def test_copies_in_a_marked_save_belong_to_it() -> None:
    scene = healthy()
    scene.mark(MarkClass.CHECKPOINT, 22_000.0, "torch.save").idle(20.0)
    scene = healthy(save(scene, SIZES[:2], us=8_000.0))
    result = of(scene).saves
    assert result is not None and result.marked and result.copies == 2
    advice = scene.advice()
    assert advice["checkpoint-stall"].confidence >= 0.9
    assert "readback-traffic" not in advice
    alone = healthy(healthy().idle(4_000.0, MarkClass.CHECKPOINT, "torch.save")).advice()
    saved, idle_only = advice["checkpoint-stall"].saves_at_most, alone["checkpoint-stall"]
    assert saved is not None and idle_only.saves_at_most is not None
    assert saved > idle_only.saves_at_most


def test_what_reading_back_wins_is_not_promised_twice() -> None:
    scene = Scene()
    for _ in range(6):
        for _ in range(3):
            scene.kernel(GEMM, 300.0)
            scene.copy("down", 64 << 20, 9_000.0, pageable=True)
            scene.sync(9_000.0)
            scene.kernel(ADD, 20.0, late=600.0)
        scene.step()
    assert "readback-traffic" in scene.advice()
    assert "sync-point" not in scene.advice()
