"""Saves: what is counted, and what other advice leaves to them."""

import re
from pathlib import Path

import pytest

from brrrtop.advisories.context import Context, context_of
from brrrtop.cli.files import read
from brrrtop.cli.options import Options
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


def test_copies_in_a_marked_save_belong_to_it():
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
    assert saved > idle_only.saves_at_most


def test_what_reading_back_wins_is_not_promised_twice():
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


RECORDINGS = Path(__file__).parents[1] / "recordings"


@pytest.mark.parametrize("name", ["h200/scan", "h200/wavenet", "counted/gkd_student"])
def test_a_gain_beyond_the_share_in_its_sentence_says_what_else_the_edit_changes(name):
    snapshot = read(str(RECORDINGS / f"{name}.brrr"), Options())
    gains = {row.advisory: row.saves for row in snapshot.whatif if row.advisory}
    beyond = 0
    for advisory in snapshot.advisories:
        shares = [float(share) for share in re.findall(r"([\d.]+)%", advisory.says)]
        gain = 100 * gains.get(advisory.kind, 0.0)
        assert not shares or gain <= sum(shares) + 1, advisory.says
        beyond += bool(shares) and gain > shares[0] + 1
    assert beyond


def test_graphs_lead_where_compiling_alone_may_lose_and_they_do_not():
    snapshot = read(str(RECORDINGS / "runs/gpt_bf16.brrr"), Options())
    rows = {row.edit: row for row in snapshot.whatif}
    assert rows["compile"].saves_low < 0 < rows["compile-reduce-overhead"].saves_low
    assert snapshot.advisories[0].kind == rows["compile-reduce-overhead"].advisory == "cuda-graphs"


def test_what_empties_a_bucket_of_the_run_is_no_waste_though_the_traced_step_has_none_of_it() -> (
    None
):
    snapshot = read(str(RECORDINGS / "runs/ppo.brrr"), Options())
    assert next(row for row in snapshot.whatif if row.edit == "no-sync").saves < 0.01
    assert snapshot.run.account.idle_ns["sync"] > 0.05 * snapshot.run.duration_ns
    assert not any("no-sync" in one.waste for one in snapshot.advisories)
