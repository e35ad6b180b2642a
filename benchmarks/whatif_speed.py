"""How long it takes to simulate every edit of a step, and each again after the best one, on one core.

    python benchmarks/whatif_speed.py [RECORDING ...] [--rounds 20]

As many whole steps of a recording are simulated as a live run's are: up to 6,000 launches and waits.
Without a recording, the demos. Printed are the kernels, the edits, and the time that simulating all
takes (smallest, median, largest; smallest of the processor), with and without reading the step from
the window.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from brrrtop.analysis.estimate import Analysis, estimate
from brrrtop.model.tables import Span
from brrrtop.sources.registry import open_source
from brrrtop.timeline.timeline import Timeline
from brrrtop.whatif.price import price_all, simulate_edits
from brrrtop.whatif.regions import roofs_of
from brrrtop.whatif.step import step_of

DEMOS = Path(__file__).resolve().parents[1] / "brrrtop" / "data" / "demos"


def judged(path: Path) -> Analysis:
    """All of a recording, on its busiest device."""
    source = open_source(path)
    timeline = Timeline()
    for frame in source.frames():
        timeline.add(frame)
    source.close()
    span = Span(timeline.first_ns or 0, timeline.last_ns or 0)
    return estimate(timeline.window(span, timeline.active_devices(span)[0]))


def timed(rounds: int, work: Callable[..., object], *arguments: object) -> str:
    """Milliseconds of so many rounds."""
    taken, busy = [], []
    for _ in range(rounds):
        begun, used = time.perf_counter(), time.thread_time()
        work(*arguments)
        busy.append((time.thread_time() - used) * 1e3)
        taken.append((time.perf_counter() - begun) * 1e3)
    wall = f"{min(taken):.1f} / {statistics.median(taken):.1f} / {max(taken):.1f} ms"
    return f"{wall} ({min(busy):.1f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recordings", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    asked = parser.parse_args()
    for path in asked.recordings or sorted(DEMOS.glob("*.brrr")):
        window = judged(path)
        step, roofs = step_of(window), roofs_of(window.ceilings)
        if step is None:
            print(f"{path.stem}: no whole step")
            continue
        result = price_all(step, roofs)
        simulating = timed(asked.rounds, price_all, step, roofs)
        whole = timed(asked.rounds, simulate_edits, window)
        print(
            f"{path.stem}: {step.launches.sum():,} kernels in {step.count} steps, "
            f"{len(result.rows)} edits, {len(result.rows) - 1} of them once more after the best: "
            f"{simulating}, with reading the step {whole}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
