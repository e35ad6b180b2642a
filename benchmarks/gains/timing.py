"""Warms a step up, and says how long it takes: beside the base loop, in turns."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Iterator
from typing import Any, Protocol

import torch

from benchmarks.gains.loops import Step

SETTLE_S = 0.12
"""Of steps before the clock starts: the GPU's clocks are up and nothing of another loop is left on it."""
LEAST_CHUNKS = 6
STEADY = 0.03
"""How far two measurements of one loop may be apart. Beyond, the host was disturbed, and what an edit
between them saved nobody knows."""
TRIES, TURN_S = 3, 20.0
"""So often is an edit measured where the base loop was not steady, while a turn is no longer than that."""


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


def measured(
    step: Step, seconds: float, period: int = 1, settle_s: float = SETTLE_S
) -> dict[str, Any]:
    """Step time in ms over about `seconds`: the median of chunks of steps, their 10th and 90th
    percentiles, and the plain mean by the wall clock with the GPU idle at both ends.

    Chunks end at CUDA events, so that the host runs ahead of the GPU as it does in a loop without us.
    """
    pace = _pace(step, settle_s, 3)
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


def typical_ms(row: dict[str, Any]) -> float:
    """The median; the mean where steps come in bursts (loaders) and a median would miss the waits."""
    uneven = row["p90_ms"] > 1.5 * row["p10_ms"]
    return float(row["mean_ms"] if uneven else row["ms"])


class Timed(Protocol):
    """A warm loop."""

    @property
    def edit(self) -> str: ...

    def measured(self) -> dict[str, Any]: ...


def in_turns(base: Timed, loops: list[Timed]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Base, edit, base, edit, …, base: a host that slows down slows both of them down.

    Returns: (edit, row) each; a row has what the base loop took around it (`base_ms`) and how far these
        two are apart (`drift`). The first and the last are the base loop's own, "base" and "base-again".
    """
    began = time.perf_counter()
    before = base.measured()
    yield "base", before
    for loop in loops:
        best: dict[str, Any] | None = None
        try:
            for _ in range(TRIES):
                result = loop.measured()
                after = base.measured()
                around = typical_ms(before), typical_ms(after)
                drift = around[1] / around[0] - 1
                row = {
                    "base_ms": round(sum(around) / 2, 4),
                    "base_batch": before.get("batch"),
                    "drift": round(drift, 4),
                }
                before = after
                if best is None or abs(drift) < abs(best["drift"]):
                    best = result | row
                if abs(drift) <= STEADY or time.perf_counter() - began > TURN_S:
                    break
        except Exception as fault:
            if best is None:
                best = {"failed": f"{type(fault).__name__}: {str(fault)[:600]}"}
        assert best is not None
        yield loop.edit, best
    yield "base-again", before
