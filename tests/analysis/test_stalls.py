"""Planted stalls get the share of time that the script itself measured, on recordings of an H200."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import stalls
from brrrtop.cli.commands.demo import scenarios


def _row(demo: str) -> stalls.Row:
    return stalls.row(demo, stalls.DEMOS[demo], scenarios()[demo], stalls.meters([]))


@pytest.mark.parametrize("demo", ["input-bound", "unpinned-copies"])
def test_a_planted_stall_is_booked_within_five_points_of_the_scripts_own_meter(demo: str) -> None:
    row = _row(demo)
    assert row.meter is not None and row.off is not None
    assert abs(row.off) <= stalls.CLOSE, row
    assert row.booked > 0.85


def test_what_was_not_recorded_leaves_no_idle_time_unexplained() -> None:
    """Memsets bring no calls, and ids start anew with each burst: neither may show as idle time."""
    for demo in ("sync-bound", "launch-bound"):
        account = stalls.judged(scenarios()[demo]).estimate.account
        nobody = account.idle_ns["unknown"] + account.idle_ns["device"]
        assert nobody / account.duration_ns < 0.02, demo


def test_waits_for_values_read_back_are_booked_where_the_queue_had_to_fill_again() -> None:
    account = stalls.judged(scenarios()["sync-bound"]).estimate.account
    assert 0.08 < account.idle_ns["sync"] / account.duration_ns < 0.25


def test_the_table_names_what_is_off() -> None:
    row = _row("input-bound")
    assert "| slow_loader | input-bound | 118.4 ms |" in "\n".join(stalls.table([row]))
    assert stalls.main([]) == 0


def test_a_script_without_a_meter_gets_one(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "item_sync.py"
    script.write_text(TRAINING)
    command = [sys.executable, str(Path(stalls.__file__).with_name("metered.py")), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    (tmp_path / "item_sync.meter.json").write_text(done.stdout)
    loads = json.loads(done.stdout)
    assert (loads["steps"], loads["reads_per_step"]) == (20, 3)
    share = stalls.meters([tmp_path])["item_sync"]
    assert share == loads["meters_ms_per_step"]["read_back"] / loads["step_ms"]
    assert 0 < share < 1
    assert done.stderr.count("loss") == 40, "its own words go to stderr"


TRAINING = f"""
import sys
sys.path.append({str(Path(__file__).parents[1])!r})
import torch
from descent import Descent
layer = torch.nn.Linear(64, 64)
optimizer = Descent(layer.parameters())
for step in range(40):
    loss = layer(torch.ones(8, 64)).square().mean()
    loss.backward()
    print("loss", loss.item())
    loss.detach().cpu().tolist()
    optimizer.step()
    optimizer.zero_grad()
"""
