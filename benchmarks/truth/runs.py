"""Runs with hardware counters: a window to judge, and what Nsight Compute, or CUPTI by `counting`,
measured of its kernels."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from brrrtop.session.opening import open_source
from brrrtop.session.timeline import Timeline
from brrrtop.tables import Gauges, Links, Span, Window
from collectors.wire import Metric

RECORDINGS = Path(__file__).resolve().parents[2] / "tests" / "recordings" / "h200"
SWEEP = RECORDINGS.with_name("h200-sweep")
"""Recordings of benchmarks/sweep: kernels of all families in cases of all sizes. Their times mean
nothing beside each other, so no table of scripts holds them."""
BLIND = RECORDINGS.with_name("blind")
"""Recordings of benchmarks/blind, cut by `keep`."""
SAMPLED = RECORDINGS.with_name("sampled")
"""Recordings of `keep_sampled`: kernels beside hardware counter samples, without shapes."""
GPM = {
    "graphics_util": Metric.GRAPHICS_ACTIVE,
    "sm_util": Metric.SM_ACTIVE,
    "any_tensor_util": Metric.TENSOR_ACTIVE,
    "dram_bw_util": Metric.DRAM_ACTIVE,
    "fp64_util": Metric.FP64_ACTIVE,
    "fp32_util": Metric.FP32_ACTIVE,
    "fp16_util": Metric.FP16_ACTIVE,
}
BALANCED = 10.0
"""Points between the two throughputs within which Nsight Compute names no larger one."""


@dataclass(frozen=True)
class Counted:
    """One kernel as Nsight Compute saw it; shares of the peak in percent."""

    kernel: str
    compute: float
    memory: float
    dram: float
    tensor: float
    waves: float
    blocks: int | None = None
    """Of the grid; None where nobody wrote it down."""
    threads: int | None = None
    """Of a block."""
    l2: float | None = None
    l1: float | None = None
    """With shared memory. Both None where they were not counted."""
    time_ns: float | None = None
    """While it was counted; None where the file does not tell its unit (ncu's)."""

    @property
    def beyond_sm(self) -> Counted | None:
        """As if what an SM has of its own (L1, shared memory) were no memory: what limits there is
        how a kernel feeds its arithmetic, which more bandwidth or less traffic would not change.

        The L2's own throughput holds more than its part in the memory throughput: never above that."""
        if self.l2 is None:
            return None
        return replace(self, memory=min(self.memory, max(self.dram, self.l2)))

    @property
    def by_dram(self) -> Counted:
        """As if only the DRAM were memory: the regime theory study's second truth (5.2).

        Nsight Compute's memory throughput is the highest of DRAM, L2, L1 and shared memory.
        """
        return replace(self, memory=self.dram)

    @property
    def side(self) -> str:
        """Less than a wave and neither throughput at 60 %: too small; else the larger of the two."""
        if self.waves < 1 and self.compute < 60 and self.memory < 60:
            return "underfilled"
        return "compute" if self.compute >= self.memory else "memory"

    def shares(self, balanced: bool) -> dict[str, float]:
        """Its time by side.

        Args:
            balanced: Two throughputs within 10 points of each other share it in proportion (regime
                theory study, 1.6); else the larger takes all.
        """
        if not balanced or self.decided:
            return {self.side: 1.0}
        both = self.compute + self.memory
        return {"compute": self.compute / both, "memory": self.memory / both}

    @property
    def decided(self) -> bool:
        """Whether the side is more than the toss of a coin."""
        return self.side == "underfilled" or abs(self.compute - self.memory) > BALANCED


@dataclass(frozen=True, eq=False)
class Run:
    """One recorded script."""

    name: str
    window: Window
    counters: tuple[Counted, ...]
    """Of the first kernels of a step, or all of them, in launch order; empty when nobody counted."""
    truth: dict[str, Any]
    """What the script was built to be: `regime`, `advice`, `not_advice`."""
    gpm: dict[int, tuple[float, ...]]
    """Readings of the same loop without the profiler, by `Metric`."""
    step_ms: float | None = None
    """Of that loop."""


def runs(traces: Path | None = None) -> Iterator[Run]:
    """The recordings kept with the tests, then those of `traces`, a folder of profiler traces.

    A script comes once: where both have it, with its counters, and else from the recordings.
    """
    kept = sorted(RECORDINGS.glob("*.brrr"))
    given = sorted(traces.glob("*.trace.json.gz")) if traces else []
    chosen: dict[str, Path] = {}
    for path in (*kept, *given):
        name = path.name.partition(".")[0]
        if name not in chosen or (_counts(path).exists() and not _counts(chosen[name]).exists()):
            chosen[name] = path
    for name, path in chosen.items():
        yield _run(path, name)


def _run(path: Path, name: str) -> Run:
    """A recording, or a trace with its meta file."""
    window = window_of(path)
    facts = (
        window.hello["provenance"]
        if path.suffix == ".brrr"
        else json.loads(path.with_name(f"{name}.meta.json").read_text())
    )
    gpm, step_ms = _gpm(facts.get("nvml") or {}), facts.get("step_ms")
    return Run(name, window, _counted(_counts(path)), facts["truth"], gpm, step_ms)


def _counts(path: Path) -> Path:
    """Where the counters of a recording or a trace are, if there are any: CUPTI's, which are of whole
    steps, before ncu's."""
    name, packed = path.name.partition(".")[0], ".gz" if path.suffix == ".brrr" else ""
    found = [path.with_name(f"{name}.{by}.csv{packed}") for by in ("ranges", "ncu")]
    return next((file for file in found if file.exists()), found[-1])


def _gpm(nvml: dict[str, Any]) -> dict[int, tuple[float, ...]]:
    """Readings by metric; empty without any."""
    windows = nvml.get("gpm_windows") or []
    gpm = {int(m): tuple(w[k] / 100 for w in windows) for k, m in GPM.items() if windows}
    clock = (nvml.get("nvidia_smi") or {}).get("sm_mhz")
    if clock and gpm:
        gpm[int(Metric.SM_CLOCK_HZ)] = (clock * 1e6,)
    return gpm


def blind_runs() -> Iterator[Run]:
    """Scripts written blind, as `keep` left them."""
    for path in sorted(BLIND.glob("*.brrr")):
        yield _run(path, path.stem)


def sampled_runs() -> Iterator[Run]:
    """Runs whose windows hold counter samples that a GPU took."""
    for path in sorted(SAMPLED.glob("*.brrr")):
        window = window_of(path)
        truth = window.hello["provenance"]["truth"]
        yield Run(path.stem, window, _counted(path.with_suffix(".ncu.csv.gz")), truth, {})


def sweep_runs(folder: Path = SWEEP) -> Iterator[Run]:
    """Sweep scripts that were counted; none where nobody recorded any."""
    for path in sorted(folder.glob("*.brrr")):
        if counters := _counted(_counts(path)):
            window = window_of(path)
            yield Run(
                path.stem, window, counters, window.hello["provenance"].get("truth") or {}, {}
            )


def window_of(path: Path) -> Window:
    """The whole of a recording or trace, busiest device."""
    source = open_source(path)
    timeline = Timeline()
    for frame in source.frames():
        timeline.add(frame)
    source.close()
    assert timeline.first_ns is not None and timeline.last_ns is not None
    span = Span(timeline.first_ns, timeline.last_ns)
    return timeline.window(span, timeline.active_devices(span)[0])


def without_shapes(window: Window) -> Window:
    """As a live monitor sees it: names and grids, no ops."""
    empty = np.empty(0, np.int64)
    return replace(window, links=Links(empty, empty), ops={})


def with_gauges(window: Window, gpm: dict[int, tuple[float, ...]], slowed: float) -> Window:
    """The window with readings spread over it.

    Args:
        slowed: Traced step time over the undisturbed one: activity per wall time is that much
            thinner in the trace.
    """
    rows = [
        (int(t), metric, value if metric == Metric.SM_CLOCK_HZ else value / slowed)
        for metric, values in gpm.items()
        for t, value in zip(
            np.linspace(window.span.t0_ns, window.span.t1_ns - 1, len(values)), values, strict=True
        )
    ]
    rows.sort()
    gauges = Gauges(
        np.array([r[0] for r in rows], np.int64),
        np.full(len(rows), window.device.device_id, np.int32),
        np.array([r[1] for r in rows], np.int32),
        np.array([r[2] for r in rows]),
    )
    return replace(window, gauges=gauges)


def _counted(path: Path) -> tuple[Counted, ...]:
    if not path.exists():
        return ()
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return tuple(
        Counted(
            row["kernel"],
            _percent(row, "sm__throughput"),
            _percent(row, "gpu__compute_memory_throughput"),
            _percent(row, "dram__throughput"),
            _percent(row, "sm__pipe_tensor_cycles_active"),
            _percent(row, "launch__waves_per_multiprocessor"),
            _volume(row.get("grid")),
            _volume(row.get("block")),
            _measured(row, "lts__throughput"),
            _measured(row, "l1tex__throughput"),
            _measured(row, "gpu__time_duration") if ".ranges." in path.name else None,
        )
        for row in csv.DictReader(io.StringIO(text.decode()))
    )


def _measured(row: dict[str, str], metric: str) -> float | None:
    text = next((value for key, value in row.items() if key.startswith(metric)), "")
    return float(text.replace(",", "")) if text else None


def _percent(row: dict[str, str], metric: str) -> float:
    return _measured(row, metric) or 0.0


def _volume(text: str | None) -> int | None:
    """`(64, 2, 1)` or `64x2x1` → 128."""
    return math.prod(map(int, re.findall(r"\d+", text))) if text else None
