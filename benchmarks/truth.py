"""Our sides of kernels beside Nsight Compute's counters, on traces and recordings that were counted.

    python -m benchmarks.truth FOLDER ...

A folder holds `NAME.trace.json.gz` or `NAME.brrr` with `NAME.ncu.csv` or `.ranges.csv` (`.gz` allowed)
beside it: the counters of the first kernels of a step, in launch order. Truth, per kernel
(contract, "Side of a kernel"): *underfilled* under 20 us, less than a wave and both throughputs below
60 %; else *compute* for contractions whose FLOP pipe (tensor cycles, on the CUDA cores the SM's
throughput) is above DRAM's; *memory* is all else. Where the folder has `ncu-truth.json`, its shares are
the truth. Weights are the durations of the recording, in which nobody counted. Prints a line a script:
shares of the matched kernels as counted and as `estimate` books them, and half the summed difference.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import numpy.typing as npt

from brrrtop.analysis.estimate import Analysis, estimate
from brrrtop.analysis.kernels.roofline import is_contraction
from brrrtop.kernel_names.families import family_of
from brrrtop.model.estimate import Side
from brrrtop.model.tables import ActivityType, Span, Window
from brrrtop.sources.registry import open_source
from brrrtop.timeline.timeline import Timeline

SIDES = (Side.COMPUTE, Side.MEMORY, Side.UNDERFILLED)
SHORT_NS, BUSY = 20_000, 60.0
USES_TENSOR = 1.0
"""Percent of tensor cycles from which those are a kernel's FLOP pipe."""
NAMELESS = re.compile(r"(\(anonymous namespace\)|<?unnamed>)::")


@dataclass(frozen=True)
class Counted:
    """One kernel as it was counted; shares of the peak in percent."""

    kernel: str
    sm: float
    memory: float
    dram: float
    tensor: float
    waves: float
    blocks: int
    threads: int

    def side(self, name: str, duration_ns: float) -> Side:
        if duration_ns < SHORT_NS and self.waves < 1 and max(self.sm, self.memory) < BUSY:
            return Side.UNDERFILLED
        flop = self.tensor if self.tensor >= USES_TENSOR else self.sm
        return Side.COMPUTE if is_contraction(family_of(name)) and flop > self.dram else Side.MEMORY


@dataclass(frozen=True)
class Score:
    """One script: shares of the matched kernels' time."""

    name: str
    truth: dict[str, float]
    ours: dict[str, float]
    coverage: float
    """Matched kernel time over that of a step."""
    moved: float
    """Share of the kernel time that families which move elements have as compute."""
    judged: Analysis

    @property
    def error(self) -> float:
        """Half the summed difference of the shares, in points."""
        return 50 * sum(abs(self.truth.get(s, 0.0) - v) for s, v in self.ours.items())


def counted_files(folder: Path) -> Iterator[tuple[str, Path, Path | None]]:
    """Name, recording and counters (None: not counted) of each script."""
    for path in sorted((*folder.glob("*.brrr"), *folder.glob("*.trace.json.gz"))):
        name = path.name.partition(".")[0]
        ways = [folder / f"{name}.{by}.csv{gz}" for by in ("ranges", "ncu") for gz in ("", ".gz")]
        yield name, path, next((way for way in ways if way.exists()), None)


def counters_of(path: Path) -> list[Counted]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [
        Counted(
            row["kernel"],
            _figure(row, "sm__throughput"),
            _figure(row, "gpu__compute_memory_throughput"),
            _figure(row, "dram__throughput"),
            _figure(row, "sm__pipe_tensor_cycles_active"),
            _figure(row, "launch__waves_per_multiprocessor"),
            _volume(row["grid"]),
            _volume(row["block"]),
        )
        for row in csv.DictReader(io.StringIO(text.decode()))
    ]


def _figure(row: dict[str, str], metric: str) -> float:
    text = next((value for key, value in row.items() if key.startswith(metric)), "")
    return float(text.replace(",", "")) if text else 0.0


def _volume(text: str) -> int:
    """`(64, 2, 1)` or `64x2x1` → 128."""
    return math.prod(map(int, re.findall(r"\d+", text)))


def window_of(path: Path) -> Window:
    """The whole of a recording or trace, busiest device."""
    source, timeline = open_source(path), Timeline()
    for frame in source.frames():
        timeline.add(frame)
    source.close()
    assert timeline.first_ns is not None and timeline.last_ns is not None
    span = Span(timeline.first_ns, timeline.last_ns)
    return timeline.window(span, timeline.active_devices(span)[0])


def score(
    name: str, window: Window, counted: list[Counted], truth: dict[str, float] | None = None
) -> Score:
    """Scores the estimate of `window`.

    Args:
        truth: Shares by side where they are given; else by the rule above.
    """
    judged = estimate(window)
    acts, labels = judged.facts.window.activities, judged.facts.labels
    times = (acts.ends_ns - acts.starts_ns).astype(np.float64)
    ours, theirs = Counter[str](), Counter[str]()
    pairs = matched(judged.facts.window, counted)
    for row, one in pairs:
        group = labels.groups[int(labels.group_of[row])]
        side = one.side(group.name, times[row])
        ours[group.side.value] += times[row]
        theirs[side.value] += times[row]
    total = sum(ours.values()) or 1.0
    kernels = acts.types == ActivityType.KERNEL
    compute = np.array(
        [g.side is Side.COMPUTE and not is_contraction(g.family) for g in labels.groups]
    )
    moved = float(times[compute[labels.group_of]].sum()) if len(labels.groups) else 0.0
    steps = judged.estimate.steps_covered or 1.0
    return Score(
        name,
        truth or {s.value: theirs[s.value] / total for s in SIDES},
        {s: ours[s] / total for s in (*(s.value for s in SIDES), "unknown")},
        sum(ours.values()) / max(float(times[kernels].sum()) / max(steps, 1.0), 1.0),
        moved / max(float(times.sum()), 1.0),
        judged,
    )


def matched(window: Window, counted: list[Counted]) -> list[tuple[int, Counted]]:
    """Rows of the window's activities beside the counted kernels, matched in launch order.

    The counted ones are the first of some step: the offset with the most equal names and grids wins.
    Where names differ there, steps launch different kernels, and those in common are matched in order.
    """
    acts = window.activities
    kernels = np.flatnonzero(acts.types == ActivityType.KERNEL)
    kernels = kernels[np.argsort(_launched(window)[kernels], kind="stable")]
    names = [_short(window.names[i]) for i in acts.name_ids[kernels]]
    ours = list(
        zip(names, acts.blocks[kernels].tolist(), acts.threads[kernels].tolist(), strict=True)
    )
    theirs = [(_short(c.kernel), c.blocks, c.threads) for c in counted]
    if not ours or not theirs:
        return []
    size, best = len(theirs), 0
    if size <= len(ours):
        ids: dict[tuple[str, int, int], int] = {}
        mine, want = (
            np.array([ids.setdefault(k, len(ids)) for k in keys]) for keys in (ours, theirs)
        )
        named: dict[str, int] = {}
        mine_n, want_n = (
            np.array([named.setdefault(k[0], len(named)) for k in keys]) for keys in (ours, theirs)
        )
        fits = [
            ((mine_n[o : o + size] == want_n).sum(), (mine[o : o + size] == want).sum())
            for o in range(len(ours) - size + 1)
        ]
        best = max(range(len(fits)), key=fits.__getitem__)
        if fits[best][0] == size:
            return [(int(kernels[best + i]), one) for i, one in enumerate(counted)]
    low, high = max(0, best - size // 4), best + size + size // 4
    blocks = SequenceMatcher(None, ours[low:high], theirs, autojunk=False).get_matching_blocks()
    return [
        (int(kernels[low + pair.a + i]), counted[pair.b + i])
        for pair in blocks
        for i in range(pair.size)
    ]


def _launched(window: Window) -> npt.NDArray[np.int64]:
    acts, calls = window.activities, window.calls
    if not len(calls):
        return acts.starts_ns
    order = np.argsort(calls.correlations, kind="stable")
    ids = calls.correlations[order]
    at = np.minimum(np.searchsorted(ids, acts.correlations), len(ids) - 1)
    known = (ids[at] == acts.correlations) & (acts.correlations != 0)
    return np.where(known, calls.starts_ns[order[at]], acts.starts_ns)


def _short(name: str) -> str:
    """The bare function: profilers differ in how they spell the rest."""
    bare = NAMELESS.sub("", name).split("<")[0].split("(")[0].replace("void ", "")
    return bare.split("::")[-1][:40]


def scores(folder: Path) -> Iterator[Score]:
    """Scores of all scripts of a folder, counted or not."""
    given = folder / "ncu-truth.json"
    truths = json.loads(given.read_text()) if given.exists() else {}
    for name, path, counters in counted_files(folder):
        window = window_of(path)
        truth = {s.value: truths[name][s.value] for s in SIDES} if name in truths else None
        counted = counters_of(counters) if counters else []
        yield score(name, window, counted, truth)


def table(result: list[Score]) -> str:
    """Scores as a table in Markdown, shares in percent: counted / ours."""
    lines = ["| script | compute | memory | underfilled | unknown | error | step counted | moved as compute |",
             "|---|--:|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    for one in result:
        if not one.coverage:
            continue
        pairs = [f"{one.truth[s.value]:.0%} / {one.ours[s.value]:.0%}" for s in SIDES]
        lines.append(
            f"| {one.name} | {' | '.join(pairs)} | {one.ours['unknown']:.0%} | {one.error:.1f} | "
            f"{min(one.coverage, 1):.0%} | {one.moved:.1%} |"
        )
    counted = [one.error for one in result if one.coverage]
    if counted:
        lines.append(
            f"\n{len(counted)} counted of {len(result)}: error {np.mean(counted):.1f} points in the mean, "
            f"{np.median(counted):.1f} in the median, {np.percentile(counted, 90):.1f} at the 90th "
            f"percentile; element-moving families as compute: {max(o.moved for o in result):.1%} at most."
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    options = parser.parse_args()
    for folder in options.folders:
        print(f"\n{folder}\n\n{table(list(scores(folder)))}")


if __name__ == "__main__":
    main()
