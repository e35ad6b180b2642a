"""Planted stalls: the share of time brrrtop books for the plant beside what the script measured.

    BRRRTOP_TRACES=folder python benchmarks/stalls.py [FOLDER OF RECORDINGS ...]

The folder of traces holds NAME.trace.json.gz beside NAME.meta.json, in which `meters_ms_per_step` is
what a script of the zoo measured of its own plant, undisturbed, and `step_ms` its step. Recordings
are called NAME.brrr and are held against the same meters; without a folder it is the demos. A script
without a meter gets one by `metered.py`: NAME.meter.json in any of the folders.

A script's meter counts the host's wait, the account what the GPU idles: work that was still queued
when the wait began hides a part of it. That part is measured too, and added.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from brrrtop.analysis.estimate import Analysis, estimate  # noqa: E402
from brrrtop.analysis.facts.launches import blocking  # noqa: E402
from brrrtop.analysis.facts.steps import between_steps  # noqa: E402
from brrrtop.cli.commands.demo import scenarios  # noqa: E402
from brrrtop.model.intervals import Cover, merge, merge_unsorted  # noqa: E402
from brrrtop.model.tables import I8, ActivityType, Span  # noqa: E402
from brrrtop.sources.registry import open_source  # noqa: E402
from brrrtop.text import phrases  # noqa: E402
from brrrtop.timeline.timeline import Timeline  # noqa: E402
from collectors.vocabulary import CallClass, MarkClass  # noqa: E402

CLOSE = 0.05
"""Within five points of what the script measured."""


@dataclass(frozen=True)
class Plant:
    """What is planted in a script, and where the account has it."""

    meter: str | None
    """Its name in the meta file; None: the script measures nothing of the kind."""
    buckets: tuple[str, ...]


PLANTS = {
    "slow_loader": Plant("loader_wait", ("idle_input",)),
    # A copy from pageable memory is staged by the host: before and after what the device moves.
    "unpinned_h2d": Plant("copy_wait", ("exposed_copy", "idle_sync")),
    "item_sync": Plant("read_back", ("idle_sync",)),
    "tiny_mlp": Plant(None, ("idle_launch",)),
}
DEMOS = {
    "input-bound": "slow_loader", "unpinned-copies": "unpinned_h2d", "sync-bound": "item_sync",
    "launch-bound": "tiny_mlp",
}  # fmt: skip
METERED = {"slow_loader": (105.822, 112.634), "unpinned_h2d": (38.475, 40.669)}
"""Meter and step in ms on the H200 on which demos and traces were recorded, for want of a folder."""


@dataclass(frozen=True)
class Row:
    """Shares are of the time judged."""

    source: str
    script: str
    step_ms: float | None
    booked: float
    hidden: float
    meter: float | None
    cause: str | None
    causes: str

    @property
    def off(self) -> float | None:
        return None if self.meter is None else self.booked + self.hidden - self.meter


def meters(folders: Sequence[Path]) -> dict[str, float]:
    """Share of the step that each script measured of its plant; of the last folder that has it."""
    result = {name: waited / step for name, (waited, step) in METERED.items()}
    for folder in folders:
        for name, plant in PLANTS.items():
            for path in (folder / f"{name}.meta.json", folder / f"{name}.meter.json"):
                meta = json.loads(path.read_text()) if path.exists() else {}
                waited = meta.get("meters_ms_per_step", {}).get(plant.meter)
                if waited is not None:
                    result[name] = waited / meta["step_ms"]
    return result


def judged(path: Path) -> Analysis:
    """Whole steps of the busiest device of a trace or recording."""
    source = open_source(path)
    timeline = Timeline()
    for frame in source.frames():
        timeline.add(frame)
    source.close()
    span = Span(timeline.first_ns or 0, timeline.last_ns or 0)
    device = timeline.active_devices(span)[0]
    whole = estimate(timeline.window(span, device))
    steps = between_steps(whole.estimate.steps)
    return whole if steps is None else estimate(timeline.window(steps, device))


def row(source: str, name: str, path: Path, metered: dict[str, float]) -> Row:
    one = judged(path)
    account = one.estimate.account
    booked = dict(phrases.buckets(account))
    causes = sorted(account.idle_ns.items(), key=lambda item: -item[1])
    shares = [(cause, spent / account.duration_ns) for cause, spent in causes]
    return Row(
        source=source,
        script=name,
        step_ms=None if one.estimate.steps.step_ns is None else one.estimate.steps.step_ns / 1e6,
        booked=sum(booked[key] for key in PLANTS[name].buckets) / account.duration_ns,
        hidden=_hidden_ns(one, name) / account.duration_ns,
        meter=metered.get(name),
        cause=one.estimate.cause,
        causes=", ".join(f"{cause} {share:.1%}" for cause, share in shares if share >= 0.005),
    )


def _hidden_ns(one: Analysis, name: str) -> int:
    """Device work of other kinds beside the waits that the script's meter counts."""
    acts = one.facts.window.activities
    waits = _waits(one, name)
    if waits is None:
        return 0
    own = (acts.types == ActivityType.COPY) if name == "unpinned_h2d" else np.zeros(len(acts), bool)
    busy = merge_unsorted(acts.starts_ns[~own], acts.ends_ns[~own])
    traced = one.facts.window.observed or (one.facts.window.span,)
    total = 0
    for span in traced:
        low, high = (
            max(span.t0_ns, one.facts.window.span.t0_ns),
            min(span.t1_ns, one.facts.window.span.t1_ns),
        )
        starts, ends = np.clip(waits[0], low, high), np.clip(waits[1], low, high)
        total += int(Cover(*busy).between(starts, ends).sum())
    return total


def _waits(one: Analysis, name: str) -> tuple[I8, I8] | None:
    """When the host was in what the script meters."""
    marks, calls = one.facts.window.marks, one.facts.window.calls
    if name == "slow_loader":
        rows = marks.classes == MarkClass.INPUT
        return merge(*_sorted(marks.starts_ns[rows], marks.ends_ns[rows]))
    if name == "unpinned_h2d":
        rows = blocking(one.facts)
        rows &= calls.classes == CallClass.COPY
        return merge(*_sorted(calls.starts_ns[rows], calls.ends_ns[rows]))
    return None


def _sorted(starts: I8, ends: I8) -> tuple[I8, I8]:
    order = np.argsort(starts, kind="stable")
    return starts[order], ends[order]


def files(traces: Path | None, folders: Sequence[Path]) -> Iterator[tuple[str, str, Path]]:
    """Label, script and path of everything there is."""
    for name in PLANTS if traces is not None else ():
        assert traces is not None
        path = traces / f"{name}.trace.json.gz"
        if path.exists():
            yield "trace", name, path
    for folder in folders:
        for name in PLANTS:
            path = folder / f"{name}.brrr"
            if path.exists():
                yield f"live, {folder.name}", name, path
    if not folders:
        for demo, name in DEMOS.items():
            yield f"demo {demo}", name, scenarios()[demo]


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown."""
    lines = [
        "| script | source | step | booked | hidden | the script's meter | off | cause, idle time |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        step = "–" if one.step_ms is None else f"{one.step_ms:.1f} ms"
        meter = "none" if one.meter is None else f"{one.meter:.1%}"
        off = "–" if one.off is None else f"{100 * one.off:+.1f}"
        lines.append(
            f"| {one.script} | {one.source} | {step} | {one.booked:.1%} | {one.hidden:.1%} "
            f"| {meter} | {off} | {one.cause}: {one.causes} |"
        )
    return lines


def main(arguments: Sequence[str]) -> int:
    text = os.environ.get("BRRRTOP_TRACES")
    traces = Path(text) if text else None
    folders = [Path(a) for a in arguments]
    metered = meters([*([traces] if traces else []), *folders])
    result = [row(*one, metered) for one in files(traces, folders)]
    print("\n".join(table(result)))
    off = [one for one in result if one.off is not None and abs(one.off) > CLOSE]
    for one in off:
        print(f"\n{one.script} ({one.source}) is off by more than {100 * CLOSE:.0f} points")
    return 1 if off else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
