"""Warms a step up, and says how long it takes."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from typing import Any

import torch

from benchmarks.gains.loops import Step

SETTLE_S = 0.25
"""Of steps before the clock starts: the GPU's clocks are up and nothing of others is left on it."""


LEAST_CHUNKS = 8


def sync() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def compiled_frames() -> int:
    """Graphs that torch.compile has made so far, forwards and backwards."""
    from torch._dynamo.utils import counters

    made = counters["aot_autograd"]["total"] + counters["inductor"]["fxgraph_cache_miss"]
    return int(made + counters["stats"]["unique_graphs"])


def warm(step: Step, compiles: bool, least_s: float = 0.3, limit: int = 40) -> int:
    """Steps until nothing is compiled any more; one step at a time, so that little is ever queued."""
    began, calm, count = time.perf_counter(), 0, 0
    while count < limit and (count < 4 or calm < (6 if compiles else 3)):
        before = compiled_frames() if compiles else 0
        step()
        sync()
        count += 1
        calm = calm + 1 if not compiles or compiled_frames() == before else 0
        if not compiles and time.perf_counter() - began > least_s and count >= 3:
            break
    return count


def _pace(step: Step, seconds: float, least: int) -> float:
    """Seconds a step, of a run without a wait inside."""
    sync()
    began, count = time.perf_counter(), 0
    while count < least or time.perf_counter() - began < seconds:
        step()
        count += 1
        if count % 8 == 0:
            sync()
    sync()
    return (time.perf_counter() - began) / count


def measured(step: Step, seconds: float, period: int = 1) -> dict[str, Any]:
    """Step time in ms over about `seconds`: the median of chunks of steps, their 10th and 90th
    percentiles, and the plain mean by the wall clock with the GPU idle at both ends.

    Chunks end at CUDA events, so that the host runs ahead of the GPU as it does in a loop without us.
    """
    pace = _pace(step, SETTLE_S, 3)
    each = max(1, math.ceil(0.04 / pace / period)) * period
    cuda = torch.cuda.is_available()
    marks: list[Any] = []

    def mark() -> None:
        if cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            marks.append(event)
        else:
            marks.append(time.perf_counter())

    sync()
    began = time.perf_counter()
    mark()
    while len(marks) <= LEAST_CHUNKS or time.perf_counter() - began < seconds:
        for _ in range(each):
            step()
        mark()
    sync()
    count = (len(marks) - 1) * each
    mean = (time.perf_counter() - began) / count
    between = itertools.pairwise(marks)
    spans = [a.elapsed_time(b) if cuda else 1e3 * (b - a) for a, b in between]
    spans = [span / each for span in spans]
    tenths = statistics.quantiles(spans, n=10, method="inclusive")
    return {
        "ms": round(statistics.median(spans), 4), "p10_ms": round(tenths[0], 4),
        "p90_ms": round(tenths[-1], 4), "mean_ms": round(1e3 * mean, 4),
        "steps": count,
    }  # fmt: skip
