"""What `soak.py` compares: loss files byte by byte, and kernels of two tools by name."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from collectors.protocol.frames import Frame, Kind
from collectors.vocabulary import MarkClass

TOLERANCE = 0.01
LONG_NS = 10_000
"""Kernels whose durations are compared one by one; those of shorter ones vary by more than 1 %."""

NAME_BYTES = 4095
"""Of a kernel's name the agent keeps so many (names.h)."""

Durations = dict[str, list[float]]
"""Kernel name → durations in ns."""


def losses(unwatched: Path, watched: Path) -> dict[str, Any]:
    """Two files of four-byte losses, as far as both go."""
    one, two = unwatched.read_bytes(), watched.read_bytes()
    steps = min(len(one), len(two)) // 4
    one, two = one[: 4 * steps], two[: 4 * steps]
    differing = next(
        (i // 4 for i in range(0, 4 * steps, 4) if one[i : i + 4] != two[i : i + 4]), None
    )
    return {
        "steps": steps, "identical": steps > 0 and one == two, "first_difference": differing,
        "distinct": len({one[i : i + 4] for i in range(0, 4 * steps, 4)}),
        "sha256": [hashlib.sha256(b).hexdigest()[:16] for b in (one, two)],
    }  # fmt: skip


def of_trace(path: Path) -> Durations:
    """The kernels of a Chrome trace by torch.profiler."""
    durations: Durations = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event.get("cat") == "kernel":
            name = event["name"].encode()[:NAME_BYTES].decode("utf-8", "ignore")
            durations.setdefault(name, []).append(float(event["dur"]) * 1e3)
    return durations


def of_burst(frames: Iterable[Frame]) -> list[Durations]:
    """The kernels of each whole step of a burst, in order of steps.

    A step lies between two marks that were traced throughout; its kernels start between them.
    """
    names: dict[int, str] = {}
    rows: list[tuple[int, int, int]] = []
    ends: set[int] = set()
    spans: list[tuple[int, int]] = []
    for frame in frames:
        if frame.kind == Kind.NAMES:
            names.update(frame.body)
        elif frame.kind == Kind.KERNELS:
            rows += [(int(r["start_ns"]), int(r["end_ns"]), int(r["name_id"])) for r in frame.body]
        elif frame.kind == Kind.MARKS:
            ends |= {int(r["end_ns"]) for r in frame.body if r["mark_class"] == MarkClass.STEP}
        elif frame.kind == Kind.OBSERVED:
            spans += [(int(r["start_ns"]), int(r["end_ns"])) for r in frame.body]
    if not spans:
        return []
    first, last = min(s for s, _ in spans), max(e for _, e in spans)
    marks = sorted(end for end in ends if first <= end <= last)
    steps: list[Durations] = [{} for _ in marks[1:]]
    for start, end, name in rows:
        for number, step in enumerate(steps):
            if marks[number] <= start < marks[number + 1]:
                step.setdefault(names.get(name, f"unnamed {name}"), []).append(float(end - start))
    return steps


def plain(durations: Durations) -> Durations:
    """Names without blanks: two demanglers may differ in them."""
    return {"".join(name.split()): values for name, values in durations.items()}


def kernels(
    burst: list[Durations], before: Durations, after: Durations, steps: int
) -> dict[str, Any]:
    """A burst against the profiles before and after it, for the same number of steps."""
    taken = burst[:steps]
    if not before and not any(taken):
        return {"skipped": "no kernels: not on a GPU", "good": True, "steps": len(taken)}
    summed: Durations = {}
    for step in taken:
        for name, values in step.items():
            summed.setdefault(name, []).extend(values)
    spelled_alike = set(summed) == set(before)
    summed, before, after = plain(summed), plain(before), plain(after)
    wanted = {name: len(values) * len(taken) / steps for name, values in before.items()}
    counted = {name: len(values) for name, values in summed.items()}
    differing = {
        name[:100]: [counted.get(name, 0), wanted.get(name, 0)]
        for name in {*wanted, *counted}
        if counted.get(name, 0) != wanted.get(name, 0)
    }
    long = [n for n, v in before.items() if n in summed and statistics.median(v) >= LONG_NS]
    apart = {n: _apart(summed[n], before[n], after.get(n, before[n])) for n in long}
    own = {n: abs(_ratio(after.get(n, before[n]), before[n])) for n in long}
    profiled = (_total(before) + _total(after)) / 2 / steps
    total = _total(summed) / len(taken) / profiled - 1 if taken and profiled else None
    lost = {n for n, v in before.items() if len(after.get(n, ())) != len(v)}
    exact = len(taken) == steps and not differing and not lost
    close = total is not None and abs(total) <= TOLERANCE
    return {
        "steps": len(taken), "wanted_steps": steps, "kernels": sum(counted.values()),
        "names": len(wanted), "names_spelled_alike": spelled_alike, "counts_differ": differing,
        "profiler_after_differs": len(lost),
        "duration_total": total, "duration_worst": max((abs(a) for a in apart.values()), default=None),
        "profiler_against_itself": max(own.values(), default=None), "compared_one_by_one": len(long),
        "good": exact and close,
    }  # fmt: skip


def _total(durations: Durations) -> float:
    return sum(sum(values) for values in durations.values())


def _ratio(one: list[float], other: list[float]) -> float:
    return statistics.median(one) / statistics.median(other) - 1


def _apart(burst: list[float], before: list[float], after: list[float]) -> float:
    middle = (statistics.median(before) + statistics.median(after)) / 2
    return statistics.median(burst) / middle - 1
