"""Saves between the bursts of a watch, on a recording of an H200.

`saves.brrr`: a language model that saves its state every eight steps, one
burst of five steps between two saves.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.analysis.facts.host_activity import pauses
from brrrtop.model.tables import Window
from brrrtop.session.session import Session
from brrrtop.sources.registry import open_source
from collectors.vocabulary import MarkClass
from tests.recorded import analyzed

SAVES = Path(__file__).resolve().parents[1] / "recordings" / "host" / "saves.brrr"


def window() -> Window:
    source = open_source(SAVES)
    session = Session(source)
    shown = session.advance()
    source.close()
    return session.timeline.window(shown.estimate.span, 0)


def test_saves_that_no_burst_holds_come_first_in_the_advice() -> None:
    shown = analyzed(SAVES)
    assert shown.estimate is not None and shown.run is not None
    saving = shown.run.phases[0]
    assert saving.kind == "saving" and saving.where.startswith("save_checkpoint()")
    first = shown.advisories[0]
    assert first.kind == "checkpoint-stall" and 0.5 < (first.saves_at_most or 0) < saving.share
    assert first.saves_at_most == pytest.approx(
        shown.estimate.account.idle_ns["checkpoint"] / shown.run.duration_ns, abs=1e-3
    )


def test_one_save_alone_says_nothing_of_how_often() -> None:
    whole = window()
    result = pauses(whole, MarkClass.CHECKPOINT)
    assert result is not None and result.count == 7 and 0.4 < (result.share or 0) < 0.7
    rows = np.flatnonzero(whole.watched.classes == MarkClass.CHECKPOINT)
    keep = np.setdiff1d(np.arange(len(whole.watched)), rows[1:])
    alone = pauses(replace(whole, watched=whole.watched.take(keep)), MarkClass.CHECKPOINT)
    assert alone is not None and alone.count == 1 and alone.share is None


def test_saves_of_another_thread_hold_nobody_up() -> None:
    whole = window()
    saving = whole.watched.classes == MarkClass.CHECKPOINT
    elsewhere = np.where(saving, whole.watched.tids + 1, whole.watched.tids)
    moved = replace(whole, watched=replace(whole.watched, tids=elsewhere))
    assert pauses(moved, MarkClass.CHECKPOINT) is None
    assert pauses(replace(whole, watched=None), MarkClass.CHECKPOINT) is None
