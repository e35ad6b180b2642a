"""Loops of an H200 before and after one fix: what was promised was won, and the advice is gone.

Each loop was recorded, and timed with nothing attached, before and after its fix (H200).
"""

import json
from pathlib import Path

import pytest

from brrrtop.advisories.compare import compare
from brrrtop.model.advice import Advisory
from brrrtop.model.estimate import Estimate
from brrrtop.model.snapshot import Snapshot
from brrrtop.views import comparison
from tests.recorded import analyzed

FOLDER = Path(__file__).resolve().parents[1] / "recordings" / "promises"
MEASURED = json.loads((FOLDER / "measured.json").read_text())["steps"]


def judged(name: str) -> Snapshot:
    return analyzed(FOLDER / f"{name}.brrr", trimmed=True)


def advice(snapshot: Snapshot, kind: str) -> Advisory | None:
    return next((one for one in snapshot.advisories if one.kind == kind), None)


def estimate(snapshot: Snapshot) -> Estimate:
    assert snapshot.estimate is not None
    return snapshot.estimate


@pytest.mark.parametrize("kind", MEASURED)
def test_the_fix_wins_at_most_what_was_promised_and_at_least_half(kind):
    given = advice(judged(kind), kind)
    won = 1 - MEASURED[kind]["after_ms"] / MEASURED[kind]["before_ms"]
    assert 0.5 * given.saves_at_most <= won <= given.saves_at_most


@pytest.mark.parametrize("kind", MEASURED)
def test_the_fix_takes_the_advice_off_the_screen(kind):
    assert advice(judged(f"{kind}.after"), kind) is None


@pytest.mark.parametrize("kind", MEASURED)
def test_the_comparison_says_what_was_promised_and_won(kind):
    before, after = judged(kind), judged(f"{kind}.after")
    result = compare(estimate(before), estimate(after), before.advisories)
    kept = next(one for one in result.promises if one.kind == kind)
    won = 1 - MEASURED[kind]["after_ms"] / MEASURED[kind]["before_ms"]
    assert kept.won_share == pytest.approx(won, abs=0.05)
    assert kind in comparison.promise(kept)


def test_a_step_begins_with_its_kernels_not_with_a_copy_that_runs_ahead():
    """Prefetched on a stream of its own, the upload for step 5 is over before step 3 begins."""
    spans = estimate(judged("overlap-copies.after")).steps.spans
    for span in spans:
        assert span.duration_ns / 1e6 == pytest.approx(5.5, abs=0.4)
