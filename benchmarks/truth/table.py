"""The truth table: our verdicts against Nsight Compute's counters, replayed without a GPU.

    python -m benchmarks.truth.table [--traces DIR] [--misses 0.01] [--into FILE]

Prints Markdown, or puts it into its place in a page (`pages`). Reads the recordings kept with the
tests and, where `--traces` or BRRRTOP_TRACES names one, a folder of profiler traces with counters.
Levels of evidence: `shapes`, all that was recorded; `live shapes`, what `--shapes` records of a step;
`names`, without ops and shapes, as a live monitor sees a run before that; `counters`, names and the
GPM readings of the same loop, where there are any. The counted kernels are the first of one step
(benchmarks/truth/collect.py). Scripts that constants were set with, those held out whose misses were
studied, those written blind, by round, and those without counters (`sets`) are summed up apart;
beside what the blind ones score stands what they scored at first sight, from
benchmarks/results/h200-blind.json. A sweep (`kernels`) has a table of its own at the end.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks.truth.blind import first_sight
from benchmarks.truth.blind import section as blind_section
from benchmarks.truth.kernels import sweep_section
from benchmarks.truth.live import with_live_shapes
from benchmarks.truth.pages import put
from benchmarks.truth.runs import Run, blind_runs, runs, with_gauges, without_shapes
from benchmarks.truth.sampled import section as sampled_section
from benchmarks.truth.scoring import SIDES, Score, aligned, score
from benchmarks.truth.sets import PARTS, held_out, part_of, told
from collectors.wire import Metric

BUSY = 0.9
"""Kernel time over step time, from which a traced step is as long as an undisturbed one."""
NEAR = 0.03
"""Within which a reading is to be of the counted share."""
LEVELS = ("shapes", "live shapes", "names", "counters")
UNCOUNTED = "held out, not counted"
HEAD = (
    "| script | built to be | verdict (confidence) | without shapes | split error: shapes / live"
    " shapes / names / names + GPM | right side: shapes / names |",
    "|---|---|---|---|---|---|",
)
PREDICTED = (
    "| script | predicted | verdict, compute / memory / overhead of the wall time | counted kernel"
    " time: compute / memory / underfilled | ours of it |",
    "|---|---|---|---|---|",
)


@dataclass(frozen=True)
class Row:
    """One run at every level of evidence it has."""

    run: Run
    scores: dict[str, Score]


def rows(traces: Path | None) -> list[Row]:
    """Scores of all runs, in order of name."""
    found = []
    for run in chain(runs(traces), blind_runs()):
        scores = {
            "shapes": score(run, run.window),
            "live shapes": score(run, with_live_shapes(run.window)),
            "names": score(run, without_shapes(run.window)),
        }
        if run.gpm:
            step_ns = scores["shapes"].judged.estimate.steps.step_ns
            slowed = max(1.0, step_ns / 1e6 / run.step_ms) if step_ns and run.step_ms else 1.0
            window = with_gauges(without_shapes(run.window), run.gpm, slowed)
            scores["counters"] = score(run, window)
        found.append(Row(run, scores))
    return sorted(found, key=lambda row: row.run.name)


@dataclass(frozen=True)
class Figures:
    """What the table comes to at one level."""

    scripts: int
    split_error: float
    """Mean over scripts, points."""
    worst: float
    agreement: float
    """Mean over scripts of the time-weighted agreement."""
    pooled: float
    """Agreement over all decided time of all scripts, each script weighing the same."""
    covered: int
    """Scripts whose true shares lie within the bounds shown."""
    regimes_right: int
    regimes: int
    as_counted: int
    """Scripts whose regime is that of the counters, among `whole`, those counted from end to end."""
    whole: int


def figures(table: Sequence[Row], level: str) -> Figures:
    """Summary of one level; split errors and agreement over the runs that have counters, else NaN."""
    all_scores = [row.scores[level] for row in table if level in row.scores]
    scores = [s for s in all_scores if s.matched]
    whole = [s for s in scores if s.counted_regime]
    agreed = [(s.agreement, s.decided_share) for s in scores if s.agreement is not None]
    weights = sum(share for _, share in agreed)
    return Figures(
        scripts=len(scores),
        split_error=_mean([s.split_error for s in scores]),
        worst=max((s.split_error for s in scores), default=float("nan")),
        agreement=_mean([a for a, _ in agreed]),
        covered=sum(s.covered for s in scores),
        pooled=sum(a * share for a, share in agreed) / weights if weights else float("nan"),
        regimes_right=sum(s.regime_right for s in all_scores),
        regimes=len(all_scores),
        as_counted=sum(s.judged.estimate.regime.value == s.counted_regime for s in whole),
        whole=len(whole),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def parted(table: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows by how much of them had been seen, parts without rows left out.

    Scripts without counters are a part of their own: only their regimes say anything.
    """
    parts: dict[str, list[Row]] = {part: [] for part in (*PARTS, UNCOUNTED)}
    for row in table:
        part = part_of(row.run.name)
        parts[part if row.run.counters else UNCOUNTED].append(row)
    return {part: some for part, some in parts.items() if some}


def markdown(table: Sequence[Row], least_miss: float) -> str:
    """The table by parts, their sums, and the misses."""
    lines: list[str] = []
    first = first_sight()
    for part, some in parted(table).items():
        title = part.capitalize()
        lines += [f"{title}:", "", *HEAD, *map(_line, some), *_summaries(some, title), ""]
        if part in first:
            lines += [line for seen in first[part]["text"] for line in (seen, "")]
    others = [row for row in table if held_out(row.run.name)]
    lines += _summaries(others, "All held out")[1:]
    lines += ["", "Regimes of the held-out scripts:", "", *PREDICTED, *map(_regimes, others)]
    met = [line for row in table if (line := _gpm(row))]
    if met:
        lines += [
            "",
            "GPM readings of the undisturbed loop against the counters, where a whole step was counted:",
        ]
        lines += ["", *met]
    misses = [line for row in table for line in _misses(row, least_miss)]
    if misses:
        lines += [
            "",
            f"Misses above {least_miss:.0%} of a script's counted time, with shapes:",
            "",
            *misses,
        ]
    return "\n".join(lines)


def _summaries(table: Sequence[Row], title: str) -> list[str]:
    """A paragraph a level, and one on the two other ways to read the counters."""
    lines = []
    for level in LEVELS:
        if any(level in row.scores for row in table):
            lines += ["", f"{title}, {_summary(figures(table, level), level)}"]
    shared = [Row(r.run, {"shapes": score(r.run, r.run.window, balanced=True)}) for r in table]
    dram = figures([_by_dram(row) for row in table], "shapes")
    if not dram.scripts:
        return lines
    return [
        *lines,
        "",
        f"{title}, shapes, read otherwise: {figures(shared, 'shapes').split_error:.1f} points where the"
        " time of kernels with throughputs within 10 points of each other is shared between the sides;"
        f" {dram.split_error:.1f} points and the right side for {dram.pooled:.1%} of the decided time"
        " where the DRAM alone is memory (no caches, no shared memory).",
    ]


def _by_dram(row: Row) -> Row:
    """The run as if only the DRAM were memory."""
    run = replace(row.run, counters=tuple(one.by_dram for one in row.run.counters))
    return Row(run, {"shapes": score(run, run.window)})


def _line(row: Row) -> str:
    full, names = row.scores["shapes"], row.scores["names"]
    errors = [
        f"{row.scores[level].split_error:.1f}" if level in row.scores and full.matched else "–"
        for level in LEVELS
    ]
    sides = [f"{s.agreement:.0%}" if s.agreement is not None else "–" for s in (full, names)]
    return (
        f"| {row.run.name} | {row.run.truth['regime']} | {_verdict(full)} | {_verdict(names)}"
        f" | {' / '.join(errors)} | {' / '.join(sides)} |"
    )


def _regimes(row: Row) -> str:
    """What was predicted of a script, what is said of it, and what the counters say."""
    full = row.scores["shapes"]
    split = full.judged.estimate.split
    shares = [f"{share:.0%}" for share in (split.compute, split.memory, split.overhead)]
    lines = [_shares(full.truth), _shares(full.ours)] if full.matched else ["not counted", "–"]
    return (
        f"| {row.run.name} ({told(row.run.name)}) | {row.run.truth['regime']} | {_verdict(full)},"
        f" {' / '.join(shares)} | {' | '.join(lines)} |"
    )


def _shares(shares: Mapping[str, float]) -> str:
    return " / ".join(f"{shares[side]:.0%}" for side in SIDES)


def _verdict(scored: Score) -> str:
    found = scored.judged.estimate
    sign = "" if scored.regime_right else " ✗"
    return f"{found.regime.value} ({found.confidence:.2f}){sign}"


def _summary(found: Figures, level: str) -> str:
    regimes = f"regime as built {found.regimes_right} of {found.regimes}"
    if found.whole:
        regimes += f", as the counters of a whole step have it {found.as_counted} of {found.whole}"
    regimes += "."
    if not found.scripts:
        return f"{level}: {regimes}"
    return (
        f"{level}: mean split error {found.split_error:.1f} points over {found.scripts} scripts"
        f" (worst {found.worst:.1f}), bounds hold the truth in {found.covered}, right side for"
        f" {found.pooled:.1%} of the decided kernel time, {regimes}"
    )


def _gpm(row: Row) -> str | None:
    """Undisturbed GPM shares of a loop beside those that its counters come to.

    A share of the tensor pipe is one of cycles, whatever the clock: weighted by the kernels' traced
    times. One of the DRAM is of bytes, and its clock stands still: weighted by the times in which
    they were counted, where those are told, for a GPU that is counted seldom runs at its power limit.
    """
    full, run = row.scores["shapes"], row.run
    step_ns = full.judged.estimate.steps.step_ns
    pairs = aligned(run, full.judged.window)
    traced = np.array([k.time_ns for k in full.kernels])
    if not run.gpm or not step_ns or not run.step_ms or not full.whole:
        return None
    if traced.sum() < BUSY * step_ns:
        return None
    own = [c.time_ns for _, c in pairs]
    alone = traced / step_ns if None in own else np.array(own, np.float64) / (run.step_ms * 1e6)
    parts = []
    for name, metric, times in (
        ("tensor", Metric.TENSOR_ACTIVE, traced / step_ns),
        ("dram", Metric.DRAM_ACTIVE, alone),
    ):
        read = float(np.mean(run.gpm[int(metric)]))
        counted = float(np.array([getattr(c, name) for _, c in pairs]) @ times) / 100
        far = "" if abs(read - counted) <= NEAR else " ✗"
        parts.append(f"{name} {read:.1%} against {counted:.1%}{far}")
    return f"- {run.name}: {', '.join(parts)}"


def _misses(row: Row, least: float) -> list[str]:
    return [
        f"- {row.run.name}, {miss.share:.1%}: we say {miss.ours}, counters {miss.truth}"
        f" (compute {miss.counted.compute:.0f} %, memory {miss.counted.memory:.0f} %,"
        f" DRAM {miss.counted.dram:.0f} %), certainty {miss.certainty:.2f}: `{_brief(miss.kernel)}`"
        for miss in row.scores["shapes"].misses
        if miss.share >= least
    ]


def _brief(name: str) -> str:
    plain = (
        name.replace("void ", "").replace("at::native::", "").replace("(anonymous namespace)::", "")
    )
    return plain if len(plain) <= 90 else plain[:89] + "…"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=os.environ.get("BRRRTOP_TRACES"))
    parser.add_argument("--misses", type=float, default=0.01, help="smallest share of time to name")
    parser.add_argument("--into", type=Path, help="a page with a place for it")
    args = parser.parse_args()
    lines = [markdown(rows(Path(args.traces) if args.traces else None), args.misses)]
    for section in (blind_section(), sampled_section(), sweep_section()):
        lines += ["", *section] if section else []
    text = "\n".join(lines)
    if args.into:
        put(args.into, "benchmarks.truth.table", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
