"""Our labels against Nsight Compute's counters, kernel by kernel, weighted by un-profiled time."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from difflib import SequenceMatcher

import numpy as np
import numpy.typing as npt

from benchmarks.truth.runs import Counted, Run
from brrrtop.estimator import table, views
from brrrtop.estimator.estimate import Judged, estimate
from brrrtop.estimator.regimes import MARGIN
from brrrtop.tables import ActivityType, Window

SIDES = ("compute", "memory", "underfilled")
WHOLE = 0.95
"""Of a step's kernel time: what counts as all of it."""
NAMELESS = re.compile(r"(\(anonymous namespace\)|<?unnamed>)::")
"""A namespace without a name, as Kineto and Nsight Compute's versions write it."""


@dataclass(frozen=True)
class Miss:
    """Kernels of one group on the wrong side."""

    kernel: str
    share: float
    """Of the counted kernel time."""
    ours: str
    truth: str
    certainty: float
    counted: Counted


@dataclass(frozen=True)
class Verdict:
    """One counted kernel."""

    time_ns: float
    certainty: float
    right: bool
    decided: bool


@dataclass(frozen=True)
class Score:
    """One run at one level of evidence."""

    run: Run
    judged: Judged
    matched: int
    split_error: float
    """Half the summed difference of the three shares of counted kernel time, in points."""
    agreement: float | None
    """Share of the time of decided kernels on the right side; None without any."""
    decided_share: float
    truth: dict[str, float]
    ours: dict[str, float]
    misses: tuple[Miss, ...]
    covered: bool
    """The true shares of the counted kernels lie within the bounds shown."""
    whole: bool
    """A step was counted from end to end."""
    counted_regime: str | None
    """By the counters and the idle time; None where that is not `whole`, or without the
    L2."""
    kernels: tuple[Verdict, ...] = field(repr=False, default=())

    @property
    def regime_right(self) -> bool:
        return bool(self.judged.estimate.regime.value == self.run.truth["regime"])


def score(run: Run, window: Window, balanced: bool = False) -> Score:
    """Scores the estimate of `window`, a view of the run's own with more or less evidence.

    Args:
        balanced: The time of kernels with equal throughputs is shared between the sides.
    """
    judged = estimate(window)
    rows = aligned(run, window)
    acts, labels = window.activities, judged.labels
    truth, ours = dict.fromkeys(SIDES, 0.0), dict.fromkeys((*SIDES, "unknown"), 0.0)
    wrong: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    counted_by: dict[tuple[int, str, str], Counted] = {}
    kernels = []
    for row, counted in rows:
        time = float(acts.ends_ns[row] - acts.starts_ns[row])
        index = int(labels.group_of[row])
        group = labels.groups[index]
        under = float(labels.underfilled[row])
        side = table.side_of(group, under).value
        for name, part in counted.shares(balanced).items():
            truth[name] += time * part
        for name, part in charged(judged, row).items():
            ours[name] += time * part
        right = side == counted.side
        kernels.append(Verdict(time, group.certainty, right, counted.decided))
        if not right:
            wrong[(index, side, counted.side)].append(time)
            counted_by[(index, side, counted.side)] = counted
    total = sum(truth.values()) or 1.0
    decided = sum(k.time_ns for k in kernels if k.decided)
    agreed = sum(k.time_ns for k in kernels if k.decided and k.right)
    misses = [
        Miss(
            labels.groups[key[0]].name, sum(times) / total, key[1], key[2],
            labels.groups[key[0]].certainty, counted_by[key],
        )
        for key, times in wrong.items()
    ]  # fmt: skip
    return Score(
        run=run,
        judged=judged,
        matched=len(rows),
        split_error=50 * (sum(abs(truth[s] - ours[s]) for s in SIDES) + ours["unknown"]) / total,
        agreement=agreed / decided if decided else None,
        decided_share=decided / total,
        truth={s: truth[s] / total for s in SIDES},
        ours={s: v / total for s, v in ours.items()},
        misses=tuple(sorted(misses, key=lambda m: -m.share)),
        covered=_covered(judged, [row for row, _ in rows], truth, ours),
        whole=_whole(judged, rows),
        counted_regime=_counted_regime(judged, rows),
        kernels=tuple(kernels),
    )


def _launched_ns(judged: Judged) -> float:
    """Kernel time of a step."""
    acts, found = judged.window.activities, judged.estimate
    kernels = acts.types == ActivityType.KERNEL
    steps = max(1.0, found.account.duration_ns / (found.steps.step_ns or found.account.duration_ns))
    return float((acts.ends_ns - acts.starts_ns)[kernels].sum()) / steps


def _whole(judged: Judged, rows: list[tuple[int, Counted]]) -> bool:
    acts, at = judged.window.activities, np.array([row for row, _ in rows], np.int64)
    return float((acts.ends_ns - acts.starts_ns)[at].sum()) >= WHOLE * _launched_ns(judged) > 0


def _counted_regime(judged: Judged, rows: list[tuple[int, Counted]]) -> str | None:
    """A verdict by the rules of `regimes`, what is no kernel as we have it; there as here what waits
    for memory of the SM's own counts as compute."""
    acts, found = judged.window.activities, judged.estimate
    if not _whole(judged, rows) or any(counted.l2 is None for _, counted in rows):
        return None
    times = (acts.ends_ns - acts.starts_ns).astype(np.float64)
    step_ns = found.steps.step_ns or found.account.duration_ns
    at = np.array([row for row, _ in rows], np.int64)
    part = min(_launched_ns(judged) / step_ns, 1.0) / times[at].sum()
    shares = {
        "compute": found.split.compute + found.on_chip,
        "memory": found.split.memory - found.on_chip,
        "overhead": found.split.overhead,
    }
    for row, counted in rows:
        assert counted.beyond_sm is not None
        side, ours = counted.beyond_sm.side, charged(judged, row)
        told = float(judged.labels.on_chip[row]) * (1 - ours["underfilled"] - ours["unknown"])
        shares["overhead" if side == "underfilled" else side] += part * times[row]
        shares["compute"] -= part * times[row] * (ours["compute"] + told)
        shares["memory"] -= part * times[row] * (ours["memory"] - told)
        shares["overhead"] -= part * times[row] * ours["underfilled"]
    first, second = sorted(shares, key=lambda side: -shares[side])[:2]
    return first if shares[first] - shares[second] >= MARGIN else "mixed"


def _covered(
    judged: Judged, rows: list[int], truth: dict[str, float], ours: dict[str, float]
) -> bool:
    """Whether each true share is as near to ours as the bounds of the split say."""
    labels, acts = judged.labels, judged.window.activities
    total = sum(truth.values())
    if not total:
        return True
    times = (acts.ends_ns - acts.starts_ns)[rows].astype(np.float64)
    totals = np.bincount(labels.group_of[rows], times, len(labels.groups)).astype(np.float64)
    view = views.view_of(labels.groups, totals, np.zeros(len(totals)))
    room = {
        "compute": views.side_error(view) + views.fill_error(view),
        "memory": views.side_error(view) + views.fill_error(view),
        "underfilled": views.fill_error(view),
    }
    return all(
        abs(truth[s] - ours[s]) / total <= views.WIDE * room[s] + ours["unknown"] / total + 1e-9
        for s in SIDES
    )


def charged(judged: Judged, row: int) -> dict[str, float]:
    """How the account charges one kernel's time."""
    labels = judged.labels
    under = float(labels.underfilled[row])
    unknown = (1 - under) * float(labels.unknown[row])
    rest = 1 - under - unknown
    compute = rest * float(labels.compute[row])
    return {"compute": compute, "memory": rest - compute, "underfilled": under, "unknown": unknown}


def aligned(run: Run, window: Window) -> list[tuple[int, Counted]]:
    """Rows of the window's activities beside the counted kernels, matched in launch order.

    The counted ones are the first of some step: the offset with the most equal names wins, and of
    those with as many the one with the most equal grids. Where names differ there, steps launch
    different kernels, and those with name and grid in common are matched in order.
    """
    acts = window.activities
    kernels = np.flatnonzero(acts.types == ActivityType.KERNEL)
    launched = _launch_times(window)[kernels]
    kernels = kernels[np.argsort(launched, kind="stable")]
    ours = np.array([_short(window.names[i]) for i in acts.name_ids[kernels]])
    theirs = np.array([_short(c.kernel) for c in run.counters])
    if not len(theirs) or not len(ours):
        return []
    blocks, threads = acts.blocks[kernels], acts.threads[kernels]
    grids = np.array([(c.blocks or 0, c.threads or 0) for c in run.counters])
    size, best = len(theirs), 0
    if size <= len(ours):
        offsets = range(len(ours) - size + 1)
        named = np.array([(ours[o : o + size] == theirs).sum() for o in offsets])
        likely = np.flatnonzero(named == named.max())
        placed = [
            ((blocks[o : o + size] == grids[:, 0]) & (threads[o : o + size] == grids[:, 1])).sum()
            for o in likely
        ]
        best = int(likely[int(np.argmax(placed))])
        if named[best] == size:
            return [(int(kernels[best + i]), counted) for i, counted in enumerate(run.counters)]
    room = size // 4
    low, high = max(0, best - room), best + size + room
    keys = list(zip(ours.tolist(), blocks.tolist(), threads.tolist(), strict=True))[low:high]
    wanted = [(name, *grid) for name, grid in zip(theirs.tolist(), grids.tolist(), strict=True)]
    pairs = SequenceMatcher(None, keys, wanted, autojunk=False).get_matching_blocks()
    return [
        (int(kernels[low + pair.a + i]), run.counters[pair.b + i])
        for pair in pairs
        for i in range(pair.size)
    ]


def _launch_times(window: Window) -> npt.NDArray[np.int64]:
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
    return (
        NAMELESS.sub("", name).split("<")[0].split("(")[0].replace("void ", "").split("::")[-1][:40]
    )
