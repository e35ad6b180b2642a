"""Against hardware counters: scripts recorded on an H200, with Nsight Compute's view of their kernels.

The margins are the promise (split error 5 points with shapes, 12 with names alone, the right side
for 95 % of the decided kernel time), not the figures reached; those are in the table of
`python -m benchmarks.truth.table`. The promise is kept on the scripts that constants were set with;
of those held out, and of those written blind, what is tested is that no wrong verdict is given for
sure, and that they get no worse.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest

from benchmarks.truth.blind import first_sight
from benchmarks.truth.calibration import HIGH, kernels, right_above, verdicts
from benchmarks.truth.runs import Run, blind_runs, runs
from benchmarks.truth.sets import (
    BLIND,
    PARTS,
    ROUNDS,
    SET_WITH,
    STUDIED,
    held_out,
    part_of,
)
from benchmarks.truth.table import (
    UNCOUNTED,
    Row,
    figures,
    markdown,
    parted,
    rows,
)
from brrrtop.estimator.names import name_facts
from brrrtop.model import Estimate, Regime

pytestmark = pytest.mark.timeout(180)
"""The scripts are scored once for all tests of a worker."""
TRIED = {
    "cell_unet", "resnet50_imagenet_bf16", "sr_train", "stereo_volume", "stylegan_lowmem",
    "wide_resnet_nchw_amp", "yolo_simota",
}  # fmt: skip
"""cuDNN chose among their kernels by trying them, and otherwise when they were counted."""
DRAWN = {"gru_translate"}
"""Their grids go by the lengths that a batch draws, others when they were counted."""
NOT_COUNTED = {
    "crops_timeseries", "ct_vit3d", "dreamer_world_model", "landcover_vitdet", "tacotron2_tts",
}  # fmt: skip
"""Of the fifth round: steps that differ from one another, or too many kernels for the time there was."""
PLACED = {"hashgrid_sdf", "pointnet2_cls"}
"""Which kernel concatenates goes by where in memory the parts lie, elsewhere when they were counted."""
MISPREDICTED = {
    "cell_unet": "overhead", "fp8": "compute", "patchtst_electricity": "compute", "windows": "compute",
}  # fmt: skip
"""Otherwise than their writers foretold: what their counters say."""


def traces_named() -> Path | None:
    named = os.environ.get("BRRRTOP_TRACES")
    return Path(named) if named and Path(named).is_dir() else None


@pytest.fixture(scope="module")
def every_script() -> list[Row]:
    return rows(traces_named())


@pytest.fixture
def table(every_script: list[Row]) -> list[Row]:
    """The scripts that constants were set with."""
    return [row for row in every_script if not held_out(row.run.name)]


@pytest.fixture
def others(every_script: list[Row]) -> list[Row]:
    """The scripts held out."""
    return [row for row in every_script if held_out(row.run.name)]


def test_a_script_that_two_folders_hold_comes_once_and_with_its_counters() -> None:
    found = list(runs(traces_named()))
    assert len({run.name for run in found}) == len(found)
    assert all(run.counters for run in found if run.name in SET_WITH)
    counted = {run.name for run in found if run.counters and held_out(run.name)}
    assert counted == STUDIED and len(STUDIED) == 17


def test_a_script_is_not_blind_until_somebody_says_so() -> None:
    assert not STUDIED & SET_WITH and not BLIND & (STUDIED | SET_WITH)
    assert len(BLIND) == sum(map(len, ROUNDS.values()))
    assert part_of("written_tomorrow") == PARTS[1]


def test_of_all_scripts_written_blind_there_are_counters_and_what_was_said_at_first_sight() -> None:
    found = {run.name: run for run in blind_runs()}
    assert set(found) == BLIND and [*map(len, ROUNDS.values())] == [24, 14, 22, 24, 24]
    rounds = {part: seen["scripts"] for part, seen in first_sight().items()}
    told = {part: set(kept) for part, kept in rounds.items()}
    assert told == dict(zip(PARTS[2:], map(set, ROUNDS.values()), strict=True))
    for name, run in found.items():
        assert bool(run.counters) == (name not in NOT_COUNTED), name
        assert bool(run.counters) == ("counted" in rounds[part_of(name)][name]), name
        assert run.truth == rounds[part_of(name)][name]["truth"], name


@pytest.mark.parametrize(
    ("part", "wrong"), zip(PARTS[2:], ("none", "1", "1", "2", "1"), strict=True)
)
def test_the_sentences_on_the_first_sight_say_what_the_figures_beside_them_do(
    part: str, wrong: str
) -> None:
    kept = first_sight()[part]
    scripts, text = kept["scripts"].values(), "\n".join(kept["text"])
    right = sum(one["said"]["regime"] == one["truth"]["regime"] for one in scripts)
    assert f"regime as predicted {right} of {len(scripts)}" in text
    for level in ("shapes", "names"):
        errors = [one["counted"][level]["split_error"] for one in scripts if "counted" in one]
        mean = sum(errors) / len(errors)
        assert re.search(rf"[ ,]{level}: mean split error {mean:.1f} points", text)
    said = [({a["id"] for a in one["said"]["advice"]}, one["truth"]) for one in scripts]
    given = sum(len(ids & set(truth["advice"])) for ids, truth in said)
    assert f"{given} of the {sum(len(truth['advice']) for _, truth in said)} predicted" in text
    told = sum(len(ids & set(truth["not_advice"])) for ids, truth in said)
    assert (str(told) if told else "none") == wrong
    assert f"{wrong} of the {sum(len(truth['not_advice']) for _, truth in said)} that" in text


def test_every_part_has_a_table_and_sums_of_its_own(every_script: list[Row]) -> None:
    parts = parted(every_script)
    assert list(parts) == [*PARTS, UNCOUNTED]
    assert sum(map(len, parts.values())) == len(every_script)
    text = "\n" + markdown(every_script, 1.0)
    for part, some in parts.items():
        title = part.capitalize()
        table, _, sums = text.split(f"\n{title}:\n")[1].partition(f"\n{title}, shapes: ")
        assert re.findall(r"^\| (\w+) \| \w", table, re.M)[1:] == [row.run.name for row in some]
        counted = sum(bool(row.run.counters) for row in some)
        summed = sums.partition("\n")[0]
        assert f"over {counted} scripts" in summed if counted else "points" not in summed
        assert re.search(rf" of {len(some)}[.,]", summed)


def test_every_counted_kernel_is_found_in_its_recording(every_script: list[Row]) -> None:
    for row in every_script:
        found, counted = row.scores["shapes"].matched, len(row.run.counters)
        may_differ = row.run.name in TRIED | DRAWN | PLACED
        assert found == counted or (may_differ and found >= 0.8 * counted), row.run.name


def test_with_shapes_the_split_is_within_5_points_and_95_percent_of_the_time_on_the_right_side(
    table: list[Row],
) -> None:
    found = figures(table, "shapes")
    assert found.split_error <= 5
    assert found.pooled >= 0.95


def test_the_shapes_of_a_live_recording_are_as_good_as_those_of_a_profiler(
    table: list[Row],
) -> None:
    live, recorded = figures(table, "live shapes"), figures(table, "shapes")
    assert live.split_error <= min(5, recorded.split_error + 0.5)
    assert live.pooled >= 0.95
    assert live.regimes_right >= recorded.regimes_right - 1


def test_with_names_alone_the_split_is_within_12_points(table: list[Row]) -> None:
    assert figures(table, "names").split_error <= 12


def test_no_script_is_given_the_wrong_regime_with_shapes(table: list[Row]) -> None:
    wrong = [row for row in table if not row.scores["shapes"].regime_right]
    assert {row.run.name for row in wrong} <= set(MISPREDICTED)


def test_verdicts_and_sides_given_with_high_confidence_are_right(
    every_script: list[Row],
) -> None:
    # Every third of them, whole and in parts; all are in RESULTS.md. Those that were not built as predicted
    # are held against their counters below.
    some = [row.run for row in every_script[::3] if row.run.name not in MISPREDICTED]
    for points in (verdicts(some), kernels(some)):
        assert sum(p.claimed >= HIGH for p in points) >= len(points) // 4
        assert right_above(points) >= 0.95


def test_a_held_out_script_given_the_wrong_regime_is_not_given_it_for_sure(
    others: list[Row],
) -> None:
    for row in others:
        for level, scored in row.scores.items():
            found = scored.judged.estimate
            as_counted = found.regime.value == MISPREDICTED.get(row.run.name)
            as_traced = found.regime is Regime.OVERHEAD and stretched(row.run, found)
            sure = found.confidence >= HIGH
            assert scored.regime_right or as_counted or as_traced or not sure, (row.run.name, level)


def stretched(run: Run, found: Estimate) -> bool:
    """Whether torch.profiler made the step half again as long: then the host is what it waits for."""
    traced_ns, alone_ms = found.steps.step_ns, run.step_ms
    return bool(traced_ns and alone_ms and traced_ns > 1.5e6 * alone_ms)


def test_a_script_that_is_not_as_predicted_is_as_its_counters_say(
    every_script: list[Row],
) -> None:
    for row in every_script:
        if row.run.name in MISPREDICTED:
            truth = row.scores["shapes"].truth
            largest = max(truth, key=lambda side: truth[side])
            said = {"underfilled": "overhead"}.get(largest, largest)
            assert MISPREDICTED[row.run.name] == said != row.run.truth["regime"]
            assert truth[largest] > 0.55


@pytest.mark.parametrize(
    ("part", "level", "error", "side"),
    [
        (PARTS[1], "shapes", 16.5, 0.855),
        (PARTS[1], "names", 17.5, 0.80),
        (PARTS[2], "shapes", 7.3, 0.97),
        (PARTS[2], "names", 12.5, 0.875),
        (PARTS[3], "shapes", 6.8, 0.965),
        (PARTS[3], "names", 12.0, 0.88),
        (PARTS[4], "shapes", 9.0, 0.93),
        (PARTS[4], "names", 12.5, 0.84),
        (PARTS[5], "shapes", 8.0, 0.93),
        (PARTS[5], "names", 9.0, 0.91),
    ],
)
def test_held_out_scripts_get_no_worse(
    every_script: list[Row], part: str, level: str, error: float, side: float
) -> None:
    found = figures(parted(every_script)[part], level)
    assert found.split_error <= error
    assert found.pooled >= side


def test_the_bounds_of_the_split_hold_the_truth_with_few_exceptions(table: list[Row]) -> None:
    held = [
        row.scores[level].covered
        for row in table
        for level in ("shapes", "names")
        if row.scores[level].matched
    ]
    assert sum(held) >= 0.85 * len(held)


def test_work_per_thread_of_pointwise_kernels_agrees_with_the_recorded_shapes(
    table: list[Row],
) -> None:
    right = wrong = 0
    for row in table:
        window = row.run.window
        ops = dict(zip(window.links.correlations.tolist(), window.links.op_ids, strict=True))
        acts = window.activities
        for kernel in range(len(acts)):
            facts = name_facts(window.names[acts.name_ids[kernel]])
            op = window.ops.get(int(ops.get(int(acts.correlations[kernel]), -1)))
            sizes = [math.prod(d) for d in op.dims if d and isinstance(d[0], int)] if op else []
            if not sizes or not facts.elements_per_thread:
                continue
            block = int(acts.threads[kernel]) * facts.elements_per_thread
            covered = int(acts.blocks[kernel]) * block
            fits = max(sizes) <= covered < max(sizes) + block
            right, wrong = right + fits, wrong + (not fits)
    assert right > 1000
    assert right / (right + wrong) > 0.98
