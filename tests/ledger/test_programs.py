"""Programs by their own clocks: 24 on H100s (driver 580.159.04, torch 2.11.0+cu130), of which `a2c_pipes`, `encode`,
`http_generate`, `late_loader`, `memmap_table`, `molecules`, `ppo_vector`, `recsys`, `sac`, `sage_in_loop`, `score_jsonl` and
`thread_queue` on 2026-11-27, `chunk_generator` on 2026-11-28, the others on 2026-11-23; loops on a CPU."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.runs.judge import Truth, judge
from brrrtop import analyze
from brrrtop.ledger.ledger import Ledger
from brrrtop.ledger.verdict import UNSURE
from brrrtop.session.analyze import read
from brrrtop.sources.registry import open_source

RUNS = Path(__file__).resolve().parents[1] / "recordings" / "runs"
LOOPS = sorted((RUNS.parent / "loops").glob("*.json"))
CLOCKS = sorted(RUNS.glob("*.json"))
FEW_SAMPLES = {"text_by_hand"}
"""Batches made, or freed, by hand: some thirty samples tell of them, which need the interpreter's lock."""
BY_CHANCE = {"sac"}
"""Samples of it are farther off than they are of 19 programs in 20."""


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    return {
        path.stem: judge(json.loads(path.read_text()), path.with_suffix(".brrr"), live=False)
        for path in CLOCKS
    }


def test_there_are_programs_to_judge(rows):
    assert len(rows) == 24


@pytest.mark.parametrize("name", [path.stem for path in CLOCKS])
def test_shares_of_phases_are_those_of_the_programs_own_clock(name, rows):
    points = 0.06 if name in BY_CHANCE else 0.05
    assert rows[name]["phases"]
    assert all(abs(theirs - own) <= points for _, own, theirs, _ in rows[name]["phases"])


@pytest.mark.parametrize("name", [path.stem for path in CLOCKS])
def test_waits_for_data_are_those_of_its_clock(name, rows):
    own, ours = rows[name]["truth"].waits, rows[name]["ours_"]["waits"]
    assert ours == pytest.approx(own, abs=0.2 if name in FEW_SAMPLES else 0.05)


@pytest.mark.parametrize("name", sorted(FEW_SAMPLES))
def test_what_few_samples_tell_is_not_sure(name, rows):
    run = analyze(RUNS / f"{name}.brrr").to_dict()["run"]
    most = sum(one["share"] * one["waits_for_data_most"] for one in run["phases"])
    assert rows[name]["truth"].waits <= most + 0.05
    if not rows[name]["scores"]["regime"]:
        assert rows[name]["ours_"]["confidence"] <= UNSURE


@pytest.mark.parametrize("path", LOOPS, ids=[path.stem for path in LOOPS])
def test_loops_that_nobody_named_for_us_are_told_by_what_they_do(path):
    """On a busy CPU without a GPU, by their own clocks: one method for training and evaluation, rows of a database
    read in the loop, a game played in the training function, batches of a generator and a pickle as a save, an actor in
    a thread whose semaphore the learner waits for, neighbours of nodes drawn by hand, transformers as a
    folder of the user's, whose `_maybe_log_save_evaluate` does all three."""
    timeline = read(open_source(path.with_suffix(".brrr")))
    timeline.sort()
    assert timeline.newest_ns is not None
    run = Ledger().run(timeline, None, timeline.newest_ns)
    span = (run.span.t0_ns, run.span.t1_ns)
    truth = Truth(json.loads(path.read_text())["intervals"], *span)
    assert sum(one.waits_ns for one in run.phases) / run.duration_ns == pytest.approx(
        truth.waits, abs=0.05
    )
    kinds: dict[str, float] = {}
    for one in run.phases:  # workers that start are waited for in the training loop
        kind = "train" if one.kind == "data" else one.kind.value
        kinds[kind] = kinds.get(kind, 0.0) + one.share
    for kind, share in truth.phases.items():
        if share > 0.05:
            assert kinds[kind] == pytest.approx(share, abs=0.05)


def test_busy_is_what_the_counter_says(rows):
    assert all(row["scores"]["busy"] is not False for row in rows.values())


def test_regime_and_cause_are_right_for_all_but_one(rows):
    assert {name for name, row in rows.items() if not row["scores"]["regime"]} <= {"text_by_hand"}


def test_first_advice_names_what_can_be_won(rows):
    assert sum(row["scores"]["advice"] for row in rows.values()) >= len(rows) - 1
