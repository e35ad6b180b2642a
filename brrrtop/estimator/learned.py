"""Chance that a kernel is bound by its arithmetic or instructions, from trees grown on counted kernels.

The trees are gradient boosted (Friedman 2001; grown by scikit-learn's HistGradientBoostingClassifier)
on what Nsight Compute counted of kernels on an H200: `benchmarks/truth/learn.py` grows them anew from
the recordings in `tests/recordings`, and traces of five scripts more (BRRRTOP_TRACES), and scores each
script with trees that never saw it. No scikit-learn is needed here: a tree is a table of splits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from brrrtop.estimator.features import COLUMNS

GROWN_ON = (9, 0)
"""Compute capability of the GPU whose kernels were counted."""
SIDES, BEYOND_SM = 0, 1
"""Rules that trees were grown for: Nsight Compute's own, which is the larger of the two throughputs, and as
if what an SM has of its own (L1, shared memory) were no memory."""
FILE = "sides.npz"
"""In `brrrtop/data`, 110 kB."""


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """All nodes of all trees."""

    column: npt.NDArray[np.int16]
    """Shape (nodes,): into `COLUMNS`; as many further on where what nobody knows counts as more than any
    threshold, and not as less."""
    threshold: npt.NDArray[np.float64]
    """Shape (nodes,). At most that: the first child."""
    children: npt.NDArray[np.int32]
    """Shape (2 nodes,), those of a node beside each other; those of a leaf are itself."""
    value: npt.NDArray[np.float64]
    """Shape (nodes,): log-odds that a leaf adds; 0 elsewhere."""
    roots: npt.NDArray[np.int32]
    """Shape (rules, trees)."""
    base: npt.NDArray[np.float64]
    """Shape (rules,): log-odds before any tree."""
    depth: int
    """Steps from any root to any leaf, at most."""

    def odds(self, row: npt.NDArray[np.float64], rule: int = SIDES) -> float:
        """Log-odds of the compute side.

        Args:
            row: Of `COLUMNS`, NaN where nobody knows.
        """
        unknown = np.isnan(row)
        both = np.concatenate((np.where(unknown, -np.inf, row), np.where(unknown, np.inf, row)))
        at = self.roots[rule]
        for _ in range(self.depth):
            more = both.take(self.column.take(at)) > self.threshold.take(at)
            at = self.children.take(2 * at + more)
        return float(self.base[rule] + self.value.take(at).sum())


def read(file: Path | IO[bytes]) -> Trees:
    """Trees that `benchmarks/truth/learn.py` wrote.

    Raises:
        ValueError: They were grown on other columns than `COLUMNS`.
    """
    with np.load(file, allow_pickle=False) as held:
        if tuple(held["columns"].tolist()) != COLUMNS:
            raise ValueError("the trees of sides know other columns: grow them anew (truth.learn)")
        arrays = {name: held[name] for name in Trees.__slots__}
    return Trees(**arrays | {"depth": int(arrays["depth"])})


@cache
def shipped() -> Trees:
    """Those that come with brrrtop."""
    with (files("brrrtop") / "data" / FILE).open("rb") as file:
        return read(file)
