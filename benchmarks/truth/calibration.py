"""Does 0.8 mean 0.8: confidence of verdicts and certainty of kernels against how often they were right.

    python -m benchmarks.truth.calibration [--traces DIR] [--svg FILE] [--into FILE]

Verdicts are those on whole recordings, single steps and pairs of steps, with shapes and with names
alone, against what the script was built to be; no verdict is no point. Kernels are weighted by
time, each script the same, and counted where the counters decide (two throughputs more than 10
points apart, or too small a grid). Below each table, claims by how much of their scripts had been
seen (`sets`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.truth.pages import put
from benchmarks.truth.runs import Run, blind_runs, runs, without_shapes
from benchmarks.truth.scoring import score
from benchmarks.truth.sets import PARTS, part_of
from brrrtop.estimator.estimate import estimate
from brrrtop.model import Regime
from brrrtop.tables import Span, Window

EDGES = (0.0, 0.3, 0.5, 0.65, 0.8, 0.9, 1.01)
HIGH = 0.8


@dataclass(frozen=True)
class Point:
    """One claim and how it turned out."""

    run: str
    level: str
    claimed: float
    right: bool
    weight: float


@dataclass(frozen=True)
class Bin:
    """Claims of like confidence."""

    low: float
    high: float
    claimed: float
    right: float
    count: int


def parts(window: Window) -> Iterator[Window]:
    """The window, its steps, and its pairs of steps."""
    yield window
    spans = estimate(window).estimate.steps.spans
    for width in (1, 2):
        for first in range(len(spans) - width + 1 if len(spans) > width else 0):
            span = Span(spans[first].t0_ns, spans[first + width - 1].t1_ns)
            acts = window.activities
            inside = (acts.ends_ns > span.t0_ns) & (acts.starts_ns < span.t1_ns)
            yield replace(window, span=span, activities=acts.take(inside))


def verdicts(all_runs: Sequence[Run]) -> list[Point]:
    """Every verdict given, and whether it names the regime the script was built to have."""
    points = []
    for run in all_runs:
        for level, window in (("shapes", run.window), ("names", without_shapes(run.window))):
            for part in parts(window):
                found = estimate(part).estimate
                if found.regime is not Regime.UNKNOWN:
                    right = found.regime.value == run.truth["regime"]
                    points.append(Point(run.name, level, found.confidence, right, 1.0))
    return points


def kernels(all_runs: Sequence[Run]) -> list[Point]:
    """Every counted and decided kernel."""
    points = []
    for run in all_runs:
        for level, window in (("shapes", run.window), ("names", without_shapes(run.window))):
            found = score(run, window)
            total = sum(k.time_ns for k in found.kernels if k.decided) or 1.0
            points += [
                Point(run.name, level, k.certainty, k.right, k.time_ns / total)
                for k in found.kernels
                if k.decided
            ]
    return points


def binned(points: Sequence[Point]) -> list[Bin]:
    """Claims by confidence; empty bins are left out."""
    bins = []
    for low, high in pairwise(EDGES):
        held = [p for p in points if low <= p.claimed < high]
        weight = sum(p.weight for p in held)
        if weight:
            claimed = sum(p.claimed * p.weight for p in held) / weight
            right = sum(p.weight for p in held if p.right) / weight
            bins.append(Bin(low, high, claimed, right, len(held)))
    return bins


def right_above(points: Sequence[Point], least: float = HIGH) -> float:
    """Share of the claims of at least this confidence that were right; NaN without any."""
    held = [p for p in points if p.claimed >= least]
    weight = sum(p.weight for p in held)
    return sum(p.weight for p in held if p.right) / weight if weight else float("nan")


def text(title: str, points: Sequence[Point]) -> str:
    """One table, and the surest claims by part."""
    lines = [f"{title}: {len(points)}; at {HIGH} and more {right_above(points):.1%} right"]
    lines += [
        f"  {b.low:4.2f}–{min(b.high, 1):4.2f}  claimed {b.claimed:4.2f}  right {b.right:6.1%}"
        f"  {'█' * round(b.right * 30):30}  {b.count}"
        for b in binned(points)
    ]
    for part in PARTS:
        held = [p for p in points if part_of(p.run) == part]
        sure = sum(p.claimed >= HIGH for p in held)
        if sure:
            lines.append(f"  {part}: {sure} at {HIGH} and more, {right_above(held):.1%} right")
    return "\n".join(lines)


def svg(groups: dict[str, Sequence[Point]]) -> str:
    """Claimed against right, one line a group, with the diagonal."""
    colours = ("#0b6fa4", "#c2571a", "#4a7d2f", "#7a4fa3")
    shapes = [
        '<rect width="360" height="300" fill="white"/>',
        '<path d="M40 260H340M40 260V20" stroke="#888" fill="none"/>',
        '<path d="M40 260L340 20" stroke="#bbb" stroke-dasharray="4 4"/>',
    ]
    for tick in np.linspace(0, 1, 6):
        x, y = 40 + 300 * tick, 260 - 240 * tick
        shapes.append(f'<text x="{x:.0f}" y="275" text-anchor="middle">{tick:.1f}</text>')
        shapes.append(f'<text x="34" y="{y + 4:.0f}" text-anchor="end">{tick:.1f}</text>')
    for k, (name, points) in enumerate(groups.items()):
        dots = [(40 + 300 * b.claimed, 260 - 240 * b.right) for b in binned(points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
        shapes.append(f'<polyline points="{path}" fill="none" stroke="{colours[k % 4]}"/>')
        shapes += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colours[k % 4]}"/>' for x, y in dots
        ]
        shapes.append(f'<text x="200" y="{200 + 15 * k}" fill="{colours[k % 4]}">{name}</text>')
    shapes.append('<text x="190" y="293" text-anchor="middle">claimed → share right</text>')
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="360" height="300"'
        ' font-family="sans-serif" font-size="11">' + "".join(shapes) + "</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=os.environ.get("BRRRTOP_TRACES"))
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--into", type=Path, help="a page with a place for it")
    args = parser.parse_args()
    all_runs = [*runs(Path(args.traces) if args.traces else None), *blind_runs()]
    given, labelled = verdicts(all_runs), kernels(all_runs)
    groups: dict[str, Sequence[Point]] = {
        f"{what}, {level}": [p for p in points if p.level == level]
        for what, points in (("verdicts", given), ("kernels", labelled))
        for level in ("shapes", "names")
    }
    lines = [text(name, points) for name, points in groups.items()]
    wrong = sorted({(p.run, p.level) for p in given if p.claimed >= HIGH and not p.right})
    lines.append(f"wrong with {HIGH} or more: {', '.join(' '.join(w) for w in wrong) or 'none'}")
    if args.into:
        put(args.into, "benchmarks.truth.calibration", "\n".join(("```text", *lines, "```")))
    else:
        print("\n".join(lines))
    if args.svg:
        args.svg.write_text(svg(groups))


if __name__ == "__main__":
    main()
