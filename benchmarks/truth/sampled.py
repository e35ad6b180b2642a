"""What counter samples add to names: measured where a GPU sampled, simulated where none did.

    python -m benchmarks.truth.sampled [--simulate] [--traces DIR] [--interval-us 200] [--noise 0.03]

Without `--simulate`: the recordings with real PM samples beside kernels (tests/recordings/sampled),
judged with and without them, against Nsight Compute's counters of the same scripts.

With `--simulate` NO GPU SAMPLED ANYTHING: each counted kernel's tensor and DRAM activity as Nsight
Compute saw it is spread over the kernel's interval in the recorded trace, averaged over sampling
intervals on a clock that is off and drifts, and noise is added. Kernels that were not counted get
the values of counted ones of the same name and grid, else of their family. The columns `sm` and
`issue` are not simulated: ncu's table has neither.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.truth.runs import Run, blind_runs, runs, sampled_runs, without_shapes
from benchmarks.truth.scoring import Score, aligned, score
from benchmarks.truth.sets import PARTS, part_of
from brrrtop.estimator.families import family_of
from brrrtop.estimator.labels import label
from brrrtop.estimator.samples import Expected, measured
from brrrtop.estimator.sampling import MOST_ERROR
from brrrtop.session.sampled import SampleClock
from brrrtop.tables import Samples

F8 = npt.NDArray[np.float64]
READ_LATE_NS = 700_000
DRIFT = 15e-6
BEHIND_NS = 1_000_000_000_000
COUNTED = ("tensor", "dram")


@dataclass(frozen=True)
class Study:
    """One run judged by names, and by names with samples."""

    run: Run
    names: Score
    sampled: Score
    offset_error_ns: float | None = None
    """Found offset less the true one, simulated runs only; None: the samples abstained."""


def activities_of(run: Run) -> F8:
    """Tensor and DRAM activity of each activity of the run's window, shape (n, 2)."""
    window, acts = run.window, run.window.activities
    by: dict[object, list[tuple[float, float]]] = defaultdict(list)
    kinds = {i: family_of(window.names[i]).name for i in np.unique(acts.name_ids).tolist()}
    found = np.full((len(acts), 2), np.nan)
    for row, counted in aligned(run, window):
        values = (counted.tensor / 100, counted.dram / 100)
        name = int(acts.name_ids[row])
        found[row] = values
        for key in ((name, int(acts.blocks[row])), name, kinds[name]):
            by[key].append(values)
    for row in np.flatnonzero(np.isnan(found[:, 0])).tolist():
        name = int(acts.name_ids[row])
        keys = ((name, int(acts.blocks[row])), name, kinds[name])
        known = next((by[key] for key in keys if key in by), [(0.0, 0.2)])
        found[row] = np.mean(known, axis=0)
    return found


def simulated(run: Run, interval_ns: int, noise: float, seed: int = 0) -> tuple[Samples, float]:
    """Samples of the whole window, and the true offset in its middle."""
    rng = np.random.default_rng(seed)
    acts, span = run.window.activities, run.window.span
    values = activities_of(run)
    edges = np.arange(span.t0_ns, span.t1_ns, interval_ns)
    read = np.stack([_means(acts, values[:, c], edges) for c in range(2)])
    read = np.clip(read + rng.normal(0, noise, read.shape), 0, 1).astype(np.float32)
    late = BEHIND_NS + int(rng.integers(-300_000, 300_000))
    middle = (span.t0_ns + span.t1_ns) / 2
    on_gpu = (edges - late + (edges - middle) * DRIFT).astype(np.int64)
    count = len(edges) - 1
    nothing = np.full(count, np.nan)
    samples = Samples(
        on_gpu[:-1], on_gpu[1:], np.full(count, late + READ_LATE_NS, np.int64),
        np.full(count, run.window.device.device_id, np.int32),
        nothing, nothing, read[0].astype(np.float64), read[1].astype(np.float64), nothing,
    )  # fmt: skip
    return samples, float(late)


def _means(acts: object, values: F8, edges: npt.NDArray[np.int64]) -> F8:
    starts, ends = acts.starts_ns, acts.ends_ns  # type: ignore[attr-defined]
    gained = np.zeros(len(edges))
    for column, sign in ((starts, 1.0), (ends, -1.0)):
        order = np.argsort(column, kind="stable")
        at = np.searchsorted(column[order], edges)
        weights = np.concatenate(([0.0], np.cumsum(values[order])))
        moments = np.concatenate(([0.0], np.cumsum(values[order] * (column[order] - edges[0]))))
        gained += sign * (weights[at] * (edges - edges[0]) - moments[at])
    return np.diff(gained) / np.diff(edges)


def simulation(run: Run, interval_ns: int, noise: float) -> Study:
    """The run judged without shapes, without and with simulated samples."""
    plain = without_shapes(run.window)
    samples, true = simulated(run, interval_ns, noise)
    placed = SampleClock().placed(samples, plain.activities, (plain.span,))
    middle = len(samples) // 2
    known = bool(np.isfinite(placed.errors_ns[middle]))
    error = float(placed.offsets_ns[middle] - true) if known else None
    with_samples = score(run, replace(plain, samples=placed))
    return Study(run, score(run, plain), with_samples, error)


def measurement(run: Run) -> Study:
    """A run with real samples, judged without and with them."""
    return Study(run, score(run, replace(run.window, samples=None)), score(run, run.window))


@dataclass(frozen=True)
class Rates:
    """Activity of single kernels by real samples beside the counted one, of those told apart."""

    told: float
    """Share of the counted kernel time."""
    sampled: float
    """Time-weighted mean, 0..1, and the same as Nsight Compute counted it."""
    counted: float
    off: float
    """Time-weighted mean difference, kernel by kernel."""


def rates_of(run: Run) -> dict[str, Rates]:
    """Tensor and DRAM activity solved from the samples alone: no label says what to expect."""
    window, group_of = run.window, label(run.window, None).group_of
    wide = Expected(np.full(group_of.max() + 1, 0.3), np.full(group_of.max() + 1, 0.3))
    solved = measured(window, group_of, {"tensor": wide, "dram": wide}) or {}
    pairs = aligned(run, window)
    rows = np.array([row for row, _ in pairs], np.int64)
    time = (window.activities.ends_ns - window.activities.starts_ns)[rows].astype(np.float64)
    found = {}
    for column, rate in solved.items():
        told = rate.errors[group_of[rows]] < MOST_ERROR
        if not told.any():
            continue
        ours, weights = rate.rates[group_of[rows]][told], time[told]
        counted = np.array([getattr(kernel, column) for _, kernel in pairs])[told] / 100
        found[column] = Rates(
            float(weights.sum() / time.sum()),
            float(np.average(ours, weights=weights)),
            float(np.average(counted, weights=weights)),
            float(np.average(np.abs(ours - counted), weights=weights)),
        )
    return found


def rate_table(found: Sequence[Run]) -> str:
    """Sampled and counted shares of the kernel time, in points."""
    lines = [
        "| script | tensor: sampled / counted | kernel by kernel | DRAM: sampled / counted |"
        " kernel by kernel |",
        "|---|---|---|---|---|",
    ]
    for run in found:
        cells = [
            text
            for rate in map(rates_of(run).get, COUNTED)
            for text in (
                (f"{rate.sampled:.1%} / {rate.counted:.1%}", f"{100 * rate.off:.1f} points off")
                if rate
                else ("–", "–")
            )
        ]
        lines.append(f"| {run.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def section() -> list[str]:
    """What RESULTS.md says of real samples."""
    found = list(sampled_runs())
    if not found:
        return []
    return [
        "## With counter samples (L3)",
        "",
        "Watched live with `brrrtop attach --counters` on an H200 (pointwise_chain: benchmarks/lab/pm_lab.py): the"
        " first burst that had samples, without shapes. Nsight Compute counted the same scripts in other runs.",
        "",
        markdown([measurement(run) for run in found], "measured"),
        "",
        "What the samples say of single kernels, with no label to help, beside what was counted:",
        "",
        rate_table(found),
    ]


def markdown(found: Sequence[Study], label: str) -> str:
    """A table; `label` says in every heading where the samples are from."""
    lines = [
        f"| script | split error, names | names + PM ({label}) | right side, names |"
        f" names + PM ({label}) | kernel time at L3 ({label}) |",
        "|---|---|---|---|---|---|",
    ]
    for one in found:
        sides = [
            "–" if s.agreement is None else f"{s.agreement:.0%}" for s in (one.names, one.sampled)
        ]
        level = one.sampled.judged.estimate.evidence_shares.get("L3", 0.0)
        lines.append(
            f"| {one.run.name} | {one.names.split_error:.1f} | {one.sampled.split_error:.1f}"
            f" | {sides[0]} | {sides[1]} | {level:.0%} |"
        )
    names, both = mean_errors(found)
    lines += ["", f"Mean split error: names {names:.1f}, names + PM ({label}) {both:.1f}."]
    off = [abs(one.offset_error_ns) for one in found if one.offset_error_ns is not None]
    if off:
        lines.append(
            f"Clock ({label}) found for {len(off)} of {len(found)}, within {max(off) / 1e3:.0f} us,"
            f" median {np.median(off) / 1e3:.0f} us."
        )
    return "\n".join(lines)


def mean_errors(found: Sequence[Study]) -> tuple[float, float]:
    """Mean split errors without and with samples, points."""
    return (
        float(np.mean([one.names.split_error for one in found])),
        float(np.mean([one.sampled.split_error for one in found])),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--traces", type=Path, default=os.environ.get("BRRRTOP_TRACES"))
    parser.add_argument("--interval-us", type=float, default=200.0)
    parser.add_argument("--noise", type=float, default=0.03)
    args = parser.parse_args()
    if not args.simulate:
        print("\n".join(section()))
        return
    recorded = [*runs(args.traces and Path(args.traces)), *blind_runs()]
    counted = [run for run in recorded if run.counters]
    interval = round(args.interval_us * 1000)
    for part in PARTS:
        some = [run for run in counted if part_of(run.name) == part]
        if some:
            print(f"{part.capitalize()}:", "", sep="\n")
            print(markdown([simulation(one, interval, args.noise) for one in some], "simulated"))
            print()


if __name__ == "__main__":
    main()
