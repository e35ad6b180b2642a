"""Short runs of the benchmarks that hold brrrtop to its promises on a GPU; their long ones decide."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SITE = os.environ.get("BRRRTOP_SITE")
"""A folder with what the monitor needs, where the trainer's Python has not all of it."""


def run(script: str, out: Path, *options: str) -> dict[str, Any]:
    """The JSON that a benchmark has written."""
    command = [sys.executable, str(BENCHMARKS / f"{script}.py"), "--out", str(out), *options]
    command += ["--site", SITE] if SITE else []
    done = subprocess.run(command, timeout=500, check=False)
    written = out / f"{script}.json"
    assert written.exists(), f"{script} wrote nothing; its exit code: {done.returncode}"
    loads: dict[str, Any] = json.loads(written.read_text())
    return loads


def test_a_launch_bound_and_a_wide_loop_hardly_slow_down(tmp_path):
    options = ("--zoo", str(BENCHMARKS), "--only", "launches,wide", "--rivals", "none")
    result = run("overhead", tmp_path, *options, "--pairs", "8", "--budget", "45")
    for one in result["scripts"]:
        assert "error" not in one, one
        assert one["failures"] == []
        assert one["bursts"] > 0
        assert one["default"]["low"] < 0.01, one["default"]
        assert one["longest_ratio"] < 3
        assert one["residue"]["low"] < 0.005, one["residue"]
        assert one["first"]["first_verdict_s"] < 6
        assert one["host_bytes"] < 64e6
        assert one["device_bytes"] < 64e6


def test_a_trainer_with_graphs_survives_attaches_and_one_without_does(tmp_path):
    options = ("--parts", "cycles,graphs", "--cycles", "30", "--cli-cycles", "1", "--limit", "60")
    result = run("soak", tmp_path, *options)
    for part in ("cycles", "graphs"):
        assert result[part]["good"], result[part]
    assert result["cycles"]["kernels"] > 0


def test_losses_do_not_change_when_monitors_are_killed(tmp_path):
    result = run("soak", tmp_path, "--parts", "kills", "--kills", "16", "--limit", "60")["kills"]
    assert result["good"], result
    assert result["killed"]["tracing"] + result["killed"]["watching"] > 0


def test_a_burst_holds_the_kernels_that_torch_profiler_sees(tmp_path):
    result = run("soak", tmp_path, "--parts", "exact")["exact"]
    assert result["kernels"] > 0
    assert result["counts_differ"] == {}
    assert abs(result["duration_total"]) < 0.02
