"""Layers in fp32, TF32 and fp64, forward and backward, over widths, rows and extents drawn as a grid."""

from __future__ import annotations

from collections.abc import Iterator

import float_maths
import float_nets
from cases import Case, building
from harness import main

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}


def cases() -> Iterator[Case]:
    yield from float_nets.cases()
    yield from float_maths.cases()


build = building("layers_float", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
