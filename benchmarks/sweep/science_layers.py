"""Layers and parts of graph, scientific and probabilistic models, each as it stands in a step."""

from __future__ import annotations

from collections.abc import Iterator

import science_chance
import science_fields
import science_graphs
import science_updates
from cases import Case, building
from harness import main

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}


def cases() -> Iterator[Case]:
    for part in (science_graphs, science_fields, science_chance, science_updates):
        yield from part.cases()


build = building("science_layers", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
