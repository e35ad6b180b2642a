"""Kernel by kernel: what the estimator says of each counted kernel beside Nsight Compute's counters.

    python -m benchmarks.truth.kernels [--only NAMES] [--level shapes|live shapes|names]
        [--half tune|held|all] [--by family|kernel|script] [--csv FILE] [--traces DIR] [--sweep DIR]

Reads recordings only. NAMES: scripts with commas between, or `sweep`, `scripts` (all that are not
of the sweep), `set-with`, `held-out`, `blind`. The table has a line a group, most wrong kernels first
(`tallies`); `--csv` writes every kernel with all that the estimator went by.

Truth is the rule of `runs.Counted`: decided kernels are those with throughputs more than 10 points
apart or with too small a grid. "DRAM" columns read the counters as if the DRAM alone were memory.
In a sweep times say nothing of how often a kernel is met: the count is the measure there.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks.truth.kernel_table import halved, markdown
from benchmarks.truth.live import with_live_shapes
from benchmarks.truth.runs import SWEEP, Counted, Run, blind_runs, runs, sweep_runs, without_shapes
from benchmarks.truth.scoring import aligned, charged
from benchmarks.truth.sets import BLIND, HALVES, half_of, held_out
from brrrtop.estimator import table
from brrrtop.estimator.amounts import EVIDENCE
from brrrtop.estimator.estimate import Judged, estimate
from brrrtop.estimator.judging import Group
from brrrtop.estimator.traits import Trait, role_of, traits_of
from brrrtop.kernel_names import short_name
from brrrtop.tables import Window

LEVELS: dict[str, Callable[[Window], Window]] = {
    "shapes": lambda window: window,
    "live shapes": with_live_shapes,
    "names": without_shapes,
}


@dataclass(frozen=True)
class Kernel:
    """One launch: our label and the counters."""

    script: str
    half: str
    name: str
    """Short: what it computes and the function that does."""
    group: Group
    """What the estimator holds of its equals."""
    blocks: int
    threads: int
    time_ns: float
    """Of this launch, without Nsight Compute."""
    side: str
    charged: dict[str, float]
    """Shares of its time by `compute`, `memory`, `underfilled`, `unknown`."""
    counted: Counted

    @property
    def family(self) -> str:
        return self.group.family.name

    @property
    def right(self) -> bool:
        return self.side == self.counted.side

    @property
    def same_grid(self) -> bool:
        """Whether the counted launch is known to be no other one than the recorded."""
        return self.counted.blocks in (None, self.blocks)


def kernels(run: Run, level: str | Callable[[Window], Window] = "shapes") -> list[Kernel]:
    """The counted kernels of a run, judged with the evidence of `level`, in launch order.

    Launches whose counted grid is another than the recorded one are left out: tuning chose
    differently, and their counters are of other work.
    """
    view = LEVELS[level] if isinstance(level, str) else level
    judged = estimate(view(run.window))
    rows = aligned(run, judged.window)
    found = (_kernel(run.name, judged, row, counted) for row, counted in rows)
    return [kernel for kernel in found if kernel.same_grid]


def _kernel(script: str, judged: Judged, row: int, counted: Counted) -> Kernel:
    acts, labels = judged.window.activities, judged.labels
    group = labels.groups[int(labels.group_of[row])]
    name, blocks, threads = short_name(group.name), int(acts.blocks[row]), int(acts.threads[row])
    return Kernel(
        script=script,
        half=half_of(script, name, blocks, threads),
        name=name,
        group=group,
        blocks=blocks,
        threads=threads,
        time_ns=float(acts.ends_ns[row] - acts.starts_ns[row]),
        side=table.side_of(group, float(labels.underfilled[row])).value,
        charged=charged(judged, row),
        counted=counted,
    )


def label_of(group: Group) -> str:
    """What its name was taken to say: role, how it goes about its elements, traits."""
    words = [role_of(group.name).name.lower()]
    if group.facts.elements_per_thread:
        words.append("strided" if group.facts.strided else "vectorized")
    found = traits_of(group.name)
    words += [t.name.lower() for t in Trait if t.name and t and t in found]
    return " ".join(words)


def chosen(only: str | None, traces: Path | None, sweep: Path) -> Iterator[Run]:
    """Counted runs that NAMES name; all without any."""
    names = only.split(",") if only else ["sweep", "scripts"]
    scripts = set(names) - {"sweep"}
    if scripts:
        for run in chain(runs(traces), blind_runs()):
            part = "held-out" if held_out(run.name) else "set-with"
            part = "blind" if run.name in BLIND else part
            if run.counters and {"scripts", part, run.name} & scripts:
                yield run
    for run in sweep_runs(sweep):
        if {"sweep", run.name} & set(names):
            yield run


def columns(kernel: Kernel) -> dict[str, object]:
    """A line of the CSV. Shares are 0..1, throughputs percent of their peaks."""
    group, counted = kernel.group, kernel.counted
    return {
        "script": kernel.script,
        "half": kernel.half,
        "kernel": kernel.name,
        "family": kernel.family,
        "label": label_of(group),
        "evidence": EVIDENCE[group.level],
        "op": group.op,
        "inner": "x".join(map(str, group.inner)),
        "precision": group.precision,
        "blocks": kernel.blocks,
        "threads": kernel.threads,
        "waves": _plain(group.waves),
        "us": _plain(kernel.time_ns / 1e3),
        "side": kernel.side,
        **{f"charged_{side}": _plain(share) for side, share in kernel.charged.items()},
        "probability": _plain(group.compute_probability),
        "certainty": _plain(group.certainty),
        "compute_roof": _plain(group.compute_share_of_roof),
        "memory_roof": _plain(group.memory_share_of_roof),
        "pace": _plain(group.pace),
        "flop": _plain(group.flop),
        "bytes": _plain(group.size_bytes),
        "ncu_sm": counted.compute,
        "ncu_mem": counted.memory,
        "ncu_dram": counted.dram,
        "ncu_tensor": counted.tensor,
        "ncu_waves": counted.waves,
        "ncu_side": counted.side,
        "decided": int(counted.decided),
        "right": int(kernel.right),
        "l2": counted.l2,
        "l1": counted.l1,
        "dram_side": counted.by_dram.side,
        "dram_decided": int(counted.by_dram.decided),
        "name": group.name,
    }


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


def write_csv(path: Path, found: Sequence[Kernel]) -> None:
    """All of them, in the order given."""
    lines = [columns(kernel) for kernel in found]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]) if lines else [])
        writer.writeheader()
        writer.writerows(lines)


def sweep_section(folder: Path = SWEEP) -> list[str]:
    """What RESULTS.md says of the sweep: families by half; nothing where nobody recorded one."""
    swept = list(sweep_runs(folder))
    if not swept:
        return []
    shapes, names = (
        [k for run in swept for k in kernels(run, level)] for level in ("shapes", "names")
    )
    return [
        f"Sweep, {len(swept)} scripts of many cases each, {len(shapes)} counted kernels; halves"
        f" {' / '.join(HALVES)}:",
        "",
        *halved(shapes, names),
        "",
        f"Where memory is what lies beyond the SM, L2 and DRAM: {_beyond_sm(shapes)} with shapes,"
        f" {_beyond_sm(names)} with names, by count and by time.",
    ]


def _beyond_sm(some: Sequence[Kernel]) -> str:
    """Share of the decided kernels on the right side by the counters without L1 and shared memory."""
    read = [(kernel, kernel.counted.beyond_sm) for kernel in some]
    judged = [(k.time_ns, k.side == seen.side) for k, seen in read if seen and seen.decided]
    if not judged:
        return "nothing decided"
    times, right = (np.array(column) for column in zip(*judged, strict=True))
    return f"{right.mean():.0%} / {times[right].sum() / times.sum():.0%} right"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="scripts, sweep, set-with, held-out; commas between")
    parser.add_argument("--level", choices=[*LEVELS], default="shapes")
    parser.add_argument("--half", choices=[*HALVES, "all"], default="all")
    parser.add_argument("--by", choices=["family", "kernel", "script"], default="family")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--traces", type=Path, default=os.environ.get("BRRRTOP_TRACES"))
    parser.add_argument("--sweep", type=Path, default=SWEEP, help="recordings of a sweep")
    parser.add_argument("--lines", type=int, default=60, help="most groups to print")
    args = parser.parse_args()
    traces = Path(args.traces) if args.traces else None
    all_runs = list(chosen(args.only, traces, args.sweep))
    if not all_runs:
        raise SystemExit(f"no counted recording of {args.only or 'anything'}: see {SWEEP.parent}")
    judged = [(run, kernels(run, args.level)) for run in all_runs]
    counted, kept = sum(len(r.counters) for r, _ in judged), sum(len(found) for _, found in judged)
    for run, some in judged:
        if len(some) < len(run.counters):
            print(
                f"{run.name}: {len(some)} of {len(run.counters)} counted kernels are in the recording"
            )
    found = [k for _, some in judged for k in some if args.half in (k.half, "all")]
    if args.csv:
        write_csv(args.csv, found)
    print(
        f"{len(all_runs)} scripts, {kept} of {counted} counted kernels matched, level {args.level},"
    )
    print(f"half {args.half}: {len(found)} kernels\n")
    print("\n".join(markdown(found, args.by, args.lines)))


if __name__ == "__main__":
    main()
