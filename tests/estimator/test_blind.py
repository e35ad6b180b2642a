"""The scripts written blind: each says what it should be, and the harness of the zoo runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.truth.blind import first_sight, promised, said_since, section, won
from benchmarks.truth.collect import chosen
from benchmarks.truth.keep import UNSEEN, keep, stated
from benchmarks.truth.pages import put
from benchmarks.truth.sets import BLIND, FIRST_ROUND, SECOND_ROUND
from brrrtop.advisories.catalogue import ENTRIES
from brrrtop.model import Regime

KNOWN = {entry.kind for entry in ENTRIES}
FIRST = {name: one for seen in first_sight().values() for name, one in seen["scripts"].items()}
MISSED = {
    ("qlora_llama", "none-healthy"),
    ("whisper_finetune", "none-healthy"),
    ("effnetv2_s_fp16", "fuse-pointwise"),
    ("hashgrid_sdf", "fuse-pointwise"),
    ("hashgrid_sdf", "remove-checkpointing"),
    ("vit_vqgan", "none-healthy"),
    ("sae_llm_residual", "none-healthy"),
}
"""Predicted of the later rounds, and not given. Launches hold two of the traces back, which they do
for the profiler's own cost."""
WRONG = {("convtasnet_separation", "tensor-core-alignment")}
"""Given, though their writers say that they must not be: of its products' 3,999 columns no vector is aligned."""
FIXED = {f"{name}_fixed" for name, one in FIRST.items() if "fixed" in one}


def test_the_collector_finds_every_script_and_its_fix() -> None:
    assert set(chosen(None, UNSEEN)) == BLIND | FIXED
    assert len(FIXED) == 18


@pytest.mark.parametrize("name", sorted(BLIND))
def test_what_a_script_predicts_is_what_was_predicted_before_it_ran(name: str) -> None:
    assert stated(UNSEEN / f"{name}.py") == FIRST[name]["truth"]


def test_every_prediction_is_a_regime_and_advice_that_exist() -> None:
    truths = [one["truth"] for one in FIRST.values()]
    truths += [one["fixed"]["truth"] for one in FIRST.values() if "fixed" in one]
    assert len(truths) == len(BLIND) + len(FIXED)
    for truth in truths:
        assert Regime(truth["regime"]) is not Regime.UNKNOWN
        assert {*truth["advice"], *truth["not_advice"]} <= KNOWN
        assert not {*truth["advice"]} & {*truth["not_advice"]}


def test_every_fix_won_what_its_writer_had_to_promise() -> None:
    for name, one in FIRST.items():
        if (share := won(one)) is not None:
            assert share > 0.15, name


def test_the_advice_that_was_predicted_is_given_and_none_that_must_not_be() -> None:
    since = {name: {a.kind for a in told.advisories} for name, told in said_since().items()}
    missing = {
        (name, kind)
        for name, one in FIRST.items()
        for kind in one["truth"]["advice"]
        if kind not in since[name]
    }
    for some, most in ((FIRST_ROUND, 1), (SECOND_ROUND, 3)):
        assert sum(name in some for name, _ in missing) <= most, missing
    assert {pair for pair in missing if pair[0] not in FIRST_ROUND | SECOND_ROUND} <= MISSED
    wrong = {
        (name, kind)
        for name, one in FIRST.items()
        for kind in since[name] & {*one["truth"]["not_advice"]}
    }
    assert wrong <= WRONG


def test_the_table_of_predictions_has_every_script_and_marks_what_was_missed_or_wrong() -> None:
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in section()}
    assert set(lines) > BLIND
    assert "overhead ✗: underfilled-kernels" in lines["cell_unet"]
    assert "sync-point, fuse-pointwise ✗ | overhead" in lines["latent_vae_previews"]
    assert "fused-optimizer ✗ | overhead" in lines["piano_gru"]
    assert lines["mae_pretrain"].endswith("| 72% | 61% |")
    assert lines["conformer_ctc"].endswith("| 40% | 48% |")  # of two pieces, the plant's
    assert promised(FIRST["dlrm_ctr"]) is None and lines["dlrm_ctr"].endswith("| – | 64% |")


def test_only_scripts_that_were_counted_are_kept(tmp_path: Path) -> None:
    (tmp_path / "cell_unet_fixed.trace.json.gz").write_bytes(b"never opened")
    keep(tmp_path, tmp_path / "out", UNSEEN, 1, 0, counted=True)
    assert not list((tmp_path / "out").iterdir())


def test_a_table_takes_its_place_on_a_page_again_and_again(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Above.\n\n<!-- maker -->\nold\n<!-- end of maker -->\n\nBelow.\n")
    put(page, "maker", "first\n")
    put(page, "maker", "second\n")
    held = "Above.\n\n<!-- maker -->\n\nsecond\n\n<!-- end of maker -->\n\nBelow.\n"
    assert page.read_text() == held
    with pytest.raises(SystemExit, match="no place for this"):
        put(page, "other", "text")


@pytest.mark.parametrize("name", ["lstm_lm", "lstm_lm_fixed", "mlm_pretrain"])
def test_a_script_runs_on_a_cpu_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    """One that writes checkpoints, its fix (which is made of it), and one with a loader's workers."""
    pytest.importorskip("torch")
    command = [sys.executable, f"{name}.py", "--tiny", "--device", "cpu", "--steps", "8"]
    done = subprocess.run(
        command, cwd=UNSEEN, env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)},
        text=True, capture_output=True, timeout=55, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].startswith("step=8 loss=")
    assert not list(tmp_path.glob("lstm_lm_*"))
