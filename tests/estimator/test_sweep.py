"""The sweep of kernels on a CPU: every script runs, and hardly a case of it is left out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.truth.collect import chosen
from benchmarks.truth.keep import stated
from brrrtop.model import Regime

SWEEP = Path(__file__).resolve().parents[2] / "benchmarks" / "sweep"
SCRIPTS = chosen(None, SWEEP)
ONLY_GPU = {"attention": 0.4}
"""Shares that run on a CPU where most are for a GPU's backends."""


def test_the_collector_finds_every_script_that_lists_cases_and_no_helper() -> None:
    listing = {p.stem for p in SWEEP.glob("*.py") if "= building(" in p.read_text()}
    assert {*SCRIPTS} == listing and len(listing) == 26


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_runs_nearly_all_its_cases_and_claims_no_regime(name: str) -> None:
    pytest.importorskip("torch")
    assert stated(SWEEP / f"{name}.py")["regime"] == Regime.UNKNOWN
    command = [sys.executable, f"{name}.py", "--tiny", "--device", "cpu", "--steps", "1"]
    done = subprocess.run(
        command, cwd=SWEEP, env=os.environ | {"OMP_NUM_THREADS": "1"}, text=True,
        capture_output=True, timeout=55, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "step=1 loss=0.000000"
    found = re.search(rf"{name}: (\d+) of (\d+) cases run here", done.stderr)
    assert found, done.stderr[-2000:]
    ran, listed = map(int, found.groups())
    assert listed >= 40
    assert ran >= ONLY_GPU.get(name, 0.9) * listed, done.stderr[-4000:]
