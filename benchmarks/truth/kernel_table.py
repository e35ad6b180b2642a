"""Counted kernels in groups: how often and by how much the labels of each are off."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.truth.scoring import SIDES
from benchmarks.truth.sets import HALVES

if TYPE_CHECKING:
    from benchmarks.truth.kernels import Kernel

HEAD = (
    "| {} | kernels | ms | decided | wrong | right side: count / time | by DRAM: count / time"
    " | certainty | split error: count / time | bias: count / time | ours → counters |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
)
HALVED = (
    "| family | kernels | right side by count: shapes | names | DRAM, shapes | by time: shapes | names"
    " | split error by count: shapes | names | certainty: shapes |",
    "|---|---|---|---|---|---|---|---|---|---|",
)
TURNS = 4
"""Kinds of errors named in a line."""


@dataclass(frozen=True)
class Sides:
    """Decided kernels of a group on the right side, by one reading of the counters."""

    decided: int
    wrong: int
    by_count: float | None
    """Share of the decided on the right side; None without any."""
    by_time: float | None


@dataclass(frozen=True)
class Tally:
    """One group of kernels."""

    name: str
    kernels: int
    time_ns: float
    sides: Sides
    dram: Sides
    """With the DRAM alone as memory."""
    certainty: float | None
    """Mean claimed for the decided ones, to be held against the agreement by count."""
    error: tuple[float, float]
    """Split error in points, every kernel weighing the same and by time: half the summed difference
    of the group's three shares, where errors both ways cancel."""
    bias: tuple[float, float]
    """Our compute share less the counters', points; weighed as `error`."""
    turns: tuple[tuple[str, int], ...]
    """`memory → compute` and the like of wrong decided kernels, most frequent first."""


def tallies(kernels: Sequence[Kernel], by: str) -> list[Tally]:
    """Groups by `family`, `kernel` (short name within family) or `script`, most wrong ones first."""
    groups: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        groups[_key(kernel, by)].append(kernel)
    found = [tally(name, some) for name, some in groups.items()]
    return sorted(found, key=lambda t: (-t.sides.wrong, -t.time_ns, t.name))


def _key(kernel: Kernel, by: str) -> str:
    if by == "script":
        return kernel.script
    return kernel.family if by == "family" else f"{kernel.family}: {kernel.name}"


def tally(name: str, kernels: Sequence[Kernel]) -> Tally:
    """Sums of one group, which has a kernel at least."""
    decided = [k for k in kernels if k.counted.decided]
    turns = Counter(f"{k.side} → {k.counted.side}" for k in decided if not k.right)
    count, time = (_splits(kernels, timed) for timed in (False, True))
    return Tally(
        name=name,
        kernels=len(kernels),
        time_ns=sum(k.time_ns for k in kernels),
        sides=_sides([(k, k.right) for k in decided]),
        dram=_sides([
            (k, k.side == k.counted.by_dram.side) for k in kernels if k.counted.by_dram.decided
        ]),
        certainty=sum(k.group.certainty for k in decided) / len(decided) if decided else None,
        error=(count[0], time[0]),
        bias=(count[1], time[1]),
        turns=tuple(turns.most_common()),
    )  # fmt: skip


def _sides(judged: Sequence[tuple[Kernel, bool]]) -> Sides:
    time = sum(k.time_ns for k, _ in judged)
    right = sum(k.time_ns for k, good in judged if good)
    wrong = sum(not good for _, good in judged)
    count = len(judged)
    return Sides(count, wrong, 1 - wrong / count if count else None, right / time if time else None)


def _splits(kernels: Sequence[Kernel], timed: bool) -> tuple[float, float]:
    """Split error and compute bias, points."""
    truth, ours = dict.fromkeys(SIDES, 0.0), dict.fromkeys((*SIDES, "unknown"), 0.0)
    for kernel in kernels:
        weight = kernel.time_ns if timed else 1.0
        truth[kernel.counted.side] += weight
        for side, share in kernel.charged.items():
            ours[side] += weight * share
    total = sum(truth.values()) or 1.0
    off = sum(abs(truth[side] - ours[side]) for side in SIDES) + ours["unknown"]
    return 50 * off / total, 100 * (ours["compute"] - truth["compute"]) / total


def markdown(kernels: Sequence[Kernel], by: str, most: int) -> list[str]:
    """The table of the groups with a line for all of them; at most `most` groups."""
    if not kernels:
        return ["no kernels"]
    groups = tallies(kernels, by)
    lines = [HEAD[0].format(by), HEAD[1], *map(line, groups[:most])]
    if len(groups) > most:
        lines.append(f"| … {len(groups) - most} more | {' | '.join([''] * 10)} |")
    return [*lines, line(tally("**all**", kernels))]


def line(found: Tally) -> str:
    """One group as a row."""
    turns = ", ".join(f"{turn} {count}" for turn, count in found.turns[:TURNS])
    cells = (
        found.name,
        found.kernels,
        f"{found.time_ns / 1e6:.2f}",
        found.sides.decided,
        found.sides.wrong,
        _both(found.sides),
        _both(found.dram),
        "–" if found.certainty is None else f"{found.certainty:.2f}",
        " / ".join(f"{value:.1f}" for value in found.error),
        " / ".join(f"{value:+.1f}" for value in found.bias),
        turns,
    )
    return f"| {' | '.join(map(str, cells))} |"


def _both(sides: Sides) -> str:
    return " / ".join(map(_percent, (sides.by_count, sides.by_time)))


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def halved(shapes: Sequence[Kernel], names: Sequence[Kernel]) -> list[str]:
    """Families of a sweep, each figure `tune / held`, largest family first; and all of them.

    Args:
        shapes: Kernels judged with shapes.
        names: The same by names.
    """
    sizes = Counter(kernel.family for kernel in shapes)
    families = sorted(sizes, key=lambda name: (-sizes[name], name))
    rows = [
        _halved(
            name, [k for k in shapes if k.family == name], [k for k in names if k.family == name]
        )
        for name in families
    ]
    return [*HALVED, *rows, _halved("**all**", shapes, names)]


def _halved(name: str, shapes: Sequence[Kernel], names: Sequence[Kernel]) -> str:
    known, less = ([_of_half(some, half) for half in HALVES] for some in (shapes, names))
    cells = (
        [str(t.kernels) if t else "0" for t in known],
        [_percent(t.sides.by_count if t else None) for t in known],
        [_percent(t.sides.by_count if t else None) for t in less],
        [_percent(t.dram.by_count if t else None) for t in known],
        [_percent(t.sides.by_time if t else None) for t in known],
        [_percent(t.sides.by_time if t else None) for t in less],
        ["–" if t is None else f"{t.error[0]:.1f}" for t in known],
        ["–" if t is None else f"{t.error[0]:.1f}" for t in less],
        ["–" if t is None or t.certainty is None else f"{t.certainty:.2f}" for t in known],
    )
    return f"| {name} | {' | '.join(' / '.join(pair) for pair in cells)} |"


def _of_half(kernels: Sequence[Kernel], half: str) -> Tally | None:
    held = [kernel for kernel in kernels if kernel.half == half]
    return tally(half, held) if held else None
