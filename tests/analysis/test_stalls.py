"""Planted stalls get the share of time that the script itself measured, on recordings of an H200."""

from __future__ import annotations

import pytest

from brrrtop.analysis.estimate import estimate
from brrrtop.analysis.facts.steps import between_steps
from brrrtop.cli.commands.demo import scenarios
from brrrtop.model.account import Account
from brrrtop.model.tables import Span
from tests.recorded import timeline_of

CLOSE = 0.05
METERED = {"input-bound": 105.822 / 112.634, "unpinned-copies": 38.475 / 40.669}
"""Part of a step that each demo's script waits for its plant, by its own clock, undisturbed."""


def account_of(demo: str) -> Account:
    """Of the whole steps of the busiest device."""
    timeline = timeline_of(scenarios()[demo])
    span = Span(timeline.first_ns or 0, timeline.last_ns or 0)
    device = timeline.active_devices(span)[0]
    steps = between_steps(estimate(timeline.window(span, device)).estimate.steps)
    return estimate(timeline.window(steps or span, device)).estimate.account


@pytest.mark.parametrize("demo", METERED)
def test_a_planted_stall_is_booked_within_five_points_of_the_scripts_own_meter(demo: str) -> None:
    account = account_of(demo)
    # A copy from pageable memory is staged by the host before and after what the device moves.
    copies = account.exposed_copy_ns + account.idle_ns["sync"]
    booked = account.idle_ns["input"] if demo == "input-bound" else copies
    assert booked / account.duration_ns == pytest.approx(METERED[demo], abs=CLOSE)


@pytest.mark.parametrize("demo", ["sync-bound", "launch-bound"])
def test_what_was_not_recorded_leaves_no_idle_time_unexplained(demo: str) -> None:
    """Memsets bring no calls, and ids start anew with each burst: neither may show as idle time."""
    account = account_of(demo)
    unexplained = account.idle_ns["unknown"] + account.idle_ns["device"]
    assert unexplained / account.duration_ns < 0.02
    if demo == "sync-bound":  # waits for values read back, where the queue had to fill again
        assert 0.08 < account.idle_ns["sync"] / account.duration_ns < 0.25
