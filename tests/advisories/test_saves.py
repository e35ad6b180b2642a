"""Saves: what is counted, and what other advice leaves to them."""

from __future__ import annotations

from brrrtop.advisories.context import Context, context_of
from collectors.vocabulary import MarkClass

from .scenarios import ADD, GEMM, Scene, healthy

SIZES = [1 << 20, 2 << 20, 4 << 20, 8 << 20]


def of(scene: Scene) -> Context:
    return context_of(scene.judged())


def save(scene: Scene, sizes: list[int], us: float = 2_000.0) -> Scene:
    """Copy, write, copy, write: the device idles 1 us before a copy and 3 ms after it."""
    for size in sizes:
        scene.copy("down", size, us, pageable=True)
        scene.idle(3_000.0)
    return scene


def test_copies_in_a_marked_save_belong_to_it() -> None:
    scene = healthy()
    scene.mark(MarkClass.CHECKPOINT, 22_000.0, "torch.save").idle(20.0)
    scene = healthy(save(scene, SIZES[:2], us=8_000.0))
    result = of(scene)
    assert result.transfers.saved.count == 2 and result.transfers.pageable_down.count == 0
    assert result.syncs is not None and result.syncs.count == 0
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
