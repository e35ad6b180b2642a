"""Were the fitted constants fitted to these scripts only? Fits on half of them, scores the other half.

    python -m benchmarks.truth.holdout [--traces DIR]

The constants of the pointwise kernels (`sides`) are chosen anew by the least mean split error on
every second script and used on the others, both ways round; then on all scripts but one, for each.
Only the scripts that they were chosen with take part: `table` scores the others. Trees are left out: where
they decide (`learned`), these constants do not.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.truth.runs import Run, runs, without_shapes
from benchmarks.truth.scoring import score
from benchmarks.truth.sets import held_out
from brrrtop.estimator import learned, sides

GRID = {
    "VECTORIZED_TURN": (0.55, 0.6, 0.655, 0.7, 0.75),
    "MOVED_PART": (0.85, 0.93, 1.03, 1.1, 1.2),
    "SCATTERED_BELOW": (0.5, 0.9, 1.3),
}
CHOICES = tuple(itertools.product(*GRID.values()))


@contextmanager
def constants(choice: Sequence[float]) -> Iterator[None]:
    """The estimator by rules, with other constants."""
    shipped = {name: getattr(sides, name) for name in GRID}
    try:
        for name, value in zip(GRID, choice, strict=True):
            setattr(sides, name, value)
        with mock.patch.object(learned, "GROWN_ON", None):
            yield
    finally:
        for name, value in shipped.items():
            setattr(sides, name, value)


def errors(all_runs: Sequence[Run]) -> np.ndarray:
    """Split error of each choice on each run, mean of with and without shapes, (choices, runs)."""
    table = np.zeros((len(CHOICES), len(all_runs)))
    for row, choice in enumerate(CHOICES):
        with constants(choice):
            for column, run in enumerate(all_runs):
                found = [score(run, w) for w in (run.window, without_shapes(run.window))]
                table[row, column] = float(np.mean([f.split_error for f in found]))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=os.environ.get("BRRRTOP_TRACES"))
    args = parser.parse_args()
    counted = sorted(
        (
            run
            for run in runs(Path(args.traces) if args.traces else None)
            if run.counters and not held_out(run.name)
        ),
        key=lambda run: run.name,
    )
    table = errors(counted)
    shipped = CHOICES.index(tuple(getattr(sides, name) for name in GRID))
    print(f"{len(counted)} scripts, shipped {CHOICES[shipped]}: {table[shipped].mean():.2f} points")
    every = np.arange(len(counted))
    halves = every % 2 == 0
    for name, fit in (("even", halves), ("odd", ~halves)):
        best = int(np.argmin(table[:, fit].mean(axis=1)))
        print(
            f"fitted on the {name} half {CHOICES[best]}: {table[best, fit].mean():.2f} there,"
            f" {table[best, ~fit].mean():.2f} on the other (shipped: {table[shipped, ~fit].mean():.2f})"
        )
    left_out = [table[int(np.argmin(table[:, every != k].mean(axis=1))), k] for k in every]
    print(f"each script with constants fitted on the others: {np.mean(left_out):.2f} points")


if __name__ == "__main__":
    main()
