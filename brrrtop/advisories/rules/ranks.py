"""What only ranks beside each other tell."""

from __future__ import annotations

from brrrtop.advisories.job import straggler
from brrrtop.advisories.registry import RANKS, rule

rule(
    "straggler", RANKS, "One rank arrives last", of_job=True,
    when="over two ranks or more: its own work takes 3 % of a step longer than its peers', in most steps, "
    "and most of all waits in collectives are for it",
    unless="one rank alone; ranks that were not recorded together; a rank that only began late; pipeline "
    "stages, whose roles differ",
)(straggler)  # fmt: skip
