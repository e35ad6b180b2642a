"""What was measured of each model's edits beside what its recording is told."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.recorded import analyzed

GAINS = Path(__file__).parents[2] / "benchmarks" / "gains"
WINS, HARM = 0.05, -0.02
FAILED = ("lightning_demo", "pyg_gat")
"""Nothing in their records tells that compiled code fails."""
MODELS = [
    (folder, path.stem)
    for folder in ("measured", "h100", "h100-4", "h100-5", "h100-6")
    for path in sorted((GAINS / folder).glob("*.brrr"))
]


@cache
def measured_of(folder: str) -> tuple[Any, dict[str, Any]]:
    """What reads the measurements, and those of a folder."""
    from benchmarks.gains import report  # not while tests are collected: it imports torch

    return report, report.measured(sorted((GAINS / folder).glob("*.xz")))


@pytest.mark.parametrize(("folder", "name"), MODELS)
def test_no_advice_does_harm_and_nothing_that_wins_is_denied(folder, name):
    report, every = measured_of(folder)
    measured, shown = every[name], analyzed(GAINS / folder / f"{name}.brrr")
    gains = {edit: won for edit, won in measured.saves.items() if edit not in report.OFFERS}
    sure = [one for one in shown.advisories if "edit" in one.evidence and not one.may_lose]
    first = next(
        (edit for one in sure if (edit := one.evidence["edit"]) not in report.OFFERS), None
    )
    assert gains.get(first or "", 0.0) >= HARM
    assert name in FAILED or measured.failed.get(first or "", report.LATE) == report.LATE
    waste = " ".join(one.waste for one in shown.advisories)
    for edit, won in gains.items():
        if won >= WINS:
            assert f"{edit} (" not in waste
            assert edit != "compile" or not {"fusing", "compile:"} & set(waste.split())
            assert all(one.kind != "none-healthy" for one in shown.advisories)
