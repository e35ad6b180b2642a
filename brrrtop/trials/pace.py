"""From the lines that a trial writes to the pace of its steady steps, and the comparison of two paces."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import MsgspecError, Struct, convert, json

from brrrtop.model.trials import Header, Pace

FIRST_STEPS = 5
"""Before these nothing is steady: allocators grow, workers start, cuDNN chooses."""
WARM_SHARE, WARM_AT_LEAST_S = 0.3, 1.0
"""Of the seconds to measure, those that must be steady before."""
STEADY, GIVE_UP = 0.15, 6
"""Two halves of the warm-up agree within this share, or it lasts so many times as long as it should."""
FEW_STEPS, PATIENCE = 10, 4
"""Steps that a pace needs; slow programs may take so many times the seconds for them, or end with three."""
BLOCKS = 10
T_975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Quantiles of Student's t for 1 to 9 degrees of freedom."""
BETWEEN_RUNS = 0.005
"""Two runs of one program differ by some half a per cent on an idle machine, however even each of them is:
`docs/gains.md` lets base loops before and after an edit differ by 3 %."""
LAST_LOSSES = 16
"""Losses are compared over so many of the last steps that all runs have."""
ROUNDING = 0.002
"""A relative difference of the loss below which the order of additions may explain it."""
TIMES_NOISE = 3.0
_MARK = {"n", "t", "samples", "waited"}
_SUMS = (*_MARK, "d")


class Trace:
    """What the process that steps has written so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._lines: dict[Path, list[dict[str, Any]]] = {}
        self._apart: dict[Path, dict[str, int]] = {}
        """What marks hold of evaluations up to here: taken out of them."""
        self.header: Header | None = None
        self.fault: str | None = None
        self._path: Path | None = None

    def update(self) -> None:
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in whole.splitlines():
                self._take(path, line)

    def _take(self, path: Path, line: bytes) -> None:
        try:
            fields = json.decode(line)
            if "fault" in fields:
                self.fault = str(fields["fault"])
            elif "facts" in fields:
                header = convert(fields, Header, strict=False)
                if self.header is None or header.rank == "0":
                    self.header, self._path = header, path
                self._lines[path] = []
            elif path in self._lines and fields.keys() >= _MARK:
                self._lines[path].append(self._without_evaluation(path, fields))
        except (MsgspecError, TypeError, AttributeError):
            return

    def _without_evaluation(self, path: Path, fields: dict[str, Any]) -> dict[str, Any]:
        apart = self._apart.setdefault(path, {})
        lines = self._lines[path]
        without = {name: fields[name] - apart.get(name, 0) for name in _SUMS if name in fields}
        if fields.get("apart") and lines:
            for name in without.keys() & lines[-1].keys():
                apart[name] = apart.get(name, 0) + without[name] - lines[-1][name]
                without[name] = lines[-1][name]
        return {**fields, **without}

    @property
    def marks(self) -> list[dict[str, Any]]:
        return self._lines.get(self._path, []) if self._path is not None else []

    @property
    def losses(self) -> dict[int, float]:
        return {int(step): loss for mark in self.marks for step, loss in mark.get("losses", ())}


class Window(Struct, frozen=True):
    first: int
    last: int
    complete: bool


def find_window(marks: Sequence[Mapping[str, Any]], seconds: float) -> Window | None:
    """Where the steady steps are so far; None: they have not begun."""
    if len(marks) < 3:
        return None
    clock, steps = _clock_ns(marks), np.array([mark["n"] for mark in marks])
    warm_ns = max(WARM_SHARE * seconds, WARM_AT_LEAST_S) * 1e9
    compiled = _last_compile(marks)
    for first in range(1, len(marks)):
        since_ns = clock[first] - clock[0]
        if steps[first] < FIRST_STEPS or since_ns < warm_ns:
            continue
        if clock[first] - clock[compiled] < warm_ns and compiled:
            continue
        if since_ns >= GIVE_UP * warm_ns or _agree(clock, steps, first, warm_ns):
            break
    else:
        return None
    for last in range(first + 1, len(marks)):
        took_s = (clock[last] - clock[first]) / 1e9
        count = steps[last] - steps[first]
        if took_s >= seconds and (
            count >= FEW_STEPS or (count >= 3 and took_s >= PATIENCE * seconds)
        ):
            return Window(first, last, True)
    return Window(first, len(marks) - 1, False)


def _clock_ns(marks: Sequence[Mapping[str, Any]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The GPU's clock where there is one: the host runs ahead of it."""
    key = "d" if all("d" in mark for mark in marks) else "t"
    return np.array([mark[key] for mark in marks], float)


def _last_compile(marks: Sequence[Mapping[str, Any]]) -> int:
    """The mark at which a newly compiled graph was last seen; 0: at none."""
    last, graphs = 0, 0
    for at, mark in enumerate(marks):
        if mark.get("graphs", graphs) > graphs:
            last, graphs = at, mark["graphs"]
    return last


def _agree(clock: Any, steps: Any, first: int, warm_ns: float) -> bool:
    """Whether the two halves of the warm-up that ends at mark `first` have the same pace."""
    middle = int(np.searchsorted(clock, clock[first] - warm_ns / 2))
    begin = int(np.searchsorted(clock, clock[first] - warm_ns))
    counts = steps[middle] - steps[begin], steps[first] - steps[middle]
    if min(counts) <= 0:
        return True  # steps longer than half of it: there is nothing to compare
    earlier = (clock[middle] - clock[begin]) / counts[0]
    later = (clock[first] - clock[middle]) / counts[1]
    return bool(abs(later / earlier - 1) <= STEADY or min(counts) < 3)


def pace(trace: Trace, window: Window) -> Pace | None:
    marks, header = trace.marks, trace.header
    if header is None:
        return None
    clock, steps = _clock_ns(marks), np.array([mark["n"] for mark in marks])
    count = int(steps[window.last] - steps[window.first])
    if count < 2:
        return None
    span = clock[window.last] - clock[window.first]
    step_ns = span / count
    bounds = np.linspace(clock[window.first], clock[window.last], min(BLOCKS, count) + 1)
    at = np.unique(np.clip(np.searchsorted(clock, bounds), window.first, window.last))
    lengths, counts = np.diff(clock[at]), np.diff(steps[at])
    lengths, counts = lengths[counts > 0], counts[counts > 0]
    # The spread of the blocks' paces, each with the weight of its steps.
    spread = np.sum(counts * (lengths / counts - step_ns) ** 2) / count
    error_ns = math.sqrt(spread / max(len(counts) - 1, 1))
    first, last = marks[window.first], marks[window.last]
    samples = last["samples"] - first["samples"]
    peaks = [mark["peak"] for mark in marks if mark.get("peak")]
    return Pace(
        step_ns=float(step_ns),
        error_ns=error_ns,
        blocks=len(counts),
        steps=count,
        samples=samples / count if samples else None,
        waits=min((last["waited"] - first["waited"]) / max(last["t"] - first["t"], 1), 1.0),
        peak_bytes=max(peaks) if peaks else None,
        startup_ns=float(first["t"] - header.began_ns - first["n"] * step_ns),
        losses=trace.losses,
    )


def saving(edited: Pace, base: Pace, after: Pace | None = None) -> tuple[float, float, float]:
    """Share of the time per unit of work that is saved, and the bounds of its 95 % interval.

    Args:
        base: The program as it is, before the edit was tried.
        after: The same, afterwards: the interval holds what each of them by itself would say, so that drift
            of the machine widens it.
    """
    work = 1.0
    if edited.samples and base.samples and not 0.8 < edited.samples / base.samples < 1.25:
        work = edited.samples / base.samples
    bases = [base] if after is None else [base, after]
    ratios = [edited.step_ns / one.step_ns / work for one in bases]
    halves = []
    for ratio, one in zip(ratios, bases, strict=True):
        errors = edited.error_ns / edited.step_ns, one.error_ns / one.step_ns, BETWEEN_RUNS
        freedom = max(min(edited.blocks, one.blocks) - 1, 1)
        quantile = T_975[freedom - 1] if freedom <= len(T_975) else 1.96 + 2.4 / freedom
        halves.append(ratio * math.hypot(*errors) * quantile)
    slowest = max(ratio + half for ratio, half in zip(ratios, halves, strict=True))
    quickest = min(ratio - half for ratio, half in zip(ratios, halves, strict=True))
    mean = len(ratios) / sum(1 / ratio for ratio in ratios)  # over the mean of the base steps
    return 1 - mean, 1 - slowest, 1 - quickest


def joint(gains: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Of one run, or of two: as far as these are apart, so far may their mean be from the truth."""
    values, lows, highs = zip(*gains, strict=True)
    middle, apart = sum(values) / len(values), max(values) - min(values)
    down = math.hypot(*(v - low for v, low in zip(values, lows, strict=True))) / len(values)
    up = math.hypot(*(high - v for v, high in zip(values, highs, strict=True))) / len(values)
    return middle, middle - math.hypot(down, apart), middle + math.hypot(up, apart)


def loss_difference(
    edited: Mapping[int, float], bases: Sequence[Mapping[int, float]]
) -> tuple[float | None, bool]:
    """How far the loss is from that of the base runs, relative, and whether that is beyond their noise.

    Of one base run nobody knows the noise: nothing is beyond it.
    """
    common = sorted(set(edited).intersection(*bases))[-LAST_LOSSES:] if bases else []
    if not common:
        return None, False
    means = [float(np.mean([run[step] for step in common])) for run in (edited, *bases)]
    usual = float(np.mean(means[1:]))
    if not all(map(math.isfinite, means)):
        return None, math.isfinite(usual)
    scale = max(abs(usual), 1e-12)
    difference = (means[0] - usual) / scale
    noise = max(abs(mean - usual) for mean in means[1:]) / scale
    return difference, len(bases) > 1 and abs(difference) > max(ROUNDING, TIMES_NOISE * noise)
