"""Attaching and detaching hundreds of times: the benchmark, as a test."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.attach.test_ptrace import INTERPRETERS, label

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "attach_soak.py"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("interpreter", INTERPRETERS, ids=label)
def test_a_few_cycles_harm_no_trainer_that_makes_them_hard(tracing, interpreter):
    """Signal handlers that raise, an audit hook, the recursion limit, forks from a thread, workers."""
    command = [sys.executable, str(BENCHMARK), "--cycles", "3", "--hard", interpreter]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
