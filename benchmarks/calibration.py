"""How often verdicts were right, by how sure they were called.

    python -m benchmarks.calibration [FOLDER ...] [--public CLONES] [--page docs/confidence.md] [--svg docs/confidence.svg]

Two kinds of truth. Recordings in FOLDERs whose kernels were counted (`benchmarks.truth`): their kernel time by
the counters, their idle time as booked. Public traces: the verdict of a performance engineer who read them, in
`public_verdicts.csv`; CLONES has their repositories as `OWNER/NAME`. Of a trace of a program's start the right verdict is none, so that whatever is called
with certainty there is wrong. A mixed verdict is right where the two largest shares are within ten points.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.truth import scores
from brrrtop.analysis.account.account import MARGIN
from brrrtop.errors import BadInput
from brrrtop.model.estimate import Estimate, Regime
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source

LABELS = Path(__file__).parent / "public_verdicts.csv"
RECORDINGS = Path(__file__).parents[1] / "tests" / "recordings"
BINS = (0.3, 0.6, 0.8, 0.95, 1.0)
UNKNOWN = Regime.UNKNOWN.value
LEAST_COUNTED = 0.25
"""Of a step's kernel time: fewer counted kernels say nothing of its split."""


class Point(NamedTuple):
    """One verdict."""

    name: str
    confidence: float
    said: str
    truth: str
    right: bool


def counted(folders: Iterable[Path]) -> Iterator[Point]:
    """Recordings with counters."""
    for folder in folders:
        for one in scores(folder):
            if one.coverage < LEAST_COUNTED or not one.truth:
                continue
            estimate = one.judged.estimate
            split, account = estimate.split, estimate.account
            work = account.compute_ns + account.memory_ns + account.underfilled_ns
            part = work / account.duration_ns
            true = {
                "compute": one.truth.get("compute", 0.0) * part,
                "memory": one.truth.get("memory", 0.0) * part,
                "overhead": one.truth.get("underfilled", 0.0) * part
                + split.overhead
                - account.underfilled_ns / account.duration_ns,
            }
            yield _point(one.name, estimate, true)


def _point(name: str, estimate: Estimate, true: dict[str, float]) -> Point:
    first, second = sorted(true, key=lambda side: -true[side])[:2]
    near = true[first] - true[second] < MARGIN
    said = estimate.regime.value
    right = near if said == "mixed" else said == first or (near and said == second)
    return Point(name, estimate.confidence, said, f"{first}/{second}" if near else first, right)


def public(clones: Path, read: str) -> Iterator[Point]:
    """Public traces with a label, as far as they are there: those `read` at `first`, `later`, `third` or `fourth`."""
    for row in csv.DictReader(LABELS.open(encoding="utf-8")):
        path = clones / row["repository"] / row["path"]
        if row["read"] != read or not path.is_file():
            continue
        try:
            source = open_source(path)
            shown = analyze(source)
        except BadInput:
            continue
        estimate = shown.estimate
        if estimate is None:
            continue
        said, truth = estimate.regime.value, row["verdict"]
        no_side = said == UNKNOWN and truth in ("start-up", UNKNOWN)
        right = no_side or said == truth or (said == "mixed" and _is_near(estimate, truth))
        yield Point(f"{row['repository']}: {row['path']}", estimate.confidence, said, truth, right)


def as_read(read: str) -> str:
    """What a batch of unopened traces scored before anything was changed, as a row of a table."""
    rows = [row for row in csv.DictReader(LABELS.open(encoding="utf-8")) if row["read"] == read]
    repositories = len({row["repository"] for row in rows})

    def count(column: str, value: str) -> int:
        return sum(row[column] == value for row in rows)

    verdicts = (count("right", value) for value in ("yes", "part", "no"))
    advice = (count("advice", value) for value in ("right", "harmless", "wrong"))
    false = sum(bool(row["false"]) for row in rows)
    return "| " + " | ".join(map(str, (len(rows), repositories, *verdicts, *advice, false))) + " |"


def _is_near(estimate: Estimate, truth: str) -> bool:
    """Whether the true side of a mixed verdict is one of the two it is between."""
    split = estimate.split
    shares = {"compute": split.compute, "memory": split.memory, "overhead": split.overhead}
    return truth in sorted(shares, key=lambda side: -shares[side])[:2]


def rows(points: list[Point]) -> Iterator[tuple[float, float, list[Point]]]:
    """Each bin of confidence that has any."""
    for low, high in itertools.pairwise(BINS):
        told = (one for one in points if one.said != UNKNOWN)
        inside = [one for one in told if low <= one.confidence < high]
        if inside:
            yield low, high, inside


def table(points: list[Point]) -> str:
    lines = ["| called | verdicts | mean confidence | right |", "|---|--:|--:|--:|"]
    for low, high, inside in rows(points):
        mean = sum(one.confidence for one in inside) / len(inside)
        right = sum(one.right for one in inside) / len(inside)
        lines.append(f"| {low:.0%} to {high:.0%} | {len(inside)} | {mean:.0%} | {right:.0%} |")
    none = [one for one in points if one.said == UNKNOWN]
    if none:
        right = sum(one.right for one in none) / len(none)
        lines.append(f"| no verdict (`UNKNOWN`) | {len(none)} | – | {right:.0%} |")
    return "\n".join(lines) + "\n"


def mistakes(points: list[Point]) -> str:
    """Those that were wrong, the surest first."""
    return "\n".join(
        f"- {one.name}: {one.said}, {one.confidence:.0%} sure; it is {one.truth}"
        for one in sorted(points, key=lambda one: -one.confidence)
        if not one.right
    )


def svg(points: list[Point]) -> str:
    """Confidence against how often it was right, one dot a bin, its area by how many verdicts."""
    size, edge = 320, 40

    def at(x: float, y: float) -> str:
        return f'cx="{edge + x * size:.1f}" cy="{edge + (1 - y) * size:.1f}"'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size + 2 * edge} {size + 2 * edge}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect x="{edge}" y="{edge}" width="{size}" height="{size}" fill="none" stroke="#999"/>',
        f'<line x1="{edge}" y1="{edge + size}" x2="{edge + size}" y2="{edge}" stroke="#ccc"/>',
        f'<text x="{edge + size / 2}" y="{size + 1.8 * edge}" text-anchor="middle">confidence called</text>',
        f'<text x="12" y="{edge - 12}">right</text>',
    ]
    for place in (0.0, 0.5, 1.0):
        parts.append(
            f'<text x="{edge + place * size}" y="{size + 1.4 * edge}" text-anchor="middle">{place:.0%}</text>'
        )
        parts.append(
            f'<text x="{edge - 6}" y="{edge + (1 - place) * size + 4}" text-anchor="end">{place:.0%}</text>'
        )
    for _, _, inside in rows(points):
        mean = sum(one.confidence for one in inside) / len(inside)
        right = sum(one.right for one in inside) / len(inside)
        parts.append(
            f'<circle {at(mean, right)} r="{3 + len(inside) ** 0.5:.1f}" fill="#3b7dd8" fill-opacity="0.6"/>'
        )
        parts.append(
            f'<text x="{edge + mean * size - 8:.1f}" y="{edge + (1 - right) * size + 24:.1f}" text-anchor="end">{len(inside)}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


PAGE = """# How sure is sure

Written by `python -m benchmarks.calibration`; do not edit. {counted} recordings whose kernels were counted on an H200, and {public} public
traces that a performance engineer read (`benchmarks/public_verdicts.csv`). Where the verdict is
`UNKNOWN`, none being right too is right.

{table}
![confidence called, and how often it was right](confidence.svg)

The labels of the public traces were given with the report at hand, and the rule for confidence was changed once after they were
made; later a program's start lost its verdict, of which eight here were wrong at 50 %. Wrong ones:

{wrong}

## Traces that were read after the rule was made

{later_count} more, not opened here before; the label, again, was given with the report at hand. One rule followed them:
a verdict of fewer than eight kernels and copies is called half sure at most, and was none before.

{later}
{later_wrong}

## Traces not opened before, as first read

Two batches (2026-11-27), each read beside the raw events by a script of its own: busy time, gaps and what the host did in them,
kernels, copies, steps. The first 31 as the tree was; 20 more after fixing what they showed. No verdict where a file
holds a program's start alone is right, and `UNKNOWN` where nothing in the file tells. *In part*: a start called by its
largest bucket, half sure; a wait before the first kernel that the report does not tell; copies of 58 % called unknown.

| traces | repositories | verdict right | in part | wrong | first advice right | harmless | wrong | with a false sentence |
|--:|--:|--:|--:|--:|--:|--:|--:|--:|
{as_read_third}
{as_read_fourth}
{as_read_fifth}
{as_read_sixth}

The last two rows are of no public traces: 28 programs written to differ in kind (reinforcement learning, beam search, a scan in Python,
volumes, sparse tables, packed sequences, experts, FSDP on two GPUs, a server, host code behind a detector, LBFGS ...) were traced
on H100s (driver 580.159.04, torch 2.11.0, 2026-11-28) in the ways that people do; what an expert would say was written from source, their
own clocks and the raw events before the report was made. Of 20 verdicts called 95 % and more 19 were right, one in part. False were
a rollout called start-up, the line of a backward pass or a model's call where the loop was elsewhere, 131 ms for a rank 13 ms
late, a fused form of SparseAdam and of LBFGS, channels-last for volumes, work on what was read back called a wait. After mending 30 of 30
are right, no first advice is wrong; the last one was still false, and is no more. 15 such programs before them: 13 right, 1 in part, 1 wrong.

A fourth call of 23 (a queue under load, static decoding, fp8, Fourier operators, Triton kernels, eigenvectors, streams, FlexAttention, sorted experts,
optical flow, sampling by token, accumulation, an offloaded optimizer, a graph net, a cut file, a zip of two ranks, JAX ...), with the expert's
word before they ran: 19 verdicts right, 4 in part (the cut file, called 99 % sure; decoding in a graph called mixed; cuSOLVER unknown; the zip
refused, with its cause), none wrong; first advice right for 13, harmless for 6, wrong for 4. False in 7 were a node of autograd called work on
the CPU, layouts as the fault of a Fourier net, attention of one query called under its peak, checks of a solver called the loop's waits, and gains of CUDA
graphs said as "about 15×" of a profiled run. All are mended but the decoding's verdict, growing sizes without steps, and the zip.

False were, of public ones: a median of three steps told from first kernel to first kernel (28.8 ms where the profiler's steps are 54, 35 and
74), copies back "with nothing beside them" beside an upload, "with the GPU idle" beside a copy, and "between steps" of a
file that holds one training step.

The same again after mending, to which they led, so that this is no test of it:

{again}
{again_wrong}
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--public", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    folders = options.folders or [RECORDINGS / "h200", RECORDINGS / "counted"]
    by_counters = list(counted(folders))
    by_reading = list(public(options.public, "first")) if options.public else []
    later = list(public(options.public, "later")) if options.public else []
    again = (
        [one for read in ("third", "fourth") for one in public(options.public, read)]
        if options.public
        else []
    )
    points = [*by_counters, *by_reading]
    wrong = mistakes(points)
    print(
        table(points), wrong, table(later), mistakes(later), table(again), mistakes(again), sep="\n"
    )
    if options.page:
        facts = {"counted": len(by_counters), "public": len(by_reading), "later_count": len(later),
                 "later": table(later), "later_wrong": mistakes(later), "again": table(again),
                 "again_wrong": mistakes(again), "as_read_third": as_read("third"),
                 "as_read_fourth": as_read("fourth"), "as_read_fifth": as_read("fifth"),
                 "as_read_sixth": as_read("sixth")}  # fmt: skip
        options.page.write_text(
            PAGE.format(table=table(points), wrong=wrong, **facts), encoding="utf-8"
        )
    if options.svg:
        options.svg.write_text(svg(points), encoding="utf-8")


if __name__ == "__main__":
    main()
