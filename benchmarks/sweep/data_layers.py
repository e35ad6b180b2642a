"""Layers and parts of recommenders, models of tables and series, and reinforcement learning, each as it stands in a step."""

from __future__ import annotations

from collections.abc import Iterator

import science_clicks
import science_policies
import science_series
import science_tables
from cases import Case, building
from harness import main

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}


def cases() -> Iterator[Case]:
    for part in (science_clicks, science_tables, science_series, science_policies):
        yield from part.cases()


build = building("data_layers", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
