"""Grows the trees that tell a kernel's side from counted kernels, and scores them on scripts they never saw.

    pip install scikit-learn
    python -m benchmarks.truth.learn [--traces DIR] --out brrrtop/data/sides.npz
    python -m benchmarks.truth.learn [--traces DIR] --folds 10        (scores only)
    python -m benchmarks.truth.learn [--traces DIR] --without NAMES --out FILE

Reads recordings only, at each level of evidence: what is missing there is missing in the rows. A kind
of kernel (script, name, grid, op) weighs the same however often it ran, one that tosses between the
sides half, a long one more than a short one, one of a sweep less than one of a script. Kernels too small
for the GPU are left out: `filling` tells those.

`--folds N` leaves out every N-th script at a time, grows trees on the others and the sweep, and scores the
estimator with them. NAMES: scripts with commas between, or `first` to `fifth` round.
"""

from __future__ import annotations

import argparse
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from benchmarks.truth.kernels import LEVELS, Kernel, kernels
from benchmarks.truth.runs import (
    BALANCED,
    Counted,
    Run,
    blind_runs,
    runs,
    sweep_runs,
    without_shapes,
)
from benchmarks.truth.scoring import Score, score
from benchmarks.truth.sets import PARTS, part_of
from brrrtop.estimator import learned
from brrrtop.estimator.features import COLUMNS, FALLING, RISING, row_of
from brrrtop.estimator.learned import Trees
from brrrtop.model import Regime
from brrrtop.tables import Window

F8 = npt.NDArray[np.float64]
SETTINGS = {
    "max_iter": 500,
    "learning_rate": 0.06,
    "max_leaf_nodes": 32,
    "max_depth": 10,
    "min_samples_leaf": 8,
    "l2_regularization": 2.0,
    "max_features": 0.3,
    "early_stopping": False,
    "random_state": 0,
}
"""Chosen by ten folds over all that is counted, with `SWEPT` and `LENGTHS`: of twelve choices the mean split error
was 3.7 to 5.0 points with shapes and 5.2 to 6.9 with names, the most where trees were smaller (200 of 16 leaves) and
all kernels weighed the same."""
TOSS_WEIGHT = 0.5
SWEPT = 0.4
"""Weight of a kernel of a sweep: there are many, and nobody's step is made of them alone."""
EVEN_NS, LENGTHS = 50_000, (0.3, 3.0)
"""A kernel's weight goes with the root of its length: this long it is 1, and it stays within those bounds. A split is of time."""
RULES: tuple[Callable[[Counted], Counted | None], ...] = (
    lambda counted: counted,
    lambda counted: counted.beyond_sm,
)
"""How the counters are read for `learned.SIDES` and `learned.BEYOND_SM`; None where they do not say."""
VIEWS = {**LEVELS, "names without registers": lambda window: without_registers(window)}
"""Evidence that rows are worked out with."""


@dataclass(frozen=True)
class Row:
    """One counted kernel."""

    features: F8
    sides: tuple[tuple[bool, float] | None, ...]
    """By rule: whether the compute side is right, and how much that weighs."""


def without_registers(window: Window) -> Window:
    """Names alone, from a source that tells no registers: what fits on an SM is open."""
    bare, acts = without_shapes(window), window.activities
    return replace(bare, activities=replace(acts, registers=np.zeros_like(acts.registers)))


def counted_rows(some: Sequence[Run]) -> dict[str, list[Row]]:
    """Rows by script, of all `VIEWS`."""
    none, rules = np.zeros(0), len(RULES)
    whole = np.zeros(0, np.int32)
    roots = np.zeros((rules, 0), np.int32)
    with using(Trees(whole.astype(np.int16), none, whole, none, roots, np.zeros(rules), 0)):
        return {
            run.name: [r for view in VIEWS.values() for r in _rows(kernels(run, view), _part(run))]
            for run in some
        }


def _part(run: Run) -> float:
    return SWEPT if run.truth.get("regime", Regime.UNKNOWN) == Regime.UNKNOWN else 1.0


def _rows(found: Sequence[Kernel], part: float) -> Iterator[Row]:
    kinds = Counter(map(_kind, found))
    for kernel in found:
        seen = kernel.group.seen
        if seen is not None and kernel.counted.side != "underfilled":
            length = float(np.clip(math.sqrt(kernel.time_ns / EVEN_NS), *LENGTHS))
            weight = part * length / kinds[_kind(kernel)]
            yield Row(row_of(seen), tuple(_side(read(kernel.counted), weight) for read in RULES))


def _side(counted: Counted | None, weight: float) -> tuple[bool, float] | None:
    if counted is None:
        return None
    lead = counted.compute - counted.memory
    return lead >= 0, weight * min(1.0, max(TOSS_WEIGHT, abs(lead) / BALANCED))


def _kind(kernel: Kernel) -> tuple[object, ...]:
    return kernel.group.name, kernel.blocks, kernel.threads, kernel.group.op


def grown(rows: Iterable[Row]) -> Trees:
    """Trees for rows, by scikit-learn."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # type: ignore[import-untyped]

    held = list(rows)
    matrix = np.stack([row.features for row in held])
    monotone = [(c in RISING) - (c in FALLING) for c in COLUMNS]
    models = []
    for rule in range(len(RULES)):
        at = np.array([row.sides[rule] is not None for row in held])
        told = [side for row in held if (side := row.sides[rule]) is not None]
        model = HistGradientBoostingClassifier(monotonic_cst=monotone, **SETTINGS)
        sides, weights = (np.array(column) for column in zip(*told, strict=True))
        models.append(model.fit(matrix[at], sides.astype(bool), sample_weight=weights))
    trees = _told(models)
    wanted = [model.decision_function(matrix[:50]) for model in models]
    ours = [[trees.odds(row, rule) for row in matrix[:50]] for rule in range(len(RULES))]
    if not np.allclose(ours, wanted, atol=1e-6):
        raise SystemExit("the trees as written differ from scikit-learn's: its layout has changed")
    return trees


def _told(models: Sequence[Any]) -> Trees:
    """scikit-learn's trees as columns; it offers no public way to them."""
    nodes = [p[0].nodes for model in models for p in model._predictors]
    starts = np.cumsum([0, *map(len, nodes)])[:-1].astype(np.int32)
    first = np.repeat(starts, [len(n) for n in nodes])

    def column(name: str, kind: type = np.float64) -> npt.NDArray[Any]:
        return np.concatenate([n[name] for n in nodes]).astype(kind)

    leaf, own = column("is_leaf", np.bool_), np.arange(len(first), dtype=np.int32)
    ways = [np.where(leaf, own, column(side, np.int32) + first) for side in ("left", "right")]
    beyond = np.where(column("missing_go_to_left", np.bool_), 0, len(COLUMNS))
    return Trees(
        column=np.where(leaf, 0, column("feature_idx", np.int16) + beyond).astype(np.int16),
        # An infinite one parts what is known from what is not.
        threshold=np.where(leaf, 0.0, np.minimum(column("num_threshold"), np.finfo("f8").max)),
        children=np.stack(ways, axis=1).astype(np.int32).ravel(),
        value=np.where(leaf, column("value"), 0.0),
        roots=starts.reshape(len(models), -1),
        base=np.array([float(np.ravel(m._baseline_prediction)[0]) for m in models]),
        depth=int(column("depth").max()),
    )


def write(trees: Trees, path: Path, told: str) -> None:
    """For `learned.read`.

    Args:
        told: What they were grown on.
    """
    parts = {name: getattr(trees, name) for name in Trees.__slots__}
    np.savez_compressed(path, columns=np.array(COLUMNS), told=np.array(told), **parts)


@contextmanager
def using(trees: Trees) -> Iterator[None]:
    """The estimator with other trees than those shipped."""
    with mock.patch.object(learned, "shipped", return_value=trees):
        yield


def cross_validated(
    some: Sequence[Run], rows: dict[str, list[Row]], folds: int
) -> dict[str, dict[str, Score]]:
    """Each script's scores by level, with trees that never saw it."""
    names = sorted(run.name for run in some)
    found: dict[str, dict[str, Score]] = {}
    for fold in range(folds):
        left_out = set(names[fold::folds])
        trees = grown(row for name, own in rows.items() if name not in left_out for row in own)
        with using(trees):
            for run in some:
                if run.name in left_out:
                    found[run.name] = {
                        level: score(run, view(run.window)) for level, view in LEVELS.items()
                    }
    return found


def told_of(scores: dict[str, dict[str, Score]]) -> list[str]:
    """A line a part and level: mean split error and right side."""
    lines = []
    for part in (*PARTS, None):
        own = [s for name, s in scores.items() if part in (None, part_of(name))]
        for level in LEVELS if own else ():
            errors = [s[level].split_error for s in own]
            right = [a for s in own if (a := s[level].agreement) is not None]
            regimes = sum(s[level].regime_right for s in own)
            lines.append(
                f"{part or 'all'}, {level}: mean split error {np.mean(errors):.1f} points (median"
                f" {np.median(errors):.1f}, worst {max(errors):.1f}) over {len(own)} scripts, right"
                f" side for {np.mean(right):.1%} of the decided kernel time, regime as built"
                f" {regimes} of {len(own)}."
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", type=Path, default=os.environ.get("BRRRTOP_TRACES"))
    parser.add_argument("--without", default="", help="scripts that are left out; or rounds")
    parser.add_argument("--folds", type=int, help="score on scripts left out in so many turns")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    scripts = [r for r in chain(runs(args.traces), blind_runs()) if r.counters]
    rows = counted_rows([*scripts, *sweep_runs()])
    out = set(args.without.split(",")) - {""}
    kept = {n: r for n, r in rows.items() if not out & {n, *part_of(n).split()}}
    whole = [row for own in kept.values() for row in own]
    print(f"{len(kept)} scripts and sweeps, {len(whole)} rows of {len(COLUMNS)} numbers")
    if args.out:
        write(grown(whole), args.out, ",".join(sorted(kept)))
    if args.folds:
        print("\n".join(told_of(cross_validated(scripts, rows, args.folds))))


if __name__ == "__main__":
    main()
