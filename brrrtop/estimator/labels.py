"""Every activity's label: the judgement on its group, spread over the window's columns.

Kernels are judged in groups of one name, geometry and op; only what depends on a single
execution's duration is worked out per execution. The same kernels are also judged as if less were
known (`views`): what a weaker view is sure of, a stronger one is at least as sure of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from brrrtop.ceilings import Ceilings
from brrrtop.estimator import counters, families, intervals
from brrrtop.estimator.judging import Group, Judge, charge_compute
from brrrtop.estimator.scores import score_products
from brrrtop.estimator.sides import LAUNCH_FLOOR_NS
from brrrtop.estimator.views import View, view_of
from brrrtop.estimator.work_per_thread import torch_is_new
from brrrtop.model import CounterCheck
from brrrtop.tables import Activities, Bool, Device, Window

I8 = npt.NDArray[np.int64]
F8 = npt.NDArray[np.float64]

WORK, COMM, TRANSFER = 0, 1, 2
"""Classes of the sweep line: kernels and on-device copies, collectives, host or peer copies."""
NOTHING_KNOWN = View(unknown=1.0)
LEAST_RAMP = 0.05
"""A smaller share of launch floor in a kernel is not charged."""


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Per activity of a window, shape (n,) each, plus the groups they index."""

    group_of: I8
    groups: tuple[Group, ...]
    classes: npt.NDArray[np.int8]
    """`WORK`, `COMM` or `TRANSFER`."""
    compute: F8
    """Part of the filled time on the compute side."""
    unknown: F8
    """Part of the time nobody can class."""
    underfilled: F8
    """Part of the time in which the kernel does not fill the GPU."""
    weights: F8
    """For charging time that kernels share: share of the SMs."""
    on_chip: F8
    """Part of the filled time on the memory side that waits for the SM's own memory (`Group.aimed`)."""
    known: View = NOTHING_KNOWN
    """Shares of the kernel time as charged."""
    views: tuple[View, ...] = ()
    """The same for a verdict, on-chip memory with the arithmetic: as known, then as without ops, then as
    without the device."""
    counters: CounterCheck | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Grouping:
    """Equal kernels: shape (n,) and (g,)."""

    group_of: I8
    first: I8
    counts: I8
    totals_ns: I8
    """Time at work: what a kernel waited for its predecessor on the stream is left out."""
    op_ids: I8
    """Per activity; -1: no op known."""
    scores: Bool | None
    """Per activity: a product of attention written out; None where there is none."""

    def is_score(self, row: int) -> bool:
        return self.scores is not None and bool(self.scores[row])


def label(window: Window, ceilings: Ceilings | None) -> Labels:
    """Labels of all activities of the window."""
    grouping = _group(window)
    if not len(grouping.first):
        empty = np.empty(0)
        return Labels(
            grouping.group_of, (), np.empty(0, np.int8), empty, empty, empty, empty, empty
        )
    torch_new = torch_is_new(window)
    plain_of, plain, blind = _weaker(window, ceilings, grouping, torch_new)
    groups = _judged(window, ceilings, grouping, torch_new, plain_of, plain)
    seen = counters.refined(window, groups, grouping.group_of, ceilings)
    roofs = ceilings is not None
    if seen.check is None and not seen.sampled:
        return _spread(window, grouping, seen.groups, (plain_of, plain, blind), roofs)
    # The counters speak on every view: what they contradict is not surer for knowing less.
    without = counters.refined(window, plain, plain_of[grouping.group_of], ceilings)
    found, less = _trusted(seen), _trusted(without)
    weaker = plain_of, less, less
    return replace(_spread(window, grouping, found, weaker, roofs), counters=seen.check)


def _trusted(seen: counters.Refined) -> tuple[Group, ...]:
    """Groups with every certainty lowered where the counters contradict the labels."""
    if seen.trust == 1.0:
        return seen.groups
    return tuple(replace(g, certainty=g.certainty * seen.trust) for g in seen.groups)


def _judged(
    window: Window,
    ceilings: Ceilings | None,
    grouping: _Grouping,
    torch_new: bool,
    plain_of: I8,
    plain: Sequence[Group],
) -> tuple[Group, ...]:
    """The groups with all that is known, each at least as certain as without its op."""
    judge = Judge(window, ceilings, torch_new)
    found = []
    for index, row in enumerate(grouping.first.tolist()):
        weaker = plain[plain_of[index]]
        op_id = int(grouping.op_ids[row])
        if op_id < 0 and weaker.count == grouping.counts[index]:
            found.append(weaker)
            continue
        count, total = int(grouping.counts[index]), int(grouping.totals_ns[index])
        group = judge.group(row, count, total, op_id, grouping.is_score(row))
        found.append(_at_least(group, weaker.certainty))
    return tuple(found)


def _at_least(group: Group, certainty: float) -> Group:
    return replace(group, certainty=certainty) if certainty > group.certainty else group


def _weaker(
    window: Window, ceilings: Ceilings | None, grouping: _Grouping, torch_new: bool
) -> tuple[I8, list[Group], list[Group]]:
    """Groups without ops: index per group, judged with the device and without anything of it."""
    acts, first = window.activities, grouping.first
    key = _key(acts, grouping.scores, first)
    _, at, plain_of = np.unique(key, return_index=True, return_inverse=True)
    size = len(at)
    rows = np.full(size, len(acts), np.int64)
    np.minimum.at(rows, plain_of, first)
    counts = np.bincount(plain_of, grouping.counts, size).astype(np.int64)
    totals = np.bincount(plain_of, grouping.totals_ns, size).astype(np.int64)
    anyone = replace(window, device=Device(window.device.device_id))
    judges = Judge(window, ceilings, torch_new), Judge(anyone, None, torch_new)
    plain, blind = (
        [
            judge.group(row, count, total, -1, grouping.is_score(row))
            for row, count, total in zip(
                rows.tolist(), counts.tolist(), totals.tolist(), strict=True
            )
        ]
        for judge in judges
    )
    plain = [_at_least(p, b.certainty) for p, b in zip(plain, blind, strict=True)]
    return plain_of.astype(np.int64), plain, blind


def _spread(
    window: Window,
    grouping: _Grouping,
    groups: tuple[Group, ...],
    weaker: tuple[I8, Sequence[Group], Sequence[Group]],
    roofs: bool,
) -> Labels:
    """Verdicts on groups as columns over the activities, and the views."""
    acts, group_of = window.activities, grouping.group_of
    durations = np.maximum(acts.ends_ns - acts.starts_ns, 1)
    of_group = np.array([class_of(g) for g in groups], np.int8)
    classes = of_group[group_of]
    ramp = np.minimum(LAUNCH_FLOOR_NS / durations, 1.0)
    ramp = np.where(ramp > LEAST_RAMP, ramp, 0.0)
    short = np.array([short_of_work(g) for g in groups])[group_of]
    under = np.where(short < 0, ramp, short)
    low, high = intervals.clip(acts.starts_ns, acts.ends_ns, window.span.t0_ns, window.span.t1_ns)
    inside = (high - low).astype(np.float64)
    totals = _summed(group_of, inside, len(groups))
    ramps = _summed(group_of, inside * ramp, len(groups))
    plain_of, plain, blind = weaker
    size = len(plain)
    aimed = [g.aimed for g in groups]
    charged, as_aimed = (
        np.array([charge_compute(g.compute_probability) for g in some]) for some in (groups, aimed)
    )
    plain_totals = _summed(plain_of, totals, size), _summed(plain_of, ramps, size)
    views = (
        view_of(aimed, totals, ramps, roofs),
        view_of([g.aimed for g in plain], *plain_totals, roofs),
        view_of([g.aimed for g in blind], *plain_totals, roofs and blind is plain),
    )
    return Labels(
        group_of,
        groups,
        classes,
        charged[group_of],
        np.array([float(g.unknown) for g in groups])[group_of],
        under,
        np.maximum(np.array([g.fills for g in groups]), 1e-3)[group_of],
        (as_aimed - charged)[group_of],
        view_of(groups, totals, ramps, roofs),
        views,
    )


def _summed(groups: I8, values: F8, size: int) -> F8:
    return np.asarray(np.bincount(groups, values, size), np.float64)


def class_of(group: Group) -> int:
    """`WORK`, `COMM` or `TRANSFER`."""
    if group.family.kind == families.COMM:
        return COMM
    return TRANSFER if group.family.kind == families.COPY else WORK


def short_of_work(group: Group) -> float:
    """Part of a group's time that does not fill the GPU; -1: its launch floor only."""
    if class_of(group) != WORK or group.unknown or group.waves is None:
        return 0.0
    return -1.0 if group.filled else 1.0


def _group(window: Window) -> _Grouping:
    """Equal activities, and the op of each."""
    acts = window.activities
    op_ids = np.full(len(acts), -1, np.int64)
    if len(window.links):
        at = np.searchsorted(window.links.correlations, acts.correlations)
        at = np.minimum(at, len(window.links) - 1)
        hit = (window.links.correlations[at] == acts.correlations) & (acts.correlations != 0)
        op_ids[hit] = window.links.op_ids[at[hit]]
        # An op without shapes says nothing of its kernels, and would only part them.
        telling = [op_id for op_id, op in window.ops.items() if op.dims]
        op_ids[~np.isin(op_ids, np.array(telling, np.int64))] = -1
        # All nodes of a CUDA graph carry its launch's id: the op around that is not what a node does.
        op_ids[acts.graph_ids > 0] = -1
    scores = score_products(window)
    key = _key(acts, scores) * np.uint64(0x9E3779B97F4A7C15) + op_ids.view(np.uint64)
    _, first, inverse, counts = np.unique(
        key, return_index=True, return_inverse=True, return_counts=True
    )
    totals = np.bincount(inverse, _at_work(acts).astype(np.float64), len(first)).astype(np.int64)
    return _Grouping(inverse.astype(np.int64), first, counts, totals, op_ids, scores)


def _key(
    acts: Activities, scores: Bool | None, rows: I8 | slice = slice(None)
) -> npt.NDArray[np.uint64]:
    """One number for a name, its place and a geometry; shape (n,)."""
    key: npt.NDArray[np.uint64] = acts.name_ids[rows].astype(np.uint64)
    if scores is not None:
        key = key * np.uint64(2) + scores[rows]
    for column in (
        acts.blocks, acts.threads, acts.registers, acts.shared_bytes, acts.copy_kinds,
    ):  # fmt: skip
        key = key * np.uint64(0x9E3779B97F4A7C15) + column[rows].astype(np.int64).view(np.uint64)
    return key


def _at_work(acts: Activities) -> I8:
    """Durations less what a kernel was resident while its predecessor on the stream still ran.

    Programmatic dependent launch starts the next kernel of a stream early; it then waits inside
    (regime theory study, 1.2).
    """
    durations: I8 = np.maximum(acts.ends_ns - acts.starts_ns, 0)
    if len(acts) < 2:
        return durations
    reach = np.maximum.accumulate(acts.ends_ns)
    late = np.flatnonzero(acts.starts_ns[1:] < reach[:-1]) + 1
    if not len(late):
        return durations
    # Whatever overlaps is late, or the first of those that do.
    crowd = np.union1d(late, late - 1)
    order = crowd[np.lexsort((acts.starts_ns[crowd], acts.stream_ids[crowd]))]
    same = acts.stream_ids[order[1:]] == acts.stream_ids[order[:-1]]
    start = acts.starts_ns[order[1:]]
    start = np.where(same, np.maximum(start, acts.ends_ns[order[:-1]]), start)
    durations[order[1:]] = np.maximum(acts.ends_ns[order[1:]] - start, 1)
    return durations
