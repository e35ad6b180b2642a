"""`brrrtop try` on the example of the README, measured: alone, as a busy machine has other figures."""

import os

import pytest

from tests.cli.test_json_page import documented, is_named, paths
from tests.trials.test_try import EXAMPLE, pytestmark, report_of, tried

__all__ = ["pytestmark"]


def test_the_example_gains_what_two_sleeping_workers_win_and_its_losses_stay_the_same():
    """A step sleeps for 0.1 s in its loader. Beside other tests it waited for a core as well: 28 and 72 %."""
    script = [*EXAMPLE, "--batch", "2", "--takes", "0.05"]
    report = report_of(tried(script, "--json", "--seconds", "1.5", "--edits", "loader-workers"))
    (workers,) = report["edits"]
    count = min(8, len(os.sched_getaffinity(0)))
    if count > 1:
        assert workers["measured"] == pytest.approx(1 - 1 / count, abs=0.12)
        assert report["best"] == ["loader-workers"]
        assert list(report["lines"].values()) == [f"DataLoader(..., num_workers={count})"]
    assert report["base"]["waits"] > 0.8
    assert workers["measured_low"] <= workers["measured"] <= workers["measured_high"]
    assert workers["loss_difference"] == 0 and not workers["changes_numbers"]
    patterns = documented()["brrrtop.try/1"]
    assert [one for one in paths(report) if not any(is_named(one, p) for p in patterns)] == []
