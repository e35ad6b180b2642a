"""Sixteen programs watched on an H100 (driver 580.159.04, torch 2.11.0+cu130, 2026-11-23), by their own clocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.runs.judge import judge
from brrrtop import analyze
from brrrtop.ledger.verdict import UNSURE

RUNS = Path(__file__).resolve().parents[1] / "recordings" / "runs"
CLOCKS = sorted(RUNS.glob("*.json"))
FEW_SAMPLES = {"nanogpt", "text_by_hand", "graph", "dqn"}
"""Batches made, or freed, by hand: some thirty samples tell of them, which need the interpreter's lock."""
WITHIN_STEPS = {"dqn"}
"""What it does in each step, for less than a millisecond, is no phase of its own."""


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    return {
        path.stem: judge(json.loads(path.read_text()), path.with_suffix(".brrr"), live=False)
        for path in CLOCKS
    }


def test_there_are_programs_to_judge(rows: dict[str, Any]) -> None:
    assert len(rows) == 16


@pytest.mark.parametrize("name", [path.stem for path in CLOCKS])
def test_shares_of_phases_are_those_of_the_programs_own_clock(
    name: str, rows: dict[str, Any]
) -> None:
    if name not in WITHIN_STEPS:
        assert rows[name]["phases"] and all(good for *_, good in rows[name]["phases"])


@pytest.mark.parametrize("name", [path.stem for path in CLOCKS])
def test_waits_for_data_are_those_of_its_clock(name: str, rows: dict[str, Any]) -> None:
    own, ours = rows[name]["truth"].waits, rows[name]["ours_"]["waits"]
    assert ours == pytest.approx(own, abs=0.2 if name in FEW_SAMPLES else 0.05)


@pytest.mark.parametrize("name", sorted(FEW_SAMPLES))
def test_what_few_samples_tell_is_not_sure(name: str, rows: dict[str, dict[str, Any]]) -> None:
    run = analyze(RUNS / f"{name}.brrr").to_dict()["run"]
    most = sum(one["share"] * one["waits_for_data_most"] for one in run["phases"])
    assert rows[name]["truth"].waits <= most + 0.05
    if not rows[name]["scores"]["regime"]:
        assert rows[name]["ours_"]["confidence"] <= UNSURE


def test_busy_is_what_the_counter_says(rows: dict[str, Any]) -> None:
    assert all(row["scores"]["busy"] is not False for row in rows.values())


def test_first_advice_names_what_can_be_won(rows: dict[str, Any]) -> None:
    assert sum(row["scores"]["advice"] for row in rows.values()) >= len(rows) - 2
