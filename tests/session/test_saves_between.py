"""Saves between the bursts of a watch, on a recording of an H200.

`saves.brrr`: a language model that saves its state every eight steps, one
burst of five steps between two saves.
"""

from pathlib import Path

import pytest

from tests.recorded import analyzed

SAVES = Path(__file__).resolve().parents[1] / "recordings" / "host" / "saves.brrr"


def test_saves_that_no_burst_holds_come_first_in_the_advice():
    shown = analyzed(SAVES)
    saving = shown.run.phases[0]
    assert saving.kind == "saving" and saving.where.startswith("save_checkpoint()")
    first = shown.advisories[0]
    assert first.kind == "checkpoint-stall" and 0.5 < (first.saves_at_most or 0) < saving.share
    assert first.saves_at_most == pytest.approx(
        shown.estimate.account.idle_ns["checkpoint"] / shown.run.duration_ns, abs=1e-3
    )
